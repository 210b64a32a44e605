//! Selects the channel for a request (the one with the shortest expected reply time), and determines when a
//! lost channel is retried.
//!
//! A channel is characterised by two figures: its latency, which is the shortest recent reply time, and the
//! additional time per byte queued before the reply, which is the inverse of its rate. The replies of a slow
//! channel take longer as its queue grows, so it gets fewer requests. The expected times of all channels in
//! use therefore converge, and each channel gets a share in proportion to its rate.
//!
//! A channel that has stopped replying may also have a short queue. Its overdue time is therefore added: the
//! time without a reply while requests are outstanding, beyond the time in which all replies were expected.
//!
//! Short requests are sent together: a channel with short requests outstanding also gets the next one, as
//! long as the data of all of them fits into a few TCP segments. One system call sends them, and one wake-up
//! processes the replies. Alternating between channels would need a system call and a wake-up for each
//! request. On no link is the delay by these few bytes significant.

use std::time::{Duration, Instant};

use block::Random;

/// Cost of the headers and the processing of a request, expressed in bytes.
pub const REQUEST_BYTES: u64 = 4096;
/// Maximum data of requests that are kept together on one channel: six segments of 1,500 bytes, which take 65
/// us at 1 Gbit/s.
const TOGETHER_BYTES: u64 = 8 << 10;
/// Maximum additional delay, compared with the best channel, that is accepted to keep requests together:
/// about the cost of another wake-up.
const TOGETHER_SECONDS: f64 = 100e-6;
/// The shortest reply time expires after this time to twice this time, because routes change.
const WINDOW: Duration = Duration::from_secs(10);
/// An idle channel may have recovered, so its expected delay is halved once in each such period.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// The measured speed of a channel.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// Bytes of outstanding requests, including [`REQUEST_BYTES`] for each.
    outstanding: u64,
    /// Bytes of data of outstanding requests, without [`REQUEST_BYTES`].
    data: u64,
    /// The shortest reply times in the current and the previous window, in seconds.
    shortest: [Option<f64>; 2],
    window: Option<Instant>,
    per_byte: f64,
    last: Option<Instant>,
    /// Time of the last reply, or of the first request after an idle period; `None` if no request is
    /// outstanding.
    waiting_since: Option<Instant>,
}

/// An outstanding request, as counted by [`Estimate::begin`].
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    at: Instant,
    cost: u64,
    /// Cost of this request and of all requests that were outstanding before it.
    queue: u64,
}

impl Estimate {
    /// Counts a request of `bytes` that is sent now.
    pub fn begin(&mut self, now: Instant, bytes: u64) -> Begun {
        let cost = bytes + REQUEST_BYTES;
        self.waiting_since.get_or_insert(now);
        self.outstanding += cost;
        self.data += bytes;
        debug_assert!(self.data <= self.outstanding);
        Begun {
            at: now,
            cost,
            queue: self.outstanding,
        }
    }

    /// Counts a reply. Returns the time since the request.
    pub fn complete(&mut self, now: Instant, begun: Begun) -> Duration {
        debug_assert!(begun.cost >= REQUEST_BYTES && begun.queue >= begun.cost);
        self.give_up(begun);
        self.waiting_since = self.waiting_since.map(|_| now);
        let service_time = now.saturating_duration_since(begun.at);
        let elapsed = service_time.as_secs_f64();
        if self
            .window
            .is_none_or(|since| now.saturating_duration_since(since) > WINDOW)
        {
            self.shortest = [None, self.shortest[0]];
            self.window = Some(now);
        }
        self.shortest[0] = Some(self.shortest[0].map_or(elapsed, |shortest| shortest.min(elapsed)));
        let sample = (elapsed - self.latency()).max(0.0) / begun.queue as f64;
        self.per_byte += (sample - self.per_byte) / 8.0;
        debug_assert!(self.per_byte >= 0.0, "no byte makes a reply earlier");
        self.last = Some(now);
        service_time
    }

