//! What a target is told at its beginning, and whom it asks about initiators.

use std::time::Duration;

use super::share::Share;
use crate::frame::PATHS_MAX;
use crate::login::{Psk, Refusal};
use crate::pdu::MESSAGE_BYTES_MAX;

/// Limits of a target.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the longest frame that its interfaces carry.
    pub frame_bytes: u16,
    /// Bytes of commands that a session may have here, partial, waiting or at work; 1 MiB and some at least.
    pub credit: u32,
    /// Bytes of data that a session's running commands may return and that its initiator has not acknowledged.
    pub send_bytes_max: usize,
    /// Requests that a session may have without an answer.
    pub queue_depth: u16,
    /// Paths of a session.
    pub paths: u8,
    /// Sessions at once. An eighth of them is for initiators with keys alone.
    pub sessions_max: usize,
    /// A session from which nothing comes for so long, or no acknowledgement of what was sent, has ended.
    pub session_timeout: Duration,
    /// Which of several machines at its place this is: its sessions have their numbers by that.
    pub share: Share,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            frame_bytes: crate::FRAME_BYTES_MAX as u16,
            credit: 8 << 20,
            send_bytes_max: 8 << 20,
            queue_depth: 128,
            paths: PATHS_MAX as u8,
            sessions_max: 256,
            session_timeout: Duration::from_secs(60),
            share: Share::ALL,
        }
    }
}

impl Config {
    /// With what is out of range brought into it.
    pub(super) fn checked(mut self) -> Config {
        let (shortest, longest) = (crate::FRAME_BYTES_MIN as u16, crate::FRAME_BYTES_MAX as u16);
        self.frame_bytes = self.frame_bytes.clamp(shortest, longest);
        self.credit = self.credit.max(MESSAGE_BYTES_MAX as u32);
        self.queue_depth = self.queue_depth.max(2);
        self.paths = self.paths.clamp(1, PATHS_MAX as u8);
        self.share = self.share.checked();
        self
    }
}

/// How an initiator is let in.
#[derive(Clone, Debug)]
pub enum Admission {
    /// By its name alone, which anybody can give. Frames are not sealed.
    Open,
    /// If it knows this key. Frames are sealed.
    Key(Psk),
}

/// Who may log in to what. `A` is an address of the network: a MAC address and an interface, or a socket address.
pub trait Directory<A> {
    /// Whether this initiator may log in to this target from there. LUNs are the driver's matter.
    ///
    /// # Errors
    /// Why not.
    fn admit(&self, initiator: &str, target: &str, from: &A) -> Result<Admission, Refusal>;

    /// What counts as one origin of requests to log in: an address, or all those that one host can take. By default all are one.
    fn origin(&self, from: &A) -> u64 {
        let _ = from;
        0
    }

    /// The targets that somebody there is told of.
    fn targets(&self, from: &A) -> Vec<String>;
}
