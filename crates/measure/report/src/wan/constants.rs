//! Fits the costs of the two ends to the record itself: a path for each link and direction, with as few
//! constants as possible.

use bench::plan::{Part, Setting, Way};
use model::{Constant, Direction, Fitted, Keys, Measured, Path, fit};

use crate::wan::{Asked, Met, Row, Wan};

/// A path that was fitted to the cells of a record that use one link in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    /// The direction of the data.
    pub direction: Direction,
    /// The rate of the link, in bits per second.
    pub link_bits_per_s: f64,
    /// Whether only a small TCP window was fitted. The other constants are the constants of the same link
    /// with a large window.
    pub small_window: bool,
    /// The number of cells to which the path was fitted.
    pub cells: usize,
    /// The fitted constants; `None` or 0 means no limit.
    pub path: Path,
    /// The median relative error of the model for these cells, for example 0.02 for 2 %.
    pub median_off: f64,
}

/// The properties of a cell that a fit needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) name: &'a str,
    pub(super) setting: &'a Setting,
    pub(super) asked: Asked,
    /// The measured rate, in bytes per second.
    pub(super) measured: Option<f64>,
}

/// Returns all constants that can be fitted to a record. Cells of the parameters that the document does not
/// print are not used for the fit, so that they can test it.
pub(super) fn of(seen: &[Seen<'_>]) -> Vec<Constants> {
    let mut groups: Vec<(Direction, f64)> = Vec::new();
    for one in seen
        .iter()
        .filter(|one| is_used(one.setting) && one.measured.is_some())
    {
        let group = (one.setting.way.direction(), one.setting.link_bits_per_s);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
        .into_iter()
        .flat_map(|(direction, link)| of_link(seen, direction, link))
        .collect()
}

/// Returns whether the cell is in the document's tables, and so is used for the fit.
fn is_used(setting: &Setting) -> bool {
    matches!(setting.part, Part::Wan | Part::Lan | Part::Tcp)
}

fn is_small_window(setting: &Setting) -> bool {
    setting.tcp_window_bytes == Some(bench::suite::wan::TCP_WINDOWS_BYTES[0])
}

fn of_link(seen: &[Seen<'_>], direction: Direction, link_bits_per_s: f64) -> Vec<Constants> {
    let of = |small: bool| -> Vec<Measured> {
        let those = seen.iter().filter(|one| {
            is_used(one.setting)
                && one.setting.way.direction() == direction
                && one.setting.link_bits_per_s == link_bits_per_s
                && is_small_window(one.setting) == small
        });
        those.filter_map(Seen::as_measured).collect()
    };
    let found = |cells: &[Measured], known: &Path, free: &[Constant], small_window: bool| {
        let Fitted {
            path, median_off, ..
        } = fit(known, cells, free)?;
        Some(Constants {
            direction,
            link_bits_per_s,
            small_window,
            cells: cells.len(),
            path,
            median_off,
        })
    };
    let cells = of(false);
    let far = cells.iter().any(|cell| cell.round_trip_s > 0.0);
    let Some(large) = found(
        &cells,
        &Path::of_round_trip(0.0),
        free(direction, far),
        false,
    ) else {
        return Vec::new();
    };
    let window = [Constant::Window, Constant::WindowDelay];
    let small = found(&of(true), &large.path, &window, true);
    [Some(large), small].into_iter().flatten().collect()
}

/// Returns the constants to fit. An exchange's time and a command's time can be distinguished only by writes
/// with and without R2Ts. The number of outstanding requests matters only over a distance.
fn free(direction: Direction, far: bool) -> &'static [Constant] {
    use Constant::{Command, Copy, Exchange, Exchanges, Link, WritesUnderWay};
    match (direction, far) {
        (Direction::Read, _) => &[Link, Command, Copy, Exchanges],
        (Direction::Write, false) => &[Link, Exchange, Command, Copy, Exchanges],
        (Direction::Write, true) => &[Link, Exchange, Command, Copy, Exchanges, WritesUnderWay],
    }
}

impl Seen<'_> {
    fn as_measured(&self) -> Option<Measured> {
        Some(Measured {
            load: self.asked.load(self.setting),
            keys: keys(self.setting.way),
            round_trip_s: self.setting.rtt_ms / 1e3,
            connections: self.setting.connections,
            bytes_per_s: self.measured?,
            rounding_per_s: 0.0,
        })
    }
}

/// Returns the expected path of a cell, with the constants of the document's cells; `None` if there are none.
pub(super) fn path(constants: &[Constants], setting: &Setting) -> Option<Path> {
    let small = is_small_window(setting);
    let found = constants.iter().find(|one| {
        one.direction == setting.way.direction()
            && one.link_bits_per_s == setting.link_bits_per_s
            && one.small_window == small
    })?;
    let mut path = Path {
        round_trip_s: setting.rtt_ms / 1e3,
        connections: setting.connections,
        commands_at_once: setting.command_window.map(f64::from),
        ..found.path
    };
    with_packets(&mut path, setting);
    with_loss(&mut path, setting);
    Some(path)
}

/// Adapts a path to another packet length, which changes the share of data in each packet, and therefore the
/// time to transfer the same data.
fn with_packets(path: &mut Path, setting: &Setting) {
    let fitted = crate::wan::link(&Setting {
        mtu: bench::suite::wan::MTU,
        ..setting.clone()
    })
    .payload_per_s();
    let here = crate::wan::link(setting).payload_per_s();
    if setting.mtu == bench::suite::wan::MTU || fitted <= 0.0 || here <= 0.0 {
        return;
    }
    path.payload_per_s = path.payload_per_s.map(|payload| payload * here / fitted);
    path.copy_per_s = path.copy_per_s.map(|copy| {
        let ends_s = (1.0 / copy - 1.0 / fitted).max(0.0);
        1.0 / (ends_s + 1.0 / here)
    });
}

/// Applies the congestion window with packet loss: equation 5 of RFC 9438 with cubic's constants, and Reno's
/// window, which is cubic's minimum (section 4.3). For any loss below a fifth, BBR's window remains the
/// bandwidth-delay product.
fn with_loss(path: &mut Path, setting: &Setting) {
    if setting.loss <= 0.0 {
        return;
    }
    let segment = f64::from(crate::wan::link(setting).payload_bytes());
    let reno = (1.5 / setting.loss).sqrt();
    let segments = match setting.congestion.as_str() {
        "reno" => reno,
        "cubic" => reno.max(1.054 * path.round_trip_s.powf(0.75) / setting.loss.powf(0.75)),
        _ => return,
    };
    let kept = segments * segment;
    path.window_bytes = Some(path.window_bytes.map_or(kept, |window| window.min(kept)));
}

/// Returns the negotiated keys of a session. Plain TCP has no keys; the default values returned for it are
/// not used.
pub(super) fn keys(way: Way) -> Keys {
    way.keys().unwrap_or_default()
}

// The main results of a WAN record.

/// The main results of a WAN record.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The number of measured cells for which the document prints a result.
    pub published: usize,
    /// The number of measured cells above the printed result.
    pub beaten: usize,
    /// The number of measured cells that round to the printed result.
    pub met: usize,
    /// The number of measured cells whose printed result is not possible over this path.
    pub cannot_be: usize,
    /// The names of the cells that did not reach the printed result, although the path permits it.
    pub missed: Vec<String>,
    /// The error of the model for the cells of the fit.
    pub fitted: Option<Off>,
    /// The error of the model for the other cells, whose rates it had to predict.
    pub predicted: Option<Off>,
    /// The shares of the link at the longest round trip, with long requests and a high queue depth.
    pub shares: Vec<Share>,
}

