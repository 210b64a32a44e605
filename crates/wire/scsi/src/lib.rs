//! What SCSI looks like on any wire: commands, status, sense data, types of reservations; both halves.
//!
//! The logical unit writes what the initiator reads, so each format stands here once, with both directions. Nothing here
//! knows a device or a transport.
//!
//! ```
//! use scsi::{Condition, Sense, SenseFormat, SenseKey, asc};
//!
//! let condition = Condition::new(SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR).with_information(103);
//! let data = condition.encode(SenseFormat::Fixed);
//! let sense = Sense::parse(data.bytes()).expect("sense data");
//! assert_eq!(sense.information, Some(103));
//! assert_eq!(sense.to_string(), "MEDIUM ERROR, the data cannot be read back (03/11/00), information 103");
//! ```

pub mod cdb;
mod command_names;
mod reservation_type;
mod sense;
pub mod status;

pub use cdb::{Cdb, StartStop};
pub use command_names::command_name;
pub use reservation_type::{ReservationType, UnknownReservationType};
pub use sense::{Condition, Sense, SenseData, SenseFormat, SenseKey, Specific, asc};
pub use status::{Status, status_words};
