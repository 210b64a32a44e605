//! What an initiator is told at its beginning.

use std::time::Duration;

use crate::frame::PATHS_MAX;
use crate::login::Psk;
use crate::pdu::MESSAGE_BYTES_MAX;
use crate::protection::Cipher;

/// Times of an initiator.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A login that is not answered is sent again after this, later after twice as long, to eight times.
    pub retry: Duration,
    /// Nothing is acknowledged for so long: another login is tried, while the session goes on.
    pub suspect: Duration,
    /// A session in which nothing is sent asks for an acknowledgement so often.
    pub keepalive: Duration,
    /// Nothing is answered for so long: the session has ended.
    pub give_up: Duration,
    /// After so many frames a login makes new keys. A message that is not acknowledged by then begins anew, so these must be many
    /// more than the frames of the longest message. The limit of AES-GCM is beyond 2^24.5 frames of 9 KiB (RFC 9001
    /// appendix B.1 has the arithmetic).
    pub rekey_frames: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            retry: Duration::from_millis(250),
            suspect: Duration::from_secs(1),
            keepalive: Duration::from_secs(5),
            give_up: Duration::from_secs(60),
            rekey_frames: 1 << 24,
        }
    }
}

/// How an initiator logs in.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name ([`is_name`](crate::is_name)).
    pub initiator: String,
    /// The target's name.
    pub target: String,
    /// A second session of the same name and port to the same target replaces the first.
    pub port: u32,
    /// The key, if the target knows the initiator by one, and the cipher.
    pub key: Option<(Psk, Cipher)>,
    /// Bytes of frames to try, the longest first: what the interface carries, and what every network does.
    pub frame_bytes: Vec<u16>,
    /// Number of paths, 1 to [`PATHS_MAX`].
    pub paths: u8,
    /// Bytes of partial messages that it keeps; 1 MiB and some at least.
    pub credit: u32,
    /// Whether a frame may carry several messages, if the target can do that, too.
    pub bundles: bool,
    /// Times.
    pub times: Times,
}

impl Config {
    /// With defaults for everything but the names.
    pub fn new(initiator: &str, target: &str) -> Config {
        Config {
            initiator: initiator.to_owned(),
            target: target.to_owned(),
            port: 0,
            key: None,
            frame_bytes: vec![crate::FRAME_BYTES_MIN as u16],
            paths: 1,
            credit: 4 << 20,
            bundles: true,
            times: Times::default(),
        }
    }

    /// With what is out of range brought into it.
    pub(super) fn checked(mut self) -> Config {
        let (shortest, longest) = (crate::FRAME_BYTES_MIN as u16, crate::FRAME_BYTES_MAX as u16);
        self.frame_bytes.iter_mut().for_each(|bytes| *bytes = (*bytes).clamp(shortest, longest));
        if self.frame_bytes.is_empty() {
            self.frame_bytes.push(shortest);
        }
        self.paths = self.paths.clamp(1, PATHS_MAX as u8);
        self.credit = self.credit.max(MESSAGE_BYTES_MAX as u32);
        self
    }
}
