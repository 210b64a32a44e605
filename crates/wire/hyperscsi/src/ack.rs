//! Acknowledgements: which frames of a path arrived. The window that tells them apart is the replay window, too.

use std::time::{Duration, Instant};

/// Bytes of an acknowledgement on the wire.
pub(crate) const ACK_BYTES: usize = 48;
/// Numbers below the largest one that an acknowledgement tells of.
pub(crate) const ACK_SPAN: u64 = 256;
/// Numbers below the largest one that a receiver tells apart. Older frames are dropped: they may have been met.
const REPLAY_SPAN: u64 = 1024;
/// An acknowledgement waits so long for a frame that it can travel in, and for more to acknowledge.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(1);
/// It does not wait when it has so many frames to tell of.
const ACK_FRAMES: u32 = 32;

/// An acknowledgement.
///
/// ```text
///  0 largest number u48 │ 6 its delay in µs u32 │ 10 credit u48 │ 16 bitmap, 256 bits
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The largest number that arrived on this path.
    pub(crate) largest: u64,
    /// How long ago.
    pub(crate) delay: Duration,
    /// Bytes of messages that may be begun in this epoch, from its beginning on.
    pub(crate) granted: u64,
    /// Bit `i`, from the highest of the first byte: `largest - 1 - i` arrived.
    pub(crate) bitmap: [u8; 32],
}

impl Ack {
    pub(crate) fn parse(body: &[u8]) -> Option<Ack> {
        let bytes: &[u8; ACK_BYTES] = body.first_chunk()?;
        let u48 = |at: usize| bytes[at..at + 6].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let delay = bytes[6..10].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let mut bitmap = [0; 32];
        bitmap.copy_from_slice(&bytes[16..]);
        Some(Ack { largest: u48(0), delay: Duration::from_micros(delay), granted: u48(10), bitmap })
    }

    pub(crate) fn bytes(&self) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        let delay = u32::try_from(self.delay.as_micros()).unwrap_or(u32::MAX);
        bytes[..6].copy_from_slice(&self.largest.to_be_bytes()[2..]);
        bytes[6..10].copy_from_slice(&delay.to_be_bytes());
        bytes[10..16].copy_from_slice(&self.granted.to_be_bytes()[2..]);
        bytes[16..].copy_from_slice(&self.bitmap);
        bytes
    }

    /// Whether it says that this number arrived.
    pub(crate) fn covers(&self, number: u64) -> bool {
        match self.largest.checked_sub(number) {
            None => false,
            Some(0) => true,
            Some(below @ 1..=ACK_SPAN) => {
                let bit = (below - 1) as usize;
                self.bitmap[bit / 8] & 0x80 >> (bit % 8) != 0
            }
            Some(_) => false,
        }
    }
}

/// The frames that arrived on a path.
#[derive(Debug, Default)]
pub(crate) struct Received {
    largest: Option<u64>,
    largest_at: Option<Instant>,
    /// Whether a number within [`REPLAY_SPAN`] of the largest arrived: its bit is its remainder.
    bits: [u64; (REPLAY_SPAN / 64) as usize],
    /// Frames that want an acknowledgement and have none yet.
    pending: u32,
    due: Option<Instant>,
}

impl Received {
    fn bit(&self, number: u64) -> bool {
        let at = number % REPLAY_SPAN;
        self.bits[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, is_set: bool) {
        let at = number % REPLAY_SPAN;
        let (word, mask) = (&mut self.bits[(at / 64) as usize], 1 << (at % 64));
        *word = if is_set { *word | mask } else { *word & !mask };
    }

    /// Whether this number and the 63 below it arrived, the highest first. Those below 0 have not.
    fn down_from(&self, number: u64) -> u64 {
        let words = self.bits.len() as u64;
        let (word, shift) = (number / 64, number % 64);
        let below =
            if shift == 63 { 0 } else { self.bits[((word + words - 1) % words) as usize] >> (shift + 1) };
        self.bits[(word % words) as usize] << (63 - shift) | below
    }

    /// Whether a frame of this number may be taken: it was not met, and it is not too old to tell.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        match self.largest {
            Some(largest) if number <= largest => largest - number < REPLAY_SPAN && !self.bit(number),
            _ => true,
        }
    }

    /// Notes a frame; `wanting` an acknowledgement, `at_once` if its sender waits for it.
    pub(crate) fn record(&mut self, now: Instant, number: u64, wanting: bool, at_once: bool) {
        let expected = self.largest.map_or(0, |largest| largest + 1);
        if number >= expected {
            let from = expected.max(number.saturating_sub(REPLAY_SPAN - 1));
            (from..number).for_each(|between| self.set(between, false));
            (self.largest, self.largest_at) = (Some(number), Some(now));
        }
        self.set(number, true);
        if wanting {
            self.pending += 1;
            let at_once = at_once || number != expected || self.pending >= ACK_FRAMES;
            let due = if at_once { now } else { now + ACK_DELAY };
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
    }

    /// When the next acknowledgement is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a frame waits for its acknowledgement.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// The acknowledgement, which is sent now. `None` if nothing arrived yet.
    pub(crate) fn ack(&mut self, now: Instant, granted: u64) -> Option<Ack> {
        let (largest, at) = (self.largest?, self.largest_at?);
        (self.pending, self.due) = (0, None);
        let mut bitmap = [0; 32];
        for (eight, down) in bitmap.chunks_exact_mut(8).zip((1..).step_by(64)) {
            if let Some(number) = largest.checked_sub(down) {
                eight.copy_from_slice(&self.down_from(number).to_be_bytes());
            }
        }
        Some(Ack { largest, delay: now.saturating_duration_since(at), granted, bitmap })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_number_is_new_once_and_told_of(numbers in proptest::collection::vec(0u64..3000, 1..60)) {
            let now = Instant::now();
            let (mut received, mut model) = (Received::default(), BTreeSet::new());
            for number in numbers {
                let largest = model.last().copied().unwrap_or(0);
                let is_old = number + REPLAY_SPAN <= largest;
                prop_assert_eq!(received.is_new(number), !is_old && !model.contains(&number));
                if received.is_new(number) {
                    received.record(now, number, true, false);
                    model.insert(number);
                }
                let ack = received.ack(now, 77).unwrap();
                prop_assert_eq!(Ack::parse(&ack.bytes()), Some(ack));
                for number in 0..3010 {
                    let is_near = ack.largest.saturating_sub(number) <= ACK_SPAN;
                    prop_assert_eq!(ack.covers(number), is_near && model.contains(&number));
                }
            }
        }
    }
}
