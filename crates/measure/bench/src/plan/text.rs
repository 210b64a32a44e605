//! Text forms of workloads: the syntax of lengths, shares, rates and alignments, and the names of workloads
//! and of their kinds. All such names are created here.

use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::str::FromStr;

use model::{Direction, Load};
use readable::figures::{significant, size};
use volume::spec::Bytes;

use super::{Access, Align, Cell, Data, Distribution, Durable, Pace, Percent, Workload};

/// The kind of a workload, independent of its request lengths, depth and rate. Workloads of different kinds
/// are not points of one curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkloadKind {
    /// The share of reads in all requests. [`Percent::NONE`] and [`Percent::ALL`] are exact; other values are
    /// rounded.
    pub read: Percent,
    /// The share of random offsets, rounded in the same way.
    pub random: Percent,
    /// The distribution of random offsets; uniform if there are no random offsets.
    pub distribution: Distribution,
    /// The event that triggers the next request.
    pub arrival: Discriminant<Pace>,
}

impl WorkloadKind {
    /// Returns the name in a sweep: `random-read`, `random40-read70`, `random-read-zipf:1.1`.
    pub(super) fn name(self, between: &str) -> String {
        self.said(|share, of| format!("{of}{share}"), between, between)
    }

    /// Returns a description: `random read`, `40 % random 70 % read`, `random read, zipf:1.1`.
    pub fn words(self) -> String {
        self.said(|share, of| format!("{share} % {of}"), " ", ", ")
    }

    fn said(self, mixed: fn(u8, &str) -> String, between: &str, before: &str) -> String {
        let part = |share: Percent, none: &str, all: &str| match share {
            Percent::NONE => none.to_owned(),
            Percent::ALL => all.to_owned(),
            share => mixed(share.get(), all),
        };
        let said =
            part(self.random, "sequential", "random") + between + &part(self.read, "write", "read");
        let is_uniform = self.distribution == Distribution::Uniform;
        if is_uniform {
            said
        } else {
            format!("{said}{before}{}", self.distribution)
        }
    }
}

/// Formats the load: `depth 32`, or `5,000 a second` in an open loop.
pub fn pace(depth: u32, per_second: Option<f64>) -> String {
    per_second.map_or_else(
        || format!("depth {depth}"),
        |rate| format!("{} a second", significant(rate)),
    )
}

impl Workload {
    /// Returns the kind of all requests combined.
    pub fn kind(&self) -> WorkloadKind {
        let [read, random] = [
            self.share(|access| access.read),
            self.share(|access| access.random),
        ];
        let uneven = Some(self.distribution).filter(|_| random > Percent::NONE);
        let distribution = uneven.unwrap_or_default();
        WorkloadKind {
            read,
            random,
            distribution,
            arrival: discriminant(&self.pace),
        }
    }

    /// Returns a share of all requests in percent. A share is rounded to 0 or 100 % only if it is exactly
    /// that.
    fn share(&self, of: fn(&Access) -> Percent) -> Percent {
        let part = |access: &Access| u32::from(access.share.get()) * u32::from(of(access).get());
        match self.accesses.iter().map(part).fold(0, u32::saturating_add) {
            0 => Percent::NONE,
            all if all >= 10_000 => Percent::ALL,
            some => Percent(((some + 50) / 100).clamp(1, 99) as u8),
        }
    }

    /// Describes the workload as each session of each client runs it: `4 KiB random read, depth 32, 2
    /// sessions`.
    pub fn words(&self, sessions: u16, clients: usize) -> String {
        let length = |bytes: u32| size(f64::from(bytes));
        let part = |access: &Access| match self.accesses.len() {
            1 => length(access.block_bytes),
            _ => format!("{} ({} %)", length(access.block_bytes), access.share),
        };
        let lengths = self
            .accesses
            .iter()
            .map(part)
            .collect::<Vec<_>>()
            .join(", ");
        let rate = self.pace.per_second();
        let mut words = format!(
            "{lengths} {}, {}",
            self.kind().words(),
            pace(self.depth, rate)
        );
        words += &rate
            .map(|_| format!(", depth at most {}", self.depth))
            .unwrap_or_default();
        if self.writes() && !self.durable.is_cached() {
            words += &format!(", {}", self.durable);
        }
        for (count, of) in [(usize::from(sessions), "sessions"), (clients, "clients")] {
            words += &if count > 1 {
                format!(", {count} {of}")
            } else {
                String::new()
            };
        }
        words
    }
}

impl Cell {
    /// Describes the first client's workload and the number of clients: `4 KiB random read, depth 32, 3
    /// clients`.
    pub fn words(&self) -> String {
        let Some(role) = self.roles.first() else {
            return self.name.clone();
        };
        role.workload.words(role.sessions, self.roles.len())
    }
}

