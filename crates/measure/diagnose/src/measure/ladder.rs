//! The ladder of probes: all kinds of single requests, repeated in random order, so that drift affects all of
//! them alike. Each probe is a rung.

use std::time::{Duration, Instant};

use crate::{Known, Ladder, Timed};
use block::Random;
use iscsi::pdu::Cid;

use super::probe::{Ground, NOT_ALLOWED, NoTime, Probe};
use super::way::Way;

/// All rungs, with the times measured so far.
pub(super) struct Rungs {
    rungs: Vec<Rung>,
    patience: Duration,
    /// The maximum total time of one rung, unless a single request takes longer.
    share: Duration,
}

/// A probe and its times so far.
struct Rung {
    probe: Probe,
    times: Vec<Duration>,
    /// The total time of all attempts, including failed ones.
    spent: Duration,
    failures: u32,
    /// The reason of the last failure.
    why: Option<String>,
    /// Whether the probe is no longer sent.
    is_over: bool,
}

/// Lengths of pings, in addition to empty ones. The longest is the limit of a target that negotiates no value
/// (8192 bytes).
const PINGS: [u32; 3] = [512, 4096, 8192];
/// Lengths of reads and writes, from a page to the maximum of most systems.
const LENGTHS: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// A length that fits into the smallest packet that every host accepts (RFC 9293 section 3.7.1: segments of
/// 536 bytes).
const SHORT: u32 = 512;
/// Number of failures without a measurement after which a rung ends. Timeouts cost more time, so fewer of
/// them are allowed (`LATE_MAX`).
const FAILURES_MAX: u32 = 3;
const LATE_MAX: u32 = 2;
/// Maximum number of measurements of a rung: enough for a narrow interval of the median.
const TIMES_MAX: usize = 400;

impl Rungs {
    /// Creates the rungs. `cids` are the session's connections, and `ping_bytes_max` is the target's limit
    /// for NOP data. NBD does not have all of the probes.
    pub(super) fn new(
        cids: &[Cid],
        ping_bytes_max: Option<u32>,
        writes: bool,
        patience: Duration,
        share: Duration,
    ) -> Rungs {
        let several = cids.iter().filter(|_| cids.len() > 1);
        let pings = PINGS
            .into_iter()
            .filter(|bytes| ping_bytes_max.is_some_and(|most| *bytes <= most));
        let pings = pings.map(Probe::NopWithData);
        let reads = std::iter::once(0).chain(LENGTHS).map(Probe::CachedRead);
        let of_iscsi = [Probe::Connect, Probe::TestUnitReady]
            .into_iter()
            .filter(|_| ping_bytes_max.is_some());
        let deep = [Probe::Nop, Probe::MediumRead].into_iter().chain(of_iscsi);
        let lengths = std::iter::once(0).chain(LENGTHS).map(Probe::Write);
        let writing = lengths.chain([Probe::DurableWrite, Probe::Flush, Probe::ShortWrite]);
        let all = deep
            .chain(several.map(|cid| Probe::NopBy(*cid, 0)))
            .chain(pings)
            .chain(reads);
        let all = all.chain(writing.filter(|_| writes));
        Rungs {
            rungs: all.map(Rung::new).collect(),
            patience,
            share,
        }
    }

    /// Sends every probe once in random order, and repeats this until `time` has passed; at least once.
    pub(super) async fn ask(
        &mut self,
        way: &mut Way,
        ground: &mut Ground,
        time: Duration,
    ) -> Result<(), String> {
        let end = reactor::now() + time;
        loop {
            let mut order: Vec<usize> = (0..self.rungs.len()).collect();
            shuffle(&mut order, &mut ground.random);
            for index in order {
                let rung = &mut self.rungs[index];
                if !rung.rests(self.share) {
                    rung.ask(way, ground, self.patience).await?;
                }
            }
            if reactor::now() >= end || self.rungs.iter().all(|rung| rung.rests(self.share)) {
                return Ok(());
            }
        }
    }

    /// Ends pings with data. The target does not respond to them, and each attempt costs a session.
    pub(super) fn leave_out_pings(&mut self, why: &str) {
        let pings = self
            .rungs
            .iter_mut()
            .filter(|rung| matches!(rung.probe, Probe::NopWithData(_)));
        pings.for_each(|rung| rung.end(why));
    }

    /// Ends probes that need long packets, which do not arrive.
    pub(super) fn leave_out_long(&mut self, why: &str) {
        let long = self.rungs.iter_mut().filter(|rung| match rung.probe {
            Probe::NopWithData(bytes) | Probe::CachedRead(bytes) | Probe::Write(bytes) => {
                bytes > SHORT
            }
            _ => false,
        });
        long.for_each(|rung| rung.end(why));
    }

    /// Ends all probes, since the storage is unreachable.
    pub(super) fn end(&mut self, why: &str) {
        self.rungs.iter_mut().for_each(|rung| rung.end(why));
    }

    /// Whether the ladder contains this probe.
    pub(super) fn has(&self, probe: Probe) -> bool {
        self.rungs.iter().any(|rung| rung.probe == probe)
    }

    pub(super) fn known(&self, probe: Probe) -> Known<Timed> {
        let rung = self.rungs.iter().find(|rung| rung.probe == probe);
        match rung {
            Some(rung) => rung.known(),
            None if probe.writes() => Known::Unknown(NOT_ALLOWED.to_owned()),
            None => Known::Unknown("it was not measured".to_owned()),
        }
    }

