//! The cost of a run for its client, from the end of the warm-up to the last sample: CPU time, and the
//! statistics of the client's sessions, of the device's channels ([`ChannelFigures`]), or of HyperSCSI frames
//! ([`FrameFigures`]).

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::hyperscsi::{Counters, SessionHandle, SessionStatus};
use backends::peers::{ChannelStatus, Channelled, Status};
use bench::record::Cpu;
use foreign::printable;
use host::{cputime, threads};
use iscsi_client::Statistics;
use reactor::JoinHandle;
use readable::figures::{counted, duration, grouped, latency, significant, size};
use readable::table::{Align, lines};
use serde::Serialize;

use crate::client_paths::{StoragePaths, statistics_of};

/// The cost of a run in progress.
pub(crate) struct Costs {
    alone: bool,
    /// The counters at the start of counting.
    before: JoinHandle<Before>,
    /// The clocks at the last sample. CPU time after this sample, for the completion of outstanding requests,
    /// is not counted.
    last: Cell<Option<Clocks>>,
    channels: Option<Arc<dyn Channelled>>,
}

struct Before {
    clocks: Clocks,
    statistics: Vec<Statistics>,
    channels: Option<ChannelFigures>,
    frames: Vec<Option<FrameFigures>>,
}

/// The complete cost of a run.
pub(crate) struct Cost {
    pub cpu: Cpu,
    pub statistics: Vec<Statistics>,
    pub channels: Option<ChannelFigures>,
    /// The statistics of each HyperSCSI session.
    pub frames: Vec<FrameFigures>,
}

#[derive(Clone, Copy)]
struct Clocks {
    thread: Duration,
    looked_in_vain: Duration,
    process: Duration,
    machine: Option<Duration>,
}

impl Costs {
    /// Starts a task that calls `say` and reads the counters at the time `counting`.
    pub(crate) fn begin(
        alone: bool,
        counting: Instant,
        paths: &StoragePaths,
        channels: Option<&Arc<dyn Channelled>>,
        say: impl FnOnce() + 'static,
    ) -> Costs {
        let (targets, sessions, channels) = (
            paths.targets().to_vec(),
            paths.sessions().to_vec(),
            channels.cloned(),
        );
        let device = channels.clone();
        let before = reactor::spawn(async move {
            reactor::sleep_until(counting).await;
            say();
            let clocks = Clocks::now();
            let channels = ChannelFigures::of(device.as_ref()).await;
            let frames = FrameFigures::of(&sessions).await;
            Before {
                clocks,
                statistics: statistics_of(&targets).await,
                channels,
                frames,
            }
        });
        Costs {
            alone,
            before,
            last: Cell::new(None),
            channels,
        }
    }

    /// Records the clocks at the end of a sample.
    pub(crate) fn note(&self) {
        self.last.set(Some(Clocks::now()));
    }

    /// Returns the complete cost. It is empty if the run ended before counting started.
    pub(crate) async fn end(self, paths: &StoragePaths) -> Cost {
        let after = self.last.get().unwrap_or_else(Clocks::now);
        if !self.before.is_finished() {
            self.before.abort();
            let cpu = Cpu {
                cpus: cpus(),
                ..Cpu::default()
            };
            return Cost {
                cpu,
                statistics: Vec::new(),
                channels: None,
                frames: Vec::new(),
            };
        }
        let channels = ChannelFigures::of(self.channels.as_ref()).await;
        let statistics = statistics_of(paths.targets()).await;
        let frames = FrameFigures::of(paths.sessions()).await;
        let before = self.before.await;
        let since = statistics.iter().zip(&before.statistics);
        let statistics = since.map(|(after, before)| after.since(before)).collect();
        let channels = channels
            .zip(before.channels)
            .map(|(after, before)| after.since(&before));
        let frames = frames.into_iter().zip(&before.frames);
        let frames = frames
            .filter_map(|(after, before)| Some(after?.since(before.as_ref()?)))
            .collect();
        Cost {
            cpu: after.since(&before.clocks, self.alone),
            statistics,
            channels,
            frames,
        }
    }
}

impl Clocks {
    fn now() -> Clocks {
        Clocks {
            thread: cputime::thread(),
            looked_in_vain: reactor::world().looked_in_vain(),
            process: cputime::process(),
            machine: cputime::machine().ok(),
        }
    }

