//! The conditions under which a number was measured, and the search for comparable numbers.
//!
//! A rate over a network says nothing about a local disk, and a rate at a depth of 1 says nothing about one at
//! a depth of 64. [`comparable`] is therefore the only way to find the published numbers for a measurement.

use derive_more::Display;
use serde::{Deserialize, Serialize};

use crate::row::{Direction, Row};
use crate::rows;

/// The conditions of a published number, except its direction, request length and delay, which are in
/// [`Row`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Class {
    /// The path between the client and the storage.
    pub path: Path,
    /// The medium that stores the data.
    pub medium: Medium,
    /// The caching on the client.
    pub level: Level,
    /// The number of concurrent clients.
    pub clients: u16,
    /// Whether the clients run the same load.
    pub load: Load,
    /// The clients whose results the number contains.
    pub scope: Scope,
    /// The number of outstanding requests of each client.
    pub outstanding: u32,
    /// The share of reads in percent; `None` for both directions at full speed, and for different loads.
    pub read_percent: Option<u8>,
    /// The share of requests to random offsets in percent; `None` for different loads.
    pub random_percent: Option<u8>,
    /// The conditions that the document does not state, in words: `sequential requests`. Empty if there are
    /// none.
    pub assumed: String,
}

/// A path between client and storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// The storage is in the client's machine.
    Local,
    /// A network, by iSCSI.
    Iscsi,
    /// A network, by HyperSCSI.
    HyperScsi,
    /// A network, by the Network Block Device protocol or by ENBD.
    Nbd,
    /// A network, by another protocol.
    Network,
}

/// A storage medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// Memory.
    Ram,
    /// A single drive.
    Drive,
    /// Several drives.
    Array,
    /// The document does not state the medium.
    Unstated,
}

/// Caching on the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, Display)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Requests are sent to the storage as they are made.
    #[display("direct")]
    Direct,
    /// Requests go through a cache that reads ahead and gathers writes.
    #[display("cached")]
    Cached,
    /// The document does not state the caching.
    #[display("unknown caching")]
    Unstated,
}

/// The loads of concurrent clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// All clients run the same load.
    Alike,
    /// The clients run different loads.
    Different,
}

/// The clients whose results a number contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All clients combined.
    Total,
    /// One of several concurrent clients.
    Share,
}

impl Path {
    /// Returns whether the path is a network.
    pub fn is_network(self) -> bool {
        self != Path::Local
    }
}

/// The conditions of a measurement without an added delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// The path between the client and the storage.
    pub path: Path,
    /// The media that the storage may have. A network hides the medium from its clients.
    pub media: &'static [Medium],
    /// The caching on the client.
    pub level: Level,
    /// The number of concurrent clients.
    pub clients: u16,
    /// Whether the clients run the same load.
    pub load: Load,
    /// The clients whose results are compared.
    pub scope: Scope,
    /// The number of outstanding requests of each client.
    pub outstanding: u32,
    /// The direction of the data.
    pub direction: Direction,
    /// The share of reads in percent, as in [`Class::read_percent`].
    pub read_percent: Option<u8>,
    /// The share of random requests in percent, as in [`Class::random_percent`].
    pub random_percent: Option<u8>,
    /// The length of each request in bytes; `None` for different loads.
    pub block_bytes: Option<u32>,
}

/// Returns the rows, of any quantity, that were measured under the same conditions, in the order of the
/// documents. Conditions that a document does not state match every measurement.
pub fn comparable(conditions: &Conditions) -> impl Iterator<Item = &'static Row> {
    rows().iter().filter(|row| row.is_comparable(conditions))
}

