//! iSCSI on a link: commands and data per second, and the queue depth that fills the link.

use super::Link;
use crate::{Direction, Keys, Load, Path, Traffic, predict};

/// What a link carries of commands of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goodput {
    /// Data, in bytes a second.
    pub bytes_per_s: f64,
    /// Commands a second.
    pub requests_per_s: f64,
    /// What the other direction is busy with meanwhile, acknowledgements included: 1 is all it can.
    pub back: f64,
}

impl Link {
    /// Commands in one direction, so many at once that nothing but the link limits. Their PDUs follow each
    /// other without gaps and share frames, which is the best that can be; the acknowledgements of what comes
    /// back ride on data.
    pub fn one_way(self, direction: Direction, block_bytes: u32, keys: &Keys) -> Goodput {
        self.carries(Traffic::of_request(direction, block_bytes, keys), block_bytes)
    }

    /// The same for commands whose traffic is known otherwise.
    pub fn carries(self, traffic: Traffic, block_bytes: u32) -> Goodput {
        let there = self.on_the_wire(traffic.more());
        let back = self.on_the_wire(traffic.less()) + self.acks(traffic.more());
        let requests_per_s = self.bytes_per_s() / there.max(back);
        Goodput {
            bytes_per_s: requests_per_s * f64::from(block_bytes),
            requests_per_s,
            back: back.min(there) / there.max(back),
        }
    }

    /// As many reads as writes at once, each counted: the data are those of both directions. Every frame of
    /// data takes its share of an acknowledgement in the other direction.
    pub fn both_ways(self, block_bytes: u32, keys: &Keys) -> Goodput {
        let of = |direction| Traffic::of_request(direction, block_bytes, keys);
        self.carries_both(of(Direction::Read), of(Direction::Write), block_bytes)
    }

    /// The same for commands whose traffic is known otherwise.
    pub fn carries_both(self, read: Traffic, write: Traffic, block_bytes: u32) -> Goodput {
        let pair = read.and(write);
        let there = self.on_the_wire(pair.more()) + self.acks(pair.less());
        let back = self.on_the_wire(pair.less()) + self.acks(pair.more());
        let requests_per_s = 2.0 * self.bytes_per_s() / there.max(back);
        Goodput {
            bytes_per_s: requests_per_s * f64::from(block_bytes),
            requests_per_s,
            back: back.min(there) / there.max(back),
        }
    }

    /// So much of TCP's payload in full frames, in bytes on the wire. Infinite if frames carry none.
    fn on_the_wire(self, payload_bytes: u64) -> f64 {
        self.frames(payload_bytes) * f64::from(self.frame_bytes())
    }

    fn acks(self, payload_bytes: u64) -> f64 {
        self.frames(payload_bytes) * self.acks_bytes_per_frame()
    }

    fn frames(self, payload_bytes: u64) -> f64 {
        payload_bytes as f64 / f64::from(self.payload_bytes())
    }

    /// The window that TCP needs to fill the link over a round trip of so many seconds, in bytes of payload:
    /// what is on the way, there, until its acknowledgement is back.
    pub fn window_bytes(self, round_trip_s: f64) -> f64 {
        self.payload_per_s() * round_trip_s
    }

    /// How many commands have to be under way to fill the link over a round trip of so many seconds, with
    /// ends that take no time. `None` if that is more than can be counted.
    pub fn depth(
        self,
        direction: Direction,
        block_bytes: u32,
        keys: &Keys,
        round_trip_s: f64,
    ) -> Option<u32> {
        let load = Load { direction, block_bytes, depth: 1, sessions: 1, random: false, durable: false };
        let alone = predict(&self.path(round_trip_s), keys, &load).alone_s;
        let depth = (self.one_way(direction, block_bytes, keys).requests_per_s * alone).ceil();
        (depth >= 1.0 && depth <= f64::from(u32::MAX)).then_some(depth as u32)
    }