    fn since(&self, before: &Clocks, alone: bool) -> Cpu {
        let thread = self.thread.saturating_sub(before.thread).as_secs_f64();
        let process = self.process.saturating_sub(before.process).as_secs_f64();
        let machine = self
            .machine
            .zip(before.machine)
            .map(|(after, before)| after.saturating_sub(before));
        Cpu {
            seconds: if alone { process } else { thread },
            busiest_thread_s: thread,
            looked_in_vain_s: self
                .looked_in_vain
                .saturating_sub(before.looked_in_vain)
                .as_secs_f64(),
            machine_s: machine.map(|machine| machine.as_secs_f64()),
            cpus: cpus(),
        }
    }
}

/// Returns the number of CPUs that this process may use.
pub(crate) fn cpus() -> u32 {
    u32::try_from(threads::available().get()).unwrap_or(u32::MAX)
}

/// The state of all channels and their counters, with the time that the counters cover.
pub(crate) struct ChannelFigures {
    status: Status,
    at: Instant,
    seconds: f64,
}

impl ChannelFigures {
    /// Reads the counters from the start until now.
    pub(crate) async fn of(device: Option<&Arc<dyn Channelled>>) -> Option<ChannelFigures> {
        Some(ChannelFigures {
            status: device?.status().await?,
            at: Instant::now(),
            seconds: 0.0,
        })
    }

    /// Returns the difference to earlier counters.
    pub(crate) fn since(self, before: &ChannelFigures) -> ChannelFigures {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        ChannelFigures {
            status: self.status.since(&before.status),
            seconds,
            ..self
        }
    }
}

#[derive(Serialize)]
struct ChannelsRecord<'a> {
    seconds: f64,
    channels: Vec<ChannelRecord<'a>>,
    resends: u64,
    longest_stall_us: f64,
    replays: u64,
    journal_bytes: usize,
    /// Whether the server terminates lost connections that the client names, so that fencing does not rely on
    /// timeouts.
    fences: bool,
}

#[derive(Serialize)]
struct ChannelRecord<'a> {
    path: &'a str,
    connected: bool,
    requests: u64,
    bytes: u64,
    mb_per_s: f64,
    /// The average time from sending a request to its reply; `None` without replies.
    service_us_mean: Option<f64>,
    /// The average number of outstanding requests.
    outstanding_mean: f64,
    /// Outstanding bytes at the end of the run, including overhead.
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
            service_us_mean: (channel.requests > 0)
                .then(|| service * 1e6 / channel.requests as f64),
            // This follows from Little's law.
            outstanding_mean: of_time(service),
            outstanding_bytes: channel.outstanding_bytes,
            reconnects: channel.reconnects,
            longest_outage_us: channel.longest_outage.as_secs_f64() * 1e6,
            last_error: channel.last_error.as_deref(),
        }
    }
}

