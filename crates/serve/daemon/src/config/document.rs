//! The file as a whole: its sections, and the rules between them.

use std::path::PathBuf;

use toml::de::DeTable;

use super::mistake::{ConfigError, Mistakes};
use super::section::{KnownKey, Section};
use super::{Config, Limits, log, metrics, volume};
use crate::front_ends::{Document, FrontEnds};
use crate::poll::{Gather, Poll};
use ::volume::spec::{Bytes, Time};

pub(super) fn read(mistakes: Mistakes<'_>, front_ends: FrontEnds) -> Result<Config, ConfigError> {
    let Some(document) = parsed(&mistakes) else { return mistakes.verdict(None) };
    let config = config(&Section::new("the file", 0..0, &document, &mistakes), front_ends);
    mistakes.verdict(Some(config))
}

/// The keys `control` and `state`, whatever else is in the file.
pub(super) fn places(mistakes: Mistakes<'_>) -> Result<[Option<PathBuf>; 2], ConfigError> {
    let places = parsed(&mistakes).map(|table| {
        ["control", "state"]
            .map(|key| table.get(key).and_then(|value| value.get_ref().as_str()).map(PathBuf::from))
    });
    mistakes.verdict(places)
}

/// The text as TOML.
fn parsed<'a>(mistakes: &Mistakes<'a>) -> Option<DeTable<'a>> {
    let (document, errors) = DeTable::parse_recoverable(mistakes.text());
    for error in &errors {
        mistakes.add(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()));
    }
    errors.is_empty().then(|| document.into_inner())
}

/// The sections of a document without mistakes, and the keys that each may have.
pub(super) fn known_keys(text: &str) -> Vec<(String, Vec<KnownKey>)> {
    let mistakes = Mistakes::new("", text, None);
    let (document, _) = DeTable::parse_recoverable(text);
    config(&Section::new("", 0..0, document.get_ref(), &mistakes), FrontEnds::default());
    mistakes.sections()
}

fn config(root: &Section<'_>, front_ends: FrontEnds) -> Config {
    let (names, volumes) = volume::all(&root.named("volume"));
    let limits_section = root.section("limits", "[limits]");
    let document = Document { root, limits: limits_section.as_ref(), volumes: &names };
    let config = Config {
        front_ends: front_ends.0.iter().map(|kind| (kind.read)(&document)).collect(),
        limits: limits_section.as_ref().map(limits).unwrap_or_default(),
        congestion: None,
        state: root.text("state").map(|path| PathBuf::from(path.value)),
        control: root.text("control").map(|path| PathBuf::from(path.value)),
        reactors: root.count("reactors", 1..=1024).map(|count| count.value as usize),
        poll: root.parsed::<Poll>("poll").map(|poll| poll.value.0),
        gather: root.parsed::<Gather>("gather").map(|gather| gather.value.0),
        io_engine: root.parsed("io-engine").map(|engine| engine.value),
        metrics: root.section("metrics", "[metrics]").and_then(|section| metrics::read(&section)),
        log: root.section("log", "[log]").map(|section| log::read(&section)).unwrap_or_default(),
        volumes,
    };
    limits_section.iter().chain([root]).for_each(Section::done);
    config
}

fn limits(section: &Section<'_>) -> Limits {
    let count = |key| section.count(key, 1..=65_535).map(|count| count.value as usize);
    Limits {
        connections_per_address: count("connections-per-address"),
        logins: count("logins"),
        fence_time: section.parsed::<Time>("fence-time").map(|time| time.value.0),
        staging_bytes: section.parsed::<Bytes>("staging").map(|bytes| bytes.value.0 as usize),
    }
}
