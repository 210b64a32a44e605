//! The CPU time of data digests, from samples.

use std::time::Duration;

/// What data digests cost. One segment of 64 is timed: the clock would cost more than the digest of a short
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestTime {
    /// Data segments with a digest, both ways.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of those that were timed.
    pub sampled_bytes: u64,
    /// How long those took.
    pub sampled: Duration,
}

/// Timed are the first segment and every so manieth after it.
const EVERY: u64 = 64;

impl DigestTime {
    /// How long all digests took, if those that were not timed were as fast by the byte as those that were.
    pub fn estimate(&self) -> Duration {
        match self.sampled_bytes {
            0 => Duration::ZERO,
            sampled => self.sampled.mul_f64(self.bytes as f64 / sampled as f64),
        }
    }

    /// Does a segment's digest, if the connection has digests.
    #[inline]
    pub(crate) fn around<T>(&mut self, has_digest: bool, bytes: usize, work: impl FnOnce() -> T) -> T {
        if !has_digest {
            return work();
        }
        let is_sample = self.segments.is_multiple_of(EVERY);
        self.segments += 1;
        self.bytes += bytes as u64;
        if !is_sample {
            return work();
        }
        let begun = reactor::now();
        let done = work();
        self.sampled += reactor::now().saturating_duration_since(begun);
        self.sampled_bytes += bytes as u64;
        done
    }

    pub(super) fn since(&self, earlier: &DigestTime) -> DigestTime {
        DigestTime {
            segments: self.segments.saturating_sub(earlier.segments),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            sampled_bytes: self.sampled_bytes.saturating_sub(earlier.sampled_bytes),
            sampled: self.sampled.saturating_sub(earlier.sampled),
        }
    }
}
