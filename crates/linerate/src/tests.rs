//! Tests of the documents: every example in them can be parsed, and they contain every option and key.

use clap::{CommandFactory, Parser};
use daemon::Config;

use crate::arguments::Arguments;
use crate::spec::{Bytes, Time};

const AGENTS: &str = include_str!("../../../docs/agents.md");
const SERVE: &str = include_str!("../../../docs/serve.md");
const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
const VOLUMES: &str = include_str!("../../../docs/volumes.md");
const GATEWAYS: &str = include_str!("../../../docs/gateways.md");
const CHAP: &str = include_str!("../../../docs/chap.md");
const LINUX: &str = include_str!("../../../docs/linux.md");
const SESSIONS: &str = include_str!("../../../docs/sessions.md");
const RELOAD: &str = include_str!("../../../docs/reload.md");
const RESIZE: &str = include_str!("../../../docs/resize.md");
const FAULTS: &str = include_str!("../../../docs/faults.md");
const LOGS: &str = include_str!("../../../docs/logs.md");
const MONITORING: &str = include_str!("../../../docs/monitoring.md");
const METRICS: &str = include_str!("../../../docs/metrics.md");
const SERVICE: &str = include_str!("../../../docs/service.md");
const UPGRADE: &str = include_str!("../../../docs/upgrade.md");
const BACKUP: &str = include_str!("../../../docs/backup.md");
const INITIATOR: &str = include_str!("../../../docs/initiator.md");
const URLS: &str = include_str!("../../../docs/urls.md");
const SCSI: &str = include_str!("../../../docs/scsi.md");
const MULTIPATH: &str = include_str!("../../../docs/multipath.md");
const COMMAND_LINE: &str = include_str!("../../../docs/command-line.md");
const COMING_FROM: &str = include_str!("../../../docs/coming-from.md");
const COPY: &str = include_str!("../../../docs/copy.md");
const COMPARE: &str = include_str!("../../../docs/compare.md");
const LIMITS: &str = include_str!("../../../docs/limits.md");
const AOE: &str = include_str!("../../../docs/aoe.md");
const HYPERSCSI: &str = include_str!("../../../docs/hyperscsi.md");
const RAID: &str = include_str!("../../../docs/raid.md");
const RBD: &str = include_str!("../../../docs/rbd.md");
const RECORDER: &str = include_str!("../../../docs/recorder.md");
const PUBLISHED: &str = include_str!("../../../docs/published.md");
const SUITES: &str = include_str!("../../../docs/suites.md");
const REPORT: &str = include_str!("../../../docs/report.md");
const WAN: &str = include_str!("../../../docs/wan.md");
const PERFORMANCE: &str = include_str!("../../../docs/performance.md");
const SECURITY: &str = include_str!("../../../docs/security.md");
const QUICK_START: &str = include_str!("../../../docs/quick-start.md");
const TROUBLESHOOTING: &str = include_str!("../../../docs/troubleshooting.md");
const FIRST_HOUR: &str = include_str!("../../../docs/first-hour.md");
const README: &str = include_str!("../../../README.md");

/// The content of the fenced code blocks in `language`.
fn blocks<'a>(document: &'a str, language: &'a str) -> impl Iterator<Item = String> + 'a {
    let fence = format!("```{language}\n");
    let parts: Vec<&str> = document.split(&fence).skip(1).collect();
    parts
        .into_iter()
        .map(|part| part.split("```").next().unwrap_or("").to_owned())
}

