//! ATA over Ethernet: frames, and the ATA commands that they carry, for clients and servers. Without I/O.
//!
//! The standard is "AoE (ATA over Ethernet)", S. Hopkins and B. Coile, revision 11 (AoEr11); comments name
//! its sections. Behaviour beyond the standard follows the `vblade` server and the Linux driver. Numbers of
//! AoE are big-endian; those of ATA (LBAs, IDENTIFY data) little-endian.
//!
//! ```text
//!   offset after the EtherType 0x88A2
//!   0  version (4 bits, 1), R response 8, E error 4     4  minor: slot
//!   1  error code                                       5  command
//!   2  major: shelf (16 bits)                           6  tag (32 bits), returned unchanged
//!   10 body of the command
//! ```
//!
//! - [`Frame::parse`] reads a frame, and [`Frame::write`] writes one. A frame, or its ATA command, contains
//!   the length of the content; the bytes after the content are Ethernet padding.
//! - [`Ata`] is a command or its response; [`Ata::operation`] is the requested operation.
//! - [`Identity`] is the data of IDENTIFY DEVICE.

mod ata;
mod config;
mod frame;
mod identity;

pub use ata::{
    Ata, AtaError, AtaOperation, Status, TRIM_RANGE_SECTORS_MAX, TrimRanges, write_trim_ranges,
};
pub use config::{
    CONFIG_BYTES_MAX, Config, ConfigCommand, MacList, Mask, MaskDirective, MaskError, Reserve,
    ReserveCommand,
};
pub use frame::{Address, Body, ErrorCode, Frame, Header, Malformed, NotAnAddress};
pub use identity::{IDENTITY_BYTES, Identity, WriteCache};

/// The EtherType (AoEr11 section 2).
pub const ETHER_TYPE: u16 = 0x88a2;

/// The size of an ATA sector.
pub const SECTOR_BYTES: usize = 512;

/// Number of bytes before the data of an ATA command.
pub const ATA_BYTES: usize = frame::HEADER_BYTES + ata::BODY_BYTES;

/// The shortest payload of an Ethernet frame (IEEE 802.3). Network cards pad shorter payloads. A veth device
/// does not pad them, and aoetools ignore such short frames.
pub const PAYLOAD_BYTES_MIN: usize = 46;

/// The number of sectors in a frame on a path with this MTU.
pub const fn sectors_of(mtu: usize) -> usize {
    let sectors = mtu.saturating_sub(ATA_BYTES) / SECTOR_BYTES;
    if sectors > u8::MAX as usize {
        u8::MAX as usize
    } else {
        sectors
    }
}
