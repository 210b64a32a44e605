//! Models a medium of rotating disks: the throughput of an array under a load.
//!
//! A random access takes a seek and half a revolution. Redundancy adds writes. A mirror writes everything
//! twice. With parity, a write that is shorter than a stripe reads the old data and parity and writes the new
//! ones, which is four accesses (Patterson, Gibson and Katz, 1988). Caches, request reordering and file
//! systems are not modelled: the first two improve the result, and the last makes it worse.
//! `block::DiskModel` models a single disk; the layer `disk:` also uses it.

use block::DiskModel;
use serde::Serialize;

use super::{Direction, Load, Path};

/// How the data is stored redundantly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundancy {
    /// No redundancy: RAID 0, or a single disk.
    None,
    /// Two copies of all data: RAID 1 and 10.
    Mirror,
    /// Parity in one strip of each stripe: RAID 5.
    Parity,
    /// Parity in two strips of each stripe: RAID 6.
    DoubleParity,
}

/// Disks that together contain one volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array {
    /// The type of the disks.
    pub disk: DiskModel,
    /// Number of disks.
    pub disks: u16,
    /// The redundancy of the array.
    pub redundancy: Redundancy,
    /// The length of a strip: contiguous bytes on one disk.
    pub strip_bytes: u32,
}

/// The performance of an array under a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Medium {
    /// The time of a single request, in seconds.
    pub alone_s: f64,
    /// The data rate with all disks busy, in bytes per second.
    pub bytes_per_s: f64,
}

/// The number of disks that a request uses, the number of accesses to each, and the length of each access in
/// bytes.
struct Accesses {
    disks: f64,
    rounds: f64,
    bytes: f64,
}

impl Array {
    /// Returns the performance of the array under a load. Sequential requests are assumed to arrive in order
    /// and to be merged into full stripes, as by a cache for a single stream.
    pub fn medium(&self, load: &Load) -> Medium {
        let block = f64::from(load.block_bytes);
        if !load.random {
            let bytes_per_s = self.data_disks() * self.disk.bytes_per_s;
            return Medium {
                alone_s: block / bytes_per_s,
                bytes_per_s,
            };
        }
        let Accesses {
            disks,
            rounds,
            bytes,
        } = self.accesses(load.direction, load.block_bytes);
        let round_s = self.disk.access_s(bytes);
        let busy_s = disks * rounds * round_s;
        Medium {
            alone_s: rounds * round_s,
            bytes_per_s: f64::from(self.disks.max(1)) / busy_s * block,
        }
    }

    /// Returns a path with this array behind the target. The time of a single request is added to the
    /// command's time.
    pub fn behind(&self, path: &Path, load: &Load) -> Path {
        let Medium {
            alone_s,
            bytes_per_s,
        } = self.medium(load);
        let medium_per_s = path
            .medium_per_s
            .map_or(bytes_per_s, |other| other.min(bytes_per_s));
        Path {
            command_s: path.command_s + alone_s,
            medium_per_s: Some(medium_per_s),
            ..*path
        }
    }

    /// Returns the number of data disks in a stripe.
    fn data_disks(&self) -> f64 {
        let disks = f64::from(self.disks.max(1));
        match self.redundancy {
            Redundancy::None => disks,
            Redundancy::Mirror => (disks / 2.0).max(1.0),
            Redundancy::Parity => (disks - 1.0).max(1.0),
            Redundancy::DoubleParity => (disks - 2.0).max(1.0),
        }
    }

