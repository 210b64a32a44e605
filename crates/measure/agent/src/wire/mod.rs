//! The protocol of a coordinator (`linerate bench --agents`) and its agents, as values and machines without
//! I/O.
//!
//! ```text
//!   coordinator                                    agent
//!   Hello  protocol, program, Noise   ──────────▶            at most 1 KiB each way, and a few seconds,
//!                                     ◀──────────  Hello     before the secret has been proved
//!   a sealed message, empty           ──────────▶            both sides are authenticated
//!   ═══════ from here on each frame: a message, encrypted and numbered by Noise ═══════
//!   Order                             ──────────▶
//!                                     ◀──────────  Notification
//! ```
//!
//! Every message is JSON in a [`frame`]: a length and that many bytes. [`handshake`] authenticates both sides
//! by the secret and makes keys for this connection; [`seal`] encrypts every later message; [`message`]
//! defines the messages.
//!
//! Security: without the secret it is impossible to give orders, to impersonate an agent, to read messages,
//! or to modify, replay, drop or reflect them undetected; recorded traffic stays confidential if the secret
//! leaks later (forward secrecy). A short secret is not protected against offline guessing by an
//! eavesdropper, since the first message proves knowledge of it; therefore short secrets are refused.

pub mod frame;
pub mod handshake;
pub mod message;
pub mod seal;

use zeroize::Zeroizing;

/// The version of all of this. Coordinator and agents must have the same; they must be the same program too,
/// since a workload that one side understands otherwise would be measured wrongly.
pub const PROTOCOL: u32 = 3;

/// Frames before the secret is proved are no longer than this.
pub const STRANGER_BYTES_MAX: usize = 1024;

/// Frames after that are no longer than this: a result with a day's samples and all of its latencies takes 20
/// MB.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// The shared secret of coordinator and agents.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// A shorter one could be guessed offline by an eavesdropper.
    pub const BYTES_MIN: usize = 16;

    /// `None` if it is too short.
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        (bytes.len() >= Secret::BYTES_MIN).then(|| Secret(Zeroizing::new(bytes.to_vec())))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}
