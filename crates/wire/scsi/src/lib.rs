//! What SCSI looks like on any wire: commands, status, sense data, parameter data and lists, pages; both halves.
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

mod blocks;
pub mod cdb;
pub mod commands;
mod copy;
mod designator;
pub mod fields;
mod inquiry;
mod luns;
mod mode;
mod mode_pages;
mod opcodes;
mod port_groups;
mod reservation_type;
mod reservations;
mod sense;
pub mod status;
mod transport_id;
mod vpd;
mod vpd_pages;

pub use blocks::{Capacity, LbaStatus, LbaStatusDescriptor, UnmapDescriptor};
pub use cdb::{Cdb, StartStop};
pub use commands::{CommandCode, command_name};
pub use copy::{CopyList, CopySegment, CopyTarget, ListIdUsage, OperatingParameters};
pub use designator::{Association, Designator, Name};
pub use fields::Field;
pub use inquiry::{Inquiry, device_type, standard_name};
pub use luns::{LunAddress, LunList, LunSelection, REPORT_LUNS_WELL_KNOWN, flat_number};
pub use mode::{BlockDescriptor, ModeForm, ModeHeader, ModePage, ModePageHeader, ModeValues, Modes, PS};
pub use mode_pages::{
    Caching, Control, ControlExtension, DisconnectReconnect, ErrorRecovery, InformationalExceptions,
    PowerCondition, ProvisioningThresholds, VerifyErrorRecovery, mode_field,
};
pub use opcodes::{CommandSupport, CommandTimeouts, SupportedCommand};
pub use port_groups::{AccessState, PortGroup};
pub use reservation_type::{ReservationType, UnknownReservationType};
pub use reservations::{
    RegisteredKeys, Registration, Reservation, ReservationCapabilities, ReserveIn, ReserveMoveList,
    ReserveOut, ReserveOutList,
};
pub use sense::{Condition, Sense, SenseData, SenseFormat, SenseKey, Specific, asc};
pub use status::{Status, status_words};
pub use transport_id::TransportId;
pub use vpd::{CacheGeneration, Policy, Port, Vpd, VpdContent, page_name};
pub use vpd_pages::{
    BlockDeviceCharacteristics, BlockLimits, ExtendedInquiry, Provisioning, ZonedBlockDevice,
};