/// Describes a load on a path: `64 KiB sequential durable write, depth 8`.
pub fn load_words(load: &Load) -> String {
    let share = |is_all| if is_all { Percent::ALL } else { Percent::NONE };
    let (read, random) = (share(load.direction == Direction::Read), share(load.random));
    let words =
        Workload::simple(load.block_bytes, load.depth, read, random).words(load.sessions, 1);
    if load.durable {
        words.replacen(" write", " durable write", 1)
    } else {
        words
    }
}

impl fmt::Display for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durable::Cached => f.write_str("no flushes"),
            Durable::Fua => f.write_str("writes with FUA"),
            Durable::FlushAfter(1) => f.write_str("a flush after each write"),
            Durable::FlushAfter(writes) => write!(f, "a flush after {writes} writes"),
        }
    }
}

/// Parses `fua`, or `flush:32`.
impl FromStr for Durable {
    type Err = String;

    fn from_str(text: &str) -> Result<Durable, String> {
        let writes = || text.strip_prefix("flush:")?.parse::<u32>().ok();
        match text {
            "fua" => Ok(Durable::Fua),
            _ => writes()
                .filter(|writes| (1..=1_000_000).contains(writes))
                .map(Durable::FlushAfter)
                .ok_or_else(|| {
                    format!("`{text}` is unknown; use fua, or flush:N to flush after N writes")
                }),
        }
    }
}

/// Parses `random`, `zeros`, `stamped`, or `compressible:50`.
impl FromStr for Data {
    type Err = String;

    fn from_str(text: &str) -> Result<Data, String> {
        let share = || text.strip_prefix("compressible:")?.parse::<u8>().ok();
        match text {
            "random" => Ok(Data::Random),
            "zeros" => Ok(Data::Zeros),
            "stamped" => Ok(Data::Stamped),
            _ => share()
                .and_then(Percent::new)
                .map(Data::Compressible)
                .ok_or_else(|| {
                    format!(
                        "`{text}` is unknown; use random, zeros, stamped, or compressible:PERCENT"
                    )
                }),
        }
    }
}

/// Request lengths to measure, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct BlocksList(pub Vec<Blocks>);

/// The request lengths of one workload. Each has a share of the requests; the shares add up to 100 %.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks(pub Vec<(u32, Percent)>);

/// Requests per second; above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl Default for BlocksList {
    /// Returns a list with one length: 4 KiB, the page size of databases and file systems.
    fn default() -> BlocksList {
        BlocksList(vec![Blocks(vec![(4096, Percent::ALL)])])
    }
}

impl FromStr for BlocksList {
    type Err = String;

    fn from_str(text: &str) -> Result<BlocksList, String> {
        let parts: Vec<&str> = text.split(',').collect();
        match parts.iter().filter(|part| part.contains(':')).count() {
            0 => {
                let alone =
                    |part: &&str| length(part).map(|bytes| Blocks(vec![(bytes, Percent::ALL)]));
                parts
                    .iter()
                    .map(alone)
                    .collect::<Result<_, _>>()
                    .map(BlocksList)
            }
            shares if shares == parts.len() => mix(&parts).map(|mix| BlocksList(vec![mix])),
            _ => Err(
                "a mix needs a percentage after each length, for example 4KiB:70,64KiB:30"
                    .to_owned(),
            ),
        }
    }
}

fn mix(parts: &[&str]) -> Result<Blocks, String> {
    let mut mix = Vec::new();
    for part in parts {
        let (bytes, share) = part.split_once(':').unwrap_or((part, ""));
        let share: Percent = share
            .parse()
            .map_err(|_| format!("`{part}` needs a share from 0 to 100"))?;
        mix.push((length(bytes)?, share));
    }
    let sum: u32 = mix.iter().map(|(_, share)| u32::from(share.get())).sum();
    if sum == 100 {
        Ok(Blocks(mix))
    } else {
        Err(format!(
            "the shares of the mix add up to {sum} %, not 100 %"
        ))
    }
}

/// Maximum request length. A longer request would only be split: it exceeds every SCSI transfer length and
/// any reasonable amount of memory.
const LENGTH_MAX: u64 = 1 << 30;

fn length(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<Bytes>().map_err(|why| why.to_string())?;
    let fits = Some(bytes.0).filter(|bytes| (1..=LENGTH_MAX).contains(bytes));
    fits.and_then(|bytes| u32::try_from(bytes).ok())
        .ok_or_else(|| "the request size must be 1 byte to 1GiB".to_owned())
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(bytes, _)] = self.0[..] {
            return Bytes(u64::from(bytes)).fmt(f);
        }
        for (index, (bytes, share)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}:{}", Bytes(u64::from(*bytes)), share.get())?;
        }
        Ok(())
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let number = text
            .trim_end_matches('%')
            .parse()
            .ok()
            .and_then(Percent::new);
        number.ok_or_else(|| format!("{text:?} is not a share; use a whole number from 0 to 100"))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let number: Option<f64> = text.strip_suffix("/s").unwrap_or(text).parse().ok();
        // Ten million requests per second is more than a thread can make.
        let fits = number.filter(|rate| (0.01..=1e7).contains(rate));
        fits.map(Rate).ok_or_else(|| {
            format!("`{text}` is not a rate; use 0.01 to 10000000 requests per second")
        })
    }
}

