//! Causes in the parameters negotiated at login, and in the client's requests.

use model::{Direction, Keys, Load, Term};

use super::words;
use crate::case::{Case, Setting};
use crate::causes::{Found, settings, windows};
use crate::{Cause, Change, LoadRun, Remedy, Where, ceiling};

// The queue depth is too low for the distance. This applies only to a load that the user specified: the
// default load of single requests is there to measure latency.

/// The usual default queue depth of initiators for a LUN (open-iscsi's node.session.queue_depth). Every
/// target's queue has space for this number of commands.
const DEPTH_MAX: u32 = 32;
const DEPTHS: [u32; 5] = [2, 4, 8, 16, DEPTH_MAX];
/// The minimum share of a request's time that any command needs, on the path and at both ends. Above it, the
/// request waits for the distance. Below it, the request waits for something at the target, for which
/// additional requests would also wait.
const WAY_MIN: f64 = 0.5;
/// A depth is sufficient if it achieves this share of the highest rate of any depth.
const ENOUGH: f64 = 0.95;

pub(crate) fn depth(case: &Case<'_>) -> Option<Found> {
    let load = case.load();
    if !case.run.named
        || case.modelled.binding() != Some(Term::Depth)
        || case.symptoms.waiting >= 0.5
    {
        return None;
    }
    let sent_s = case
        .setting
        .path
        .payload_per_s
        .map_or(0.0, |payload| f64::from(load.block_bytes) / payload);
    let way_s = f64::from(case.modelled.exchanges) * case.layers.exchange_s() + sent_s;
    let far = way_s >= WAY_MIN * case.modelled_alone_s();
    if !far || !case.is_explained() {
        return None;
    }
    let depth = enough(case)?;
    let gain = case.gain_of(|setting| deepen(case, setting, depth));
    let block = words::size(f64::from(load.block_bytes));
    let mut because = vec![
        format!(
            "{} of {block} outstanding, each taking {}, gives {}.",
            requests(load.depth),
            words::time(case.service_s()),
            words::rate(case.rate.value),
        ),
        format!(
            "The round trip is {} of this time, and more requests could be outstanding during it: {depth} \
             would give {}.",
            words::time(case.layers.round_trip_s),
            words::rate(case.rate.value * gain.predicted.unwrap_or(1.0)),
        ),
    ];
    because.extend(
        case.evidence
            .command_window
            .filter(|window| *window < DEPTH_MAX)
            .map(|window| format!("The target's command window (MaxCmdSN) permits {window}.")),
    );
    let remedies = vec![
        Where::Application.remedy(format!(
            "keep {depth} requests outstanding (fio: iodepth={depth}; a database: its number of I/O \
                 threads or its read-ahead)"
        )),
        Where::Kernel.remedy("for files that are read sequentially: blockdev --setra 8192 DEVICE"),
        Where::OpenIscsi.remedy(format!(
            "node.session.queue_depth = {depth}, node.session.cmds_max = {}",
            (2 * depth).max(128)
        )),
        Where::Windows.remedy(
            "use unbuffered or overlapped I/O in the application to keep several requests outstanding; MPIO \
             does not add any",
        ),
        Where::Esxi.remedy(format!(
            "esxcli storage core device set -d DEVICE --sched-num-req-outstanding {}, and in the guest a \
                 paravirtual SCSI adapter",
            depth.max(32)
        )),
    ];
    let trial = Some(Change {
        depth: Some(depth),
        ..Change::default()
    });
    Some(Found {
        cause: Cause::Depth,
        because,
        gain,
        remedies,
        trial,
    })
}

/// Returns the smallest sufficient depth.
fn enough(case: &Case<'_>) -> Option<u32> {
    let rate = |depth: u32| {
        let mut setting = case.setting.clone();
        deepen(case, &mut setting, depth);
        setting.predict().bytes_per_s
    };
    let most = rate(DEPTH_MAX);
    DEPTHS
        .into_iter()
        .filter(|depth| *depth > case.load().depth)
        .find(|depth| rate(*depth) >= ENOUGH * most)
}

