//! Statistics as text: a table of latencies, then one line for each other figure.

use std::fmt;
use std::time::Duration;

use reactor::PathInfo;

use super::{Class, ClassStatistics, ConnectionStatistics, Counters, Incidents, Latency, Phase, Statistics};

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

pub(super) fn phase_name(phase: Phase) -> &'static str {
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
pub(super) fn span(time: Duration) -> String {
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
pub(super) fn bytes(count: u64) -> String {
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
