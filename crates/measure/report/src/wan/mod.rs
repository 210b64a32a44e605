//! Compares the measured results of document 002's matrix with a model and with published results.
//!
//! ```text
//!   bench::suite::wan ── Suite of cells, each with its Setting ──(measured)── Record ── Wan: rows, constants, verdict
//! ```
//!
//! The document prints results of reads, most solicited writes and most unsolicited writes. The requests have
//! four sizes, with a queue depth of 1 and 32, over four round trips, and also without a delay on Gigabit
//! Ethernet. It also prints results of plain TCP with a small and a large window. It mentions without results
//! the effects of connections, sessions, the largest packet, the command window and TCP's congestion control;
//! a few cells measure each of these.

mod constants;
mod published;
#[cfg(test)]
mod tests;

use bench::plan::{Cell, Part, Setting, Way};
use bench::record::Record;
use model::link::Link;
use model::{Load, Path, Prediction, Term, predict};

use crate::summary;
use crate::summary::CellSummary;
pub use constants::Constants;
pub use constants::Off;
use constants::Seen;
pub use constants::Share;
pub use constants::Verdict;
pub use published::Published;
pub(crate) use published::is_of;

// Cells with measured, modelled and published results.

/// A WAN record, prepared for comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Wan {
    /// The cells, in the order of the suite.
    pub rows: Vec<Row>,
    /// The constants of the model.
    pub constants: Vec<Constants>,
}

/// A cell of the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the cell.
    pub cell: String,
    /// The path of the measurement.
    pub setting: Setting,
    /// The requests.
    pub asked: Asked,
    /// The measured rate in bytes per second, the median of the runs; `None` if the cell was not run.
    pub measured: Option<f64>,
    /// The model's prediction with the constants of this record, in bytes per second.
    pub model: Option<f64>,
    /// The limit that applies, according to the model.
    pub binding: Option<Term>,
    /// The maximum rate over this path, in bytes per second.
    pub most: f64,
    /// The data rate that the link alone would permit, in bytes per second.
    pub of_link: f64,
    /// The published result, if there is one.
    pub published: Option<Published>,
    /// The comparison with the published result, if both exist.
    pub met: Option<Met>,
}

/// The requests of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The length of each request, in bytes.
    pub block_bytes: u32,
    /// The queue depth of each session.
    pub depth: u32,
}

/// The comparison of a measurement with a published result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// The measurement exceeds the published number, including its rounding.
    Beaten,
    /// The measurement rounds to the published number.
    Yes,
    /// The measurement is lower. The published number is not possible over this path, for this reason.
    CannotBe(String),
    /// The measurement is lower, although the path permits the published number.
    No,
}

impl Wan {
    /// Evaluates the matrix in a record. Returns `None` if no cell has a setting.
    pub fn of(record: &Record) -> Option<Wan> {
        Wan::of_summaries(record, &summary::of(record))
    }

    /// Evaluates the matrix with existing summaries.
    pub(crate) fn of_summaries(record: &Record, summaries: &[CellSummary]) -> Option<Wan> {
        let seen: Vec<Seen<'_>> = record
            .suite
            .cells()
            .filter_map(|cell| Seen::of(cell, summaries))
            .collect();
        let constants = constants::of(&seen);
        let rows: Vec<Row> = seen.iter().map(|seen| row(seen, &constants)).collect();
        (!rows.is_empty()).then_some(Wan { rows, constants })
    }

    /// Returns the cells of a part, in order.
    pub fn part(&self, part: Part) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.setting.part == part)
    }
}

impl Asked {
    pub(crate) fn of(cell: &Cell) -> Option<Asked> {
        let workload = &cell.roles.first()?.workload;
        Some(Asked {
            block_bytes: workload.block_bytes_max(),
            depth: workload.depth,
        })
    }

    /// Returns the load for the model, or `None` for plain TCP.
    fn load(self, setting: &Setting) -> Option<Load> {
        if matches!(setting.way, Way::Tcp { .. }) {
            return None;
        }
        Some(Load {
            direction: setting.way.direction(),
            block_bytes: self.block_bytes,
            depth: self.depth,
            sessions: setting.sessions,
            random: false,
            durable: false,
        })
    }
}

