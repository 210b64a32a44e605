//! Whether to wait for more requests before the next read.
//!
//! A client that keeps many requests outstanding, and sends each as soon as it has an answer, is answered one request
//! at a time by a server that is faster: two system calls and a wake-up of the client for each. If the server
//! sleeps for a moment, several come together, and the client, which has other answers to go on with, loses nothing. One that
//! waits for its answers does. So it is tried: the time of some requests with and without waiting is compared, and what is
//! found holds for a while.

use std::time::{Duration, Instant};

/// How long to wait for more. (Virtual machines wake up 40 µs later.)
pub(crate) const SPAN: Duration = Duration::from_micros(20);
/// As many at once are enough.
const ENOUGH: u64 = 16;
/// The requests of a comparison.
const WINDOW: u64 = 128;
/// The requests that its outcome holds for.
const HOLD: u64 = 64 * WINDOW;
/// After so many waits in succession that brought no second request, waiting does not pay.
const VAIN: u32 = 4;
/// Longer than this between two rounds, there was nothing to do.
const PAUSE: Duration = Duration::from_millis(1);

/// What was learnt of a client.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    phase: Phase,
    /// The requests of this phase, and their time.
    requests: u64,
    spent: Duration,
    latest: Option<Instant>,
    /// More were waited for.
    waited: bool,
    /// So many times in succession, and in vain.
    in_vain: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Without waiting.
    #[default]
    Alone,
    /// With it; so long did `requests` take without.
    Together { alone: Duration, requests: u64 },
    /// The outcome: whether it pays.
    Known(bool),
}

impl Gather {
    /// So many requests came by one read, and have been answered. Returns whether to wait for more before the next one.
    pub(crate) fn after(&mut self, requests: u64, now: Instant) -> bool {
        let since = self.latest.replace(now).map_or(Duration::ZERO, |latest| now.duration_since(latest));
        self.spent += since.min(PAUSE);
        self.requests += requests;
        self.in_vain = if self.waited && requests <= 1 { self.in_vain + 1 } else { 0 };
        match self.phase {
            Phase::Alone if self.requests >= WINDOW => {
                self.enter(Phase::Together { alone: self.spent, requests: self.requests });
            }
            Phase::Together { .. } | Phase::Known(true) if self.in_vain >= VAIN => {
                self.enter(Phase::Known(false))
            }
            Phase::Together { alone, requests } if self.requests >= WINDOW => {
                let pays = self.spent.as_nanos() * u128::from(requests)
                    <= alone.as_nanos() * u128::from(self.requests) * 9 / 8;
                self.enter(Phase::Known(pays));
            }
            Phase::Known(_) if self.requests >= HOLD => self.enter(Phase::Alone),
            _ => {}
        }
        let waits = matches!(self.phase, Phase::Together { .. } | Phase::Known(true));
        self.waited = waits && requests < ENOUGH;
        self.waited
    }

    fn enter(&mut self, phase: Phase) {
        *self = Gather { phase, latest: self.latest, ..Gather::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves a client that keeps `depth` outstanding and takes so long for each answer; returns how many requests came
    /// by a read after waiting, per read, and the share of the reads that were waited for, in the second half.
    fn served(depth: u64, client: Duration, waiting: Duration, total: u64) -> (f64, f64) {
        let (mut gather, mut now) = (Gather::default(), Instant::now());
        let (mut done, mut rounds, mut waits, mut gathered) = (0, 0u32, 0u32, 0);
        let mut wait = false;
        while done < total {
            // What it can send meanwhile: as many as it has answers for.
            let span = if wait { waiting } else { client };
            now += span;
            let requests = ((span.as_nanos() / client.as_nanos()) as u64).clamp(1, depth);
            if done > total / 2 {
                rounds += 1;
                waits += u32::from(wait);
                gathered += if wait { requests } else { 0 };
            }
            done += requests;
            wait = gather.after(requests, now);
        }
        (gathered as f64 / f64::from(waits.max(1)), f64::from(waits) / f64::from(rounds))
    }

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn a_busy_client_is_waited_for() {
        let (requests, share) = served(32, 5 * US, 60 * US, 1 << 20);
        assert!(requests > 11.0 && share > 0.7, "{requests} by {share} of the reads");
    }

    #[test]
    fn a_client_that_waits_for_each_answer_is_not_made_to_wait() {
        let (_, share) = served(1, 20 * US, 60 * US, 1 << 20);
        assert!(share < 0.001, "{share}");
    }

    #[test]
    fn a_client_that_runs_out_of_answers_is_not_made_to_wait() {
        for depth in [2, 4, 8] {
            let (_, share) = served(depth, 5 * US, 60 * US, 1 << 20);
            assert!(share < 0.02, "depth {depth}: {share}");
        }
    }

    #[test]
    fn many_at_once_are_enough() {
        let (mut gather, mut now) = (Gather::default(), Instant::now());
        for _ in 0..10_000 {
            now += 100 * US;
            assert!(!gather.after(ENOUGH, now));
        }
    }

    #[test]
    fn what_was_learnt_is_forgotten_when_the_client_changes() {
        let (mut gather, mut now) = (Gather::default(), Instant::now());
        let mut waited = false;
        for _ in 0..1000 {
            let requests = if waited { 12 } else { 1 };
            now += if waited { 60 * US } else { 5 * US };
            waited = gather.after(requests, now);
        }
        assert!(waited);
        now += 60 * US;
        for alone in 1..=VAIN {
            assert_eq!(gather.after(1, now), alone < VAIN);
            now += 60 * US;
        }
        assert!(!gather.after(1, now));
    }
}
