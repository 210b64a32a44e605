//! Chooses the next request by Iometer's rules, which [`crate::plan::Workload`] describes.
//!
//! ```text
//!   line, by its share ─► random place, or end of last request ─► align upwards ─► past the end: go to start
//! ```

use std::time::Duration;

use block::{Blocks, Extent, Lba, Random};

use crate::access::layout::Line;
use crate::plan::{Distribution, Percent};

mod layout;

pub(crate) use layout::Layout;
pub use layout::WorkloadError;

/// A request, relative to the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    /// The offset from the start of the span, in bytes.
    pub(crate) offset: u64,
    /// The length, in bytes.
    pub(crate) bytes: u64,
    /// With verification, a request whose place is in use moves by multiples of this length, in bytes.
    pub(crate) align: u64,
    /// The pause before the request.
    pub(crate) pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// The sequence of one session's requests.
pub(crate) struct AccessStream {
    layout: Layout,
    spread: Spread,
    random: Random,
    /// The offset of a sequential request: the end of the previous one, from the start of the span.
    following: u64,
    /// The line drawn for the current burst; `left_in_burst` requests of the burst remain.
    line: Line,
    left_in_burst: u32,
}

impl AccessStream {
    /// Creates the sequence of session number `index` of `sessions`. Each session's sequence differs.
    /// Sequential requests of the sessions start evenly spread over the span, so that a session does not read
    /// data that another session has just brought into a cache.
    pub(crate) fn new(layout: &Layout, seed: u64, index: usize, sessions: usize) -> AccessStream {
        let start = u128::from(layout.span_bytes) * index as u128 / sessions.max(1) as u128;
        AccessStream {
            layout: layout.clone(),
            spread: spread(layout.distribution, layout.span_bytes, layout.longest_bytes),
            random: Random::new(seed.wrapping_add((index as u64) << 32)),
            following: start as u64,
            line: layout.lines[0],
            left_in_burst: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Ask {
        let pause = self.next_in_burst();
        let line = self.line;
        let wanted = if line.random.happens(&mut self.random) {
            (self.spread)(&mut self.random, line.align)
        } else {
            self.following
        };
        let aligned = wanted.next_multiple_of(line.align);
        let offset = if aligned + line.bytes > self.layout.span_bytes {
            0
        } else {
            aligned
        };
        self.following = offset + line.bytes;
        let kind = if line.read.happens(&mut self.random) {
            Kind::Read
        } else {
            Kind::Write
        };
        Ask {
            kind,
            offset,
            bytes: line.bytes,
            align: line.align,
            pause,
        }
    }

    /// Starts a new burst when the previous one is complete: draws its line, and returns its pause (Iometer's
    /// `Grunt::Do_IOs`).
    fn next_in_burst(&mut self) -> Duration {
        if self.left_in_burst > 0 {
            self.left_in_burst -= 1;
            return Duration::ZERO;
        }
        self.line = self.layout.line(self.random.below(100));
        self.left_in_burst = self.line.burst - 1;
        self.line.pause
    }
}

impl Layout {
    /// Converts a request to blocks of the device.
    pub(crate) fn extent(&self, ask: &Ask) -> Extent {
        let block = u64::from(self.block_bytes);
        Extent {
            lba: Lba((self.start_bytes + ask.offset) / block),
            blocks: Blocks(ask.bytes / block),
        }
    }
}

impl Percent {
    /// Returns true with this probability.
    fn happens(self, random: &mut Random) -> bool {
        match self {
            Percent::NONE => false,
            Percent::ALL => true,
            _ => random.below(100) < u64::from(self.get()),
        }
    }
}

/// A permutation of the numbers below a bound. It is the same in every run and every session, so the same
/// places are hot in all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    bound: u64,
    /// The number of bits of the largest number below the bound.
    bits: u32,
}

impl Shuffle {
    pub(crate) fn new(bound: u64) -> Shuffle {
        Shuffle {
            bound,
            bits: u64::BITS - bound.saturating_sub(1).leading_zeros(),
        }
    }

    /// Returns the image of `place`, by cycle walking: the number is permuted within the next power of two
    /// until the result is below the bound, on average in fewer than two rounds. The mapping is one-to-one.
    pub(crate) fn at(self, place: u64) -> u64 {
        let mut place = self.scatter(place);
        while place >= self.bound {
            place = self.scatter(place);
        }
        place
    }

