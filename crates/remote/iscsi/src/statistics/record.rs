//! Statistics in JSON: one object, with units in the names of its fields.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use reactor::PathInfo;
use serde::{Serialize, Serializer};

use crate::statistics::{
    Calls, Class, ClassStatistics, ConnectionStatistics, Counters, Incidents, Latency, Phase, RoundTrips,
    Statistics,
};

impl Serialize for Statistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Record::new(self).serialize(serializer)
    }
}

#[derive(Serialize)]
struct Record {
    seconds: f64,
    read: ClassRecord,
    write: ClassRecord,
    other: ClassRecord,
    written_bytes: WrittenRecord,
    data_in_bytes: u64,
    r2ts: u64,
    rejects: u64,
    window: WindowRecord,
    nops: NopRecord,
    reads: CallsRecord,
    writes: CallsRecord,
    digests: DigestRecord,
    incidents: IncidentsRecord,
    connections: Vec<ConnectionRecord>,
}

#[derive(Serialize)]
struct ClassRecord {
    commands: u64,
    errors: u64,
    bytes: u64,
    latency_us: LatencyRecord,
    /// By name: `waiting`, and the phases. They make the whole.
    parts_us: BTreeMap<&'static str, LatencyRecord>,
}

#[derive(Serialize)]
struct LatencyRecord {
    mean: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[derive(Serialize)]
struct WrittenRecord {
    immediate: u64,
    unsolicited: u64,
    solicited: u64,
}

#[derive(Serialize)]
struct WindowRecord {
    room: u32,
    under_way: u32,
    stalls: u64,
    stalled_seconds: f64,
}

#[derive(Serialize)]
struct NopRecord {
    count: u64,
    mean_us: Option<f64>,
    min_us: Option<f64>,
    max_us: Option<f64>,
}

#[derive(Serialize)]
struct CallsRecord {
    calls: u64,
    idle: u64,
    bytes: u64,
    pdus: u64,
}

#[derive(Serialize)]
struct DigestRecord {
    segments: u64,
    bytes: u64,
    estimated_seconds: f64,
}

#[derive(Serialize)]
struct IncidentsRecord {
    busy: u64,
    task_set_full: u64,
    unit_attentions: u64,
    replays: u64,
    timeouts: u64,
    aborts: u64,
    resets: u64,
    connections_lost: u64,
    reconnects: u64,
    away_seconds: f64,
    away_seconds_max: f64,
}

#[derive(Serialize)]
struct ConnectionRecord {
    cid: u16,
    local: SocketAddr,
    peer: SocketAddr,
    path: Option<PathRecord>,
}

#[derive(Serialize)]
struct PathRecord {
    congestion: String,
    round_trip_us: f64,
    round_trip_deviation_us: f64,
    round_trip_min_us: Option<f64>,
    receive_round_trip_us: Option<f64>,
    segment_bytes: u32,
    path_mtu_bytes: u32,
    congestion_window_segments: u32,
    peer_window_bytes: Option<u32>,
    receive_space_bytes: u32,
    own_window_bytes: Option<u32>,
    data_segments_in: Option<u32>,
    data_segments_out: Option<u32>,
    out_of_order_segments: Option<u32>,
    unsent_bytes: Option<u32>,
    retransmissions: u32,
    sent_bytes: Option<u64>,
    retransmitted_bytes: Option<u64>,
    received_bytes: Option<u64>,
    reorderings: Option<u32>,
    duplicates: Option<u32>,
    delivery_bytes_per_second: Option<u64>,
    delivery_limited_by_sender: Option<bool>,
    busy_seconds: Option<f64>,
    limited_by_receiver_seconds: Option<f64>,
    limited_by_send_buffer_seconds: Option<f64>,
}

impl Record {
    fn new(of: &Statistics) -> Record {
        let Counters { immediate_bytes, unsolicited_bytes, solicited_bytes, .. } = of.counters;
        Record {
            seconds: of.time.as_secs_f64(),
            read: ClassRecord::new(&of.read),
            write: ClassRecord::new(&of.write),
            other: ClassRecord::new(&of.other),
            written_bytes: WrittenRecord {
                immediate: immediate_bytes,
                unsolicited: unsolicited_bytes,
                solicited: solicited_bytes,
            },
            data_in_bytes: of.counters.data_in_bytes,
            r2ts: of.counters.r2ts,
            rejects: of.counters.rejects,
            window: WindowRecord {
                room: of.window_room,
                under_way: of.under_way,
                stalls: of.counters.window_stalls,
                stalled_seconds: of.counters.window_stalled.as_secs_f64(),
            },
            nops: NopRecord::new(&of.counters.nops),
            reads: CallsRecord::new(of.received, of.counters.pdus_in),
            writes: CallsRecord::new(of.sent, of.counters.pdus_out),
            digests: DigestRecord {
                segments: of.digests.segments,
                bytes: of.digests.bytes,
                estimated_seconds: of.digests.estimate().as_secs_f64(),
            },
            incidents: IncidentsRecord::new(&of.incidents),
            connections: of.connections.iter().map(ConnectionRecord::new).collect(),
        }
    }
}

impl ClassRecord {
    fn new(of: &ClassStatistics) -> ClassRecord {
        let phases = Phase::ALL.map(|phase| (phase_name(phase), LatencyRecord::new(of.phase(phase))));
        let waiting = ("waiting", LatencyRecord::new(&of.waiting));
        ClassRecord {
            commands: of.commands,
            errors: of.errors,
            bytes: of.bytes,
            latency_us: LatencyRecord::new(&of.latency),
            parts_us: std::iter::once(waiting).chain(phases).collect(),
        }
    }
}

impl LatencyRecord {
    fn new(of: &Latency) -> LatencyRecord {
        let percentile = |percent| us(of.percentile(percent));
        LatencyRecord {
            mean: us(of.mean()),
            p50: percentile(50.0),
            p99: percentile(99.0),
            p999: percentile(99.9),
            max: us(of.max()),
        }
    }
}

impl NopRecord {
    fn new(of: &RoundTrips) -> NopRecord {
        NopRecord {
            count: of.count,
            mean_us: of.mean().map(us),
            min_us: of.min.map(us),
            max_us: of.max.map(us),
        }
    }
}

impl CallsRecord {
    fn new(of: Calls, pdus: u64) -> CallsRecord {
        CallsRecord { calls: of.calls, idle: of.idle, bytes: of.bytes, pdus }
    }
}

impl IncidentsRecord {
    fn new(of: &Incidents) -> IncidentsRecord {
        IncidentsRecord {
            busy: of.busy,
            task_set_full: of.task_set_full,
            unit_attentions: of.unit_attentions,
            replays: of.replays,
            timeouts: of.timeouts,
            aborts: of.aborts,
            resets: of.resets,
            connections_lost: of.connections_lost,
            reconnects: of.reconnects,
            away_seconds: of.away.as_secs_f64(),
            away_seconds_max: of.away_longest.as_secs_f64(),
        }
    }
}

impl ConnectionRecord {
    fn new(of: &ConnectionStatistics) -> ConnectionRecord {
        let path = of.path.as_ref().map(PathRecord::new);
        ConnectionRecord { cid: of.cid.0, local: of.local, peer: of.peer, path }
    }
}

impl PathRecord {
    fn new(of: &PathInfo) -> PathRecord {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        PathRecord {
            congestion: of.congestion.clone(),
            round_trip_us: us(of.round_trip),
            round_trip_deviation_us: us(of.round_trip_deviation),
            round_trip_min_us: of.round_trip_min.map(us),
            receive_round_trip_us: of.receive_round_trip.map(us),
            segment_bytes: of.segment_bytes,
            path_mtu_bytes: of.path_mtu_bytes,
            congestion_window_segments: of.congestion_window_segments,
            peer_window_bytes: of.peer_window_bytes,
            receive_space_bytes: of.receive_space_bytes,
            own_window_bytes: of.own_window_bytes,
            data_segments_in: of.data_segments_in,
            data_segments_out: of.data_segments_out,
            out_of_order_segments: of.out_of_order_segments,
            unsent_bytes: of.unsent_bytes,
            retransmissions: of.retransmissions,
            sent_bytes: of.sent_bytes,
            retransmitted_bytes: of.retransmitted_bytes,
            received_bytes: of.received_bytes,
            reorderings: of.reorderings,
            duplicates: of.duplicates,
            delivery_bytes_per_second: of.delivery_bytes_per_second,
            delivery_limited_by_sender: of.delivery_limited_by_sender,
            busy_seconds: seconds(of.busy),
            limited_by_receiver_seconds: seconds(of.limited_by_receiver),
            limited_by_send_buffer_seconds: seconds(of.limited_by_send_buffer),
        }
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

// Statistics as text: a table of latencies, then one line for each other figure.

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mean, p50, p99, p999, max] = ["mean", "p50", "p99", "p99.9", "longest"];
        let time = format!("in {}", span(self.time));
        writeln!(
            f,
            "{time:<14}{:>12}{:>8}{:>10}{mean:>10}{p50:>10}{p99:>10}{p999:>10}{max:>10}",
            "commands", "errors", "data"
        )?;
        for class in Class::ALL {
            write_class(f, name(class), self.class(class))?;
        }
        write_counters(f, self)?;
        write_incidents(f, &self.incidents)?;
        self.connections.iter().try_for_each(|connection| write_connection(f, connection))
    }
}

