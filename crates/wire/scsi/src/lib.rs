//! SCSI formats that do not depend on the transport: commands, status, sense data, parameter data and lists,
//! pages; for initiators and targets.
//!
//! A logical unit encodes the data that an initiator parses, so each format is defined once, for both
//! directions. This crate does not depend on any device or transport.
//!
//! ```
//! use scsi::{Condition, Sense, SenseFormat, SenseKey, asc};
//!
//! let condition = Condition::new(SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR).with_information(103);
//! let data = condition.encode(SenseFormat::Fixed);
//! let sense = Sense::parse(data.bytes()).expect("sense data");
//! assert_eq!(sense.information, Some(103));
//! assert_eq!(sense.to_string(), "MEDIUM ERROR, an unrecovered read error (03/11/00), information 103");
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
mod port_groups;
mod reservations;
mod sense;
pub mod status;
mod transport_id;
mod vpd;

pub use blocks::{Capacity, LbaStatus, LbaStatusDescriptor, UnmapDescriptor};
pub use cdb::StartStop;
pub use commands::{
    Cdb, CommandCode, CommandSupport, CommandTimeouts, SupportedCommand, command_name,
};
pub use copy::{CopyList, CopySegment, CopyTarget, ListIdUsage, OperatingParameters};
pub use designator::{Association, Designator, Name};
pub use fields::Field;
pub use inquiry::{Inquiry, device_type, standard_name};
pub use luns::{LunAddress, LunList, LunSelection, REPORT_LUNS_WELL_KNOWN, flat_number};
pub use mode::{
    BlockDescriptor, Caching, Control, ControlExtension, DisconnectReconnect, ErrorRecovery,
    InformationalExceptions, ModeForm, ModeHeader, ModePage, ModePageHeader, ModeValues, Modes, PS,
    PowerCondition, ProvisioningThresholds, VerifyErrorRecovery, mode_field,
};
pub use port_groups::{AccessState, PortGroup};
pub use reservations::{
    RegisteredKeys, Registration, Reservation, ReservationCapabilities, ReservationType, ReserveIn,
    ReserveMoveList, ReserveOut, ReserveOutList, UnknownReservationType,
};
pub use sense::{Condition, Sense, SenseData, SenseFormat, SenseKey, Specific, asc};
pub use status::{Status, status_words};
pub use transport_id::TransportId;
pub use vpd::{
    BlockDeviceCharacteristics, BlockLimits, CacheGeneration, ExtendedInquiry, Policy, Port,
    Provisioning, Vpd, VpdContent, ZonedBlockDevice, page_name,
};