    /// Removes a request that will get no reply.
    pub fn give_up(&mut self, begun: Begun) {
        debug_assert!(
            self.outstanding >= begun.cost,
            "a request ends once, on the channel that it began on"
        );
        self.outstanding = self.outstanding.saturating_sub(begun.cost);
        self.data = self.data.saturating_sub(begun.cost - REQUEST_BYTES);
        debug_assert!(
            (self.outstanding - self.data).is_multiple_of(REQUEST_BYTES),
            "each outstanding request has its overhead once"
        );
        if self.outstanding == 0 {
            self.waiting_since = None;
        }
    }

    /// Expected reply time of a request of `bytes` bytes that is sent now, in seconds.
    pub fn expected(&self, now: Instant, bytes: u64) -> f64 {
        let since = self.last.filter(|_| self.outstanding == 0);
        let kept = since.map_or(1.0, |last| {
            (-now.saturating_duration_since(last).as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
        });
        let queue = (self.outstanding + bytes + REQUEST_BYTES) as f64;
        (self.latency() + queue * self.per_byte) * kept + self.overdue(now)
    }

    /// Seconds without a reply, beyond the expected time of all outstanding requests.
    fn overdue(&self, now: Instant) -> f64 {
        debug_assert_eq!(
            self.waiting_since.is_some(),
            self.outstanding > 0,
            "a channel waits while requests are outstanding"
        );
        let silence = self.waiting_since.map_or(0.0, |since| {
            now.saturating_duration_since(since).as_secs_f64()
        });
        (silence - self.latency() - self.outstanding as f64 * self.per_byte).max(0.0)
    }

    /// The shortest reply time, in seconds; 0 before the first.
    pub fn latency(&self) -> f64 {
        self.shortest
            .iter()
            .flatten()
            .copied()
            .reduce(f64::min)
            .unwrap_or(0.0)
    }

    /// Bytes per second of a saturated channel; `None` while it has not been saturated.
    pub fn rate(&self) -> Option<f64> {
        (self.per_byte > 1e-12).then(|| 1.0 / self.per_byte)
    }

    /// Outstanding bytes, including the cost of each request.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }
}

/// Chooses the channel with the shortest expected reply time for a request of `bytes` bytes, or one that has
/// short requests outstanding and is hardly slower. Among equal channels, chooses the one with the fewest
/// bytes outstanding.
pub fn choose<'a>(
    channels: impl Iterator<Item = (usize, &'a Estimate)> + Clone,
    now: Instant,
    bytes: u64,
) -> Option<usize> {
    let first = earliest(channels.clone(), now, bytes)?;
    let (_, best) = channels.clone().find(|(number, _)| *number == first)?;
    let limit = 2.0 * best.expected(now, bytes) + TOGETHER_SECONDS;
    let is_together = |estimate: &Estimate| {
        estimate.outstanding > 0
            && estimate.data + bytes <= TOGETHER_BYTES
            && estimate.expected(now, bytes) <= limit
    };
    let together = channels.filter(|(_, estimate)| is_together(estimate));
    together
        .max_by_key(|(_, estimate)| estimate.outstanding)
        .map_or(Some(first), |(number, _)| Some(number))
}

fn earliest<'a>(
    channels: impl Iterator<Item = (usize, &'a Estimate)>,
    now: Instant,
    bytes: u64,
) -> Option<usize> {
    let key = |estimate: &Estimate| (estimate.expected(now, bytes), estimate.outstanding);
    let keyed = channels.map(|(number, estimate)| (key(estimate), number));
    let first = keyed.min_by(|((one, queue), _), ((other, others), _)| {
        // Times that differ by less than scheduling noise count as equal.
        let close = (one - other).abs() <= 20e-6 + 0.05 * one.min(*other);
        if close {
            queue.cmp(others)
        } else {
            one.total_cmp(other)
        }
    });
    first.map(|(_, number)| number)
}

// Delays between the attempts to replace a lost connection.

/// Initial limit of the delay between two attempts.
const FIRST: Duration = Duration::from_millis(50);
/// Longest delay between two attempts: a server that has recovered is found within this time.
const LONGEST: Duration = Duration::from_secs(5);

/// Delays that double, each shortened at random, so that the clients of a restarted server do not reconnect
/// simultaneously.
#[derive(Clone, Debug)]
pub struct Backoff {
    longest: Duration,
    random: Random,
}

impl Backoff {
    /// Creates a back-off with this random seed.
    pub fn new(seed: u64) -> Backoff {
        Backoff {
            longest: FIRST,
            random: Random::new(seed),
        }
    }