fn name(class: Class) -> &'static str {
    match class {
        Class::Read => "read",
        Class::Write => "write",
        Class::Other => "other",
    }
}

pub(crate) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Sending => "sending",
        Phase::R2t => "r2t",
        Phase::Answer => "answer",
        Phase::Data => "data",
        Phase::Status => "status",
    }
}

/// A class, and under it the parts that its latency is made of; those that took no time are left out.
fn write_class(f: &mut fmt::Formatter<'_>, name: &str, class: &ClassStatistics) -> fmt::Result {
    if class.commands == 0 {
        return Ok(());
    }
    write!(f, "{name:<14}{:>12}{:>8}{:>10}", class.commands, class.errors, bytes(class.bytes))?;
    write_latency(f, &class.latency)?;
    let phases = Phase::ALL.map(|phase| (phase_name(phase), class.phase(phase)));
    for (name, part) in std::iter::once(("waiting", &class.waiting)).chain(phases) {
        if !part.max().is_zero() {
            write!(f, "  {name:<12}{:>30}", "")?;
            write_latency(f, part)?;
        }
    }
    Ok(())
}

fn write_latency(f: &mut fmt::Formatter<'_>, latency: &Latency) -> fmt::Result {
    if latency.count() == 0 {
        return writeln!(f);
    }
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| span(latency.percentile(percent)));
    let (mean, max) = (span(latency.mean()), span(latency.max()));
    writeln!(f, "{mean:>10}{p50:>10}{p99:>10}{p999:>10}{max:>10}")
}

