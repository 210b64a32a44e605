//! Too few requests at once for the distance: only for a load that somebody named, for ours with one request is there to
//! measure latency.

use super::Found;
use crate::case::Case;
use crate::{Cause, Change, Where, words};
use model::Term;

/// What initiators keep under way for a LUN unless told otherwise (open-iscsi's node.session.queue_depth), and what every
/// target's queue has room for.
const DEPTH_MAX: u32 = 32;
const DEPTHS: [u32; 5] = [2, 4, 8, 16, DEPTH_MAX];
/// Of a request's time, what passes on the way and at the ends for any command, from which it is the distance that it
/// waits for, and not something at the target that more of them would wait for too.
const WAY_MIN: f64 = 0.5;
/// Of what the model says: less, and something else holds the load back.
const EXPLAINED_MIN: f64 = 0.6;
/// What is called enough: a depth that gives this share of what any depth would.
const ENOUGH: f64 = 0.95;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let load = case.load();
    if !case.run.named || case.modelled.binding() != Some(Term::Depth) || case.signs.waiting >= 0.5 {
        return None;
    }
    let sent_s = case.setting.path.payload_per_s.map_or(0.0, |payload| f64::from(load.block_bytes) / payload);
    let way_s = f64::from(case.modelled.exchanges) * case.layers.exchange_s() + sent_s;
    let far = way_s >= WAY_MIN * case.modelled_alone_s();
    if !far || case.rate.value < EXPLAINED_MIN * case.modelled.bytes_per_s {
        return None;
    }
    let depth = enough(case)?;
    let gain = case.gain_of(|setting| setting.load.depth = depth);
    let block = words::size(f64::from(load.block_bytes));
    let because = vec![
        format!(
            "{} of {block} at once, and each takes {}: that is {} and no more.",
            requests(load.depth),
            words::time(case.service_s()),
            words::rate(case.rate.value),
        ),
        format!(
            "{} of that is the way there and back, in which more requests could be under way: {depth} at \
             once would give {}.",
            words::time(case.layers.round_trip_s),
            words::rate(case.rate.value * gain.predicted.unwrap_or(1.0)),
        ),
    ];
    let remedies = vec![
        Where::Application.remedy(format!(
            "keep {depth} requests under way (fio: iodepth={depth}; a database: its number of I/O \
                 threads or its read-ahead)"
        )),
        Where::Kernel.remedy("for files that are read from front to end: blockdev --setra 8192 DEVICE"),
        Where::OpenIscsi.remedy(format!(
            "node.session.queue_depth = {depth}, node.session.cmds_max = {}",
            (2 * depth).max(128)
        )),
        Where::Windows.remedy(
            "several outstanding requests need unbuffered or overlapped I/O in the application; MPIO does \
             not add any",
        ),
        Where::Esxi.remedy(format!(
            "esxcli storage core device set -d DEVICE --sched-num-req-outstanding {}, and in the guest a \
                 paravirtual SCSI adapter",
            depth.max(32)
        )),
    ];
    let trial = Some(Change { depth: Some(depth), ..Change::default() });
    Some(Found { cause: Cause::Depth, because, gain, remedies, trial })
}

/// The smallest that gives nearly all that more would.
fn enough(case: &Case<'_>) -> Option<u32> {
    let rate = |depth: u32| {
        let mut setting = case.setting.clone();
        setting.load.depth = depth;
        setting.predict().bytes_per_s
    };
    let most = rate(DEPTH_MAX);
    DEPTHS.into_iter().filter(|depth| *depth > case.load().depth).find(|depth| rate(*depth) >= ENOUGH * most)
}

fn requests(depth: u32) -> String {
    if depth == 1 { "One request".to_owned() } else { format!("{depth} requests") }
}