    /// The way over this link, with ends that take no time: the data of a command alone take what the link
    /// takes for them.
    pub fn path(self, round_trip_s: f64) -> Path {
        let payload_per_s = Some(self.payload_per_s());
        Path { payload_per_s, copy_per_s: payload_per_s, ..Path::of_round_trip(round_trip_s) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1024;

    fn gigabit() -> Link {
        Link::ethernet(1e9, 1500)
    }

    #[test]
    fn headers_leave_what_is_computed_by_hand() {
        // By hand: 8 KiB PDUs 0.9942 (0.9932 with both digests), 64 KiB 0.9993, 256 KiB 0.9998.
        let share = |segment: u32, digests: bool| {
            let keys = Keys {
                initiator_segment_bytes: segment,
                header_digest: digests,
                data_digest: digests,
                ..Keys::default()
            };
            let goodput = gigabit().one_way(Direction::Read, 256 * KIB, &keys);
            format!("{:.4}", goodput.bytes_per_s / gigabit().payload_per_s())
        };
        assert_eq!([share(8 * KIB, false), share(8 * KIB, true)], ["0.9942", "0.9932"]);
        assert_eq!([share(64 * KIB, false), share(256 * KIB, false)], ["0.9993", "0.9998"]);
    }

    #[test]
    fn what_goes_back_is_commands_and_acknowledgements() {
        let goodput = gigabit().one_way(Direction::Read, 512, &Keys::default());
        assert_eq!(goodput.bytes_per_s, goodput.requests_per_s * 512.0);
        // 48 bytes for 560, and 84 bytes for two frames of 1538.
        let expected = 48.0 / 560.0 + 42.0 / 1538.0;
        assert!((goodput.back - expected).abs() < 1e-12, "{}", goodput.back);
    }

    #[test]
    fn both_ways_at_once_are_less_than_twice_one_way() {
        let keys =
            Keys { initiator_segment_bytes: 256 * KIB, target_segment_bytes: 256 * KIB, ..Keys::default() };
        let one = gigabit().one_way(Direction::Read, 256 * KIB, &keys).bytes_per_s;
        let both = gigabit().both_ways(256 * KIB, &keys);
        let payload = gigabit().payload_per_s_both_ways();
        assert!(
            both.bytes_per_s < 2.0 * one && both.bytes_per_s < payload && both.bytes_per_s > 0.999 * payload
        );
        assert!(both.back > 0.999);
    }

    #[test]
    fn so_many_commands_fill_a_link_and_one_less_does_not() {
        let solicited = Keys { immediate_data: false, ..Keys::default() };
        for (direction, keys, block) in [
            (Direction::Read, Keys::default(), 4 * KIB),
            (Direction::Write, Keys::default(), 64 * KIB),
            (Direction::Write, solicited, 8 * KIB),
        ] {
            let depth = gigabit().depth(direction, block, &keys, 0.05).expect("a depth");
            let full = gigabit().one_way(direction, block, &keys).bytes_per_s;
            let at = |depth| {
                let load =
                    Load { direction, block_bytes: block, depth, sessions: 1, random: false, durable: false };
                predict(&gigabit().path(0.05), &keys, &load).bytes_per_s
            };
            assert!(at(depth) > 0.999_999 * full, "{depth}: {} {full}", at(depth));
            assert!(at(depth - 1) < full, "{depth}: {} {full}", at(depth - 1));
        }
    }

    #[test]
    fn a_solicited_write_needs_twice_the_depth() {
        let solicited = Keys { immediate_data: false, ..Keys::default() };
        let depth = |keys: &Keys| gigabit().depth(Direction::Write, 4 * KIB, keys, 0.05).expect("a depth");
        // Not quite twice: the Data-Out's header leaves fewer commands a second to wait for.
        let times = f64::from(depth(&solicited)) / f64::from(depth(&Keys::default()));
        assert!((1.97..2.0).contains(&times), "{times}");
        assert_eq!(Link::ethernet(0.0, 1500).depth(Direction::Read, 4096, &solicited, 0.0), None);
    }

    #[test]
    fn the_window_of_a_gigabit_over_50_ms_is_5_9_megabytes() {
        assert_eq!((gigabit().window_bytes(0.05) / 1e4).round(), 593.0);
    }
}