impl ChannelFigures {
    fn record(&self) -> ChannelsRecord<'_> {
        let Status {
            channels,
            resends,
            longest_stall,
            replays,
            journal_bytes,
            fences,
        } = &self.status;
        ChannelsRecord {
            seconds: self.seconds,
            channels: channels
                .iter()
                .map(|channel| ChannelRecord::of(channel, self.seconds))
                .collect(),
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

/// Prints a line for each channel, and one for the events of all channels.
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
            let state = if channel.connected {
                ""
            } else {
                "not connected: "
            };
            // The text may come from the server, so escape control characters.
            let error = channel.last_error.map_or_else(
                || "none".to_owned(),
                |why| format!("{state}{}", printable(why)),
            );
            [
                number.to_string(),
                channel.path.to_owned(),
                grouped(channel.requests),
                size(channel.bytes as f64),
                significant(channel.mb_per_s),
                channel
                    .service_us_mean
                    .map_or_else(|| "-".to_owned(), latency),
                significant(channel.outstanding_mean),
                grouped(channel.reconnects),
                error,
            ]
        }));
        use Align::{Left, Right};
        let columns = [Left, Left, Right, Right, Right, Right, Right, Right, Left];
        lines(columns, &rows)
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))?;
        let outage = record
            .channels
            .iter()
            .map(|channel| channel.longest_outage_us)
            .fold(0.0, f64::max);
        let fencing = if record.fences {
            "by the server"
        } else {
            "by a quarantine"
        };
        writeln!(
            f,
            "resent        {}, longest stall {}; longest channel outage {}",
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

// The HyperSCSI statistics of a run: frames, losses, and the state of the paths at the end.

/// The state of a session and its counters, with the time that the counters cover.
pub(crate) struct FrameFigures {
    status: SessionStatus,
    at: Instant,
    seconds: f64,
}

impl FrameFigures {
    /// Reads the counters from the start until now, for each session that is logged in.
    pub(crate) async fn of(sessions: &[SessionHandle]) -> Vec<Option<FrameFigures>> {
        let mut figures = Vec::new();
        for session in sessions {
            let status = session.status().await;
            figures.push(status.map(|status| FrameFigures {
                status,
                at: Instant::now(),
                seconds: 0.0,
            }));
        }
        figures
    }

    /// Returns the difference to earlier counters.
    pub(crate) fn since(self, before: &FrameFigures) -> FrameFigures {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let status = SessionStatus {
            counters: self.status.counters.since(&before.status.counters),
            reinstatements: self
                .status
                .reinstatements
                .saturating_sub(before.status.reinstatements),
            replays: self.status.replays.saturating_sub(before.status.replays),
            ..self.status
        };
        FrameFigures {
            status,
            seconds,
            ..self
        }
    }

    fn record(&self) -> FramesRecord {
        let status = &self.status;
        let path = |path: &backends::hyperscsi::PathStatus| Path {
            local: path.local.to_string(),
            remote: path.remote.to_string(),
            up: path.is_up,
            round_trip_us: path.round_trip.map(|time| time.as_secs_f64() * 1e6),
            window_frames: path.window_frames,
        };
        let Counters {
            frames_sent,
            frames_received,
            frames_repeated,
            frames_damaged,
            ..
        } = status.counters;
        let Counters {
            fragments_refused,
            fragments_lost,
            ..
        } = status.counters;
        let Counters {
            messages_sent,
            messages_received,
            messages_repeated,
            ..
        } = status.counters;
        FramesRecord {
            protocol: "hyperscsi",
            seconds: self.seconds,
            encrypted: status.is_encrypted,
            frame_bytes: status.frame_bytes,
            queue_depth: status.queue_depth,
            frames: Frames {
                sent: frames_sent,
                received: frames_received,
                repeated: frames_repeated,
                damaged: frames_damaged,
                refused: fragments_refused,
                lost: fragments_lost,
            },
            messages: Messages {
                sent: messages_sent,
                received: messages_received,
                repeated: messages_repeated,
            },
            reinstatements: status.reinstatements,
            replays: status.replays,
            paths: status.paths.iter().map(path).collect(),
        }
    }
}

#[derive(Serialize)]
struct FramesRecord {
    protocol: &'static str,
    seconds: f64,
    encrypted: bool,
    frame_bytes: usize,
    queue_depth: u32,
    frames: Frames,
    messages: Messages,
    /// Sessions that were lost and reinstated.
    reinstatements: u64,
    /// Commands sent again because their outcome was unknown.
    replays: u64,
    paths: Vec<Path>,
}

#[derive(Serialize)]
struct Frames {
    sent: u64,
    received: u64,
    /// Frames that had already been received.
    repeated: u64,
    /// Frames with a wrong checksum or authentication tag.
    damaged: u64,
    /// Fragments that violated the protocol.
    refused: u64,
    /// Fragments that this side had to send again.
    lost: u64,
}

#[derive(Serialize)]
struct Messages {
    sent: u64,
    received: u64,
    /// Commands that were received in an earlier epoch, and not executed again.
    repeated: u64,
}

#[derive(Serialize)]
struct Path {
    local: String,
    remote: String,
    up: bool,
    round_trip_us: Option<f64>,
    window_frames: u32,
}

impl Serialize for FrameFigures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.record().serialize(serializer)
    }
}

