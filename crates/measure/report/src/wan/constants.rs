//! What the ends cost, found in the record itself: a path for each link and direction, with as few constants as explain it.

use bench::plan::{Part, Setting, Way};
use model::{Constant, Direction, Fitted, Keys, Measured, Path, fit};

use crate::wan::{Asked, Met, Row, Wan};

/// A path that was fitted to the part of a record that crosses one link in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    /// Which way the data go.
    pub direction: Direction,
    /// The link, in bits a second.
    pub link_bits_per_s: f64,
    /// Nothing but a small TCP window was looked for: the rest is that of the same link with a large one.
    pub small_window: bool,
    /// How many cells it was fitted to.
    pub cells: usize,
    /// What was found; what is `None` or 0 there limits nothing.
    pub path: Path,
    /// The median of how far the model is from these cells: 0.02 is 2 %.
    pub median_off: f64,
}

/// A cell of a record, as far as a fit is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) name: &'a str,
    pub(super) setting: &'a Setting,
    pub(super) asked: Asked,
    /// What it came to, in bytes a second.
    pub(super) measured: Option<f64>,
}

/// All that are found in a record. The axes that the document does not print are not used: they are a test of what was found.
pub(super) fn of(seen: &[Seen<'_>]) -> Vec<Constants> {
    let mut groups: Vec<(Direction, f64)> = Vec::new();
    for one in seen.iter().filter(|one| is_used(one.setting) && one.measured.is_some()) {
        let group = (one.setting.way.direction(), one.setting.link_bits_per_s);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.into_iter().flat_map(|(direction, link)| of_link(seen, direction, link)).collect()
}

/// The document's own cells.
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
        let Fitted { path, median_off, .. } = fit(known, cells, free)?;
        Some(Constants { direction, link_bits_per_s, small_window, cells: cells.len(), path, median_off })
    };
    let cells = of(false);
    let far = cells.iter().any(|cell| cell.round_trip_s > 0.0);
    let Some(large) = found(&cells, &Path::of_round_trip(0.0), free(direction, far), false) else {
        return Vec::new();
    };
    let window = [Constant::Window, Constant::WindowDelay];
    let small = found(&of(true), &large.path, &window, true);
    [Some(large), small].into_iter().flatten().collect()
}

/// What is looked for. Only writes with and without R2Ts tell an exchange's time from a command's, and only over a distance
/// does it matter how much may be under way.
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

/// The path that a cell is expected to be measured over, by what was found in the document's cells; `None` if there was
/// nothing to find it in.
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

/// Packets of another length carry another share of data, and so the same data take another time.
fn with_packets(path: &mut Path, setting: &Setting) {
    let fitted =
        crate::wan::link(&Setting { mtu: bench::suite::wan::MTU, ..setting.clone() }).payload_per_s();
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

/// What a congestion control keeps on the way if a share of the packets is lost: RFC 9438's equation 5 with cubic's
/// constants, and Reno's window, which cubic keeps at least (section 4.3). BBR keeps what the path carries, whatever is
/// lost below a fifth.
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

/// What a session of a way agrees on; plain TCP has none, and nothing of it is asked.
pub(super) fn keys(way: Way) -> Keys {
    way.keys().unwrap_or_default()
}

// What a WAN record comes to, in a few numbers.

/// What a WAN record comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Cells that were measured and that the document prints.
    pub published: usize,
    /// Those that came to more than is printed.
    pub beaten: usize,
    /// Those that round to what is printed.
    pub met: usize,
    /// Those that nobody could reach over this way.
    pub cannot_be: usize,
    /// The names of those that were missed for no such reason.
    pub missed: Vec<String>,
    /// How far the model is from the cells that its constants were found in.
    pub fitted: Option<Off>,
    /// And from the others, which it had to predict.
    pub predicted: Option<Off>,
    /// What was reached of the link at the longest round trip, with long requests, many at once.
    pub shares: Vec<Share>,
}

/// How far a model is from measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Off {
    /// How many they are.
    pub cells: usize,
    /// The median of the sizes of the errors: 0.02 is 2 %.
    pub median: f64,
    /// The largest of them, with its sign.
    pub worst: f64,
    /// In which cell.
    pub worst_cell: String,
}

/// What was reached of the link in a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The cell.
    pub cell: String,
    /// How the data went.
    pub way: Way,
    /// The length of the requests, in bytes.
    pub block_bytes: u32,
    /// Of what the link alone would allow: 0.95 is 95 %.
    pub of_link: f64,
    /// Of what anything could reach with so many at once.
    pub of_most: f64,
}

/// The round trip, the lengths and the number at once at which the share of the link is asked for.
const FAR_MS: f64 = 50.0;
const LONG_BYTES: u32 = 64 << 10;
const MANY: u32 = 32;

impl Wan {
    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        let count = |is: fn(&Met) -> bool| {
            self.rows.iter().filter_map(|row| row.met.as_ref()).filter(|met| is(met)).count()
        };
        let is_of_document = |row: &&Row| matches!(row.setting.part, Part::Wan | Part::Lan | Part::Tcp);
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
    let is_asked_for = setting.rtt_ms == FAR_MS && asked.depth == MANY && asked.block_bytes >= LONG_BYTES;
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
