//! What a server offers.

/// The longest payload of a read or a write, in bytes: every server must take so much (section "Block size
/// constraints"), and clients that have not asked for block sizes send no more.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// An export as clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name, at most [`STRING_BYTES_MAX`](crate::STRING_BYTES_MAX) bytes.
    pub name: String,
    /// A description for people; empty if there is none.
    pub description: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it can do ([`flags::transmission`](crate::flags::transmission)). The handshake adds HAS_FLAGS,
    /// and DF if the session has chunks.
    pub flags: u16,
    /// Its block sizes.
    pub block_sizes: BlockSizes,
}

/// Lengths that requests should have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of it: a power of two from 1 to 65,536.
    pub minimum: u32,
    /// Offsets and lengths should be multiples of it: a power of two from 512 on.
    pub preferred: u32,
    /// The longest payload.
    pub maximum: u32,
}

/// The exports that one client may see.
pub trait Exports {
    /// Names and descriptions of the exports from number `from` on. A long list is sent in parts, and each part asks again:
    /// a list during which exports come and go may name one twice, or miss one.
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a>;

    /// The export of this name. The empty name is the default export, if there is one.
    fn find(&self, name: &str) -> Option<Export>;

    /// The number of this export's cache, which named connections report to clients with several of them: another one after each
    /// event that may have lost acknowledged writes, and the same after a restart that has lost none. Clients write their journal again
    /// when it differs. A server that cannot tell whether its cache has outlived it gives another number after each of its starts and
    /// each time that the volume was opened.
    fn start(&self, _export: &str) -> u128 {
        0
    }

    /// The UUID of the volume of this export, for clients that ask for it.
    fn volume(&self, _export: &str) -> Option<u128> {
        None
    }

    /// Whether this client, whose connection is not encrypted, would find it over TLS.
    fn needs_tls(&self, _name: &str) -> bool {
        false
    }
}