fn write_counters(f: &mut fmt::Formatter<'_>, statistics: &Statistics) -> fmt::Result {
    let Counters { immediate_bytes, unsolicited_bytes, solicited_bytes, r2ts, .. } = statistics.counters;
    let Counters { window_stalls, window_stalled, nops, .. } = statistics.counters;
    if immediate_bytes + unsolicited_bytes + solicited_bytes > 0 {
        writeln!(
            f,
            "written       {} with the commands, {} unasked, {} asked for by {r2ts} R2Ts",
            bytes(immediate_bytes),
            bytes(unsolicited_bytes),
            bytes(solicited_bytes),
        )?;
    }
    writeln!(
        f,
        "window        no room {window_stalls} times, together {}; {} under way, room for {}",
        span(window_stalled),
        statistics.under_way,
        statistics.window_room,
    )?;
    if let (Some(read), Some(write)) = (statistics.pdus_per_read(), statistics.pdus_per_write()) {
        writeln!(f, "calls         {read:.1} PDUs a read, {write:.1} a write")?;
    }
    if let (Some(mean), Some(min), Some(max)) = (nops.mean(), nops.min, nops.max) {
        writeln!(
            f,
            "NOPs          {}, mean {}, from {} to {}",
            nops.count,
            span(mean),
            span(min),
            span(max)
        )?;
    }
    let digests = &statistics.digests;
    if digests.segments > 0 {
        let (time, data) = (span(digests.estimate()), bytes(digests.bytes));
        writeln!(f, "digests       about {time} for {data}")?;
    }
    Ok(())
}

