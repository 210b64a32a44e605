//! ATA over Ethernet: both halves of its frames, and of the ATA commands that they carry. Without I/O.
//!
//! The standard is "AoE (ATA over Ethernet)", S. Hopkins and B. Coile, revision 11 (AoEr11); comments name its sections. What servers
//! and clients do beyond it was read from the `vblade` server and the Linux driver. Numbers of AoE are big-endian; those of ATA
//! (LBAs, IDENTIFY data) little-endian.
//!
//! ```text
//!   offset behind the EtherType 0x88A2
//!   0  version (4 bits, 1), R response 8, E error 4     4  minor: slot
//!   1  error code                                       5  command
//!   2  major: shelf (16 bits)                           6  tag (32 bits), returned as it came
//!   10 the command's own
//! ```
//!
//! - [`Frame::parse`] reads a frame, [`Frame::write`] writes one. A frame states the lengths of what it carries, or its ATA command
//!   does: what is behind them is padding of the Ethernet.
//! - [`Ata`] is a command or its answer; [`Ata::operation`] says what it asks for.
//! - [`Identity`] is what IDENTIFY DEVICE returns.

mod ata;
mod config;
mod frame;
mod identity;

pub use ata::{Ata, AtaError, AtaOperation, Status, TRIM_RANGE_SECTORS_MAX, TrimRanges, write_trim_ranges};
pub use config::{
    CONFIG_BYTES_MAX, Config, ConfigCommand, MacList, Mask, MaskDirective, MaskError, Reserve, ReserveCommand,
};
pub use frame::{Address, Body, ErrorCode, Frame, Header, Malformed, NotAnAddress};
pub use identity::{IDENTITY_BYTES, Identity, WriteCache};

/// The EtherType (AoEr11 section 2).
pub const ETHER_TYPE: u16 = 0x88a2;

/// A sector of ATA, in bytes.
pub const SECTOR_BYTES: usize = 512;

/// The bytes in front of the data of an ATA command.
pub const ATA_BYTES: usize = frame::HEADER_BYTES + ata::BODY_BYTES;

/// The shortest payload of an Ethernet frame (IEEE 802.3). Network cards pad what is shorter; a veth does not, and aoetools ignore
/// such frames.
pub const PAYLOAD_BYTES_MIN: usize = 46;

/// The sectors that a frame on a path with this MTU carries.
pub const fn sectors_of(mtu: usize) -> usize {
    let sectors = mtu.saturating_sub(ATA_BYTES) / SECTOR_BYTES;
    if sectors > u8::MAX as usize { u8::MAX as usize } else { sectors }
}
