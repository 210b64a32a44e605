//! The file as a whole: its sections, and the rules between them.

use std::path::PathBuf;
use std::str::FromStr;

use toml::de::DeTable;

use super::mistake::{ConfigError, Mistakes};
use super::section::Section;
use super::values::Unfit;
use super::{Config, Limits, Log, LogFormat, metrics, volume};
use crate::front_ends::{Document, FrontEnds};
use crate::poll::{Gather, Poll};
use ::volume::nearest::hint;
use ::volume::spec::{Bytes, Time};

pub(super) fn read(file: &str, text: &str, front_ends: FrontEnds) -> Result<Config, ConfigError> {
    let mistakes = Mistakes::new(file, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        mistakes.add(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()));
    }
    if !errors.is_empty() {
        return mistakes.verdict(None);
    }
    let config = config(&Section::new("the file", 0..0, document.get_ref(), &mistakes), front_ends);
    mistakes.verdict(Some(config))
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
        log: root.section("log", "[log]").map(|section| log(&section)).unwrap_or_default(),
        volumes,
        exposed: Vec::new(),
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

fn log(section: &Section<'_>) -> Log {
    let filter = section.parsed::<Filter>("filter").map(|filter| filter.value.0);
    let format = section.parsed("format").map(|format| format.value);
    section.done();
    Log { filter, format }
}

/// A filter that `tracing-subscriber` understands.
struct Filter(String);

impl FromStr for Filter {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Filter, Unfit> {
        match tracing_subscriber::EnvFilter::try_new(text) {
            Ok(_) => Ok(Filter(text.to_owned())),
            Err(error) => Err(Unfit(format!("{error}; write one such as info or warn,target=debug"))),
        }
    }
}

impl FromStr for LogFormat {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<LogFormat, Unfit> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(Unfit(format!("`{text}` is unknown{}", hint(text, &["text", "json"])))),
        }
    }
}