    /// Resets the delay after a successful connection, for the next loss.
    pub fn reset(&mut self) {
        self.longest = FIRST;
    }

    /// The delay before the next attempt: between half of the current limit and all of it.
    pub fn delay(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(LONGEST);
        debug_assert!(
            longest >= FIRST && self.longest >= longest,
            "pauses only grow until they are reset"
        );
        let half = longest / 2;
        half + half.mul_f64(self.random.fraction())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A simulated channel with a rate in bytes per second and a latency.
    struct Model {
        rate: f64,
        latency: f64,
        /// Time at which the channel will have processed all queued requests.
        free_at: f64,
        answered: u64,
    }

    /// Keeps `depth` requests outstanding for `seconds`. Returns the bytes that each channel completed in the
    /// second half of the time.
    fn run(rates: &[f64], latency: f64, bytes: u64, depth: usize, seconds: f64) -> Vec<u64> {
        let start = Instant::now();
        let at = |time: f64| start + Duration::from_secs_f64(time);
        let mut models: Vec<Model> = rates
            .iter()
            .map(|rate| Model {
                rate: *rate,
                latency,
                free_at: 0.0,
                answered: 0,
            })
            .collect();
        let mut estimates = vec![Estimate::default(); rates.len()];
        let mut outstanding: Vec<(f64, usize, Begun)> = Vec::new();
        let mut now = 0.0;
        while now < seconds {
            while outstanding.len() < depth {
                let chosen = choose(estimates.iter().enumerate(), at(now), bytes)
                    .expect("there are channels");
                let (model, begun) = (&mut models[chosen], estimates[chosen].begin(at(now), bytes));
                model.free_at =
                    model.free_at.max(now) + (bytes + REQUEST_BYTES) as f64 / model.rate;
                outstanding.push((model.free_at + model.latency, chosen, begun));
            }
            let first = (0..outstanding.len())
                .min_by(|one, other| outstanding[*one].0.total_cmp(&outstanding[*other].0))
                .expect("depth is not 0");
            let (end, channel, begun) = outstanding.swap_remove(first);
            now = end;
            estimates[channel].complete(at(now), begun);
            if now > seconds / 2.0 {
                models[channel].answered += bytes;
            }
        }
        models.iter().map(|model| model.answered).collect()
    }

    #[test]
    fn a_channel_throttled_to_a_tenth_gets_a_tenth_of_the_others_share() {
        let answered = run(&[100e6, 100e6, 100e6, 10e6], 200e-6, 64 << 10, 64, 10.0);
        let fast = answered[..3].iter().sum::<u64>() as f64 / 3.0;
        let share = answered[3] as f64 / fast;
        assert!((0.05..=0.15).contains(&share), "{answered:?}");
        let total = answered.iter().sum::<u64>() as f64 / 5.0;
        assert!(total > 0.85 * 310e6, "{total} bytes a second of 310 MB/s");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn shares_are_in_proportion_to_rates(
            slow in prop::collection::vec(1u32..=10, 2..5), bytes in prop_oneof![Just(4096u64), Just(65_536)],
        ) {
            let rates: Vec<f64> = slow.iter().map(|slow| 100e6 / f64::from(*slow)).collect();
            let depth = 128;
            let answered = run(&rates, 100e-6, bytes, depth, 6.0);
            let (all, of_rates) = (answered.iter().sum::<u64>() as f64, rates.iter().sum::<f64>());
            for (answered, rate) in answered.iter().zip(&rates) {
                let share = *answered as f64 / all / (rate / of_rates);
                prop_assert!((0.6..=1.5).contains(&share), "{rates:?}: {answered} of {all}");
            }
        }

        /// Whatever the clock and the peer do, no figure becomes infinite or NaN, which could not be
        /// compared.
        #[test]
        fn figures_are_finite(times in prop::collection::vec((0u64..5_000_000, any::<u32>()), 1..60)) {
            let start = Instant::now();
            let mut estimate = Estimate::default();
            let mut now = start;
            for (step, bytes) in times {
                let begun = estimate.begin(now, bytes.into());
                now += Duration::from_micros(step);
                estimate.complete(now, begun);
                prop_assert!(estimate.expected(now, 4096).is_finite() && estimate.expected(now, 4096) >= 0.0);
            }
            prop_assert_eq!(estimate.outstanding(), 0);
        }
    }

    #[test]
    fn a_few_short_requests_stay_together_and_more_use_all_channels() {
        let now = Instant::now();
        let chosen = |bytes: u64, depth: usize| {
            let mut estimates = vec![Estimate::default(); 2];
            for _ in 0..depth {
                let channel =
                    choose(estimates.iter().enumerate(), now, bytes).expect("there are channels");
                estimates[channel].begin(now, bytes);
            }
            let mut shares: Vec<u64> = estimates
                .iter()
                .map(|estimate| estimate.outstanding / (bytes + REQUEST_BYTES))
                .collect();
            shares.sort_unstable();
            shares
        };
        assert_eq!(chosen(512, 6), [0, 6]);
        assert_eq!(chosen(512, 32), [16, 16]);
        assert_eq!(chosen(4096, 4), [2, 2]);
        assert_eq!(chosen(64 << 10, 6), [3, 3]);
    }

    #[test]
    fn short_requests_leave_a_channel_that_is_much_slower() {
        let start = Instant::now();
        let mut channels = [Estimate::default(), Estimate::default()];
        for (channel, time) in [(0, 5_000), (1, 100)] {
            let begun = channels[channel].begin(start, 512);
            channels[channel].complete(start + Duration::from_micros(time), begun);
        }
        channels[0].begin(start, 512);
        assert_eq!(choose(channels.iter().enumerate(), start, 512), Some(1));
    }

    /// Both channels reply in 100 us, until channel 1 stops replying. The test counts how many of 1,000 short
    /// requests channel 1 still gets.
    #[test]
    fn a_silent_channel_gets_no_more_short_requests() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut channels = vec![Estimate::default(); 2];
        for channel in &mut channels {
            for _ in 0..10 {
                let begun = channel.begin(start, 512);
                channel.complete(at(100), begun);
            }
        }
        // Channel 1 has one outstanding request, so short requests prefer it.
        channels[1].begin(at(100), 512);
        let mut given = 0;
        for step in 1..=1000 {
            let now = 100 + step * 200;
            match choose(channels.iter().enumerate(), at(now), 512) {
                Some(0) => {
                    let begun = channels[0].begin(at(now), 512);
                    channels[0].complete(at(now + 100), begun);
                }
                _ => {
                    channels[1].begin(at(now), 512);
                    given += 1;
                }
            }
        }
        assert!(
            given <= 2,
            "{given} requests are given to a channel that answers nothing"
        );
        // Channel 1 is still used if it is the only one.
        assert_eq!(
            choose(channels.iter().enumerate().skip(1), at(300_000), 512),
            Some(1)
        );
    }