impl<'a> Seen<'a> {
    /// Returns the properties of a cell, with its rate if it was run.
    fn of(cell: &'a Cell, summaries: &[CellSummary]) -> Option<Seen<'a>> {
        let setting = cell.setting.as_deref()?;
        let asked = Asked::of(cell)?;
        let rate = summaries
            .iter()
            .find(|summary| summary.cell.name == cell.name && summary.runs > 0);
        let rate = rate.map(|summary| summary.bytes_per_s);
        let median = rate.map(|rate| rate.median);
        let measured = median.filter(|rate| rate.is_finite() && *rate > 0.0);
        Some(Seen {
            name: &cell.name,
            setting,
            asked,
            measured,
        })
    }
}

fn row(seen: &Seen<'_>, constants: &[Constants]) -> Row {
    let Seen {
        name,
        setting,
        asked,
        measured,
    } = *seen;
    let (model, binding) = model(setting, asked, constants).unzip();
    let (most, _) = most(setting, asked);
    let published = Published::of(setting, asked);
    let met = measured
        .zip(published.as_ref())
        .map(|(measured, published)| match published {
            published if measured > published.most() => Met::Beaten,
            published if measured >= published.least() => Met::Yes,
            published if most < published.least() => Met::CannotBe(reason(setting, asked)),
            _ => Met::No,
        });
    Row {
        cell: name.to_owned(),
        setting: setting.clone(),
        asked,
        measured,
        model,
        binding: binding.flatten(),
        most,
        of_link: of_link(setting, asked),
        published,
        met,
    }
}

fn model(setting: &Setting, asked: Asked, constants: &[Constants]) -> Option<(f64, Option<Term>)> {
    let path = constants::path(constants, setting)?;
    let (rate, term) = match asked.load(setting) {
        Some(load) => {
            let prediction = predict(&path, &constants::keys(setting.way), &load);
            (prediction.bytes_per_s, prediction.binding())
        }
        None => tcp(&path, setting),
    };
    rate.is_finite().then_some((rate, term))
}

impl Row {
    /// Returns the relative error of the model: 0.05 means that the model is 5 % too high.
    pub fn off(&self) -> Option<f64> {
        Some(self.model? / self.measured? - 1.0)
    }

    /// Returns the measured share of the maximum rate over this path.
    pub fn share_of_most(&self) -> Option<f64> {
        Some(self.measured? / self.most)
    }

    /// Returns the measured share of the rate that the link alone would permit.
    pub fn share_of_link(&self) -> Option<f64> {
        Some(self.measured? / self.of_link)
    }
}

// The maximum rate over a path whose ends take no time: it depends only on the link, the distance, TCP's
// window and the outstanding requests.

/// Returns the link of a setting. Linux's TCP sends timestamps.
fn link(setting: &Setting) -> Link {
    Link {
        timestamps: true,
        ..Link::ethernet(setting.link_bits_per_s, setting.mtu)
    }
}

/// Returns the path of a setting, with ends that take no time.
fn path(setting: &Setting) -> Path {
    let payload_per_s = link(setting).payload_per_s();
    Path {
        payload_per_s: Some(payload_per_s),
        copy_per_s: Some(payload_per_s),
        window_bytes: setting.tcp_window_bytes.map(f64::from),
        connections: setting.connections,
        commands_at_once: setting.command_window.map(f64::from),
        ..Path::of_round_trip(setting.rtt_ms / 1e3)
    }
}

/// Returns the maximum rate of a cell, and the limit that determines it.
fn most(setting: &Setting, asked: Asked) -> (f64, Option<Term>) {
    let path = path(setting);
    match (setting.way.keys(), asked.load(setting)) {
        (Some(keys), Some(load)) => {
            let prediction = predict(&path, &keys, &load);
            (prediction.bytes_per_s, prediction.binding())
        }
        _ => tcp(&path, setting),
    }
}

/// Returns the rate of plain TCP on a path.
fn tcp(path: &Path, setting: &Setting) -> (f64, Option<Term>) {
    let most = path.tcp_per_s(u32::from(setting.connections) * u32::from(setting.sessions));
    let is_link = path.payload_per_s == Some(most);
    (most, Some(if is_link { Term::Link } else { Term::Window }))
}

/// Returns the data rate of a cell that the link alone would permit, in bytes per second.
fn of_link(setting: &Setting, asked: Asked) -> f64 {
    let path = path(setting);
    let prediction: Option<Prediction> = setting
        .way
        .keys()
        .zip(asked.load(setting))
        .map(|(keys, load)| predict(&path, &keys, &load));
    let link = prediction.and_then(|prediction| prediction.term(Term::Link));
    link.or(path.payload_per_s).unwrap_or(f64::INFINITY)
}

/// Returns the reason for a cell's maximum rate, as a sentence.
fn reason(setting: &Setting, asked: Asked) -> String {
    let (most, term) = most(setting, asked);
    let most = format!("{:.1} MB/s", most / 1e6);
    match term {
        Some(Term::Window) => format!(
            "a TCP window of {} per round trip of {} ms permits at most {most}",
            readable::figures::size(f64::from(setting.tcp_window_bytes.unwrap_or(0))),
            setting.rtt_ms
        ),
        Some(Term::Depth) => depth(setting, asked, &most),
        _ => format!("the link permits at most {most} of such data"),
    }
}

fn depth(setting: &Setting, asked: Asked, most: &str) -> String {
    let exchanges = setting.way.keys().map_or(1, |keys| {
        keys.exchanges(setting.way.direction(), asked.block_bytes)
    });
    let on_link_ms = f64::from(asked.block_bytes) / link(setting).payload_per_s() * 1e3;
    let under_way = match asked.depth {
        1 => "one request at a time".to_owned(),
        several => format!("{several} requests at a time"),
    };
    let trips = match exchanges {
        1 => "one round trip".to_owned(),
        2 => "two round trips".to_owned(),
        more => format!("{more} round trips"),
    };
    format!(
        "{under_way}, each with {trips} of {} ms and {on_link_ms:.2} ms on the link: at most {most}",
        setting.rtt_ms
    )
}
