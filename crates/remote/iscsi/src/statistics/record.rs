//! Statistics as JSON: one object, with units in the names of its fields.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use reactor::PathInfo;
use serde::{Serialize, Serializer};

use crate::statistics::{
    Calls, Class, ClassStatistics, ConnectionStatistics, Counters, DigestTime, Incidents, Latency,
    Phase, RoundTrips, Statistics,
};

impl Serialize for Statistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Record::new(self).serialize(serializer)
    }
}

/// Defines a part of the object, by the name, the type and the value of each field.
macro_rules! record {
    ($name:ident($of:ident: $source:ty) { $($field:ident: $type:ty = $value:expr,)* }) => {
        #[derive(Serialize)]
        struct $name {
            $($field: $type,)*
        }

        impl $name {
            fn new($of: $source) -> $name {
                $name { $($field: $value,)* }
            }
        }
    };
}

record! {
    Record(of: &Statistics) {
        seconds: f64 = of.time.as_secs_f64(),
        read: ClassRecord = ClassRecord::new(&of.read),
        write: ClassRecord = ClassRecord::new(&of.write),
        other: ClassRecord = ClassRecord::new(&of.other),
        written_bytes: WrittenRecord = WrittenRecord::new(&of.counters),
        data_in_bytes: u64 = of.counters.data_in_bytes,
        r2ts: u64 = of.counters.r2ts,
        rejects: u64 = of.counters.rejects,
        window: WindowRecord = WindowRecord::new(of),
        nops: NopRecord = NopRecord::new(&of.counters.nops),
        reads: CallsRecord = CallsRecord::new((of.received, of.counters.pdus_in)),
        writes: CallsRecord = CallsRecord::new((of.sent, of.counters.pdus_out)),
        digests: DigestRecord = DigestRecord::new(&of.digests),
        incidents: IncidentsRecord = IncidentsRecord::new(&of.incidents),
        connections: Vec<ConnectionRecord> = of.connections.iter().map(ConnectionRecord::new).collect(),
    }
}

record! {
    ClassRecord(of: &ClassStatistics) {
        commands: u64 = of.commands,
        errors: u64 = of.errors,
        bytes: u64 = of.bytes,
        latency_us: LatencyRecord = LatencyRecord::new(&of.latency),
        parts_us: BTreeMap<&'static str, LatencyRecord> = parts(of),
    }
}

/// Returns the parts of a latency by name: `waiting`, and the phases. They add up to the whole latency.
fn parts(of: &ClassStatistics) -> BTreeMap<&'static str, LatencyRecord> {
    let phases = Phase::ALL.map(|phase| (phase_name(phase), LatencyRecord::new(of.phase(phase))));
    std::iter::once(("waiting", LatencyRecord::new(&of.waiting)))
        .chain(phases)
        .collect()
}

record! {
    LatencyRecord(of: &Latency) {
        mean: f64 = us(of.mean()),
        p50: f64 = us(of.percentile(50.0)),
        p99: f64 = us(of.percentile(99.0)),
        p999: f64 = us(of.percentile(99.9)),
        max: f64 = us(of.max()),
    }
}

record! {
    WrittenRecord(of: &Counters) {
        immediate: u64 = of.immediate_bytes,
        unsolicited: u64 = of.unsolicited_bytes,
        solicited: u64 = of.solicited_bytes,
    }
}

record! {
    WindowRecord(of: &Statistics) {
        room: u32 = of.window_room,
        under_way: u32 = of.under_way,
        stalls: u64 = of.counters.window_stalls,
        stalled_seconds: f64 = of.counters.window_stalled.as_secs_f64(),
    }
}

record! {
    NopRecord(of: &RoundTrips) {
        count: u64 = of.count,
        mean_us: Option<f64> = of.mean().map(us),
        min_us: Option<f64> = of.min.map(us),
        max_us: Option<f64> = of.max.map(us),
    }
}

record! {
    CallsRecord(of: (Calls, u64)) {
        calls: u64 = of.0.calls,
        idle: u64 = of.0.idle,
        bytes: u64 = of.0.bytes,
        pdus: u64 = of.1,
    }
}

record! {
    DigestRecord(of: &DigestTime) {
        segments: u64 = of.segments,
        bytes: u64 = of.bytes,
        estimated_seconds: f64 = of.estimate().as_secs_f64(),
    }
}

record! {
    IncidentsRecord(of: &Incidents) {
        busy: u64 = of.busy,
        task_set_full: u64 = of.task_set_full,
        unit_attentions: u64 = of.unit_attentions,
        replays: u64 = of.replays,
        timeouts: u64 = of.timeouts,
        aborts: u64 = of.aborts,
        resets: u64 = of.resets,
        connections_lost: u64 = of.connections_lost,
        reconnects: u64 = of.reconnects,
        away_seconds: f64 = of.away.as_secs_f64(),
        away_seconds_max: f64 = of.away_longest.as_secs_f64(),
    }
}

record! {
    ConnectionRecord(of: &ConnectionStatistics) {
        cid: u16 = of.cid.0,
        local: SocketAddr = of.local,
        peer: SocketAddr = of.peer,
        path: Option<PathRecord> = of.path.as_ref().map(PathRecord::new),
    }
}

