//! Flags, grouped by field.

/// The server's flags in its greeting (section "Handshake flags"), 16 bits.
pub mod handshake {
    /// Fixed newstyle: every option has a reply.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The 124 zero bytes of EXPORT_NAME can be omitted.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// The client's answer to the greeting (section "Client flags"), 32 bits.
pub mod client {
    /// As [`super::handshake::FIXED_NEWSTYLE`].
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    /// As [`super::handshake::NO_ZEROES`].
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// Capabilities of an export (section "Transmission flags"), 16 bits.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// The export is read-only.
    pub const READ_ONLY: u16 = 1 << 1;
    /// The command FLUSH is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The command flag FUA is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium is rotational.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// The command TRIM is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// The command WRITE_ZEROES and its flag NO_HOLE are supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The command flag DF is supported; only with structured replies.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers requests answered on all connections of the export.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// The command CACHE is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The command flag FAST_ZERO is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request (section "Command flags"), 16 bits.
pub mod command {
    /// Reply when the data is on stable storage.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES: blocks stay allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ: one chunk of data, even with holes.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS: one extent, no longer than the request.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES: fail if it is not faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// Extended headers: a payload of the length of the request follows.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Flags of a structured or extended reply (section "Structured reply flags"), 16 bits.
pub mod reply {
    /// The last chunk of its request.
    pub const DONE: u16 = 1 << 0;
}

/// States of `base:allocation` (section "base:allocation metadata context").
pub mod allocation {
    /// Not allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}