    /// Returns the median time so far.
    pub(super) fn median(&self, probe: Probe) -> Option<Duration> {
        match self.known(probe) {
            Known::Measured(timed) => Some(Duration::from_secs_f64(timed.median_us / 1e6)),
            Known::Unknown(_) => None,
        }
    }

    /// Returns all results, for the evidence.
    pub(super) fn ladder(&self) -> Ladder {
        let each = |of: fn(Probe) -> Option<u32>| -> Vec<(u32, Known<Timed>)> {
            let lengths = self
                .rungs
                .iter()
                .filter_map(|rung| Some((of(rung.probe)?, rung.known())));
            lengths.collect()
        };
        Ladder {
            nop: self.known(Probe::Nop),
            nop_with_data: each(|probe| {
                if let Probe::NopWithData(bytes) = probe {
                    Some(bytes)
                } else {
                    None
                }
            }),
            test_unit_ready: self.known(Probe::TestUnitReady),
            cached_read: self.known(Probe::CachedRead(0)),
            cached_reads: each(|probe| match probe {
                Probe::CachedRead(bytes) if bytes > 0 => Some(bytes),
                _ => None,
            }),
            medium_read: self.known(Probe::MediumRead),
            write: self.known(Probe::Write(0)),
            writes: each(|probe| match probe {
                Probe::Write(bytes) if bytes > 0 => Some(bytes),
                _ => None,
            }),
            durable_write: self.known(Probe::DurableWrite),
            flush: self.known(Probe::Flush),
            short_write: self.known(Probe::ShortWrite),
        }
    }
}

impl Rung {
    fn new(probe: Probe) -> Rung {
        Rung {
            probe,
            times: Vec::new(),
            spent: Duration::ZERO,
            failures: 0,
            why: None,
            is_over: false,
        }
    }

    fn end(&mut self, why: &str) {
        self.is_over = true;
        self.why.get_or_insert_with(|| why.to_owned());
    }

    fn rests(&self, share: Duration) -> bool {
        self.is_over || self.times.len() >= TIMES_MAX || self.spent >= share
    }

    /// Sends the probe once. Fails if the storage is unreachable.
    async fn ask(
        &mut self,
        way: &mut Way,
        ground: &mut Ground,
        patience: Duration,
    ) -> Result<(), String> {
        let device = way.device().await?;
        let begun = reactor::now();
        let outcome = self.probe.ask(&device, ground, patience).await;
        self.spent += since(begun);
        match outcome {
            Ok(time) => self.times.push(time),
            Err(NoTime::Never(why)) => {
                self.fails(why, 0);
                self.is_over = true;
            }
            Err(NoTime::Failed(why)) => self.fails(why, FAILURES_MAX),
            Err(NoTime::Late) => {
                self.fails(
                    format!("there was no response in {:.1} s", patience.as_secs_f64()),
                    LATE_MAX,
                );
                // The next probe must not wait behind a hanging request of this session.
                way.give_up();
            }
        }
        Ok(())
    }

    fn fails(&mut self, why: String, most: u32) {
        self.failures += 1;
        self.why = Some(why);
        self.is_over |= self.failures >= most && self.times.len() < self.failures as usize;
    }

    /// Returns the measured times. If most attempts failed, the other times are meaningless, and the result
    /// is unknown.
    fn known(&self) -> Known<Timed> {
        let why = || {
            self.why
                .clone()
                .unwrap_or_else(|| "the time was used up".to_owned())
        };
        match Timed::of(&self.times) {
            Some(timed) if self.times.len() > self.failures as usize => Known::Measured(timed),
            Some(_) | None => Known::Unknown(why()),
        }
    }
}

/// Shuffles a slice (Fisher-Yates).
pub(super) fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
}

fn since(begun: Instant) -> Duration {
    reactor::now().saturating_duration_since(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_more_often_than_not_is_not_known() {
        let mut rung = Rung::new(Probe::TestUnitReady);
        assert_eq!(
            rung.known(),
            Known::Unknown("the time was used up".to_owned())
        );
        rung.times.push(Duration::from_millis(1));
        assert!(matches!(rung.known(), Known::Measured(_)));
        rung.fails("the target said so".to_owned(), FAILURES_MAX);
        assert_eq!(
            rung.known(),
            Known::Unknown("the target said so".to_owned())
        );
        assert!(!rung.is_over, "it may do better");
        (0..2).for_each(|_| rung.fails("the target said so".to_owned(), FAILURES_MAX));
        assert!(rung.is_over);
    }

    #[test]
    fn what_was_not_allowed_is_told_from_what_does_not_work() {
        let rungs = Rungs::new(&[Cid(0)], Some(8192), false, Duration::ZERO, Duration::ZERO);
        assert_eq!(rungs.ladder().write, Known::Unknown(NOT_ALLOWED.to_owned()));
        assert!(rungs.ladder().writes.is_empty() && rungs.ladder().nop_with_data.len() == 3);
        assert_eq!(
            rungs.known(Probe::NopBy(Cid(0), 0)),
            Known::Unknown("it was not measured".to_owned())
        );
    }

    #[test]
    fn a_shuffle_keeps_everything_and_can_be_had_again() {
        let shuffled = |seed| {
            let mut all: Vec<u32> = (0..50).collect();
            shuffle(&mut all, &mut Random::new(seed));
            all
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(3);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..50));
    }
}
