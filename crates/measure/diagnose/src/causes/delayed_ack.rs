//! One end holds its last short segment back until the one before is acknowledged (Nagle's algorithm, RFC 896), and the
//! other holds the acknowledgement back (RFC 1122 section 4.2.3.2): whatever falls between takes 40 ms (Linux) or 200 ms
//! (Windows) for nothing.

use super::Found;
use crate::case::Case;
use crate::{Cause, Where, words};

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let stalls = case.signs.stalls?;
    let gain = case.gain(case.without_stalls(stalls));
    let because = vec![
        match stalls.others_s {
            Some(others_s) => format!(
                "Of single requests of {}, {} took {} and more, and the others {}.",
                words::size(f64::from(case.load().block_bytes)),
                words::share(stalls.share),
                words::time(stalls.held_s),
                words::time(others_s),
            ),
            None => format!(
                "Single requests of {} take {}, while longer ones, or many at once, are quicker.",
                words::size(f64::from(case.load().block_bytes)),
                words::time(stalls.held_s),
            ),
        },
        format!(
            "With a round trip of {} nothing on the way takes that long: it is the time for which an \
             acknowledgement is held back, and one end waits for it before it sends the rest.",
            words::time(case.layers.round_trip_s),
        ),
    ];
    let remedies = vec![
        Where::Target.remedy(
            "TCP_NODELAY on its sockets, and a PDU's header and data in one write (writev, MSG_MORE); look \
             for a proxy or tunnel between that does neither",
        ),
        Where::Esxi.remedy(
            "esxcli iscsi adapter param set -A ADAPTER -k DelayedAck -v false (or Advanced Options of the \
             initiator), then a restart of the host",
        ),
        Where::Windows.remedy(
            "HKLM\\SYSTEM\\CurrentControlSet\\Services\\Tcpip\\Parameters\\Interfaces\\{GUID of the \
             adapter}: TcpAckFrequency = 1 and TcpNoDelay = 1 (DWORD), then a restart",
        ),
        Where::Kernel
            .remedy("ip route change SUBNET dev INTERFACE quickack 1 on the side that acknowledges late"),
    ];
    Some(Found { cause: Cause::DelayedAck, because, gain, remedies, trial: None })
}