impl FromStr for Align {
    type Err = String;

    fn from_str(text: &str) -> Result<Align, String> {
        match text {
            "natural" => Ok(Align::Natural),
            "block" => Ok(Align::Block),
            _ => length(text).map(Align::Bytes),
        }
    }
}

impl fmt::Display for Align {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Align::Natural => f.write_str("natural"),
            Align::Block => f.write_str("block"),
            Align::Bytes(bytes) => Bytes(u64::from(*bytes)).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_with_its_remedy() {
        let why = |text: &str| text.parse::<BlocksList>().expect_err(text);
        assert_eq!(
            why("4KiB:70,64KiB:40"),
            "the shares of the mix add up to 110 %, not 100 %"
        );
        assert!(why("4kib").contains("4KiB"));
        assert!("-5".parse::<Rate>().is_err() && "nan".parse::<Rate>().is_err());
    }

    #[test]
    fn lengths_are_a_list_or_a_mix() {
        let list: BlocksList = "4KiB,1MiB".parse().expect("a list");
        assert_eq!(
            list.0.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["4KiB", "1MiB"]
        );
        let mix: BlocksList = "4KiB:70,64KiB:30%".parse().expect("a mix");
        assert_eq!(
            mix.0.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["4KiB:70,64KiB:30"]
        );
    }

    #[test]
    fn alignments_have_names() {
        for (align, name) in [
            (Align::Natural, "natural"),
            (Align::Block, "block"),
            (Align::Bytes(4096), "4KiB"),
        ] {
            assert_eq!(
                (name.parse(), align.to_string()),
                (Ok(align), name.to_owned())
            );
        }
    }

    fn percent(share: u8) -> Percent {
        Percent::new(share).expect("a share")
    }

    #[test]
    fn a_workload_is_called_by_what_it_does() {
        let workload = Workload::simple(65_536, 8, percent(70), percent(40));
        assert_eq!(
            workload.words(1, 1),
            "64 KiB 40 % random 70 % read, depth 8"
        );
        assert_eq!(workload.kind().name("-"), "random40-read70");
        let mut workload = Workload::simple(4096, 32, Percent::ALL, Percent::ALL);
        assert_eq!(
            workload.words(2, 3),
            "4 KiB random read, depth 32, 2 sessions, 3 clients"
        );
        workload.pace = Pace::Constant { per_second: 5000.0 };
        assert_eq!(
            workload.words(1, 1),
            "4 KiB random read, 5,000 a second, depth at most 32"
        );
        workload.accesses = [(4096, 70), (65_536, 30)]
            .map(|(block_bytes, share)| Access {
                block_bytes,
                share: percent(share),
                ..workload.accesses[0].clone()
            })
            .to_vec();
        assert!(
            workload
                .words(1, 1)
                .starts_with("4 KiB (70 %), 64 KiB (30 %) random read, ")
        );
        let load = Load {
            direction: Direction::Write,
            block_bytes: 65_536,
            depth: 8,
            sessions: 1,
            random: false,
            durable: true,
        };
        assert_eq!(
            load_words(&load),
            "64 KiB sequential durable write, depth 8"
        );
    }

    #[test]
    fn a_distribution_is_part_of_the_kind_where_anything_is_random() {
        let distribution = Distribution::Zipf { theta: 1.1 };
        let random = Workload {
            distribution,
            ..Workload::simple(4096, 32, Percent::ALL, percent(1))
        };
        assert_eq!(
            random.words(1, 1),
            "4 KiB 1 % random read, zipf:1.1, depth 32"
        );
        assert_eq!(random.kind().name("-"), "random1-read-zipf:1.1");
        assert_ne!(
            random.kind(),
            Workload {
                distribution: Distribution::Uniform,
                ..random
            }
            .kind()
        );
        let sequential = Workload {
            distribution,
            ..Workload::simple(4096, 32, Percent::ALL, Percent::NONE)
        };
        assert_eq!(sequential.words(1, 1), "4 KiB sequential read, depth 32");
        assert_eq!(
            sequential.kind(),
            Workload {
                distribution: Distribution::Uniform,
                ..sequential
            }
            .kind()
        );
    }

    #[test]
    fn a_mix_that_reads_and_writes_is_not_called_by_its_first_line() {
        let mut mix = Workload::simple(4096, 1, Percent::ALL, Percent::ALL);
        let writes = Access {
            share: percent(1),
            read: Percent::NONE,
            ..mix.accesses[0].clone()
        };
        mix.accesses[0].share = percent(99);
        mix.accesses.push(writes);
        mix.accesses[0].random = percent(50);
        assert_eq!(
            mix.words(1, 1),
            "4 KiB (99 %), 4 KiB (1 %) 51 % random 99 % read, depth 1"
        );
        mix.accesses[1].read = percent(60);
        assert_eq!(mix.kind().read, percent(99), "some of them write");
    }
}
