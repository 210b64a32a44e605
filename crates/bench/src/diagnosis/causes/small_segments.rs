//! Data travel in many short PDUs: each has a header, and work at both ends.

use super::{Found, remedy, settings, windows};
use crate::diagnosis::case::Case;
use crate::diagnosis::{Cause, Change, Remedy, Where, words};
use crate::model::{Direction, Keys};

/// RFC 7143's default (section 13.12). Below it, somebody set it so.
const USUAL_BYTES: u32 = 8192;
const LONG_BYTES: u32 = 262_144;

pub(in crate::diagnosis) fn find(case: &Case<'_>) -> Option<Found> {
    let (load, keys) = (case.load(), &case.setting.keys);
    let (segment_bytes, whose) = match load.direction {
        Direction::Read => (keys.initiator_segment_bytes, "this machine"),
        Direction::Write => (keys.target_segment_bytes, "the target"),
    };
    if segment_bytes >= USUAL_BYTES || load.block_bytes <= segment_bytes {
        return None;
    }
    let gain = case.gain(mended(case, segment_bytes));
    let pdus = load.block_bytes.div_ceil(segment_bytes.max(1));
    let because = vec![
        format!(
            "{whose} takes data segments of no more than {segment_bytes} bytes (MaxRecvDataSegmentLength): \
             {} of {} come in {pdus} PDUs.",
            if load.direction == Direction::Read { "reads" } else { "writes" },
            words::size(f64::from(load.block_bytes)),
        ),
        format!(
            "Their headers are {} of what is sent, and both ends handle each PDU by itself.",
            words::share(48.0 / (48.0 + f64::from(segment_bytes))),
        ),
    ];
    let remedies = remedies(load.direction);
    Some(Found { cause: Cause::SmallSegments, because, gain, remedies, trial: trial(case) })
}

/// Requests of as many bytes in long PDUs cost at the ends what the other direction's cost, if that has long ones, and
/// otherwise what it takes to copy them.
fn mended(case: &Case<'_>, segment_bytes: u32) -> f64 {
    let load = case.load();
    let other = match load.direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    };
    let data_s = |direction| data_s(case, direction, load.block_bytes);
    let long_s = f64::from(load.block_bytes) / COPIED_PER_S;
    let other_s =
        data_s(other).filter(|_| segment(&case.setting.keys, other) >= USUAL_BYTES).unwrap_or(long_s);
    let now_s = data_s(load.direction).unwrap_or(long_s);
    let headers = 1.0 + 48.0 / f64::from(segment_bytes.max(1));
    let at_the_ends = (now_s / other_s.max(long_s)).max(headers);
    let most = case.setting.path.payload_per_s.map_or(f64::INFINITY, |payload| payload / case.rate.value);
    at_the_ends.min(most.max(1.0))
}

/// What both ends' kernels and programs together copy of a command's data, one after the other, on a machine of today.
const COPIED_PER_S: f64 = 2e9;

/// What the data of a command take on top of a command of one block.
fn data_s(case: &Case<'_>, direction: Direction, bytes: u32) -> Option<f64> {
    let whole_s = case.layers.alone_s(direction, bytes)?;
    let block_s = case.layers.alone_s(direction, case.evidence.storage.block_bytes)?;
    Some(whole_s - block_s).filter(|data_s| *data_s > 0.0)
}

fn segment(keys: &Keys, direction: Direction) -> u32 {
    match direction {
        Direction::Read => keys.initiator_segment_bytes,
        Direction::Write => keys.target_segment_bytes,
    }
}

fn remedies(direction: Direction) -> Vec<Remedy> {
    match direction {
        Direction::Read => vec![
            remedy(Where::Url, "max-segment=262144"),
            remedy(Where::OpenIscsi, "node.conn[0].iscsi.MaxRecvDataSegmentLength = 262144"),
            windows("MaxRecvDataSegmentLength = 262144"),
            remedy(Where::Esxi, "esxcli iscsi adapter param set -A ADAPTER -k MaxRecvDataSegment -v 131072"),
            remedy(Where::Target, "MaxXmitDataSegmentLength, where a target limits what it sends"),
        ],
        Direction::Write => vec![
            remedy(Where::Linerate, "[target.session] max-segment = \"256KiB\""),
            remedy(Where::Lio, "targetcli /iscsi/IQN/tpg1 set parameter MaxRecvDataSegmentLength=262144"),
            remedy(
                Where::Tgt,
                "tgtadm --lld iscsi --mode target --op update --tid 1 --name MaxRecvDataSegmentLength \
                 --value 262144",
            ),
            remedy(Where::Target, "MaxRecvDataSegmentLength of 64 KiB or more"),
            remedy(
                Where::OpenIscsi,
                "node.conn[0].iscsi.MaxXmitDataSegmentLength = 0, which sends what the target takes",
            ),
        ],
    }
}

/// What we take is ours to change.
fn trial(case: &Case<'_>) -> Option<Change> {
    let ours = case.load().direction == Direction::Read;
    ours.then(|| settings([("max-segment", LONG_BYTES.to_string())]))
}
