//! Digests take the time of a CPU that has none left.

use super::{Found, settings};
use crate::case::Case;
use crate::{Cause, Where, words};

/// A thread that has a tenth of its time left has it for the digests.
const BUSY_MIN: f64 = 0.9;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let keys = &case.setting.keys;
    let took = case.run.client_digests?;
    let busy = case.run.client_busy.max(case.run.server_busy.unwrap_or(0.0));
    if !(keys.header_digest || keys.data_digest) || busy < BUSY_MIN {
        return None;
    }
    let gain = case.gain_to(case.rate.value / (1.0 - took.clamp(0.0, 0.9)));
    let because = vec![
        format!(
            "HeaderDigest={} and DataDigest={} were agreed on, and {} of this machine's time went into them.",
            if keys.header_digest { "CRC32C" } else { "None" },
            if keys.data_digest { "CRC32C" } else { "None" },
            words::share(took),
        ),
        format!("The busiest thread ran for {} of the time: it has none left for them.", words::share(busy)),
    ];
    let remedies = vec![
        Where::Url.remedy(
            "header-digest=none&data-digest=none, if the network can be trusted: TCP's checksum misses one \
             damaged packet in some ten thousand",
        ),
        Where::OpenIscsi
            .remedy("node.conn[0].iscsi.HeaderDigest = None, node.conn[0].iscsi.DataDigest = None"),
        Where::Esxi.remedy(
            "esxcli iscsi adapter param set -A ADAPTER -k HeaderDigest -v prohibited, likewise DataDigest",
        ),
        Where::Windows.remedy("without the data digest in the advanced settings of the connection"),
        Where::Target
            .remedy("a CPU whose CRC32C is an instruction (SSE4.2, ARMv8), and a program that uses it"),
    ];
    let trial = Some(settings([("header-digest", "none".to_owned()), ("data-digest", "none".to_owned())]));
    Some(Found { cause: Cause::Digests, because, gain, remedies, trial })
}