    /// Permutes the numbers of this many bits. Each step is reversible: multiplication by an odd number, and
    /// an XOR with the number shifted right by half the bits.
    fn scatter(self, place: u64) -> u64 {
        let mask = u64::MAX.checked_shr(u64::BITS - self.bits).unwrap_or(0);
        let half = self.bits.div_ceil(2);
        MULTIPLIERS.iter().fold(place, |place, multiplier| {
            let place = place
                .wrapping_mul(*multiplier)
                .wrapping_add(*multiplier >> 7)
                & mask;
            place ^ (place >> half)
        })
    }
}

/// Odd numbers without a regular bit pattern: the multipliers of SplitMix64 and MurmurHash3.
const MULTIPLIERS: [u64; 3] = [
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xff51_afd7_ed55_8ccd,
];

/// The span as a sequence of places, ordered by frequency of use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    count: u64,
    bytes: u64,
    shuffle: Shuffle,
}

/// Draws an offset, in bytes from the start of the span. The second argument is the alignment; the caller
/// rounds the offset up to it.
type Spread = Box<dyn Fn(&mut Random, u64) -> u64>;

/// Returns the function that draws offsets. The uneven distributions divide the span into places as long as
/// the longest request, and draw a place by its rank in a fixed permutation. If requests may start at several
/// offsets within a place, one of these is drawn as well.
fn spread(distribution: Distribution, span_bytes: u64, longest_bytes: u64) -> Spread {
    let places = Places::new(span_bytes / longest_bytes, longest_bytes);
    match distribution {
        Distribution::Uniform => Box::new(move |random, _| random.below(span_bytes)),
        Distribution::Zipf { theta } => {
            let zipf = Zipf::new(places.count, theta);
            Box::new(move |random, align| places.within(zipf.draw(random), random, align))
        }
        Distribution::Pareto { h } => {
            // fio's formula. With this exponent, a share h of the places receives a share 1 - h of the
            // requests.
            let exponent = h.ln() / (-h).ln_1p();
            Box::new(move |random, align| {
                let rank = random.fraction().powf(exponent) * places.count as f64;
                places.within((rank as u64).min(places.count - 1), random, align)
            })
        }
        Distribution::Hot { requests, span } => {
            let probability = f64::from(requests.get()) / 100.0;
            let hot_bytes = (u128::from(span_bytes) * u128::from(span.get()) / 100) as u64;
            // If the hot part is the whole span, there is no other part to draw from.
            Box::new(move |random, _| {
                match random.fraction() < probability || hot_bytes == span_bytes {
                    true => random.below(hot_bytes),
                    false => hot_bytes + random.below(span_bytes - hot_bytes),
                }
            })
        }
    }
}

impl Places {
    fn new(count: u64, bytes: u64) -> Places {
        Places {
            count,
            bytes,
            shuffle: Shuffle::new(count),
        }
    }

    /// Draws an aligned offset within the place that has this rank in frequency of use.
    fn within(&self, rank: u64, random: &mut Random, align: u64) -> u64 {
        let starts = self.bytes / align;
        let start = if starts > 1 {
            random.below(starts) * align
        } else {
            0
        };
        self.shuffle.at(rank) * self.bytes + start
    }
}

/// Zipf's distribution over any number of places, exact and without a table: W. Hörmann and G. Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996. A number is drawn
/// by inverting the integral of x^-theta. On average, fewer than one number in ten is rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    theta: f64,
    /// The lower bound of the values to draw from: the integral up to half a step after the first place,
    /// minus the weight of that place, which is 1.
    low: f64,
    /// The integral from 1 to half a step after the last place.
    high: f64,
    count: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf {
            theta,
            low: 0.0,
            high: 0.0,
            count: count as f64,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf
    }

    /// Draws a rank; 0 is the most frequent.
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.low + random.fraction() * (self.high - self.low);
            let rank = self.inverse(area).round().clamp(1.0, self.count);
            if area >= self.integral(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64 - 1;
            }
        }
    }

    /// Returns the integral of x^-theta from 1 to `x`. It is precise even if theta is close to 1, where the
    /// integral approaches a logarithm.
    fn integral(&self, x: f64) -> f64 {
        let (log, power) = (x.ln(), 1.0 - self.theta);
        if (power * log).abs() < TINY {
            log
        } else {
            (power * log).exp_m1() / power
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.theta;
        if (power * area).abs() < TINY {
            area.exp()
        } else {
            ((power * area).ln_1p() / power).exp()
        }
    }
}

/// Below this value, the logarithm and the exact expression are equal in the 53 bits of an `f64`.
const TINY: f64 = 1e-12;

#[cfg(test)]
mod tests;