/// Only what there was of it.
fn write_incidents(f: &mut fmt::Formatter<'_>, incidents: &Incidents) -> fmt::Result {
    let counts = [
        (incidents.busy, "BUSY"),
        (incidents.task_set_full, "TASK SET FULL"),
        (incidents.unit_attentions, "unit attentions"),
        (incidents.timeouts, "timeouts"),
        (incidents.aborts, "aborts"),
        (incidents.resets, "resets"),
        (incidents.connections_lost, "connections lost"),
        (incidents.replays, "commands sent again"),
    ];
    let said: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !said.is_empty() {
        writeln!(f, "incidents     {}", said.join(", "))?;
    }
    if incidents.reconnects > 0 {
        let (away, longest) = (span(incidents.away), span(incidents.away_longest));
        writeln!(f, "reconnects    {}, away for {away}, at most {longest} at a time", incidents.reconnects)?;
    }
    Ok(())
}

fn write_connection(f: &mut fmt::Formatter<'_>, connection: &ConnectionStatistics) -> fmt::Result {
    write!(f, "connection {:<3}{}", connection.cid.0, connection.peer)?;
    match &connection.path {
        Some(path) => write_path(f, path),
        None => writeln!(f),
    }
}

fn write_path(f: &mut fmt::Formatter<'_>, path: &PathInfo) -> fmt::Result {
    let (round_trip, deviation) = (span(path.round_trip), span(path.round_trip_deviation));
    write!(f, ": {}, round trip {round_trip} ± {deviation}", path.congestion)?;
    if let Some(min) = path.round_trip_min {
        write!(f, ", at best {}", span(min))?;
    }
    let (segments, segment) = (path.congestion_window_segments, path.segment_bytes);
    write!(f, "; window {segments} segments of {segment} bytes")?;
    write!(f, "; {} sent again", path.retransmissions)?;
    if let (Some(busy), Some(receiver), Some(buffer)) =
        (path.busy, path.limited_by_receiver, path.limited_by_send_buffer)
    {
        let (busy, receiver, buffer) = (span(busy), span(receiver), span(buffer));
        write!(f, "; sending for {busy}, held up by the peer for {receiver}, by our buffer for {buffer}")?;
    }
    writeln!(f)
}

/// A time with three digits.
pub(crate) fn span(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    let (value, unit) = match ns {
        0.0 => return "0".to_owned(),
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "µs"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// So many bytes, with three digits and decimal units.
pub(crate) fn bytes(count: u64) -> String {
    let bytes = count as f64;
    let (value, unit) = match bytes {
        ..1e3 => return format!("{count} B"),
        ..1e6 => (bytes / 1e3, "kB"),
        ..1e9 => (bytes / 1e6, "MB"),
        ..1e12 => (bytes / 1e9, "GB"),
        _ => (bytes / 1e12, "TB"),
    };
    format!("{} {unit}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}