/// Increases the depth, of which the target's command window permits a part.
fn deepen(case: &Case<'_>, setting: &mut Setting, depth: u32) {
    setting.load.depth = depth;
    let window = case.evidence.command_window.map(f64::from);
    setting.path.commands_at_once = setting.path.commands_at_once.or(window);
}

fn requests(depth: u32) -> String {
    if depth == 1 {
        "One request".to_owned()
    } else {
        format!("{depth} requests")
    }
}

// The target allows fewer outstanding commands than the client would send: its MaxCmdSN is too low, or its
// queue is full and it returns TASK SET FULL.

/// The share of rejected requests from which the queue is too short. A lower share means that it was only
/// full occasionally.
const REFUSED_MIN: f64 = 0.01;

pub(crate) fn command_window(case: &Case<'_>) -> Option<Found> {
    let (run, load) = (case.run, case.load());
    let requests = run.service.count().max(1) as f64;
    let refused = run.busy_answers as f64 / requests >= REFUSED_MIN;
    let stalled =
        run.window_stalled >= ceiling::STALLED_MIN && case.setting.path.commands_at_once.is_some();
    if load.depth < 2 || !(refused || stalled) || case.modelled.binding() != Some(Term::Depth) {
        return None;
    }
    let depth = load.depth;
    let gain = case.gain_of(|setting| setting.path.commands_at_once = None);
    let mut because = vec![format!(
        "Of {depth} outstanding requests, {} on average had been sent to the target; requests spent {} of \
         their time waiting for the command window.",
        words::number(case.symptoms.at_once),
        words::share(case.symptoms.waiting),
    )];
    if stalled {
        because.push(format!(
            "The target's command window (MaxCmdSN) was full {} of the time.",
            words::share(run.window_stalled)
        ));
    }
    if refused {
        because.push(format!(
            "The target returned BUSY or TASK SET FULL {} times.",
            run.busy_answers
        ));
    }
    let window = depth.clamp(128, 65_536);
    let remedies = vec![
        Where::Linerate.remedy(format!("[limits] window = {}", window.max(256))),
        Where::Lio.remedy(format!(
            "targetcli /iscsi/IQN/tpg1 set attribute default_cmdsn_depth={window}, and for initiators with \
             their own ACL, acls/INITIATOR set attribute … cmdsn_depth={window}"
        )),
        Where::Tgt.remedy(format!(
            "tgtadm --lld iscsi --mode target --op update --tid 1 --name MaxQueueCmd --value {window}"
        )),
        Where::Target.remedy(
            "increase its queue depth or command window per session or host; until then, use several \
             sessions (multipath)",
        ),
        Where::OpenIscsi.remedy(format!(
            "node.session.cmds_max = {window} and node.session.queue_depth = {depth}, and \
                 node.session.nr_sessions = 4 if the target cannot be changed"
        )),
    ];
    Some(Found {
        cause: Cause::CommandWindow,
        because,
        gain,
        remedies,
        trial: None,
    })
}

// A write waits for an R2T before it sends its first data, which adds an avoidable round trip to every write.

/// The recommended amount of unsolicited data: all data of the most common writes, and the first part of
/// large ones.
const SOLICITATION_FIRST_BURST_BYTES: u32 = 262_144;
/// The minimum number of R2Ts per command.
const R2TS_MIN: f64 = 0.5;

