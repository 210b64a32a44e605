//! One file for each cause: its evidence, the gain from fixing it, and the remedies.
//!
//! Each examines one load with all measurements of the layers. It decides two questions: is the unique
//! symptom of this cause present, and what does the model predict for the load without it.
//! [`judge`](super::judge) selects and orders the findings to report.

mod cpu;
mod nbd;
mod network;
mod session;
mod storage;

use super::case::Case;
use super::{Cause, Change, Gain, Remedy, Where};

pub(super) use nbd::CONNECTIONS;
pub(super) use network::path_mtu as long_packets;

/// A cause shown by one load.
pub(super) struct Found {
    pub(super) cause: Cause,
    pub(super) because: Vec<String>,
    pub(super) gain: Gain,
    pub(super) remedies: Vec<Remedy>,
    pub(super) trial: Option<Change>,
}

/// The finding in the protocol's terms.
pub(super) fn told(found: Found, case: &Case<'_>) -> Found {
    match &case.evidence.nbd {
        None => found,
        Some(session) => nbd::told(found, session),
    }
}

/// All but lost long packets, for which no load is needed.
pub(super) const ALL: [fn(&Case<'_>) -> Option<Found>; 18] = [
    session::depth,
    session::command_window,
    network::tcp_window,
    session::solicitation,
    session::small_bursts,
    session::small_segments,
    session::digests,
    network::link_rate,
    network::loss,
    network::slow_path,
    storage::medium,
    storage::flush,
    storage::misalignment,
    cpu::target_cpu,
    cpu::client_cpu,
    network::delayed_ack,
    nbd::connections,
    nbd::tls,
];

impl Where {
    fn remedy(self, change: impl Into<String>) -> Remedy {
        Remedy { at: self, change: change.into() }
    }
}

/// Values of the Windows initiator, which are all under one registry key.
fn windows(values: &str) -> Remedy {
    const INITIATOR: &str = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\\
                             {4D36E97B-E325-11CE-BFC1-08002BE10318}\\NNNN\\Parameters";
    Where::Windows.remedy(format!("{INITIATOR}: {values} (DWORD), then a new session"))
}

/// Keys of the URL with their new values.
fn settings<const N: usize>(keys: [(&str, String); N]) -> Change {
    Change { settings: keys.map(|(key, value)| (key.to_owned(), value)).to_vec(), ..Change::default() }
}
