//! What the ends cost, found in the record itself: a path for each link and direction, with as few constants as explain it.

use bench::plan::{Part, Setting, Way};
use model::{Constant, Direction, Fitted, Keys, Measured, Path, fit};

use super::Asked;

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
        super::ideal::link(&Setting { mtu: bench::suite::wan::MTU, ..setting.clone() }).payload_per_s();
    let here = super::ideal::link(setting).payload_per_s();
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
    let segment = f64::from(super::ideal::link(setting).payload_bytes());
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