pub(crate) fn solicitation(case: &Case<'_>) -> Option<Found> {
    let load = case.load();
    let mended = unasked(&case.setting.keys);
    let waits = case
        .modelled
        .exchanges
        .saturating_sub(mended.exchanges(load.direction, load.block_bytes));
    if load.direction != Direction::Write || waits == 0 || case.run.r2ts_per_command < R2TS_MIN {
        return None;
    }
    let got = &case.setting.keys;
    let gain = case.gain_of_exchanges(waits, |setting| setting.keys = mended);
    let because = vec![
        format!(
            "The login negotiated InitialR2T={}, ImmediateData={} and FirstBurstLength={}: a write of {} \
             waits {} for the target to request data (R2T).",
            words::yes(got.initial_r2t),
            words::yes(got.immediate_data),
            got.first_burst_bytes,
            words::size(f64::from(load.block_bytes)),
            times(case.modelled.exchanges - 1),
        ),
        format!(
            "Each wait takes a round trip and processing at both ends, {}; in the measurement, a write \
             waited {}.",
            words::time(case.layers.exchange_s()),
            words::time(case.run.parts.r2t_us / 1e6),
        ),
    ];
    Some(Found {
        cause: Cause::Solicitation,
        because,
        gain,
        remedies: solicitation_remedies(),
        trial: solicitation_trial(case),
    })
}

/// Returns the keys with the maximum of unsolicited data.
fn unasked(got: &Keys) -> Keys {
    Keys {
        initial_r2t: false,
        immediate_data: true,
        first_burst_bytes: got
            .first_burst_bytes
            .max(SOLICITATION_FIRST_BURST_BYTES.min(got.max_burst_bytes)),
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

fn solicitation_remedies() -> Vec<Remedy> {
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
            "InitialR2T=No, ImmediateData=Yes and a FirstBurstLength of 256 KiB; both sides must support \
             these values",
        ),
    ]
}

/// A key that we did not request can be tested by requesting it. A key that the target refused cannot.
fn solicitation_trial(case: &Case<'_>) -> Option<Change> {
    let (asked, got) = (case.evidence.asked?, &case.setting.keys);
    let ours = asked.initial_r2t && got.initial_r2t
        || !asked.immediate_data && !got.immediate_data
        || asked.first_burst_bytes <= got.first_burst_bytes
            && got.first_burst_bytes < SOLICITATION_FIRST_BURST_BYTES;
    ours.then(|| {
        settings([
            ("initial-r2t", "no".to_owned()),
            ("immediate-data", "yes".to_owned()),
            ("first-burst", SOLICITATION_FIRST_BURST_BYTES.to_string()),
        ])
    })
}

// A write waits for R2Ts repeatedly, because each R2T solicits a short burst and few R2Ts are outstanding.

/// The recommended length of a burst, longer than nearly any write.
const MAX_BURST_BYTES: u32 = 1_048_576;
const SMALL_BURSTS_FIRST_BURST_BYTES: u32 = 262_144;

pub(crate) fn small_bursts(case: &Case<'_>) -> Option<Found> {
    let load = case.load();
    let got = &case.setting.keys;
    let mended = longer(got);
    let waits = case
        .modelled
        .exchanges
        .saturating_sub(mended.exchanges(load.direction, load.block_bytes));
    if load.direction != Direction::Write
        || got.max_burst_bytes >= mended.max_burst_bytes
        || waits == 0
    {
        return None;
    }
    let gain = case.gain_of_exchanges(waits, |setting| setting.keys = mended);
    let because = vec![
        format!(
            "The login negotiated MaxBurstLength={} and MaxOutstandingR2T={}: the target requests a write of \
             {} in {} pieces.",
            got.max_burst_bytes,
            got.outstanding_r2ts,
            words::size(f64::from(load.block_bytes)),
            words::number(case.run.r2ts_per_command),
        ),
        format!(
            "Each wait takes a round trip and processing at both ends, {}; in the measurement, a write \
             waited {} of its {}.",
            words::time(case.layers.exchange_s()),
            words::time(case.run.parts.r2t_us / 1e6),
            words::time(case.service_s()),
        ),
    ];
    Some(Found {
        cause: Cause::SmallBursts,
        because,
        gain,
        remedies: small_bursts_remedies(),
        trial: small_bursts_trial(case),
    })
}