/// Prints a line for frames, one for each path, and one for errors.
impl fmt::Display for FrameFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FramesRecord {
            frames,
            paths,
            reinstatements,
            replays,
            frame_bytes,
            ..
        } = self.record();
        let percent = if frames.sent > 0 {
            100.0 * frames.lost as f64 / frames.sent as f64
        } else {
            0.0
        };
        writeln!(
            f,
            "frames        {} sent, {} received, of up to {frame_bytes} bytes",
            grouped(frames.sent),
            grouped(frames.received),
        )?;
        writeln!(
            f,
            "lost          {} resent ({} %); of those received {} repeated, {} corrupted, {} rejected",
            counted(frames.lost as usize, "fragment"),
            significant(percent),
            grouped(frames.repeated),
            grouped(frames.damaged),
            grouped(frames.refused),
        )?;
        if reinstatements + replays > 0 {
            writeln!(
                f,
                "session       reinstated {}, {} resent",
                counted(reinstatements as usize, "time"),
                counted(replays as usize, "command")
            )?;
        }
        for (number, path) in paths.iter().enumerate() {
            let state = if path.up { "" } else { "down, " };
            let trip = path
                .round_trip_us
                .map_or_else(|| "not measured".to_owned(), latency);
            writeln!(
                f,
                "path {number:<9}{} to {}: {state}round trip {trip}, window {}",
                path.local,
                path.remote,
                counted(path.window_frames as usize, "frame"),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use backends::hyperscsi::PathStatus;
    use reactor::DatagramAddress;

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
        Status {
            channels: vec![channel("10.0.1.1:3260", requests), lost],
            resends: 3,
            ..Status::default()
        }
    }

    #[test]
    fn channel_figures_are_those_of_the_run_alone() {
        let at = Instant::now();
        let before = ChannelFigures {
            status: status(1000),
            at,
            seconds: 0.0,
        };
        let after = ChannelFigures {
            status: status(9000),
            at: at + Duration::from_secs(2),
            seconds: 0.0,
        };
        let run = after.since(&before);
        let told = serde_json::to_value(&run).expect("numbers and names");
        let [first, lost] = [0, 1].map(|number| &told["channels"][number]);
        assert_eq!(
            (first["requests"].as_u64(), lost["requests"].as_u64()),
            (Some(8000), Some(0))
        );
        assert_eq!(
            (first["service_us_mean"].as_f64(), &lost["service_us_mean"]),
            (Some(250.0), &serde_json::Value::Null)
        );
        assert_eq!(
            (
                first["outstanding_mean"].as_f64(),
                first["mb_per_s"].as_f64()
            ),
            (Some(1.0), Some(16.384))
        );
        assert_eq!(told["resends"], 0);
        let text = run.to_string();
        assert!(
            text.contains("8,000") && text.contains("not connected: reset"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    fn figures(frames_sent: u64, at: Instant) -> FrameFigures {
        let udp = |text: &str| DatagramAddress::Udp(text.parse().expect("an address"));
        let path = PathStatus {
            local: udp("192.0.2.2:4000"),
            remote: udp("192.0.2.1:5674"),
            is_up: true,
            round_trip: Some(Duration::from_micros(75)),
            window_frames: 64,
        };
        let status = SessionStatus {
            frame_bytes: 1472,
            queue_depth: 128,
            is_encrypted: false,
            paths: vec![path],
            counters: Counters {
                frames_sent,
                fragments_lost: frames_sent / 100,
                ..Counters::default()
            },
            reinstatements: 1,
            replays: 2,
        };
        FrameFigures {
            status,
            at,
            seconds: 0.0,
        }
    }

    #[test]
    fn frame_figures_are_those_of_the_run_alone() {
        let at = Instant::now();
        let run = figures(5000, at + Duration::from_secs(2)).since(&figures(1000, at));
        let told = serde_json::to_value(&run).expect("numbers and names");
        assert_eq!(
            (
                told["frames"]["sent"].as_u64(),
                told["frames"]["lost"].as_u64()
            ),
            (Some(4000), Some(40))
        );
        assert_eq!(
            (told["seconds"].as_f64(), told["reinstatements"].as_u64()),
            (Some(2.0), Some(0))
        );
        assert_eq!(told["paths"][0]["round_trip_us"].as_f64(), Some(75.0));
        assert_eq!(told["paths"][0]["window_frames"].as_u64(), Some(64));
        let text = run.to_string();
        assert!(
            text.contains("4,000 sent") && text.contains("40 fragments resent (1.00 %)"),
            "{text}"
        );
        assert!(
            text.contains("192.0.2.1:5674: round trip 75.0 µs, window 64 frames"),
            "{text}"
        );
        assert!(!text.contains("reinstated"), "{text}");
    }
}