#[test]
fn every_example_of_a_configuration_is_good() {
    let examples: Vec<String> = [CONFIGURATION, QUICK_START, FIRST_HOUR]
        .iter()
        .flat_map(|document| blocks(document, "toml"))
        .collect();
    assert!(examples.len() >= 3);
    for example in examples {
        // The example's secret file does not exist here.
        let example = example.replace(
            "secret-file = \"/etc/linerate/alice.secret\"",
            "secret = \"twelve-bytes-and-more\"",
        );
        Config::parse("docs", &example).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn every_example_of_a_command_line_is_understood() {
    let documents = [
        AGENTS,
        SERVE,
        CONFIGURATION,
        VOLUMES,
        GATEWAYS,
        CHAP,
        LINUX,
        SESSIONS,
        RELOAD,
        RESIZE,
        FAULTS,
        LOGS,
        MONITORING,
        METRICS,
        SERVICE,
        UPGRADE,
        BACKUP,
        INITIATOR,
        URLS,
        SCSI,
        MULTIPATH,
        COMMAND_LINE,
        COPY,
        COMING_FROM,
        COMPARE,
        LIMITS,
        AOE,
        HYPERSCSI,
        RAID,
        RBD,
        RECORDER,
        PUBLISHED,
        REPORT,
        SUITES,
        WAN,
        PERFORMANCE,
        QUICK_START,
        TROUBLESHOOTING,
        FIRST_HOUR,
        README,
    ];
    let blocks = documents
        .iter()
        .flat_map(|document| blocks(document, "console"));
    let lines: Vec<String> = blocks
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let commands: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.trim_start_matches("$ ").strip_prefix("linerate "))
        .collect();
    assert!(commands.len() > 8);
    for command in commands {
        // Ignore redirections and pipes, which are for the shell.
        let command = command.split(['>', '|']).next().unwrap_or(command);
        let words = command
            .split_whitespace()
            .map(|word| word.trim_matches('\''));
        let line = Arguments::try_parse_from(std::iter::once("linerate").chain(words));
        line.unwrap_or_else(|error| panic!("linerate {command}\n{error}"));
    }
}

#[test]
fn every_option_of_agents_is_in_their_document() {
    let command = Arguments::command();
    for option in
        options(&command, "bench agent").chain(["agents", "agent-secret-file", "server-agent"])
    {
        assert!(
            AGENTS.contains(&format!("--{option}")),
            "--{option} is not in docs/agents.md"
        );
    }
}

#[test]
fn every_option_of_the_wan_matrix_and_of_a_peer_is_in_their_document() {
    let command = Arguments::command();
    for option in options(&command, "lab peer").chain(["link", "quick"]) {
        assert!(
            WAN.contains(&format!("--{option}")),
            "--{option} is not in docs/wan.md"
        );
    }
}

#[test]
fn every_option_of_serve_is_in_its_document() {
    let command = Arguments::command();
    let global = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .filter(|option| *option != "record");
    for option in options(&command, "serve").chain(global) {
        assert!(
            SERVE.contains(&format!("--{option}")),
            "--{option} is not in docs/serve.md"
        );
    }
}

#[test]
fn every_option_of_copies_is_in_their_document() {
    let command = Arguments::command();
    for option in ["copy", "read", "write"]
        .into_iter()
        .flat_map(|name| options(&command, name))
    {
        assert!(
            COPY.contains(&format!("--{option}")),
            "--{option} is not in docs/copy.md"
        );
    }
}

#[test]
fn every_option_of_import_is_in_its_document() {
    let command = Arguments::command();
    for option in options(&command, "import") {
        assert!(
            COMING_FROM.contains(&format!("--{option}")),
            "--{option} is not in docs/coming-from.md"
        );
    }
}

/// Tests the configuration that the Debian package installs.
#[test]
fn the_configuration_of_the_package_is_good_with_its_example_too() {
    let text = include_str!("../../../contrib/debian/linerate.toml");
    Config::parse("contrib/debian/linerate.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let lines = text.lines().map(|line| {
        line.strip_prefix('#')
            .filter(|rest| !rest.starts_with(' '))
            .unwrap_or(line)
    });
    let example = lines.collect::<Vec<_>>().join("\n");
    let config = Config::parse("contrib/debian/linerate.toml", &example)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.iscsi().targets.len(), 1);
}

#[test]
fn every_option_of_limits_is_in_its_document() {
    let command = Arguments::command();
    for option in options(&command, "diagnose limits") {
        assert!(
            LIMITS.contains(&format!("--{option}")),
            "--{option} is not in docs/limits.md"
        );
    }
}

fn options<'a>(command: &'a clap::Command, words: &str) -> impl Iterator<Item = &'a str> {
    let below = |above: &'a clap::Command, word| above.find_subcommand(word).expect("the command");
    words
        .split(' ')
        .fold(command, below)
        .get_arguments()
        .filter_map(clap::Arg::get_long)
}

/// The content of the file is tested where the text is defined.
#[test]
fn every_key_of_the_file_is_in_its_document() {
    assert!(
        CONFIGURATION.contains(daemon::config::reference::TEXT),
        "docs/configuration.md has another text than reference.toml"
    );
}

/// The document says "These are the defaults".
#[test]
fn the_limits_of_the_full_example_are_the_defaults() {
    let full = blocks(CONFIGURATION, "toml")
        .find(|example| example.contains("[limits]"))
        .expect("an example");
    let config = Config::parse("docs/configuration.md", &full).expect("a good example");
    let limits = &config.iscsi().limits;
    let shown = format!("{:?} {limits:?}", config.limits);
    assert!(!shown.contains("None"), "{shown}");
    assert_eq!(
        format!("{:?}", limits.of_iscsi()),
        format!("{:?}", iscsi_server::Limits::default())
    );
    let all = config.limits.of_server();
    assert_eq!(
        format!("{all:?}"),
        format!("{:?}", front_end_core::Limits::default())
    );
}

#[test]
fn the_limits_are_in_the_document_about_security() {
    let (usual, all) = (
        iscsi_server::Limits::default(),
        front_end_core::Limits::default(),
    );
    let (time, bytes) = (
        |time| Time(time).to_string(),
        |bytes| Bytes(bytes as u64).to_string(),
    );
    for (key, figure) in [
        (
            "connections-per-address",
            all.connections_per_address.to_string(),
        ),
        ("logins", all.logins.to_string()),
        ("sessions", usual.sessions.to_string()),
        ("discovery-sessions", usual.discovery_sessions.to_string()),
        ("discovery-time", time(usual.discovery_time)),
        (
            "connections-per-session",
            usual.connections_per_session.to_string(),
        ),
        ("login-time", time(usual.login_time)),
        ("window", usual.window.to_string()),
        ("nop-interval", time(usual.nop_interval)),
        ("send-stall", time(usual.send_stall)),
        ("fence-time", time(all.fence_time)),
        ("staging", bytes(all.staging_bytes)),
        ("session-staging", bytes(usual.session_staging_bytes)),
    ] {
        let row = format!("(`{key}`) | {figure} |");
        assert!(SECURITY.contains(&row), "docs/security.md has no {row}");
    }
}

#[test]
fn the_states_of_a_raid_set_are_in_its_document() {
    for condition in backends::raid::Condition::ALL {
        let backends::raid::Meaning { users, remedy } = condition.meaning();
        let row = format!("| {condition} | {users} | {remedy} |");
        assert!(RAID.contains(&row), "docs/raid.md has no {row}");
    }
}