/// Returns the keys with longer bursts. FirstBurstLength must not exceed MaxBurstLength (RFC 7143 section
/// 13.14), so it also grows if MaxBurstLength limited it.
fn longer(got: &Keys) -> Keys {
    let cut = got.first_burst_bytes >= got.max_burst_bytes;
    Keys {
        max_burst_bytes: got.max_burst_bytes.max(MAX_BURST_BYTES),
        first_burst_bytes: if cut {
            got.first_burst_bytes.max(SMALL_BURSTS_FIRST_BURST_BYTES)
        } else {
            got.first_burst_bytes
        },
        ..*got
    }
}

fn small_bursts_remedies() -> Vec<Remedy> {
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
            "MaxBurstLength of 1 MiB or more, FirstBurstLength of 256 KiB; the smaller of the two sides' \
             values applies",
        ),
    ]
}

fn small_bursts_trial(case: &Case<'_>) -> Option<Change> {
    let asked = case.evidence.asked?;
    let ours = asked.max_burst_bytes <= case.setting.keys.max_burst_bytes;
    ours.then(|| {
        settings([
            ("max-burst", "16776192".to_owned()),
            ("first-burst", SMALL_BURSTS_FIRST_BURST_BYTES.to_string()),
        ])
    })
}

// Data is transferred in many short PDUs. Each has a header, and causes work at both ends.

/// The default of RFC 7143 (section 13.12). A lower value must have been set explicitly.
const USUAL_BYTES: u32 = 8192;
const LONG_BYTES: u32 = 262_144;

pub(crate) fn small_segments(case: &Case<'_>) -> Option<Found> {
    let (load, keys) = (case.load(), &case.setting.keys);
    let (segment_bytes, whose) = match load.direction {
        Direction::Read => (keys.initiator_segment_bytes, "This machine"),
        Direction::Write => (keys.target_segment_bytes, "The target"),
    };
    if segment_bytes >= USUAL_BYTES || load.block_bytes <= segment_bytes {
        return None;
    }
    let gain = case.gain(mended(case, segment_bytes));
    let pdus = load.block_bytes.div_ceil(segment_bytes.max(1));
    let because = vec![
        format!(
            "{whose} accepts data segments of up to {segment_bytes} bytes (MaxRecvDataSegmentLength): {} of {} need \
             {pdus} PDUs.",
            if load.direction == Direction::Read {
                "reads"
            } else {
                "writes"
            },
            words::size(f64::from(load.block_bytes)),
        ),
        format!(
            "Their headers are {} of the bytes sent, and both ends handle each PDU separately.",
            words::share(48.0 / (48.0 + f64::from(segment_bytes))),
        ),
    ];
    let remedies = small_segments_remedies(load.direction);
    Some(Found {
        cause: Cause::SmallSegments,
        because,
        gain,
        remedies,
        trial: small_segments_trial(case),
    })
}

/// Returns the gain from longer PDUs: the ratio of a request's current time to its time if it had only one
/// PDU. The cost of a PDU follows from the extra time of long requests over short ones at the same depth,
/// minus the time to copy the extra data.
fn mended(case: &Case<'_>, segment_bytes: u32) -> f64 {
    let headers = 1.0 + 48.0 / f64::from(segment_bytes.max(1));
    let at_the_ends = without_pdus(case).unwrap_or(1.0);
    let most = case
        .setting
        .path
        .payload_per_s
        .map_or(f64::INFINITY, |payload| payload / case.rate.value);
    at_the_ends.max(headers).min(most.max(1.0))
}

fn without_pdus(case: &Case<'_>) -> Option<f64> {
    let load = case.load();
    let shorter = |run: &&LoadRun| {
        run.load.depth == load.depth && !run.load.durable && run.load.block_bytes < load.block_bytes
    };
    let short = case.evidence.loads.iter().find(shorter)?;
    let pdus = |load: &Load| {
        f64::from(
            load.block_bytes
                .div_ceil(segment(&case.setting.keys, load.direction).max(1)),
        )
    };
    let each_s = f64::from(load.block_bytes) / case.rate.value;
    let short_s = f64::from(short.load.block_bytes) / stats::median(&short.bytes_per_s);
    let copied_s = f64::from(load.block_bytes - short.load.block_bytes) / COPIED_PER_S;
    let more_pdus = (pdus(load) - pdus(&short.load)).max(1.0);
    let pdu_s = ((each_s - short_s - copied_s) / more_pdus).max(0.0);
    let mended_s = each_s - pdu_s * (pdus(load) - 1.0);
    Some(each_s / mended_s.max(f64::from(load.block_bytes) / COPIED_PER_S))
}