    #[test]
    fn an_idle_channel_that_was_slow_is_tried_again() {
        let start = Instant::now();
        let mut slow = Estimate::default();
        let mut fast = Estimate::default();
        for _ in 0..50 {
            let begun = slow.begin(start, 4096);
            slow.complete(start + Duration::from_secs(1), begun);
            let begun = fast.begin(start, 4096);
            fast.complete(start + Duration::from_millis(1), begun);
        }
        let both = [slow, fast];
        let chosen = |now| choose(both.iter().enumerate(), now, 4096);
        assert_eq!(chosen(start + Duration::from_secs(1)), Some(1));
        let mut busy = both.clone();
        busy[1].begin(start, 64 << 20);
        let later = start + Duration::from_secs(30);
        assert_eq!(choose(busy.iter().enumerate(), later, 4096), Some(0));
    }

    #[test]
    fn delays_grow_to_a_limit_and_differ_between_clients() {
        let (mut one, mut other) = (Backoff::new(1), Backoff::new(99));
        let delays: Vec<Duration> = (0..20).map(|_| one.delay()).collect();
        assert!(delays[0] <= FIRST && delays[0] >= FIRST / 2);
        assert!(delays[19] <= LONGEST && delays[19] >= LONGEST / 2);
        assert!((0..20).any(|at| other.delay() != delays[at]));
        one.reset();
        assert!(one.delay() <= FIRST);
    }
}
