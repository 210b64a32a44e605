//! Random places: how they are spread over the span.

use super::Layout;
use super::shuffle::Shuffle;
use crate::plan::Distribution;
use block::Random;

/// Draws places.
///
/// The uneven ones draw a place of the length of the longest request, most often the first of a fixed shuffle, and
/// within that place, where requests may start at several points, one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spread {
    Uniform { span_bytes: u64 },
    Zipf { places: Places, zipf: Zipf },
    Pareto { places: Places, exponent: f64 },
    Hot { chance: f64, hot_bytes: u64, span_bytes: u64 },
}

/// The span as a row of places, and their order by how often they are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    count: u64,
    bytes: u64,
    shuffle: Shuffle,
}

impl Spread {
    pub(crate) fn new(layout: &Layout) -> Spread {
        let span_bytes = layout.span_bytes;
        let places = Places::new(span_bytes / layout.longest_bytes, layout.longest_bytes);
        match layout.distribution {
            Distribution::Uniform => Spread::Uniform { span_bytes },
            Distribution::Zipf { theta } => Spread::Zipf { places, zipf: Zipf::new(places.count, theta) },
            // fio's: the exponent at which a share h of the places takes 1 - h of the requests.
            Distribution::Pareto { h } => Spread::Pareto { places, exponent: h.ln() / (1.0 - h).ln() },
            Distribution::Hot { requests, span } => Spread::Hot {
                chance: f64::from(requests.get()) / 100.0,
                hot_bytes: (u128::from(span_bytes) * u128::from(span.get()) / 100) as u64,
                span_bytes,
            },
        }
    }

    /// A place in bytes from the start of the span; it is rounded up to `align` by whoever asks.
    pub(crate) fn place(&self, random: &mut Random, align: u64) -> u64 {
        match self {
            Spread::Uniform { span_bytes } => random.below(*span_bytes),
            Spread::Zipf { places, zipf } => places.within(zipf.draw(random), random, align),
            Spread::Pareto { places, exponent } => {
                let rank = random.fraction().powf(*exponent) * places.count as f64;
                places.within((rank as u64).min(places.count - 1), random, align)
            }
            Spread::Hot { chance, hot_bytes, .. } if random.fraction() < *chance => random.below(*hot_bytes),
            Spread::Hot { hot_bytes, span_bytes, .. } => hot_bytes + random.below(span_bytes - hot_bytes),
        }
    }
}

impl Places {
    fn new(count: u64, bytes: u64) -> Places {
        Places { count, bytes, shuffle: Shuffle::new(count) }
    }

    /// A start within the place that is number `rank` by how often it is asked for.
    fn within(&self, rank: u64, random: &mut Random, align: u64) -> u64 {
        let starts = self.bytes / align;
        let start = if starts > 1 { random.below(starts) * align } else { 0 };
        self.shuffle.at(rank) * self.bytes + start
    }
}

/// Zipf's distribution over any number of places, exact and without a table: W. Hörmann and G. Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996. A number is drawn by inverting
/// the integral of x^-theta, and on average less than one of ten is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    theta: f64,
    /// The integral up to half a step before the first place, where its bar is cut off.
    low: f64,
    /// The integral up to half a step behind the last one.
    high: f64,
    count: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { theta, low: 0.0, high: 0.0, count: count as f64 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf
    }

    /// A rank, from 0 for the most frequent.
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.low + random.fraction() * (self.high - self.low);
            let rank = self.inverse(area).round().clamp(1.0, self.count);
            if area >= self.integral(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64 - 1;
            }
        }
    }

    /// Of x^-theta from 1 to `x`; without loss of digits where theta is about 1, and the integral a logarithm.
    fn integral(&self, x: f64) -> f64 {
        let (log, power) = (x.ln(), 1.0 - self.theta);
        if (power * log).abs() < TINY { log } else { (power * log).exp_m1() / power }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.theta;
        if (power * area).abs() < TINY { area.exp() } else { ((power * area).ln_1p() / power).exp() }
    }
}

/// Below, a logarithm and its series do not differ in 53 bits.
const TINY: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    /// How often each of `count` ranks is drawn.
    fn ranks(count: u64, mut draw: impl FnMut(&mut Random) -> u64) -> Vec<f64> {
        let (mut random, mut seen) = (Random::new(11), vec![0u32; count as usize]);
        (0..DRAWS).for_each(|_| seen[draw(&mut random) as usize] += 1);
        seen.into_iter().map(|times| f64::from(times) / DRAWS as f64).collect()
    }

    /// Whether a share is what it should be, within five standard deviations of a count of draws.
    fn is_about(share: f64, expected: f64) -> bool {
        (share - expected).abs() < 5.0 * (expected.max(1e-5) / DRAWS as f64).sqrt()
    }

    #[test]
    fn zipf_draws_each_rank_in_proportion_to_its_power() {
        for (count, theta) in
            [(1, 0.99), (2, 1.2), (10, 0.5), (1000, 0.99), (1000, 1.0), (1000, 1.2), (50, 3.0)]
        {
            let zipf = Zipf::new(count, theta);
            let sum: f64 = (1..=count).map(|k| (k as f64).powf(-theta)).sum();
            let seen = ranks(count, |random| zipf.draw(random));
            for (k, share) in (1..).zip(seen) {
                let expected = f64::from(k).powf(-theta) / sum;
                assert!(is_about(share, expected), "theta {theta}, rank {k}: {share}, not {expected}");
            }
        }
    }

    #[test]
    fn pareto_gives_a_share_of_the_places_the_rest_of_the_requests() {
        for h in [0.1, 0.2, 0.4] {
            let places = Places::new(1000, 1);
            let spread = Spread::Pareto { places, exponent: f64::ln(h) / f64::ln(1.0 - h) };
            let at = ranks(1000, |random| spread.place(random, 1));
            let hot = (h * 1000.0) as u64;
            let share: f64 = (0..hot).map(|rank| at[places.shuffle.at(rank) as usize]).sum();
            assert!(is_about(share, 1.0 - h), "h {h}: {share}");
        }
    }

    #[test]
    fn a_hot_part_takes_its_share_and_is_even_in_itself() {
        let spread = Spread::Hot { chance: 0.9, hot_bytes: 10, span_bytes: 100 };
        let seen = ranks(100, |random| spread.place(random, 1));
        assert!(seen[..10].iter().all(|&share| is_about(share, 0.09)), "{seen:?}");
        assert!(seen[10..].iter().all(|&share| is_about(share, 0.1 / 90.0)), "{seen:?}");
    }

    #[test]
    fn uniform_places_are_as_likely_as_each_other() {
        let seen = ranks(100, |random| Spread::Uniform { span_bytes: 100 }.place(random, 1));
        assert!(seen.iter().all(|&share| is_about(share, 0.01)), "{seen:?}");
    }
}
