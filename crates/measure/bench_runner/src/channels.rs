//! What the channels of a device did in a run: an export of an NBD server, or a LUN by several sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use backends::peers::{ChannelStatus, Channelled, Status};
use serde::Serialize;
use readable::figures::{counted, duration, grouped, latency, significant, size};
use foreign::printable;
use readable::table::{Align, lines};

/// What is known of all channels, and since when it has been counted.
pub(crate) struct ChannelFigures {
    status: Status,
    at: Instant,
    seconds: f64,
}

impl ChannelFigures {
    /// Until now.
    pub(crate) async fn of(device: Option<&Arc<dyn Channelled>>) -> Option<ChannelFigures> {
        Some(ChannelFigures { status: device?.status().await?, at: Instant::now(), seconds: 0.0 })
    }

    /// Since then.
    pub(crate) fn since(self, before: &ChannelFigures) -> ChannelFigures {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        ChannelFigures { status: self.status.since(&before.status), seconds, ..self }
    }
}

#[derive(Serialize)]
struct Record<'a> {
    seconds: f64,
    channels: Vec<ChannelRecord<'a>>,
    resends: u64,
    longest_stall_us: f64,
    replays: u64,
    journal_bytes: usize,
    /// The server ends lost connections that are named: fencing does not rely on time.
    fences: bool,
}

#[derive(Serialize)]
struct ChannelRecord<'a> {
    path: &'a str,
    connected: bool,
    requests: u64,
    bytes: u64,
    mb_per_s: f64,
    /// From sending to the answer; `None` without answers.
    service_us_mean: Option<f64>,
    /// Requests outstanding, on average.
    outstanding_mean: f64,
    /// At the end of the run: data and overhead.
    outstanding_bytes: u64,
    reconnects: u64,
    longest_outage_us: f64,
    last_error: Option<&'a str>,
}

impl<'a> ChannelRecord<'a> {
    fn of(channel: &'a ChannelStatus, seconds: f64) -> ChannelRecord<'a> {
        let service = channel.service.as_secs_f64();
        let of_time = |sum: f64| if seconds > 0.0 { sum / seconds } else { 0.0 };
        ChannelRecord {
            path: &channel.path,
            connected: channel.is_connected,
            requests: channel.requests,
            bytes: channel.bytes,
            mb_per_s: of_time(channel.bytes as f64 / 1e6),
            service_us_mean: (channel.requests > 0).then(|| service * 1e6 / channel.requests as f64),
            // Little's law.
            outstanding_mean: of_time(service),
            outstanding_bytes: channel.outstanding_bytes,
            reconnects: channel.reconnects,
            longest_outage_us: channel.longest_outage.as_secs_f64() * 1e6,
            last_error: channel.last_error.as_deref(),
        }
    }
}

impl ChannelFigures {
    fn record(&self) -> Record<'_> {
        let Status { channels, resends, longest_stall, replays, journal_bytes, fences } = &self.status;
        Record {
            seconds: self.seconds,
            channels: channels.iter().map(|channel| ChannelRecord::of(channel, self.seconds)).collect(),
            resends: *resends,
            longest_stall_us: longest_stall.as_secs_f64() * 1e6,
            replays: *replays,
            journal_bytes: *journal_bytes,
            fences: *fences,
        }
    }
}

impl Serialize for ChannelFigures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.record().serialize(serializer)
    }
}

/// A line for each channel, and what happened to all of them.
impl fmt::Display for ChannelFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.record();
        let heads = [
            "channel",
            "path",
            "requests",
            "data",
            "MB/s",
            "service",
            "outstanding",
            "reconnects",
            "last error",
        ];
        let mut rows = vec![heads.map(str::to_owned)];
        rows.extend(record.channels.iter().enumerate().map(|(number, channel)| {
            let state = if channel.connected { "" } else { "not connected: " };
            // The server's words are among them.
            let error = channel
                .last_error
                .map_or_else(|| "none".to_owned(), |why| format!("{state}{}", printable(why)));
            [
                number.to_string(),
                channel.path.to_owned(),
                grouped(channel.requests),
                size(channel.bytes as f64),
                significant(channel.mb_per_s),
                channel.service_us_mean.map_or_else(|| "-".to_owned(), latency),
                significant(channel.outstanding_mean),
                grouped(channel.reconnects),
                error,
            ]
        }));
        use Align::{Left, Right};
        let columns = [Left, Left, Right, Right, Right, Right, Right, Right, Left];
        lines(columns, &rows).iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let outage = record.channels.iter().map(|channel| channel.longest_outage_us).fold(0.0, f64::max);
        let fencing = if record.fences { "by the server" } else { "by a quarantine" };
        writeln!(
            f,
            "sent again    {}, the longest stall {}; longest outage of a channel {}",
            counted(record.resends as usize, "request"),
            duration(record.longest_stall_us / 1e6),
            duration(outage / 1e6),
        )?;
        writeln!(
            f,
            "journal       {}, replayed {}; fencing {fencing}",
            size(record.journal_bytes as f64),
            counted(record.replays as usize, "time"),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn status(requests: u64) -> Status {
        let channel = |path: &str, requests: u64| ChannelStatus {
            path: path.to_owned(),
            is_connected: true,
            requests,
            bytes: requests * 4096,
            service: Duration::from_micros(250) * requests as u32,
            ..ChannelStatus::default()
        };
        let lost = ChannelStatus {
            is_connected: false,
            last_error: Some("reset\u{1b}[2J".to_owned()),
            ..channel("10.0.2.1:3260", 10)
        };
        Status { channels: vec![channel("10.0.1.1:3260", requests), lost], resends: 3, ..Status::default() }
    }

    #[test]
    fn figures_are_those_of_the_run_alone() {
        let at = Instant::now();
        let before = ChannelFigures { status: status(1000), at, seconds: 0.0 };
        let after = ChannelFigures { status: status(9000), at: at + Duration::from_secs(2), seconds: 0.0 };
        let run = after.since(&before);
        let told = serde_json::to_value(&run).expect("numbers and names");
        let [first, lost] = [0, 1].map(|number| &told["channels"][number]);
        assert_eq!((first["requests"].as_u64(), lost["requests"].as_u64()), (Some(8000), Some(0)));
        assert_eq!(
            (first["service_us_mean"].as_f64(), &lost["service_us_mean"]),
            (Some(250.0), &serde_json::Value::Null)
        );
        assert_eq!(
            (first["outstanding_mean"].as_f64(), first["mb_per_s"].as_f64()),
            (Some(1.0), Some(16.384))
        );
        assert_eq!(told["resends"], 0);
        let text = run.to_string();
        assert!(text.contains("8,000") && text.contains("not connected: reset"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
