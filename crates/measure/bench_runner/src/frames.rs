//! What a HyperSCSI session did in a run: its frames, what was lost of them, and how its paths are at the end.

use std::fmt;
use std::time::Instant;

use backends::hyperscsi::{Counters, SessionHandle, SessionStatus};
use readable::figures::{counted, grouped, latency, significant};
use serde::Serialize;

/// What is known of a session, and since when it has been counted.
pub(crate) struct FrameFigures {
    status: SessionStatus,
    at: Instant,
    seconds: f64,
}

impl FrameFigures {
    /// Until now, of each session that is logged in.
    pub(crate) async fn of(sessions: &[SessionHandle]) -> Vec<Option<FrameFigures>> {
        let mut figures = Vec::new();
        for session in sessions {
            let status = session.status().await;
            figures.push(status.map(|status| FrameFigures { status, at: Instant::now(), seconds: 0.0 }));
        }
        figures
    }

    /// Since then.
    pub(crate) fn since(self, before: &FrameFigures) -> FrameFigures {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let status = SessionStatus {
            counters: self.status.counters.since(&before.status.counters),
            reinstatements: self.status.reinstatements.saturating_sub(before.status.reinstatements),
            replays: self.status.replays.saturating_sub(before.status.replays),
            ..self.status
        };
        FrameFigures { status, seconds, ..self }
    }

    fn record(&self) -> Record {
        let status = &self.status;
        let path = |path: &backends::hyperscsi::PathStatus| Path {
            local: path.local.to_string(),
            remote: path.remote.to_string(),
            up: path.is_up,
            round_trip_us: path.round_trip.map(|time| time.as_secs_f64() * 1e6),
            window_frames: path.window_frames,
        };
        let Counters { frames_sent, frames_received, frames_repeated, frames_damaged, .. } = status.counters;
        let Counters { fragments_refused, fragments_lost, .. } = status.counters;
        let Counters { messages_sent, messages_received, messages_repeated, .. } = status.counters;
        Record {
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
struct Record {
    protocol: &'static str,
    seconds: f64,
    encrypted: bool,
    frame_bytes: usize,
    queue_depth: u32,
    frames: Frames,
    messages: Messages,
    /// Sessions that were lost and begun again.
    reinstatements: u64,
    /// Commands that were sent again because their outcome was unknown.
    replays: u64,
    paths: Vec<Path>,
}

#[derive(Serialize)]
struct Frames {
    sent: u64,
    received: u64,
    /// Received before.
    repeated: u64,
    /// With a wrong checksum or seal.
    damaged: u64,
    /// Fragments that broke a rule.
    refused: u64,
    /// Fragments of ours that were sent again.
    lost: u64,
}

#[derive(Serialize)]
struct Messages {
    sent: u64,
    received: u64,
    /// Received in an earlier epoch, and not executed again.
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

/// A line for frames, one for each path, and one for what did not go smoothly.
impl fmt::Display for FrameFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { frames, paths, reinstatements, replays, frame_bytes, .. } = self.record();
        let percent = if frames.sent > 0 { 100.0 * frames.lost as f64 / frames.sent as f64 } else { 0.0 };
        writeln!(
            f,
            "frames        {} sent, {} received, of {frame_bytes} bytes at most",
            grouped(frames.sent),
            grouped(frames.received),
        )?;
        writeln!(
            f,
            "lost          {} sent again ({} %); of those received {} repeated, {} damaged, {} refused",
            counted(frames.lost as usize, "fragment"),
            significant(percent),
            grouped(frames.repeated),
            grouped(frames.damaged),
            grouped(frames.refused),
        )?;
        if reinstatements + replays > 0 {
            writeln!(
                f,
                "session       begun again {}, {} sent again",
                counted(reinstatements as usize, "time"),
                counted(replays as usize, "command")
            )?;
        }
        for (number, path) in paths.iter().enumerate() {
            let state = if path.up { "" } else { "down, " };
            let trip = path.round_trip_us.map_or_else(|| "not measured".to_owned(), latency);
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
    use std::time::Duration;

    use backends::hyperscsi::PathStatus;
    use reactor::DatagramAddress;

    use super::*;

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
            counters: Counters { frames_sent, fragments_lost: frames_sent / 100, ..Counters::default() },
            reinstatements: 1,
            replays: 2,
        };
        FrameFigures { status, at, seconds: 0.0 }
    }

    #[test]
    fn figures_are_those_of_the_run_alone() {
        let at = Instant::now();
        let run = figures(5000, at + Duration::from_secs(2)).since(&figures(1000, at));
        let told = serde_json::to_value(&run).expect("numbers and names");
        assert_eq!(
            (told["frames"]["sent"].as_u64(), told["frames"]["lost"].as_u64()),
            (Some(4000), Some(40))
        );
        assert_eq!((told["seconds"].as_f64(), told["reinstatements"].as_u64()), (Some(2.0), Some(0)));
        assert_eq!(told["paths"][0]["round_trip_us"].as_f64(), Some(75.0));
        assert_eq!(told["paths"][0]["window_frames"].as_u64(), Some(64));
        let text = run.to_string();
        assert!(text.contains("4,000 sent") && text.contains("40 fragments sent again (1.00 %)"), "{text}");
        assert!(text.contains("192.0.2.1:5674: round trip 75.0 µs, window 64 frames"), "{text}");
        assert!(!text.contains("begun again"), "{text}");
    }
}