/// The error of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Off {
    /// The number of cells.
    pub cells: usize,
    /// The median absolute error, for example 0.02 for 2 %.
    pub median: f64,
    /// The largest error, with its sign.
    pub worst: f64,
    /// The cell with the largest error.
    pub worst_cell: String,
}

/// The share of the link that a cell reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The cell.
    pub cell: String,
    /// The direction and kind of the data.
    pub way: Way,
    /// The length of the requests, in bytes.
    pub block_bytes: u32,
    /// The share of the rate that the link alone would permit, for example 0.95 for 95 %.
    pub of_link: f64,
    /// The share of the maximum rate at this queue depth.
    pub of_most: f64,
}

/// The round trip, request length and depth of the cells for the share of the link.
const FAR_MS: f64 = 50.0;
const LONG_BYTES: u32 = 64 << 10;
const MANY: u32 = 32;

impl Wan {
    /// Returns the main results.
    pub fn verdict(&self) -> Verdict {
        let count = |is: fn(&Met) -> bool| {
            self.rows
                .iter()
                .filter_map(|row| row.met.as_ref())
                .filter(|met| is(met))
                .count()
        };
        let is_of_document =
            |row: &&Row| matches!(row.setting.part, Part::Wan | Part::Lan | Part::Tcp);
        Verdict {
            published: count(|_| true),
            beaten: count(|met| *met == Met::Beaten),
            met: count(|met| *met == Met::Yes),
            cannot_be: count(|met| matches!(met, Met::CannotBe(_))),
            missed: self
                .rows
                .iter()
                .filter(|row| row.met == Some(Met::No))
                .map(|row| row.cell.clone())
                .collect(),
            fitted: Off::of(self.rows.iter().filter(is_of_document)),
            predicted: Off::of(self.rows.iter().filter(|row| !is_of_document(row))),
            shares: self.part(Part::Wan).filter_map(share).collect(),
        }
    }
}

fn share(row: &Row) -> Option<Share> {
    let (setting, asked) = (&row.setting, row.asked);
    let is_asked_for =
        setting.rtt_ms == FAR_MS && asked.depth == MANY && asked.block_bytes >= LONG_BYTES;
    let measured = row.measured.filter(|_| is_asked_for)?;
    Some(Share {
        cell: row.cell.clone(),
        way: setting.way,
        block_bytes: asked.block_bytes,
        of_link: measured / row.of_link,
        of_most: measured / row.most,
    })
}

impl Off {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<Off> {
        let mut off: Vec<(f64, &str)> = rows
            .filter_map(|row| Some((row.off().filter(|off| off.is_finite())?, row.cell.as_str())))
            .collect();
        off.sort_by(|one, other| one.0.abs().total_cmp(&other.0.abs()));
        let (worst, worst_cell) = *off.last()?;
        let sizes: Vec<f64> = off.iter().map(|(off, _)| off.abs()).collect();
        Some(Off {
            cells: off.len(),
            median: stats::median(&sizes),
            worst,
            worst_cell: worst_cell.to_owned(),
        })
    }
}
