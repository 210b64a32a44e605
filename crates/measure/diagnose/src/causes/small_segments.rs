//! Data travel in many short PDUs: each has a header, and work at both ends.

use super::{Found, settings, windows};
use crate::case::Case;
use crate::{Cause, Change, LoadRun, Remedy, Where, words};
use model::{Direction, Keys, Load};

/// RFC 7143's default (section 13.12). Below it, somebody set it so.
const USUAL_BYTES: u32 = 8192;
const LONG_BYTES: u32 = 262_144;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
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

/// What is left of a request's time without what PDUs beyond the first cost: that is what long requests take more than short
/// ones, as many at once, beside the copying.
fn mended(case: &Case<'_>, segment_bytes: u32) -> f64 {
    let headers = 1.0 + 48.0 / f64::from(segment_bytes.max(1));
    let at_the_ends = without_pdus(case).unwrap_or(1.0);
    let most = case.setting.path.payload_per_s.map_or(f64::INFINITY, |payload| payload / case.rate.value);
    at_the_ends.max(headers).min(most.max(1.0))
}

fn without_pdus(case: &Case<'_>) -> Option<f64> {
    let load = case.load();
    let shorter = |run: &&LoadRun| {
        run.load.depth == load.depth && !run.load.durable && run.load.block_bytes < load.block_bytes
    };
    let short = case.evidence.loads.iter().find(shorter)?;
    let pdus = |load: &Load| {
        f64::from(load.block_bytes.div_ceil(segment(&case.setting.keys, load.direction).max(1)))
    };
    let each_s = f64::from(load.block_bytes) / case.rate.value;
    let short_s = f64::from(short.load.block_bytes) / stats::median(&short.bytes_per_s);
    let copied_s = f64::from(load.block_bytes - short.load.block_bytes) / COPIED_PER_S;
    let more_pdus = (pdus(load) - pdus(&short.load)).max(1.0);
    let pdu_s = ((each_s - short_s - copied_s) / more_pdus).max(0.0);
    let mended_s = each_s - pdu_s * (pdus(load) - 1.0);
    Some(each_s / mended_s.max(f64::from(load.block_bytes) / COPIED_PER_S))
}

/// What the busier end copies between a socket and memory on a machine of today, one core: our own target and initiator
/// together reach 4 to 6 GB/s on loopback with 64 KiB, of which this is the copying.
const COPIED_PER_S: f64 = 8e9;

fn segment(keys: &Keys, direction: Direction) -> u32 {
    match direction {
        Direction::Read => keys.initiator_segment_bytes,
        Direction::Write => keys.target_segment_bytes,
    }
}

fn remedies(direction: Direction) -> Vec<Remedy> {
    match direction {
        Direction::Read => vec![
            Where::Url.remedy("max-segment=262144"),
            Where::OpenIscsi.remedy("node.conn[0].iscsi.MaxRecvDataSegmentLength = 262144"),
            windows("MaxRecvDataSegmentLength = 262144"),
            Where::Esxi.remedy("esxcli iscsi adapter param set -A ADAPTER -k MaxRecvDataSegment -v 131072"),
            Where::Target.remedy("MaxXmitDataSegmentLength, where a target limits what it sends"),
        ],
        Direction::Write => vec![
            Where::Linerate.remedy("[target.session] max-segment = \"256KiB\""),
            Where::Lio.remedy("targetcli /iscsi/IQN/tpg1 set parameter MaxRecvDataSegmentLength=262144"),
            Where::Tgt.remedy(
                "tgtadm --lld iscsi --mode target --op update --tid 1 --name MaxRecvDataSegmentLength \
                 --value 262144",
            ),
            Where::Target.remedy("MaxRecvDataSegmentLength of 64 KiB or more"),
            Where::OpenIscsi
                .remedy("node.conn[0].iscsi.MaxXmitDataSegmentLength = 0, which sends what the target takes"),
        ],
    }
}

/// What we take is ours to change.
fn trial(case: &Case<'_>) -> Option<Change> {
    let ours = case.load().direction == Direction::Read;
    ours.then(|| settings([("max-segment", LONG_BYTES.to_string())]))
}
