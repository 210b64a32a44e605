//! One file for each cause: what shows it, what mending it would bring, and where it is mended.
//!
//! Each looks at one load with everything that was measured of the layers, and finds something or nothing. It asks two
//! things: is the sign of this cause there, which no other cause leaves; and what would the model make of the load without
//! it. Which of them are told, and in which order, is decided in [`judge`](super::judge).

mod cpu;
mod nbd;
mod network;
mod session;
mod storage;

use super::case::Case;
use super::{Cause, Change, Gain, Remedy, Where};

pub(super) use nbd::CONNECTIONS;
pub(super) use network::path_mtu as long_packets;

/// Something that one load shows.
pub(super) struct Found {
    pub(super) cause: Cause,
    pub(super) because: Vec<String>,
    pub(super) gain: Gain,
    pub(super) remedies: Vec<Remedy>,
    pub(super) trial: Option<Change>,
}

/// What was found, in the words of the protocol.
pub(super) fn told(found: Found, case: &Case<'_>) -> Found {
    match &case.evidence.nbd {
        None => found,
        Some(session) => nbd::told(found, session),
    }
}

/// All of them but the vanishing of long packets, for which no load is needed.
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

/// Values of Windows' initiator, which are all in one place of its registry.
fn windows(values: &str) -> Remedy {
    const INITIATOR: &str = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\\
                             {4D36E97B-E325-11CE-BFC1-08002BE10318}\\NNNN\\Parameters";
    Where::Windows.remedy(format!("{INITIATOR}: {values} (DWORD), then a new session"))
}

/// Keys of the URL with their new values.
fn settings<const N: usize>(keys: [(&str, String); N]) -> Change {
    Change { settings: keys.map(|(key, value)| (key.to_owned(), value)).to_vec(), ..Change::default() }
}
