//! Long packets do not arrive, and nobody says so: an MTU that differs along the way, or a firewall that drops the
//! messages by which path MTU discovery works (RFC 1191, RFC 2923).

use super::{Found, settings};
use crate::{Cause, Evidence, Gain, Known, Where, words};

/// TCP over IPv4 with timestamps takes so much of a packet.
const HEADERS_BYTES: u32 = 52;

/// Nothing goes at all where this is found: what is measured behind it was measured with shorter segments.
pub(crate) fn find(evidence: &Evidence) -> Option<Found> {
    let vanished = evidence.long_packets.as_ref()?;
    let mut because = vec![format!("Short commands are answered, and {}.", vanished.lost)];
    let interface = match &evidence.link {
        Known::Measured(link) => format!(
            " The interface {} takes packets of {} bytes.",
            link.interface,
            words::number(f64::from(link.mtu))
        ),
        Known::Unknown(_) => String::new(),
    };
    because.push(format!("TCP sent segments of up to {} bytes.{interface}", vanished.segment_bytes));
    if let Some(works) = vanished.works_bytes {
        because.push(format!(
            "With segments of {works} bytes the same went through; all that follows was measured with those."
        ));
    }
    let mtu = vanished.works_bytes.map_or(1500, |bytes| bytes.saturating_add(HEADERS_BYTES));
    let remedies = vec![
        Where::Network.remedy(
            "the same MTU on every interface and switch port on the way (9000 on all, which switches count \
             as 9216, or 1500 on all), and no firewall that drops ICMP \"fragmentation needed\"",
        ),
        Where::Kernel.remedy(format!(
            "ping -M do -s {} ADDRESS finds where it ends; ip link set dev INTERFACE mtu {mtu} until it \
                 is mended, or sysctl -w net.ipv4.tcp_mtu_probing=1",
            mtu.saturating_sub(28)
        )),
        Where::Url.remedy(format!("tcp-segment={}", vanished.works_bytes.unwrap_or(1200))),
        Where::Windows.remedy(format!(
            "netsh interface ipv4 set subinterface \"NAME\" mtu={mtu} store=persistent; ping -f -l {} \
                 ADDRESS",
            mtu.saturating_sub(28)
        )),
        Where::Esxi.remedy(format!(
            "vmkping -d -s {} ADDRESS; esxcli network ip interface set -i VMK -m {mtu} and esxcli \
                 network vswitch standard set -v VSWITCH -m {mtu}",
            mtu.saturating_sub(28)
        )),
    ];
    let gain = Gain { predicted: None, low: 1.0, high: f64::MAX, confirmed: None };
    let trial = vanished.works_bytes.map(|bytes| settings([("tcp-segment", bytes.to_string())]));
    Some(Found { cause: Cause::PathMtu, because, gain, remedies, trial })
}
