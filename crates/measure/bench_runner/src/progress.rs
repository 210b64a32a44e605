//! Prints progress without a terminal: lines at a low rate, either for people who read a log, or for programs
//! (JSON lines).
//!
//! The output depends only on the times that the caller passes in. The caller also determines its
//! destination.

use std::fmt;
use std::time::{Duration, Instant};

use bench::record::Sample;
use readable::figures::{grouped, significant};
use serde::Serialize;

use crate::view::{LiveState, Purged, RunStart, View, sentence};

/// The audience of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people: a line every five seconds. Shorter operations print none.
    Plain,
    /// For programs: a JSON object every second, and one at the start of each operation.
    Json,
}

/// The state of an operation. Unknown values are omitted from the JSON; names end with their units.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    /// The operation: `read-4KiB`, `copied`.
    pub doing: String,
    /// The number of the step, from 1 to `steps_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The number of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_max: Option<u64>,
    /// The completed part of the step, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_percent: Option<f64>,
    /// Current requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Current throughput, in megabytes (10^6 bytes) per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mb_per_s: Option<f64>,
    /// Current 99th percentile of the latency, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Seconds since a request last completed, if three or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_s: Option<f64>,
    /// The maximum remaining time of all steps, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_max_s: Option<f64>,
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    version: u32,
    #[serde(flatten)]
    moment: Option<&'a Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// The version of the JSON format. It changes if a name is removed or changes its meaning.
const VERSION: u32 = 1;

/// Progress lines of an operation.
pub struct Progress<F> {
    form: Form,
    say: F,
    next: Instant,
    /// The current state, when this is used as a [`View`].
    moment: Moment,
    length_s: f64,
    now: LiveState,
}

impl<F: FnMut(&str)> Progress<F> {
    /// Starts at this time. `say` receives the lines.
    pub fn new(form: Form, begun: Instant, say: F) -> Progress<F> {
        let next = if form == Form::Json {
            begun
        } else {
            begun + form.interval()
        };
        Progress {
            form,
            say,
            next,
            moment: Moment::default(),
            length_s: 0.0,
            now: LiveState::default(),
        }
    }

    /// Sets the name of the operation.
    pub fn about(self, doing: &str) -> Progress<F> {
        Progress {
            moment: Moment {
                doing: doing.to_owned(),
                ..Moment::default()
            },
            ..self
        }
    }

    /// Writes the progress if a line is due.
    pub fn at(&mut self, now: Instant, moment: impl FnOnce() -> Moment) {
        if now >= self.next {
            self.next = now + self.form.interval();
            self.tell(&moment());
        }
    }

    /// Writes a remark immediately.
    pub fn remark(&mut self, sentence: &str) {
        match self.form {
            Form::Plain => (self.say)(sentence),
            Form::Json => self.json(None, Some(sentence)),
        }
    }

    fn tell(&mut self, moment: &Moment) {
        match self.form {
            Form::Plain => (self.say)(&moment.to_string()),
            Form::Json => self.json(Some(moment), None),
        }
    }

    fn json(&mut self, moment: Option<&Moment>, note: Option<&str>) {
        // Text and numbers can always be written as JSON.
        if let Ok(line) = serde_json::to_string(&Line {
            version: VERSION,
            moment,
            note,
        }) {
            (self.say)(&line);
        }
    }
}

impl Form {
    fn interval(self) -> Duration {
        Duration::from_secs(if self == Form::Plain { 5 } else { 1 })
    }
}

/// Formats the progress: `[3/24] read-4KiB: 42 %, 12,345 IOPS, 50.6 MB/s, p99 120 µs, at most 12 s left`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(step), Some(most)) = (self.step, self.steps_max) {
            write!(f, "[{step}/{most}] ")?;
        }
        let parts = [
            self.done_percent.map(|percent| format!("{percent:.0} %")),
            self.iops
                .map(|iops| format!("{} IOPS", grouped(iops.round() as u64))),
            self.mb_per_s
                .map(|rate| format!("{} MB/s", significant(rate))),
            self.p99_us
                .map(|time| format!("p99 {} µs", significant(time))),
            self.waiting_s
                .map(|waited| sentence(Duration::from_secs_f64(waited))),
            self.left_max_s
                .map(|left| format!("at most {left:.0} s left")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let colon = if parts.is_empty() { "" } else { ": " };
        write!(
            f,
            "{}{colon}{}",
            foreign::printable(&self.doing),
            parts.join(", ")
        )
    }
}

