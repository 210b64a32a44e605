//! The five source documents, and the meaning of their megabytes.

use serde::Serialize;

/// A source document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Document {
    /// The number in this project: `000` to `004`.
    pub number: &'static str,
    /// The title.
    pub title: &'static str,
    /// The author and the date, if stated.
    pub by: &'static str,
    /// The subject of the measurements.
    pub about: &'static str,
}

/// All documents, in order.
pub const DOCUMENTS: [Document; 5] = [
    Document {
        number: "000",
        title: "iSCSI Performance Factors",
        by: "Novell, for SLES 10 SP1 and NetWare 6.5 SP7",
        about: "dd and DPMETERM over block sizes: cables, switches, adapters, RAM against disk",
    },
    Document {
        number: "001",
        title: "Putting your storage to the test, part 1: iSCSI on Iomega IX4-200D",
        by: "Gabe, in his blog, at the end of 2009",
        about: "the four Iometer patterns of the VMware thread, three concurrent clients, Super ATTO Clone",
    },
    Document {
        number: "002",
        title: "Performance Evaluation of iSCSI over Local, Metropolitan, and Wide Area Networks",
        by: "Ismail Dalgic, Intransa, 2004",
        about: "solicited and unsolicited writes and reads over request size, depth and round trip",
    },
    Document {
        number: "003",
        title: "Building High-Performance iSCSI SAN Configurations",
        by: "Alacritech and McDATA, 2004",
        about: "512 B to 1 MiB at depth 6, both directions, and the limit of Gigabit Ethernet",
    },
    Document {
        number: "004",
        title: "iSCSI, HyperSCSI, ENBD, hardware and software RAID on commodity disk servers",
        by: "Mathias Gug, CERN, CHEP 2003 (arXiv cs/0305060)",
        about: "bonnie++ and seqent_random_io64 with the client's CPU load",
    },
];

/// The meaning of `MB/s` in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Megabyte {
    /// 10^6 bytes, as GNU dd prints them.
    Dd,
    /// 1000 KiB, as in DPMETERM. With this meaning, all but two numbers of document 000's table 4 are whole
    /// numbers of requests per second.
    Dpmeterm,
    /// The document does not state the meaning; 10^6 bytes are assumed.
    Unstated,
}

impl Megabyte {
    /// Returns the assumed number of bytes.
    pub fn bytes(self) -> f64 {
        match self {
            Megabyte::Dd | Megabyte::Unstated => 1e6,
            Megabyte::Dpmeterm => 1_024_000.0,
        }
    }

    /// Returns the reason for the assumption, for a note under a table.
    pub fn why(self) -> &'static str {
        match self {
            Megabyte::Dd => "MB is 1,000,000 bytes, as in the output of GNU dd",
            Megabyte::Dpmeterm => {
                "MB is assumed to be 1000 KiB, because this gives whole numbers of requests per second in \
                 table 4"
            }
            Megabyte::Unstated => "the document does not define MB; 1,000,000 bytes are assumed",
        }
    }
}

/// Returns the meaning of `MB/s` in a table. For Iometer's measurements (001, 003), the rows themselves contain
/// `MiB/s`.
pub fn megabyte(document: &str, table: &str) -> Megabyte {
    match (document, table) {
        ("000", "Table 3" | "Table 4" | "Table 5" | "Table 6" | "Table 7") => Megabyte::Dpmeterm,
        ("000", "text: Summary and Conclusions") => Megabyte::Unstated,
        ("000", _) => Megabyte::Dd,
        _ => Megabyte::Unstated,
    }
}
