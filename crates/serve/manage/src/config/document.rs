//! The file as a whole: its sections, and the rules between them.

use std::path::PathBuf;
use std::str::FromStr;

use toml::de::DeTable;

use super::mistake::{ConfigError, Mistakes};
use super::section::Section;
use super::values::Unfit;
use super::{Config, Limits, Log, LogFormat, metrics, volume};
use crate::front_ends::iscsi::{Chap, Portal, Protected, chap, portal, target};
use crate::poll::{Gather, Poll};
use ::volume::nearest::hint;
use ::volume::spec::{Bytes, Time};

pub(super) fn read(file: &str, text: &str) -> Result<Config, ConfigError> {
    let mistakes = Mistakes::new(file, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        mistakes.add(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()));
    }
    if !errors.is_empty() {
        return mistakes.verdict(None);
    }
    let config = config(&Section::new("the file", 0..0, document.get_ref(), &mistakes));
    mistakes.verdict(Some(config))
}

fn config(root: &Section<'_>) -> Config {
    let portals: Vec<Portal> = portal::all(&root.sections("portal", "[[portal]]"));
    let (names, volumes) = volume::all(&root.named("volume"));
    let targets = target::all(&root.sections("target", "[[target]]"), &names, &portals);
    let config = Config {
        discovery: discovery(root),
        limits: root.section("limits", "[limits]").map(|section| limits(&section)).unwrap_or_default(),
        state: root.text("state").map(|path| PathBuf::from(path.value)),
        control: root.text("control").map(|path| PathBuf::from(path.value)),
        reactors: root.count("reactors", 1..=1024).map(|count| count.value as usize),
        poll: root.parsed::<Poll>("poll").map(|poll| poll.value.0),
        gather: root.parsed::<Gather>("gather").map(|gather| gather.value.0),
        io_engine: root.parsed("io-engine").map(|engine| engine.value),
        metrics: root.section("metrics", "[metrics]").and_then(|section| metrics::read(&section)),
        log: root.section("log", "[log]").map(|section| log(&section)).unwrap_or_default(),
        portals,
        volumes,
        targets,
        exposed: Vec::new(),
    };
    root.done();
    config
}

fn discovery(root: &Section<'_>) -> Option<Chap> {
    let section = root.section("discovery", "[discovery]")?;
    let chap = section
        .section("chap", "[discovery.chap]")
        .and_then(|section| chap::read(&section, Protected::Discovery));
    section.done();
    chap
}

fn limits(section: &Section<'_>) -> Limits {
    let count = |key, most| section.count(key, 1..=most).map(|count| count.value);
    let time = |key| section.parsed::<Time>(key).map(|time| time.value.0);
    let limits = Limits {
        connections_per_address: count("connections-per-address", 65_535).map(|count| count as usize),
        logins: count("logins", 65_535).map(|count| count as usize),
        sessions: count("sessions", 65_534).map(|count| count as usize),
        discovery_sessions: count("discovery-sessions", 65_534).map(|count| count as usize),
        discovery_time: time("discovery-time"),
        connections_per_session: count("connections-per-session", 8).map(|count| count as u16),
        login_time: time("login-time"),
        window: count("window", 65_535).map(|count| count as u32),
        nop_interval: time("nop-interval"),
        send_stall: time("send-stall"),
        fence_time: time("fence-time"),
        staging_bytes: section.parsed::<Bytes>("staging").map(|bytes| bytes.value.0 as usize),
        session_staging_bytes: section.parsed::<Bytes>("session-staging").map(|bytes| bytes.value.0 as usize),
    };
    section.done();
    limits
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
