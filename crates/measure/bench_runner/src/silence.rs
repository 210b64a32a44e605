//! Storage that does not answer: told while requests wait for it, since a device that hangs is silent for as long as its
//! timeouts are.

use std::pin::pin;
use std::time::{Duration, Instant};

use bench::record::Sample;

/// Waits shorter than this are ordinary: a disk that spins up, a path that fails over.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(3);
/// How often a longer one is told.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Awaits what needs the storage. From three seconds on, `tell` hears about every second for how long.
pub async fn awaited<T>(work: impl Future<Output = T>, mut tell: impl FnMut(Duration)) -> T {
    let mut work = pin!(work);
    let mut silence = Silence::from(reactor::now());
    loop {
        match reactor::timeout(TOLD_EVERY, work.as_mut()).await {
            Ok(output) => return output,
            Err(_) => silence.due(reactor::now()).into_iter().for_each(&mut tell),
        }
    }
}

/// For how long no request of a run has completed, by its samples.
pub(crate) struct Silence {
    since: Instant,
    next: Instant,
}

impl Silence {
    /// Nothing has completed yet.
    pub(crate) fn from(now: Instant) -> Silence {
        Silence { since: now, next: now + TOLD_AFTER }
    }

    /// A sample of any client.
    pub(crate) fn heard(&mut self, now: Instant, sample: &Sample) {
        if !is_silent(sample) {
            *self = Silence::from(now);
        }
    }

    /// How long it has lasted, if that is to be told now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Duration> {
        (now >= self.next).then(|| {
            self.next = now + TOLD_EVERY;
            now - self.since
        })
    }
}

/// Whether requests were outstanding and none completed.
pub(crate) fn is_silent(sample: &Sample) -> bool {
    sample.reads + sample.writes == 0 && sample.under_way > 0.0
}

/// The sentence for people.
pub fn sentence(waited: Duration) -> String {
    format!("requests have been waiting for {} s", waited.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::Alone;

    #[test]
    fn a_wait_is_told_after_three_seconds_and_then_every_second() {
        let mut told = Vec::new();
        reactor::block_on(Alone::virtual_time(), async {
            awaited(reactor::sleep(Duration::from_millis(5500)), |waited| told.push(waited.as_secs())).await;
            awaited(reactor::sleep(Duration::from_millis(2500)), |waited| told.push(waited.as_secs())).await;
        });
        assert_eq!(told, [3, 4, 5]);
    }

    #[test]
    fn a_completed_request_or_a_pause_ends_the_silence() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let sample = |reads, under_way| Sample { reads, under_way, ..Sample::default() };
        let mut silence = Silence::from(begun);
        silence.heard(at(2), &sample(0, 1.0));
        assert_eq!([2, 3].map(|seconds| silence.due(at(seconds)).is_some()), [false, true]);
        silence.heard(at(4), &sample(1, 1.0));
        assert_eq!([6, 7].map(|seconds| silence.due(at(seconds)).is_some()), [false, true]);
        silence.heard(at(8), &sample(0, 0.0));
        assert_eq!([10, 11].map(|seconds| silence.due(at(seconds)).is_some()), [false, true]);
    }
}