record! {
    PathRecord(of: &PathInfo) {
        congestion: String = of.congestion.clone(),
        round_trip_us: f64 = us(of.round_trip),
        round_trip_deviation_us: f64 = us(of.round_trip_deviation),
        round_trip_min_us: Option<f64> = of.round_trip_min.map(us),
        receive_round_trip_us: Option<f64> = of.receive_round_trip.map(us),
        segment_bytes: u32 = of.segment_bytes,
        path_mtu_bytes: u32 = of.path_mtu_bytes,
        congestion_window_segments: u32 = of.congestion_window_segments,
        peer_window_bytes: Option<u32> = of.peer_window_bytes,
        receive_space_bytes: u32 = of.receive_space_bytes,
        own_window_bytes: Option<u32> = of.own_window_bytes,
        data_segments_in: Option<u32> = of.data_segments_in,
        data_segments_out: Option<u32> = of.data_segments_out,
        out_of_order_segments: Option<u32> = of.out_of_order_segments,
        unsent_bytes: Option<u32> = of.unsent_bytes,
        retransmissions: u32 = of.retransmissions,
        sent_bytes: Option<u64> = of.sent_bytes,
        retransmitted_bytes: Option<u64> = of.retransmitted_bytes,
        received_bytes: Option<u64> = of.received_bytes,
        reorderings: Option<u32> = of.reorderings,
        duplicates: Option<u32> = of.duplicates,
        delivery_bytes_per_second: Option<u64> = of.delivery_bytes_per_second,
        delivery_limited_by_sender: Option<bool> = of.delivery_limited_by_sender,
        busy_seconds: Option<f64> = of.busy.as_ref().map(Duration::as_secs_f64),
        limited_by_receiver_seconds: Option<f64> = of.limited_by_receiver.as_ref().map(Duration::as_secs_f64),
        limited_by_send_buffer_seconds: Option<f64> = of.limited_by_send_buffer.as_ref().map(Duration::as_secs_f64),
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

// Statistics as text: a table of latencies, followed by one line for each other figure.

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
        self.connections
            .iter()
            .try_for_each(|connection| write_connection(f, connection))
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

/// Writes the line of a class, followed by the parts of its latency. Parts that took no time are omitted.
fn write_class(f: &mut fmt::Formatter<'_>, name: &str, class: &ClassStatistics) -> fmt::Result {
    if class.commands == 0 {
        return Ok(());
    }
    write!(
        f,
        "{name:<14}{:>12}{:>8}{:>10}",
        class.commands,
        class.errors,
        bytes(class.bytes)
    )?;
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
    let Counters {
        immediate_bytes,
        unsolicited_bytes,
        solicited_bytes,
        r2ts,
        ..
    } = statistics.counters;
    let Counters {
        window_stalls,
        window_stalled,
        nops,
        ..
    } = statistics.counters;
    if immediate_bytes + unsolicited_bytes + solicited_bytes > 0 {
        writeln!(
            f,
            "written       {} with the commands, {} unsolicited, {} solicited by {r2ts} R2Ts",
            bytes(immediate_bytes),
            bytes(unsolicited_bytes),
            bytes(solicited_bytes),
        )?;
    }
    writeln!(
        f,
        "window        full {window_stalls} times, in total {}; {} outstanding, space for {}",
        span(window_stalled),
        statistics.under_way,
        statistics.window_room,
    )?;
    if let (Some(read), Some(write)) = (statistics.pdus_per_read(), statistics.pdus_per_write()) {
        writeln!(
            f,
            "calls         {read:.1} PDUs per read, {write:.1} per write"
        )?;
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

/// Writes the incidents that have occurred.
fn write_incidents(f: &mut fmt::Formatter<'_>, incidents: &Incidents) -> fmt::Result {
    let counts = [
        (incidents.busy, "BUSY"),
        (incidents.task_set_full, "TASK SET FULL"),
        (incidents.unit_attentions, "unit attentions"),
        (incidents.timeouts, "timeouts"),
        (incidents.aborts, "aborts"),
        (incidents.resets, "resets"),
        (incidents.connections_lost, "connections lost"),
        (incidents.replays, "commands resent"),
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
        writeln!(
            f,
            "reconnects    {}, down for {away} in total, {longest} at most",
            incidents.reconnects
        )?;
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
    write!(
        f,
        ": {}, round trip {round_trip} ± {deviation}",
        path.congestion
    )?;
    if let Some(min) = path.round_trip_min {
        write!(f, ", at best {}", span(min))?;
    }
    let (segments, segment) = (path.congestion_window_segments, path.segment_bytes);
    write!(f, "; window {segments} segments of {segment} bytes")?;
    write!(f, "; {} retransmitted", path.retransmissions)?;
    if let (Some(busy), Some(receiver), Some(buffer)) = (
        path.busy,
        path.limited_by_receiver,
        path.limited_by_send_buffer,
    ) {
        let (busy, receiver, buffer) = (span(busy), span(receiver), span(buffer));
        write!(
            f,
            "; sending for {busy}, limited by peer for {receiver}, by send buffer for {buffer}"
        )?;
    }
    writeln!(f)
}

/// Returns a duration with three digits.
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

/// Returns a number of bytes, with three digits and decimal units.
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
