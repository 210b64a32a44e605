//! Encryption takes time that the same load does not take in clear text: which was tried, in rounds beside its own.

use super::Found;
use crate::case::Case;
use crate::{Cause, Gain, Otherwise, Where, words};

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let (beside, tried) = case.run.tried(Otherwise::is_plain)?;
    let (without, with) = beside.medians();
    let busy = match case.run.server_busy {
        Some(busy) => format!(", and the server's busiest one for {}", words::share(busy)),
        None => String::new(),
    };
    let because = vec![
        format!(
            "In rounds that took turns there were {} by TLS, and {} in clear text.",
            words::rate(without),
            words::rate(with),
        ),
        format!(
            "By TLS the thread that makes the requests ran for {} of the time{busy}: each byte is encrypted, decrypted and \
             copied.",
            words::share(case.run.client_busy),
        ),
    ];
    let remedies = vec![
        Where::Url.remedy("nbd:// in place of nbds://, where nobody else can reach the network"),
        Where::Linerate.remedy("[nbd] tls = \"allowed\", for hosts on such a network"),
        Where::Network
            .remedy("encryption below: WireGuard or IPsec in the kernel, or MACsec in the network card"),
        Where::Server.remedy("CPUs with instructions for AES at both ends (grep aes /proc/cpuinfo)"),
    ];
    let gain = Gain { predicted: Some(tried.ratio), low: tried.low, high: tried.high, confirmed: None };
    let trial = Some(beside.otherwise.change());
    Some(Found { cause: Cause::Tls, because, gain, remedies, trial })
}
