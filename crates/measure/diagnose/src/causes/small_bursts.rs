//! A write waits for an R2T again and again: each asks for a short piece, and few are outstanding.

use super::{Found, settings, windows};
use crate::case::Case;
use crate::{Cause, Change, Remedy, Where, words};
use model::{Direction, Keys};

/// What one R2T should ask for: more than nearly any write is long.
const MAX_BURST_BYTES: u32 = 1_048_576;
const FIRST_BURST_BYTES: u32 = 262_144;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let load = case.load();
    let got = &case.setting.keys;
    let mended = longer(got);
    let waits = case.modelled.exchanges.saturating_sub(mended.exchanges(load.direction, load.block_bytes));
    if load.direction != Direction::Write || got.max_burst_bytes >= mended.max_burst_bytes || waits == 0 {
        return None;
    }
    let gain = case.gain_of(|setting| setting.keys = mended);
    let because = vec![
        format!(
            "MaxBurstLength={} was agreed on, with MaxOutstandingR2T={}: a write of {} is asked for in {} \
             pieces.",
            got.max_burst_bytes,
            got.outstanding_r2ts,
            words::size(f64::from(load.block_bytes)),
            words::number(case.run.r2ts_per_command),
        ),
        format!(
            "Each wait takes a round trip and the work of both ends, {}; measured, a write spends {} of its \
             {} on them.",
            words::time(case.layers.exchange_s()),
            words::time(case.run.parts.r2t_us / 1e6),
            words::time(case.service_s()),
        ),
    ];
    Some(Found { cause: Cause::SmallBursts, because, gain, remedies: remedies(), trial: trial(case) })
}

/// The same with longer bursts. FirstBurstLength may not be longer than MaxBurstLength (RFC 7143 section 13.14): one that
/// was cut by it grows too.
fn longer(got: &Keys) -> Keys {
    let cut = got.first_burst_bytes >= got.max_burst_bytes;
    Keys {
        max_burst_bytes: got.max_burst_bytes.max(MAX_BURST_BYTES),
        first_burst_bytes: if cut {
            got.first_burst_bytes.max(FIRST_BURST_BYTES)
        } else {
            got.first_burst_bytes
        },
        ..*got
    }
}

fn remedies() -> Vec<Remedy> {
    vec![
        Where::Url.remedy("max-burst=16776192&first-burst=262144&max-outstanding-r2t=8"),
        Where::OpenIscsi.remedy(
            "node.session.iscsi.MaxBurstLength = 16776192, node.session.iscsi.FirstBurstLength = 262144",
        ),
        windows("MaxBurstLength = 1048576, FirstBurstLength = 262144"),
        Where::Esxi.remedy(
            "esxcli iscsi adapter param set -A ADAPTER -k MaxBurstLength -v 1048576, -k FirstBurstLength -v \
             262144, -k MaxOutstandingR2T -v 8",
        ),
        Where::Linerate.remedy(
            "[target.session] max-burst = \"16MB\", first-burst = \"256KiB\", max-outstanding-r2t = 8",
        ),
        Where::Lio.remedy(
            "targetcli /iscsi/IQN/tpg1 set parameter MaxBurstLength=1048576 FirstBurstLength=262144 \
             MaxOutstandingR2T=8",
        ),
        Where::Tgt.remedy(
            "tgtadm --lld iscsi --mode target --op update --tid 1 --name MaxBurstLength --value 1048576, \
             likewise FirstBurstLength 262144",
        ),
        Where::Target.remedy(
            "MaxBurstLength of 1 MiB or more, FirstBurstLength of 256 KiB; the smaller of what both sides \
             say holds",
        ),
    ]
}

fn trial(case: &Case<'_>) -> Option<Change> {
    let asked = case.evidence.asked?;
    let ours = asked.max_burst_bytes <= case.setting.keys.max_burst_bytes;
    ours.then(|| {
        settings([("max-burst", "16776192".to_owned()), ("first-burst", FIRST_BURST_BYTES.to_string())])
    })
}
