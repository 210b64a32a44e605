//! The settings of several sessions with a LUN.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use failover::{ReplayRule, Writers};

use crate::url::Portal;

/// Several sessions with a LUN, over one portal of its target or several ([`crate::open_paths`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// Sessions at once, 1 to 64; `None`: one for each path.
    pub sessions: Option<u16>,
    /// Other portals of the target, besides that of the URL.
    pub addresses: Vec<Portal>,
    /// Addresses of this host: the first for the portal of the URL, the others for its other portals in order.
    pub sources: Vec<SocketAddr>,
    /// How long a write of a lost session keeps newer writes of its blocks waiting, if no login can end that session.
    pub quarantine: Duration,
    /// Memory for acknowledged writes that no flush has covered, in bytes.
    pub journal_bytes: usize,
    /// A file that has them, too, for the next process; it makes a single session one of `open_paths`.
    pub journal_file: Option<PathBuf>,
    /// What is done with writes that the file holds from before; `None`: they are replayed where that is safe.
    pub journal_replay: Option<ReplayRule>,
    /// Who else writes to the LUN.
    pub writers: Writers,
}

/// A smaller journal would be flushed all the time for its file.
const JOURNAL_BYTES_LEAST: usize = 64 << 10;

impl Default for Multipath {
    fn default() -> Multipath {
        Multipath {
            sessions: None,
            addresses: Vec::new(),
            sources: Vec::new(),
            // As of NBD's channels.
            quarantine: Duration::from_secs(10),
            journal_bytes: 64 << 20,
            journal_file: None,
            journal_replay: None,
            writers: Writers::Unknown,
        }
    }
}

impl Multipath {
    /// Whether there are several sessions, or may be.
    pub fn are_several(&self) -> bool {
        self.sessions.is_some_and(|count| count > 1)
            || !self.addresses.is_empty()
            || self.sources.len() > 1
            || self.journal_file.is_some()
    }

    /// Whether the settings of the journal fit each other.
    pub(crate) fn is_journal_whole(&self) -> bool {
        match self.journal_file {
            Some(_) => self.journal_bytes >= JOURNAL_BYTES_LEAST,
            None => self.journal_replay.is_none(),
        }
    }
}
