//! A limit of a rate: so many at once, and so many a second after that.

use std::time::{Duration, Instant};

/// Tokens that are taken, and come back with time.
#[derive(Debug)]
pub(super) struct Bucket {
    most: f64,
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(now: Instant, most: u32, per_second: u32) -> Bucket {
        let most = f64::from(most);
        Bucket { most, per_second: f64::from(per_second), tokens: most, filled: now }
    }

    /// Takes a token; the error is the time until there is one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let time = now.saturating_duration_since(self.filled);
        self.tokens = (self.tokens + time.as_secs_f64() * self.per_second).min(self.most);
        self.filled = now;
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_many_a_second() {
        let mut now = Instant::now();
        let mut bucket = Bucket::new(now, 3, 10);
        assert_eq!((0..10).filter(|_| bucket.take(now).is_ok()).count(), 3);
        let mut taken = 0;
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            taken += u32::from(bucket.take(now).is_ok());
        }
        assert!((99..=100).contains(&taken), "{taken} in ten seconds");
        let wait = loop {
            if let Err(wait) = bucket.take(now) {
                break wait;
            }
        };
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        assert_eq!(bucket.take(now + wait + Duration::from_nanos(1)), Ok(()));
        now += Duration::from_secs(3600);
        assert_eq!((0..10).filter(|_| bucket.take(now).is_ok()).count(), 3, "an hour saves up no more");
    }
}
