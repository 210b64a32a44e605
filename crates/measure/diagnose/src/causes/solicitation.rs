//! A write's first data wait to be asked for: a round trip for every write that could have gone at once.

use super::{Found, settings, windows};
use crate::case::Case;
use crate::{Cause, Change, Remedy, Where, words};
use model::{Direction, Keys};

/// What a target should take unasked: all of the writes that are made most, and a large one's beginning.
const FIRST_BURST_BYTES: u32 = 262_144;
/// Commands that wait for an R2T, out of all.
const R2TS_MIN: f64 = 0.5;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let load = case.load();
    let mended = unasked(&case.setting.keys);
    let waits = case.modelled.exchanges.saturating_sub(mended.exchanges(load.direction, load.block_bytes));
    if load.direction != Direction::Write || waits == 0 || case.run.r2ts_per_command < R2TS_MIN {
        return None;
    }
    let got = &case.setting.keys;
    let gain = case.gain_of(|setting| setting.keys = mended);
    let because = vec![
        format!(
            "InitialR2T={}, ImmediateData={} and FirstBurstLength={} were agreed on: a write of {} waits {} \
             for the target to ask for its data (R2T).",
            words::yes(got.initial_r2t),
            words::yes(got.immediate_data),
            got.first_burst_bytes,
            words::size(f64::from(load.block_bytes)),
            times(case.modelled.exchanges - 1),
        ),
        format!(
            "Each wait takes a round trip and the work of both ends, {}; measured, a write spends {} on it.",
            words::time(case.layers.exchange_s()),
            words::time(case.run.parts.r2t_us / 1e6),
        ),
    ];
    Some(Found { cause: Cause::Solicitation, because, gain, remedies: remedies(), trial: trial(case) })
}

/// The same with all that may be sent unasked.
fn unasked(got: &Keys) -> Keys {
    Keys {
        initial_r2t: false,
        immediate_data: true,
        first_burst_bytes: got.first_burst_bytes.max(FIRST_BURST_BYTES.min(got.max_burst_bytes)),
        ..*got
    }
}

fn times(times: u32) -> String {
    match times {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        times => format!("{times} times"),
    }
}

fn remedies() -> Vec<Remedy> {
    vec![
        Where::Url.remedy("initial-r2t=no&immediate-data=yes&first-burst=262144"),
        Where::OpenIscsi.remedy(
            "node.session.iscsi.InitialR2T = No, node.session.iscsi.ImmediateData = Yes, \
             node.session.iscsi.FirstBurstLength = 262144",
        ),
        windows("InitialR2T = 0, ImmediateData = 1, FirstBurstLength = 262144"),
        Where::Esxi.remedy(
            "esxcli iscsi adapter param set -A ADAPTER -k InitialR2T -v false, -k ImmediateData -v true, -k \
             FirstBurstLength -v 262144",
        ),
        Where::Linerate
            .remedy("[target.session] initial-r2t = false, immediate-data = true, first-burst = \"256KiB\""),
        Where::Lio.remedy(
            "targetcli /iscsi/IQN/tpg1 set parameter InitialR2T=No ImmediateData=Yes FirstBurstLength=262144",
        ),
        Where::Tgt.remedy(
            "tgtadm --lld iscsi --mode target --op update --tid 1 --name InitialR2T --value No, likewise \
             ImmediateData Yes and FirstBurstLength 262144",
        ),
        Where::Target.remedy(
            "InitialR2T=No, ImmediateData=Yes and a FirstBurstLength of 256 KiB; both sides have to agree",
        ),
    ]
}

/// What we did not ask for can be asked for; what the target refused cannot.
fn trial(case: &Case<'_>) -> Option<Change> {
    let (asked, got) = (case.evidence.asked?, &case.setting.keys);
    let ours = asked.initial_r2t && got.initial_r2t
        || !asked.immediate_data && !got.immediate_data
        || asked.first_burst_bytes <= got.first_burst_bytes && got.first_burst_bytes < FIRST_BURST_BYTES;
    ours.then(|| {
        settings([
            ("initial-r2t", "no".to_owned()),
            ("immediate-data", "yes".to_owned()),
            ("first-burst", FIRST_BURST_BYTES.to_string()),
        ])
    })
}
