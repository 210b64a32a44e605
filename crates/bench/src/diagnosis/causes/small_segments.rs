//! Data travel in many short PDUs: each has a header, and work at both ends.

use super::{Found, remedy, settings, windows};
use crate::diagnosis::case::Case;
use crate::diagnosis::{Cause, Change, LoadRun, Remedy, Where, words};
use crate::model::{Direction, Keys};
use crate::statistics;

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

/// What the same load is in the other direction, if that has long PDUs; otherwise what is left of a request's time without
/// what PDUs beyond the first cost. That is what longer requests take more than shorter ones, beside the copying.
fn mended(case: &Case<'_>, segment_bytes: u32) -> f64 {
    let headers = 1.0 + 48.0 / f64::from(segment_bytes.max(1));
    let at_the_ends =
        in_the_other_direction(case).or_else(|| without_pdus(case, segment_bytes)).unwrap_or(1.0);
    let most = case.setting.path.payload_per_s.map_or(f64::INFINITY, |payload| payload / case.rate.value);
    at_the_ends.max(headers).min(most.max(1.0))
}

fn in_the_other_direction(case: &Case<'_>) -> Option<f64> {
    let load = case.load();
    let other = match load.direction {
        Direction::Read => Direction::Write,
        Direction::Write => Direction::Read,
    };
    let same = |run: &&LoadRun| {
        let size = run.load.block_bytes == load.block_bytes && run.load.depth == load.depth;
        size && run.load.direction == other && !run.load.durable
    };
    let long = segment(&case.setting.keys, other) >= USUAL_BYTES;
    let run = case.evidence.loads.iter().find(same).filter(|_| long)?;
    Some(statistics::median(&run.bytes_per_s) / case.rate.value)
}

fn without_pdus(case: &Case<'_>, segment_bytes: u32) -> Option<f64> {
    let load = case.load();
    let shorter = |run: &&LoadRun| {
        let same = run.load.direction == load.direction && run.load.depth == load.depth;
        same && !run.load.durable && run.load.block_bytes < load.block_bytes
    };
    let run = case.evidence.loads.iter().find(shorter)?;
    let each_s = f64::from(load.block_bytes) / case.rate.value;
    let shorter_s = f64::from(run.load.block_bytes) / statistics::median(&run.bytes_per_s);
    let pdus = |bytes: u32| f64::from(bytes.div_ceil(segment_bytes.max(1)));
    let more_bytes = f64::from(load.block_bytes - run.load.block_bytes);
    let more_pdus = pdus(load.block_bytes) - pdus(run.load.block_bytes);
    let pdu_s = (each_s - shorter_s - more_bytes / COPIED_PER_S) / more_pdus.max(1.0);
    let mended_s = each_s - pdu_s.max(0.0) * (pdus(load.block_bytes) - 1.0);
    Some(each_s / mended_s.max(f64::from(load.block_bytes) / COPIED_PER_S))
}

/// What one thread copies between a socket and memory on a machine of today.
const COPIED_PER_S: f64 = 4e9;

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
