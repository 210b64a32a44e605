//! Frame counters of a link.

use std::fmt;
use std::ops::AddAssign;

use hdrhistogram::Histogram;

/// What a link has done to the frames that came, in one direction or both.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Frames that arrived on the other side.
    pub frames: u64,
    /// Their bytes, from Ethernet header to check sequence.
    pub bytes: u64,
    /// Frames lost on the way, as the conditions wanted.
    pub lost: u64,
    /// Frames that others overtook, as the conditions wanted; they are among those that arrived.
    pub overtaken: u64,
    /// Frames for which the buffer had no room.
    pub overflowed: u64,
    /// Frames longer than the link's MTU, or than the receiving interface's.
    pub too_long: u64,
    /// Frames that this lab lost by itself: the wire did not take them in time, or the receiver's kernel
    /// refused them. In a sound measurement there are none.
    pub failed: u64,
    /// How much later than planned the frames left, in nanoseconds: what the lab adds to the link's delay.
    pub own_delay: Histogram<u64>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            frames: 0,
            bytes: 0,
            lost: 0,
            overtaken: 0,
            overflowed: 0,
            too_long: 0,
            failed: 0,
            // From 1 ns to 10 s, to 1 part in 100.
            own_delay: Histogram::new_with_bounds(1, 10_000_000_000, 2).expect("these bounds are in order"),
        }
    }
}

impl Counts {
    /// How much later than planned the frame left that is later than `share` of all, in microseconds.
    pub fn own_delay_us(&self, share: f64) -> f64 {
        self.own_delay.value_at_quantile(share) as f64 / 1e3
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, more: &Counts) {
        self.frames += more.frames;
        self.bytes += more.bytes;
        self.lost += more.lost;
        self.overtaken += more.overtaken;
        self.overflowed += more.overflowed;
        self.too_long += more.too_long;
        self.failed += more.failed;
        // Both have the same bounds, so that every value finds its place.
        self.own_delay.add(&more.own_delay).expect("the bounds are the same");
    }
}

impl fmt::Display for Counts {
    /// On one line: "1000 frames, 1.5 MB; lost 3, …; own delay 12 µs at the median, …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames, {:.1} MB", self.frames, self.bytes as f64 / 1e6)?;
        let unusual = [
            ("lost", self.lost),
            ("overtaken", self.overtaken),
            ("overflowed", self.overflowed),
            ("too long", self.too_long),
            ("FAILED IN THE LAB", self.failed),
        ];
        for (what, count) in unusual.into_iter().filter(|&(_, count)| count > 0) {
            write!(f, ", {count} {what}")?;
        }
        if self.frames == 0 {
            return Ok(());
        }
        let [median, p99, max] = [0.5, 0.99, 1.0].map(|share| self.own_delay_us(share));
        write!(f, "; left late by {median:.0} µs (median), {p99:.0} µs (p99), {max:.0} µs (max)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_make_a_sum() {
        let mut sum = Counts { frames: 3, lost: 1, ..Counts::default() };
        let mut more = Counts { frames: 4, bytes: 6_000_000, ..Counts::default() };
        more.own_delay.record(20_000).expect("in bounds");
        sum += &more;
        assert!(sum.to_string().starts_with("7 frames, 6.0 MB, 1 lost; left late by 20 µs"), "{sum}");
    }
}
