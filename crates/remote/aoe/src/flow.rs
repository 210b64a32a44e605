//! How many commands are outstanding, and when one is sent again: as the Linux driver does it.
//!
//! The round trip is estimated by its mean and mean deviation (Jacobson and Karels); a command is sent again after twice the mean and
//! eight times the deviation, and then after twice as long each time. The window grows by one with each answer up to a threshold, then
//! by one with each windowful; a loss halves the threshold, and the window begins at one.

use std::time::{Duration, Instant};

/// Before there is an estimate.
const INITIAL: Duration = Duration::from_millis(250);
/// The estimate of a path without deviation says nothing of a server that is busy for a moment.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// In seconds, once there is one.
    mean: Option<f64>,
    deviation: f64,
    window: f64,
    threshold: f64,
    most: f64,
    /// The last loss that was taken for a sign: those of one round trip are one.
    loss: Option<Instant>,
}

impl Flow {
    /// At most so many at once, as the server says.
    pub(crate) fn new(most: u16) -> Flow {
        let most = f64::from(most.max(1));
        Flow { mean: None, deviation: 0.0, window: most.min(4.0), threshold: most, most, loss: None }
    }

    /// How many may be outstanding.
    pub(crate) fn window(&self) -> usize {
        self.window as usize
    }

    /// How long an answer is waited for after this many times of sending.
    pub(crate) fn patience(&self, times: u32) -> Duration {
        let first = match self.mean {
            None => INITIAL,
            Some(mean) => Duration::from_secs_f64(2.0 * mean + 8.0 * self.deviation).clamp(LEAST, MOST),
        };
        first.saturating_mul(1 << times.saturating_sub(1).min(8)).min(MOST)
    }

    /// A command that was sent once was answered after this time.
    pub(crate) fn measure(&mut self, time: Duration) {
        let time = time.as_secs_f64();
        match &mut self.mean {
            None => (self.mean, self.deviation) = (Some(time), time / 2.0),
            Some(mean) => {
                let error = time - *mean;
                *mean += error / 8.0;
                self.deviation += (error.abs() - self.deviation) / 4.0;
            }
        }
    }

    /// A command was answered.
    pub(crate) fn answered(&mut self) {
        let step = if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
        self.window = (self.window + step).min(self.most);
    }

    /// A command was not answered in time.
    pub(crate) fn lost(&mut self, now: Instant) {
        let is_new = self.loss.is_none_or(|loss| now.saturating_duration_since(loss) > self.patience(1));
        if is_new {
            self.threshold = (self.window / 2.0).max(2.0).min(self.most);
            self.window = 1.0;
            self.loss = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_round_trip() {
        let mut flow = Flow::new(16);
        assert_eq!(flow.patience(1), INITIAL);
        for _ in 0..100 {
            flow.measure(Duration::from_millis(20));
        }
        let steady = flow.patience(1);
        assert!((40..42).contains(&steady.as_millis()), "{steady:?}");
        assert_eq!((flow.patience(2), flow.patience(30)), (steady * 2, MOST));
        flow.measure(Duration::from_millis(100));
        assert!(flow.patience(1) > Duration::from_millis(200), "one that was late is a deviation");
        for _ in 0..100 {
            flow.measure(Duration::from_micros(50));
        }
        assert_eq!(flow.patience(1), LEAST);
    }

    #[test]
    fn a_loss_begins_anew_and_its_companions_do_not() {
        let (mut flow, now) = (Flow::new(16), Instant::now());
        (0..100).for_each(|_| flow.answered());
        assert_eq!(flow.window(), 16);
        flow.lost(now);
        flow.answered();
        flow.lost(now + Duration::from_millis(1));
        assert_eq!(flow.window(), 2);
        (0..6).for_each(|_| flow.answered());
        assert_eq!(flow.window(), 8, "doubled up to half of before");
        (0..8).for_each(|_| flow.answered());
        assert_eq!(flow.window(), 8, "then by one for each windowful");
        flow.lost(now + Duration::from_secs(9));
        assert_eq!(flow.window(), 1);
        assert_eq!(Flow::new(0).window(), 1, "a server that says none has one");
    }
}
