//! How much a journal may hold before it is flushed. What it holds is memory that the processor's caches have to do
//! without, and a flush takes the server's time: as little is kept as lets flushes take a small part of the time.

use std::time::Instant;

/// Less is not worth a request.
const BYTES_MIN: usize = 1 << 20;
/// Flushes may take one part in so many of the time.
const SHARE: u32 = 16;

/// When the next flush is due. It begins with the most, since nothing is known of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    bytes: usize,
    most: usize,
    begun: Option<Instant>,
}

impl Pace {
    /// One that lets up to `most` bytes wait.
    pub(crate) fn up_to(most: usize) -> Pace {
        Pace { bytes: most, most, begun: None }
    }

    /// The bytes above which a flush is due.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// A flush that began and ended then has emptied the journal.
    pub(crate) fn flushed(&mut self, begun: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(begun);
        let before = self.begun.replace(begun).map(|before| begun.saturating_duration_since(before));
        // Between half of the share and the share it stays as it is.
        match before {
            Some(interval) if took.saturating_mul(SHARE) > interval => {
                self.bytes = (self.bytes * 2).min(self.most)
            }
            Some(interval) if took.saturating_mul(2 * SHARE) < interval => {
                self.bytes = (self.bytes / 2).max(BYTES_MIN.min(self.most));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The bytes above which a flush is due in the end, and the part of the time that flushes took, for a client that writes
    /// at `bytes_per_s` to a server whose flush takes `flush`, and as much again for each MiB as it takes to write one there.
    fn settled(bytes_per_s: f64, flush: Duration, medium_bytes_per_s: f64) -> (usize, f64) {
        let (mut pace, mut now) = (Pace::up_to(32 << 20), Instant::now());
        let mut share = 0.0;
        for _ in 0..50 {
            let bytes = pace.bytes() as f64;
            let filled = Duration::from_secs_f64(bytes / bytes_per_s);
            let took = flush + Duration::from_secs_f64(bytes / medium_bytes_per_s);
            now += filled;
            pace.flushed(now, now + took);
            share = took.as_secs_f64() / filled.as_secs_f64();
        }
        (pace.bytes(), share)
    }

    #[test]
    fn a_server_that_flushes_at_once_is_asked_often() {
        assert_eq!(settled(1e9, Duration::from_micros(20), f64::INFINITY).0, 1 << 20);
    }

    #[test]
    fn a_server_that_needs_long_is_asked_as_seldom_as_there_is_memory() {
        assert_eq!(settled(1e9, Duration::from_millis(10), f64::INFINITY).0, 32 << 20);
        assert_eq!(settled(1e9, Duration::ZERO, 2e9).0, 32 << 20);
    }

    #[test]
    fn in_between_flushes_take_a_small_part_of_the_time() {
        for micros in [100, 200, 500, 900] {
            let (bytes, share) = settled(1e9, Duration::from_micros(micros), f64::INFINITY);
            assert!((2 << 20..32 << 20).contains(&bytes), "{micros} µs: {bytes}");
            assert!(share < 1.0 / f64::from(SHARE), "{micros} µs: {share}");
        }
    }
}