/// The rate at which a core of a current machine copies data between a socket and memory. Linerate's target
/// and initiator together reach 4 to 6 GB/s on loopback with 64 KiB requests; this is the rate of the copying
/// alone.
const COPIED_PER_S: f64 = 8e9;

fn segment(keys: &Keys, direction: Direction) -> u32 {
    match direction {
        Direction::Read => keys.initiator_segment_bytes,
        Direction::Write => keys.target_segment_bytes,
    }
}

fn small_segments_remedies(direction: Direction) -> Vec<Remedy> {
    match direction {
        Direction::Read => vec![
            Where::Url.remedy("max-segment=262144"),
            Where::OpenIscsi.remedy("node.conn[0].iscsi.MaxRecvDataSegmentLength = 262144"),
            windows("MaxRecvDataSegmentLength = 262144"),
            Where::Esxi.remedy("esxcli iscsi adapter param set -A ADAPTER -k MaxRecvDataSegment -v 131072"),
            Where::Target.remedy("increase MaxXmitDataSegmentLength, if the target has such a setting"),
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
                .remedy("node.conn[0].iscsi.MaxXmitDataSegmentLength = 0, which uses the target's limit"),
        ],
    }
}

/// Only the length of received segments is a setting of the client.
fn small_segments_trial(case: &Case<'_>) -> Option<Change> {
    let ours = case.load().direction == Direction::Read;
    ours.then(|| settings([("max-segment", LONG_BYTES.to_string())]))
}

// Digests use CPU time, and a CPU is saturated.

/// The minimum load of a thread. A thread that is idle for a tenth of the time has enough CPU time for the
/// digests.
const BUSY_MIN: f64 = 0.9;

pub(crate) fn digests(case: &Case<'_>) -> Option<Found> {
    let keys = &case.setting.keys;
    let took = case.run.client_digests?;
    let busy = case
        .run
        .client_busy
        .max(case.run.server_busy.unwrap_or(0.0));
    if !(keys.header_digest || keys.data_digest) || busy < BUSY_MIN {
        return None;
    }
    let gain = case.gain_to(case.rate.value / (1.0 - took.clamp(0.0, 0.9)));
    let because = vec![
        format!(
            "The login negotiated HeaderDigest={} and DataDigest={}, and this machine spent {} of its time \
             on digests.",
            if keys.header_digest { "CRC32C" } else { "None" },
            if keys.data_digest { "CRC32C" } else { "None" },
            words::share(took),
        ),
        format!(
            "The busiest thread ran {} of the time, so digests reduce its throughput.",
            words::share(busy)
        ),
    ];
    let remedies = vec![
        Where::Url.remedy(
            "header-digest=none&data-digest=none, if the network is reliable: TCP's checksum misses about \
             one corrupted packet in ten thousand",
        ),
        Where::OpenIscsi
            .remedy("node.conn[0].iscsi.HeaderDigest = None, node.conn[0].iscsi.DataDigest = None"),
        Where::Esxi.remedy(
            "esxcli iscsi adapter param set -A ADAPTER -k HeaderDigest -v prohibited, likewise DataDigest",
        ),
        Where::Windows.remedy("disable the data digest in the advanced settings of the connection"),
        Where::Target
            .remedy("use a CPU with a CRC32C instruction (SSE4.2, ARMv8), and a target that uses it"),
    ];
    let trial = Some(settings([
        ("header-digest", "none".to_owned()),
        ("data-digest", "none".to_owned()),
    ]));
    Some(Found {
        cause: Cause::Digests,
        because,
        gain,
        remedies,
        trial,
    })
}
