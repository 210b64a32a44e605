//! One file for each cause: what shows it, what mending it would bring, and where it is mended.
//!
//! Each looks at one load with everything that was measured of the layers, and finds something or nothing. It asks two
//! things: is the sign of this cause there, which no other cause leaves; and what would the model make of the load without
//! it. Which of them are told, and in which order, is decided in [`judge`](super::judge).

mod client_cpu;
mod command_window;
mod connections;
mod delayed_ack;
mod depth;
mod digests;
mod flush;
mod link_rate;
mod loss;
mod medium;
mod misalignment;
mod nbd;
mod path_mtu;
mod slow_path;
mod small_bursts;
mod small_segments;
mod solicitation;
mod target_cpu;
mod tcp_window;
mod tls;

use super::case::Case;
use super::{Cause, Change, Gain, Remedy, Where};

pub(super) use nbd::CONNECTIONS;
pub(super) use path_mtu::find as long_packets;

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
    depth::find,
    command_window::find,
    tcp_window::find,
    solicitation::find,
    small_bursts::find,
    small_segments::find,
    digests::find,
    link_rate::find,
    loss::find,
    slow_path::find,
    medium::find,
    flush::find,
    misalignment::find,
    target_cpu::find,
    client_cpu::find,
    delayed_ack::find,
    connections::find,
    tls::find,
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
