//! What a machine has counted.

use derive_more::AddAssign;

/// Counters of an end of a session, over all its epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign)]
pub struct Counters {
    /// Frames sent.
    pub frames_sent: u64,
    /// Genuine frames received.
    pub frames_received: u64,
    /// Frames that had been received before.
    pub frames_repeated: u64,
    /// Frames with a wrong checksum or seal.
    pub frames_damaged: u64,
    /// Fragments that broke a rule.
    pub fragments_refused: u64,
    /// Fragments that were sent again.
    pub fragments_lost: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Messages that had been received in an earlier epoch, and were not executed again.
    pub messages_repeated: u64,
}