    fn accesses(&self, direction: Direction, block_bytes: u32) -> Accesses {
        let strips = f64::from(block_bytes.div_ceil(self.strip_bytes.max(1)).max(1));
        let data = strips.min(self.data_disks());
        let bytes = f64::from(block_bytes) / data;
        let is_whole_stripe = strips >= self.data_disks();
        let parities = match (direction, self.redundancy) {
            (Direction::Read, _) | (_, Redundancy::None) => {
                return Accesses {
                    disks: data,
                    rounds: 1.0,
                    bytes,
                };
            }
            (Direction::Write, Redundancy::Mirror) => {
                return Accesses {
                    disks: 2.0 * data,
                    rounds: 1.0,
                    bytes,
                };
            }
            (Direction::Write, Redundancy::Parity) => 1.0,
            (Direction::Write, Redundancy::DoubleParity) => 2.0,
        };
        // Unless the write covers a whole stripe, old data and parity are read first.
        let rounds = if is_whole_stripe { 1.0 } else { 2.0 };
        Accesses {
            disks: data + parities,
            rounds,
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keys, Term, predict};

    const KIB: u32 = 1024;

    fn load(direction: Direction, block_bytes: u32, depth: u32, random: bool) -> Load {
        Load {
            direction,
            block_bytes,
            depth,
            sessions: 1,
            random,
            durable: false,
        }
    }

    /// A disk of 2009 like those in the array of document 001: 8.5 ms and 7200 rpm.
    const DISK: DiskModel = DiskModel {
        seek_s: 8.5e-3,
        turns_per_s: 120.0,
        bytes_per_s: 100e6,
        request_s: 0.0,
    };
    const BOX: Array = Array {
        disk: DISK,
        disks: 4,
        redundancy: Redundancy::Parity,
        strip_bytes: 64 * KIB,
    };

    #[test]
    fn a_short_write_on_parity_is_four_accesses() {
        let iops = |array: &Array, direction| {
            array
                .medium(&load(direction, 8 * KIB, 32, true))
                .bytes_per_s
                / f64::from(8 * KIB)
        };
        let reads = iops(&BOX, Direction::Read);
        let writes = |redundancy| iops(&Array { redundancy, ..BOX }, Direction::Write);
        let times = [
            Redundancy::None,
            Redundancy::Mirror,
            Redundancy::Parity,
            Redundancy::DoubleParity,
        ]
        .map(|redundancy| (reads / writes(redundancy)).round());
        assert_eq!(times, [1.0, 2.0, 4.0, 6.0]);
        assert!((310.0..320.0).contains(&reads), "{reads}");
    }

    #[test]
    fn a_whole_stripe_reads_nothing_first() {
        let alone = |kib: u32| {
            BOX.medium(&load(Direction::Write, kib * KIB, 1, true))
                .alone_s
        };
        assert!(
            alone(128) > 1.9 * alone(192),
            "{} {}",
            alone(128),
            alone(192)
        );
    }

    /// The 64.6 requests per second of document 001 are 0.4 times the maximum of its disks. Queue depth and
    /// network are not the limit in this test.
    #[test]
    fn the_disks_of_document_001_allow_more_than_was_measured() {
        let iops = |direction| {
            BOX.medium(&load(direction, 8 * KIB, 59, true)).bytes_per_s / f64::from(8 * KIB)
        };
        let mixed = 1.0 / (0.7 / iops(Direction::Read) + 0.3 / iops(Direction::Write));
        let row = published::rows()
            .iter()
            .find(|row| row.test.starts_with("001d") && row.metric == "iops");
        let printed = row.and_then(|row| row.si).expect("001 has it").value;
        assert!(
            (0.35..0.45).contains(&(printed / mixed)),
            "{printed} {mixed}"
        );
    }

    /// The six IDE drives of document 004 reached 170 MB/s sequentially, or 28 MB/s each.
    #[test]
    fn random_reads_of_document_004_are_an_access_and_a_transfer() {
        let disk = DiskModel {
            seek_s: 9e-3,
            turns_per_s: 120.0,
            bytes_per_s: 28e6,
            request_s: 0.0,
        };
        let array = Array {
            disk,
            disks: 6,
            redundancy: Redundancy::None,
            strip_bytes: 64 * KIB,
        };
        let row = published::rows().iter().find(|row| {
            row.document == "004"
                && row.system.contains("software RAID 0")
                && row.pattern == "random"
                && row.bytes_per_s().is_some()
        });
        let row = row.expect("004 has it");
        let block = row.block_bytes.expect("a length");
        let path = array.behind(
            &Path::of_round_trip(0.0),
            &load(Direction::Read, block, 1, true),
        );
        let prediction = predict(
            &path,
            &Keys::default(),
            &load(Direction::Read, block, 1, true),
        );
        let off = prediction.bytes_per_s / row.bytes_per_s().expect("a rate") - 1.0;
        assert!(off.abs() < 0.2, "{off}");
        // With a depth of 1, the disks are idle between requests; with a high depth, they are not.
        let many = predict(
            &path,
            &Keys::default(),
            &load(Direction::Read, block, 64, true),
        );
        assert_eq!(many.binding(), Some(Term::Medium));
    }

    #[test]
    fn an_array_that_cannot_be_is_answered_without_a_panic() {
        let nothing = Array {
            disk: DISK,
            disks: 0,
            redundancy: Redundancy::DoubleParity,
            strip_bytes: 0,
        };
        assert!(nothing.medium(&load(Direction::Write, 0, 0, true)).alone_s > 0.0);
        assert!(
            nothing
                .medium(&load(Direction::Read, 4096, 1, false))
                .bytes_per_s
                > 0.0
        );
    }
}
