//! Both sides of the handshake (section "Fixed newstyle negotiation").

mod client;
mod server;

pub use client::{ClientHandshake, ClientStep, Refused};
pub use server::{Handshake, Step, TlsMode, Violation};

use crate::option::STRING_BYTES_MAX;

/// Length of the greeting in bytes.
pub const GREETING_BYTES: usize = 18;

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const ALLOCATION: &str = "base:allocation";
/// The number that the server gives a connection's name. BLOCK_STATUS has nothing to say of it.
const CHANNEL_CONTEXT: u32 = 2;
const VOLUME_CONTEXT: u32 = 3;

/// Numbers and strings from the front of some bytes.
struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(super) fn two(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn four(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn eight(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// A string behind its length of 32 bits.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let length = self.four()? as usize;
        let (string, rest) = self.0.split_at_checked(length).filter(|_| length <= STRING_BYTES_MAX)?;
        self.0 = rest;
        std::str::from_utf8(string).ok()
    }
}
