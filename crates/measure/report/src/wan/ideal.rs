//! What nobody could pass over a way, with ends that take no time: only the link, the distance, TCP's window and what may be
//! under way count.

use bench::plan::Setting;
use model::link::Link;
use model::{Path, Prediction, Term, predict};

use super::Asked;

/// The link of a setting. Linux's TCP sends timestamps.
pub(super) fn link(setting: &Setting) -> Link {
    Link { timestamps: true, ..Link::ethernet(setting.link_bits_per_s, setting.mtu) }
}

/// A path with such a link and ends that take no time.
pub(super) fn path(setting: &Setting) -> Path {
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

/// The most that a cell can come to, and why not more.
pub(super) fn most(setting: &Setting, asked: Asked) -> (f64, Option<Term>) {
    let path = path(setting);
    match (setting.way.keys(), asked.load(setting)) {
        (Some(keys), Some(load)) => {
            let prediction = predict(&path, &keys, &load);
            (prediction.bytes_per_s, prediction.binding())
        }
        _ => tcp(&path, setting),
    }
}

/// What plain TCP comes to on a path.
pub(super) fn tcp(path: &Path, setting: &Setting) -> (f64, Option<Term>) {
    let most = path.tcp_per_s(u32::from(setting.connections) * u32::from(setting.sessions));
    let is_link = path.payload_per_s == Some(most);
    (most, Some(if is_link { Term::Link } else { Term::Window }))
}

/// What the link alone would allow of a cell's data, in bytes a second.
pub(super) fn of_link(setting: &Setting, asked: Asked) -> f64 {
    let path = path(setting);
    let prediction: Option<Prediction> =
        setting.way.keys().zip(asked.load(setting)).map(|(keys, load)| predict(&path, &keys, &load));
    let link = prediction.and_then(|prediction| prediction.term(Term::Link));
    link.or(path.payload_per_s).unwrap_or(f64::INFINITY)
}

/// Why a cell cannot come to more than the most, in a sentence.
pub(super) fn reason(setting: &Setting, asked: Asked) -> String {
    let (most, term) = most(setting, asked);
    let most = format!("{:.1} MB/s", most / 1e6);
    match term {
        Some(Term::Window) => format!(
            "a TCP window of {} in each {} ms there and back is at most {most}",
            readable::figures::size(f64::from(setting.tcp_window_bytes.unwrap_or(0))),
            setting.rtt_ms
        ),
        Some(Term::Depth) => depth(setting, asked, &most),
        _ => format!("the link carries at most {most} of such data"),
    }
}

fn depth(setting: &Setting, asked: Asked, most: &str) -> String {
    let exchanges =
        setting.way.keys().map_or(1, |keys| keys.exchanges(setting.way.direction(), asked.block_bytes));
    let on_link_ms = f64::from(asked.block_bytes) / link(setting).payload_per_s() * 1e3;
    let under_way = match asked.depth {
        1 => "one request at a time".to_owned(),
        several => format!("{several} requests at a time"),
    };
    let trips = match exchanges {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    };
    format!(
        "{under_way}, each {trips} {} ms there and back and {on_link_ms:.2} ms on the link, are at most {most}",
        setting.rtt_ms
    )
}
