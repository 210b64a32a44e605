//! Several machines that serve at one place, a core each, and which frames are for which of them.
//!
//! ```text
//!   frame of a session    session % count
//!   login request         (hash of initiator and target + port) % count: all of a nexus to one, consecutive ports to each in turn
//!   others                any machine
//! ```
//!
//! Sessions of one nexus replace each other, resume and wait for each other's end, all of which a machine does by itself. The number of
//! a session alone says whose it is, so that a filter of the network can tell its frames apart.

use crate::frame::{Header, Opcode};
use crate::login::{LoginRequest, body};

/// The part of a machine among several at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of this machine, below `count`.
    pub index: u32,
    /// Of so many, at least 1.
    pub count: u32,
}

impl Share {
    /// A machine that has all sessions.
    pub const ALL: Share = Share { index: 0, count: 1 };

    /// The machine that a frame is for; `None` if it is for none: a login request that no machine understands.
    pub fn owner(&self, header: &Header, frame: &mut [u8]) -> Option<u32> {
        match header.opcode {
            _ if self.count <= 1 => Some(self.index),
            Opcode::LoginRequest => {
                let (request, _) = LoginRequest::parse(body(header, frame)?)?;
                let hash = hash(&[request.initiator.as_bytes(), &[0], request.target.as_bytes()]);
                Some(hash.wrapping_add(request.port) % self.count)
            }
            Opcode::Discovery | Opcode::LoginReply => Some(self.index),
            Opcode::Request | Opcode::Reply | Opcode::Disconnect | Opcode::AckRequest | Opcode::Ack => {
                Some(header.session % self.count)
            }
        }
    }

    /// Whether a session of this number is one of this machine's.
    pub(super) fn has(&self, session: u32) -> bool {
        session % self.count == self.index
    }

    /// With what is out of range brought into it.
    pub(super) fn checked(self) -> Share {
        let count = self.count.max(1);
        Share { index: self.index.min(count - 1), count }
    }
}

/// FNV-1a: nothing depends on who can guess it, since a port can be chosen anyway.
fn hash(pieces: &[&[u8]]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    pieces.iter().copied().flatten().fold(0x811c_9dc5, step)
}