impl Row {
    fn is_comparable(&self, conditions: &Conditions) -> bool {
        let Some(class) = &self.class else {
            return false;
        };
        class.path.is_network() == conditions.path.is_network()
            && (class.medium == Medium::Unstated || conditions.media.contains(&class.medium))
            && (class.level == Level::Unstated || class.level == conditions.level)
            && (class.clients, class.load, class.scope)
                == (conditions.clients, conditions.load, conditions.scope)
            && class.outstanding == conditions.outstanding
            && self.direction == Some(conditions.direction)
            && class.read_percent == conditions.read_percent
            && class.random_percent == conditions.random_percent
            && self.has_length(conditions.block_bytes)
            && self.rtt_ms.unwrap_or(0.0) == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The conditions of DPMETERM's test over iSCSI, in tables 3, 5 and 6 of document 000.
    fn dpmeter(block_bytes: u32) -> Conditions {
        Conditions {
            path: Path::Iscsi,
            media: &[Medium::Ram, Medium::Drive, Medium::Array],
            level: Level::Direct,
            clients: 1,
            load: Load::Alike,
            scope: Scope::Total,
            outstanding: 1,
            direction: Direction::Read,
            read_percent: Some(100),
            random_percent: Some(0),
            block_bytes: Some(block_bytes),
        }
    }

    fn found(conditions: &Conditions) -> Vec<(&'static str, &'static str)> {
        let rates = comparable(conditions).filter(|row| row.bytes_per_s().is_some());
        rates
            .map(|row| (row.table.as_str(), row.printed.as_str()))
            .collect()
    }

    #[test]
    fn a_lun_is_compared_only_with_storage_over_a_network() {
        let of_000: Vec<_> = comparable(&dpmeter(262_144))
            .filter(|row| row.document == "000")
            .collect();
        let printed: Vec<&str> = of_000.iter().map(|row| row.printed.as_str()).collect();
        assert_eq!(printed, ["10.2", "9.2", "28.2", "9.2", "34.1", "29.0"]);
        // Table 4 has 1,265.664 MB/s for a RAM drive without iSCSI.
        assert!(of_000.iter().all(|row| {
            row.class
                .as_ref()
                .is_some_and(|class| class.path == Path::Iscsi)
        }));
    }

    #[test]
    fn every_condition_of_a_class_selects_rows() {
        let ram = Conditions {
            path: Path::Local,
            media: &[Medium::Ram],
            ..dpmeter(262_144)
        };
        assert_eq!(found(&ram), [("Table 4", "1265.664")]);
        let drive = Conditions {
            media: &[Medium::Drive],
            ..ram.clone()
        };
        assert_eq!(found(&drive), [("Table 4", "58.624"), ("Table 7", "86.3")]);
        let random = Conditions {
            random_percent: Some(100),
            ..drive
        };
        assert_eq!(found(&random), [("Table 7", "56.8")]);

        let cached = Conditions {
            level: Level::Cached,
            ..dpmeter(65_536)
        };
        let table_1 = ("Table 1", "74.2");
        assert!(found(&cached).contains(&table_1) && !found(&dpmeter(65_536)).contains(&table_1));

        let patterns = Conditions {
            outstanding: 64,
            ..dpmeter(32_768)
        };
        assert_eq!(found(&patterns), [("Test 001", "55.058866")]);
        let three = Conditions {
            clients: 3,
            ..patterns
        };
        assert_eq!(found(&three), [("Test 007", "51.955641")]);
        let one_of_three = Conditions {
            scope: Scope::Share,
            ..three
        };
        assert_eq!(found(&one_of_three).len(), 3);
        let among_others = Conditions {
            load: Load::Different,
            ..one_of_three
        };
        assert_eq!(
            found(&among_others),
            [("Test 008", "4.115037"), ("Test 008", "4.518114")]
        );
        let mixed = Conditions {
            direction: Direction::Mixed,
            read_percent: Some(50),
            ..dpmeter(32_768)
        };
        assert_eq!(
            found(&Conditions {
                outstanding: 64,
                ..mixed
            }),
            [("Test 001", "22.040195")]
        );
    }

    /// Figures 4 to 6 of document 003 are about ranges of lengths: "for 64 KB and larger".
    #[test]
    fn a_number_about_a_range_is_comparable_with_each_of_its_lengths() {
        let found = |direction, read_percent, block_bytes| {
            let conditions = Conditions {
                outstanding: 6,
                direction,
                read_percent,
                ..dpmeter(block_bytes)
            };
            found(&conditions).first().map(|(table, _)| *table)
        };
        let both = |block_bytes| found(Direction::Bidirectional, None, block_bytes);
        assert_eq!([32_768, 65_536, 131_072, 1 << 20, 2 << 20].map(both), {
            let figure = Some("Figure 4 text");
            [None, figure, figure, figure, None]
        });
        let read = |block_bytes| found(Direction::Read, Some(100), block_bytes);
        assert_eq!(
            [4096, 8192, 1 << 20].map(read),
            [None, Some("Figure 5 text"), Some("Figure 5 text")]
        );
        let write = |block_bytes| found(Direction::Write, Some(0), block_bytes);
        assert_eq!(
            [4096, 8192, 1 << 20].map(write),
            [None, Some("Figure 6 text"), Some("Figure 6 text")]
        );
    }

    #[test]
    fn a_delay_is_part_of_the_conditions() {
        let deep = Conditions {
            outstanding: 32,
            ..dpmeter(1024)
        };
        let delays: Vec<_> = comparable(&deep).map(|row| row.rtt_ms).collect();
        assert_eq!(delays, [Some(0.0), None]);
    }

    /// Settings, ratios, plain TCP and limits have no class, and neither do comments that omit the conditions.
    #[test]
    fn every_measurement_of_storage_has_a_class() {
        let measured = [
            "throughput",
            "iops",
            "latency_avg",
            "latency_max",
            "cpu_load_client",
        ];
        let without: Vec<(&str, &str)> = rows()
            .iter()
            .filter(|row| row.class.is_none() && measured.contains(&row.metric.as_str()))
            .filter(|row| !row.table.starts_with("TCP Throughput"))
            .map(|row| (row.document.as_str(), row.test.as_str()))
            .collect();
        let limits = [
            ("000", "claimed theoretical limit"),
            ("001", "ATTO read"),
            ("001", "ATTO write"),
            ("003", "theoretical maximum iSCSI payload"),
            ("004", "disk limit"),
            ("004", "maximum measured bandwidth"),
        ];
        assert_eq!(without, limits);
        assert_eq!(rows().iter().filter(|row| row.class.is_some()).count(), 421);
    }
}
