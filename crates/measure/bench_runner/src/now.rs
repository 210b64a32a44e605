//! How it goes now: what all clients did in about the last second.

use std::collections::VecDeque;
use std::time::Duration;

use bench::record::Sample;

use super::silence::{is_silent, sentence};
use readable::figures::{grouped, significant};

/// The samples of the last second, of each client.
#[derive(Default)]
pub struct Now {
    clients: Vec<VecDeque<Sample>>,
    waited: Option<Duration>,
}

/// What they come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second, both ways.
    pub bytes_per_s: f64,
    /// Weighted by how many requests had it: near enough to watch, and nothing to publish.
    pub p50_us: f64,
    /// The worst of any client.
    pub p99_us: f64,
}

/// Shorter makes numbers that nobody can read, longer ones that are not of now.
const WINDOW_S: f64 = 1.0;

impl Now {
    /// Nothing yet, of so many clients.
    pub fn of(clients: usize) -> Now {
        Now { clients: vec![VecDeque::new(); clients], waited: None }
    }

    /// Adds a sample, and forgets those that are a second older.
    pub fn add(&mut self, role: usize, sample: &Sample) {
        if !is_silent(sample) {
            self.waited = None;
        }
        let Some(samples) = self.clients.get_mut(role) else { return };
        samples.push_back(*sample);
        while samples.front().is_some_and(|first| first.at_s < sample.at_s - WINDOW_S) {
            samples.pop_front();
        }
    }

    /// No request has completed for so long.
    pub fn wait(&mut self, waited: Duration) {
        self.waited = Some(waited);
    }

    /// For how long no request has completed, if that is worth telling.
    pub fn waited(&self) -> Option<Duration> {
        self.waited
    }

    /// "12,345 IOPS  50.6 MB/s  p99 120 µs", or for how long no request has completed.
    pub fn line(&self) -> String {
        let Rates { iops, bytes_per_s, p99_us, .. } = self.all();
        self.waited.map_or_else(
            || {
                let (iops, rate) = (grouped(iops.round() as u64), significant(bytes_per_s / 1e6));
                format!("{iops} IOPS  {rate} MB/s  p99 {} µs", significant(p99_us))
            },
            sentence,
        )
    }

    /// Of one client.
    pub fn client(&self, role: usize) -> Rates {
        self.clients.get(role).map_or_else(Rates::default, rates)
    }

    /// Of all together.
    pub fn all(&self) -> Rates {
        let each = self.clients.iter().map(rates);
        let all = each.fold(Rates::default(), |sum, one| Rates {
            iops: sum.iops + one.iops,
            bytes_per_s: sum.bytes_per_s + one.bytes_per_s,
            p50_us: sum.p50_us + one.p50_us * one.iops,
            p99_us: sum.p99_us.max(one.p99_us),
        });
        Rates { p50_us: if all.iops > 0.0 { all.p50_us / all.iops } else { 0.0 }, ..all }
    }
}

fn rates(samples: &VecDeque<Sample>) -> Rates {
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let ios = |sample: &Sample| (sample.reads + sample.writes) as f64;
    let requests: f64 = samples.iter().map(ios).sum();
    if seconds <= 0.0 || requests == 0.0 {
        return Rates::default();
    }
    let bytes: f64 = samples.iter().map(|sample| (sample.read_bytes + sample.written_bytes) as f64).sum();
    let p50: f64 = samples.iter().map(|sample| sample.p50_us * ios(sample)).sum();
    let p99_us = samples.iter().map(|sample| sample.p99_us).fold(0.0, f64::max);
    Rates { iops: requests / seconds, bytes_per_s: bytes / seconds, p50_us: p50 / requests, p99_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: f64, reads: u64, p99_us: f64) -> Sample {
        Sample {
            at_s,
            seconds: 0.5,
            reads,
            read_bytes: reads * 4096,
            p50_us: 100.0,
            p99_us,
            ..Sample::default()
        }
    }

    #[test]
    fn what_is_a_second_old_is_forgotten() {
        let mut now = Now::of(1);
        (1..=10)
            .for_each(|half| now.add(0, &sample(f64::from(half) / 2.0, if half < 8 { 0 } else { 50 }, 1.0)));
        assert_eq!(now.all().iops, 100.0);
        assert_eq!(now.all().bytes_per_s, 409_600.0);
    }

    #[test]
    fn clients_are_added_and_the_worst_is_shown() {
        let mut now = Now::of(2);
        now.add(0, &sample(0.5, 100, 300.0));
        now.add(1, &sample(0.5, 300, 900.0));
        let all = now.all();
        assert_eq!((all.iops, all.p50_us, all.p99_us), (800.0, 100.0, 900.0));
    }

    #[test]
    fn nothing_done_is_no_division_by_zero() {
        assert_eq!(Now::of(3).all(), Rates::default());
    }
}