/// Prints the progress of a measurement.
impl<F: FnMut(&str)> View for Progress<F> {
    fn begins(&mut self, doing: &RunStart<'_>) {
        self.moment = Moment {
            doing: doing.name.to_owned(),
            step: Some(doing.number),
            steps_max: Some(doing.runs_max()),
            left_max_s: Some(doing.left.time_max.as_secs_f64()),
            ..Moment::default()
        };
        self.length_s = doing.stop.warm_up_s + doing.stop.max_s;
        self.now = LiveState::of(doing.roles.len());
        if self.form == Form::Json {
            self.tell(&self.moment.clone());
        }
    }

    fn sample(&mut self, role: usize, sample: &Sample) {
        self.now.add(role, sample);
        let (rates, length_s) = (self.now.all(), self.length_s);
        let waiting_s = self.now.waited().map(|waited| waited.as_secs_f64());
        let moment = self.moment.clone();
        let done = (sample.at_s / length_s * 100.0).clamp(0.0, 100.0);
        self.at(Instant::now(), || Moment {
            done_percent: (length_s > 0.0).then_some(done),
            iops: Some(rates.iops),
            mb_per_s: Some(rates.bytes_per_s / 1e6),
            p99_us: (rates.iops > 0.0).then_some(rates.p99_us),
            waiting_s,
            left_max_s: moment.left_max_s.map(|left| (left - sample.at_s).max(0.0)),
            ..moment
        });
    }

    /// The first report of a wait is written immediately, to explain the delay.
    fn waiting(&mut self, waited: Duration) {
        if self.now.waited().is_none() {
            self.next = Instant::now();
        }
        self.now.wait(waited);
        let waiting_s = Some(waited.as_secs_f64());
        let moment = Moment {
            left_max_s: None,
            ..self.moment.clone()
        };
        self.at(Instant::now(), || Moment {
            waiting_s,
            ..moment
        });
    }

    fn purged(&mut self, purged: Purged) {
        let done = purged.done_bytes as f64 / purged.of_bytes.max(1) as f64 * 100.0;
        let moment = self.moment.clone();
        self.at(Instant::now(), || Moment {
            done_percent: Some(done.clamp(0.0, 100.0)),
            ..moment
        });
    }

    fn note(&mut self, sentence: &str) {
        self.remark(sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(percent: f64) -> Moment {
        let doing = "read-4KiB".to_owned();
        let done_percent = Some(percent);
        let (step, steps_max) = (Some(3), Some(24));
        Moment {
            doing,
            step,
            steps_max,
            done_percent,
            iops: Some(12_345.0),
            ..Moment::default()
        }
    }

    /// Returns the output for a hundred updates at intervals of a quarter second.
    fn said(form: Form) -> Vec<String> {
        let (begun, mut lines) = (Instant::now(), Vec::new());
        let mut progress = Progress::new(form, begun, |line: &str| lines.push(line.to_owned()));
        for quarter in 0..=100 {
            let now = begun + Duration::from_millis(250 * quarter);
            progress.at(now, || moment(quarter as f64));
        }
        lines
    }

    #[test]
    fn people_get_a_line_every_five_seconds() {
        let lines = said(Form::Plain);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], "[3/24] read-4KiB: 20 %, 12,345 IOPS");
    }

    #[test]
    fn a_wait_is_told_at_once_and_on_every_line_until_a_request_completes() {
        let mut lines = Vec::new();
        let mut progress = Progress::new(Form::Plain, Instant::now(), |line: &str| {
            lines.push(line.to_owned())
        });
        progress = progress.about("opening");
        progress.waiting(Duration::from_millis(3100));
        progress.next = Instant::now();
        progress.sample(
            0,
            &Sample {
                under_way: 1.0,
                ..Sample::default()
            },
        );
        progress.next = Instant::now();
        progress.sample(
            0,
            &Sample {
                reads: 1,
                under_way: 1.0,
                ..Sample::default()
            },
        );
        drop(progress);
        let waits = "requests have been waiting for 3 s";
        assert_eq!(lines[0], format!("opening: {waits}"));
        assert!(
            lines[1].ends_with(waits) && !lines[1].contains("p99"),
            "{lines:?}"
        );
        assert!(!lines[2].contains("waiting"), "{lines:?}");
    }

    #[test]
    fn programs_get_an_object_every_second_and_notes_among_them() {
        let lines = said(Form::Json);
        assert_eq!(lines.len(), 26);
        let first = r#"{"version":1,"doing":"read-4KiB","step":3,"steps_max":24,"done_percent":0.0,"iops":12345.0}"#;
        assert_eq!(lines[0], first);
        let mut note = String::new();
        Progress::new(Form::Json, Instant::now(), |line: &str| {
            note = line.to_owned()
        })
        .remark("a \"note\"");
        assert_eq!(note, r#"{"version":1,"note":"a \"note\""}"#);
    }
}
