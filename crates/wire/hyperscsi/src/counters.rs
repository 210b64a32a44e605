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

impl Counters {
    /// What was counted since these.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            frames_sent: self.frames_sent.saturating_sub(earlier.frames_sent),
            frames_received: self.frames_received.saturating_sub(earlier.frames_received),
            frames_repeated: self.frames_repeated.saturating_sub(earlier.frames_repeated),
            frames_damaged: self.frames_damaged.saturating_sub(earlier.frames_damaged),
            fragments_refused: self.fragments_refused.saturating_sub(earlier.fragments_refused),
            fragments_lost: self.fragments_lost.saturating_sub(earlier.fragments_lost),
            messages_sent: self.messages_sent.saturating_sub(earlier.messages_sent),
            messages_received: self.messages_received.saturating_sub(earlier.messages_received),
            messages_repeated: self.messages_repeated.saturating_sub(earlier.messages_repeated),
        }
    }
}
