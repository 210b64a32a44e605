//! One file for each cause: its evidence, the gain from fixing it, and the remedies.
//!
//! Each cause examines one load, together with the measurements of the layers. It answers two questions: is
//! the characteristic symptom of the cause present, and which rate does the model predict without the cause?
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

/// A cause that one load shows.
pub(super) struct Found {
    pub(super) cause: Cause,
    pub(super) because: Vec<String>,
    pub(super) gain: Gain,
    pub(super) remedies: Vec<Remedy>,
    pub(super) trial: Option<Change>,
}

/// Rewrites a finding in the terms of the protocol.
pub(super) fn told(found: Found, case: &Case<'_>) -> Found {
    match &case.evidence.nbd {
        None => found,
        Some(session) => nbd::told(found, session),
    }
}

/// All causes except lost long packets, which are found without a load.
pub(super) const ALL: [fn(&Case<'_>) -> Option<Found>; 20] = [
    session::depth,
    session::command_window,
    network::tcp_window,
    session::solicitation,
    session::small_bursts,
    session::small_segments,
    session::digests,
    network::link_rate,
    network::loss,
    network::jitter,
    network::slow_path,
    storage::medium,
    storage::stalls,
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
        Remedy {
            at: self,
            change: change.into(),
        }
    }
}

/// Returns a remedy for the Windows initiator, whose values are all under one registry key.
fn windows(values: &str) -> Remedy {
    const INITIATOR: &str = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\\
                             {4D36E97B-E325-11CE-BFC1-08002BE10318}\\NNNN\\Parameters";
    Where::Windows.remedy(format!("{INITIATOR}: {values} (DWORD), then a new session"))
}

/// Returns a change that sets keys of the URL.
fn settings<const N: usize>(keys: [(&str, String); N]) -> Change {
    Change {
        settings: keys.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        ..Change::default()
    }
}

mod words {
    //! Formats numbers for the sentences of a finding.

    use readable::figures;

    /// Formats bytes per second: `11.8 MB/s`.
    pub(super) fn rate(bytes_per_s: f64) -> String {
        format!("{} MB/s", figures::megabytes(bytes_per_s))
    }

    /// Formats seconds: `71.2 µs`, `12.1 ms`.
    pub(super) fn time(seconds: f64) -> String {
        figures::latency(seconds * 1e6)
    }

    /// Formats a size: `64 KiB`, or bytes if it is not a whole number of KiB.
    pub(super) fn size(bytes: f64) -> String {
        figures::size(bytes)
    }

    /// Formats bits per second: `1 Gbit/s`.
    pub(super) fn bits(bits_per_s: f64) -> String {
        match bits_per_s {
            rate if rate >= 1e9 => format!("{} Gbit/s", figures::round(rate / 1e9)),
            rate => format!("{} Mbit/s", figures::round(rate / 1e6)),
        }
    }

    /// Formats a share: `97 %`; below ten percent, with one decimal: `0.4 %`.
    pub(super) fn share(share: f64) -> String {
        let percent = share * 100.0;
        if percent.abs() < 9.95 {
            format!("{percent:.1} %")
        } else {
            format!("{percent:.0} %")
        }
    }

    /// Formats a plain number: `2.3`, `412,345`.
    pub(super) fn number(number: f64) -> String {
        figures::round(number)
    }

    /// Formats a boolean as in RFC 7143: Yes or No.
    pub(super) fn yes(value: bool) -> &'static str {
        if value { "Yes" } else { "No" }
    }
}

#[cfg(test)]
mod tests {
    use super::words::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(rate(11.8e6), "11.8 MB/s");
        assert_eq!(time(0.0121), "12.1 ms");
        assert_eq!(
            [bits(1e9), bits(2.5e9), bits(100e6)],
            ["1 Gbit/s", "2.5 Gbit/s", "100 Mbit/s"]
        );
        assert_eq!([share(0.97), share(0.004)], ["97 %", "0.4 %"]);
    }
}
