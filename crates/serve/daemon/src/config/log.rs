//! `[log]`: log filter and format. A filter with a name that no log line uses is an error, because the
//! intended lines would be missing when they are needed.

use std::str::FromStr;

use tracing_subscriber::filter::Targets;

use super::section::Section;
use super::values::Unfit;
use ::volume::spec::{hint, nearest};

/// `[log]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// The filter, in the syntax of `--log`.
    pub filter: Option<String>,
    /// The format of log lines.
    pub format: Option<LogFormat>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The log filter: levels for parts of the program. Every part that it names exists.
#[derive(Clone, Debug)]
pub struct LogTargets(pub Targets);

/// The names of log lines: the audit, each Linerate module that logs, and `fuser`. A test compares the list
/// with the sources.
const KNOWN: &[&str] = &[
    "agent::channel",
    "aoe_client::device",
    "aoe_client::session",
    "aoe_server::front_end",
    "attach",
    "attach::file",
    "attach::mount_point",
    "attach::record",
    "audit",
    "backends::raid::open",
    "backends::raid::service",
    "backends::raid::upkeep",
    "bench_runner::client",
    "copy::destination",
    "copy::pump",
    "daemon::control::client",
    "daemon::control::server",
    "daemon::identity",
    "daemon::live",
    "daemon::metrics::http",
    "daemon::orders",
    "daemon::start",
    "daemon::state",
    "daemon::supervisor",
    "daemon::waiting",
    "failover::channels",
    "failover::journal_file",
    "failover::journal_file::recovery",
    "front_end_core::listener",
    "front_end_core::server",
    "front_end_core::storage",
    "fuser",
    "host::datagrams::packet",
    "host::file",
    "host::file::open",
    "host::files",
    "host::files::lane",
    "host::files::ring",
    "host::ram::memory",
    "host::rbd::fence",
    "host::rbd::image",
    "hyperscsi_client::inner",
    "hyperscsi_client::link",
    "hyperscsi_server::core",
    "hyperscsi_server::session",
    "inspect::pages",
    "iscsi_client::caches",
    "iscsi_client::inner",
    "iscsi_client::lun",
    "iscsi_client::open",
    "iscsi_client::paths::path",
    "iscsi_client::probe",
    "iscsi_client::recorder",
    "iscsi_server::admission",
    "iscsi_server::core",
    "iscsi_server::management",
    "iscsi_server::report",
    "linerate::attach",
    "linerate::interrupt",
    "linerate::serve",
    "nbd_client::export",
    "nbd_server::client",
    "nbd_server::front_end",
    "wan::tcp",
];

impl FromStr for LogTargets {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<LogTargets, Unfit> {
        let example = "write one such as info or warn,audit=info,iscsi_server=debug";
        let targets = text
            .parse::<Targets>()
            .map_err(|error| Unfit(format!("{error}; {example}")))?;
        // A word without a level would count as the name of a part, and enable all levels of that part.
        match targets
            .iter()
            .map(|(name, _)| name)
            .find(|name| !is_known(name))
        {
            None => Ok(LogTargets(targets)),
            Some(name) => {
                let is_alone = text.split(',').any(|part| part.trim() == name);
                Err(Unfit(format!(
                    "unknown log target `{name}`{}",
                    meant(name, is_alone)
                )))
            }
        }
    }
}

/// Whether there are log lines with this name, or with a name within this part.
fn is_known(name: &str) -> bool {
    let is_within = |known: &&str| {
        known
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    KNOWN.iter().any(is_within)
}

fn meant(name: &str, is_alone: bool) -> String {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    // A word without a level is probably a mistyped level, rather than a part to log completely.
    if is_alone && nearest(name, &levels).is_some() {
        return hint(name, &levels);
    }
    let part = name.split("::").next().unwrap_or(name);
    let known: Vec<&str> = match name.contains("::") && is_known(part) {
        true => KNOWN
            .iter()
            .copied()
            .filter(|known| known.starts_with(part))
            .collect(),
        false => {
            let mut parts: Vec<&str> = KNOWN
                .iter()
                .filter_map(|known| known.split("::").next())
                .collect();
            parts.dedup();
            parts.into_iter().chain(levels).collect()
        }
    };
    hint(name, &known)
}

pub(super) fn read(section: &Section<'_>) -> Log {
    let filter = section
        .parsed::<Filter>("filter")
        .map(|filter| filter.value.0);
    let format = section.parsed("format").map(|format| format.value);
    section.done();
    Log { filter, format }
}

/// A valid filter.
struct Filter(String);

impl FromStr for Filter {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Filter, Unfit> {
        text.parse::<LogTargets>().map(|_| Filter(text.to_owned()))
    }
}

impl FromStr for LogFormat {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<LogFormat, Unfit> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(Unfit(format!(
                "`{text}` is unknown{}",
                hint(text, &["text", "json"])
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn refusal(filter: &str) -> String {
        filter.parse::<LogTargets>().expect_err(filter).to_string()
    }

    #[test]
    fn a_filter_names_what_is_logged() {
        for good in [
            "info",
            "off",
            "warn,audit=info",
            "iscsi_server=debug",
            "warn,iscsi_server::admission=debug,daemon::live=trace",
        ] {
            good.parse::<LogTargets>()
                .unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for (bad, says) in [
            (
                "warn,deamon=debug",
                "unknown log target `deamon`; did you mean `daemon`?",
            ),
            ("inof", "unknown log target `inof`; did you mean `info`?"),
            ("wran", "unknown log target `wran`; did you mean `warn`?"),
            ("nonsense=debug", "; known are `agent`, "),
            (
                "iscsi_server::admision=debug",
                "did you mean `iscsi_server::admission`?",
            ),
            (
                "iscsi_server::x=debug",
                "known are `iscsi_server::admission`, ",
            ),
            ("target=debug", "unknown log target `target`"),
            ("daemon=loud", "write one such as info"),
        ] {
            assert!(refusal(bad).contains(says), "{bad}: {}", refusal(bad));
        }
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => sources(&path, found),
                false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
                false => {}
            }
        }
    }

    /// Returns the name of a library, from its manifest.
    fn library(package: &Path) -> String {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
        let lib = manifest
            .split("[lib]\nname = \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        lib.unwrap_or("linerate").to_owned()
    }

    #[test]
    fn every_module_that_logs_is_known() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        sources(&crates, &mut files);
        let macros =
            ["error", "warn", "info", "debug", "trace"].map(|level| format!("tracing::{level}!("));
        let mut modules: Vec<String> = vec!["audit".to_owned(), "fuser".to_owned()];
        for file in files {
            let path = file
                .strip_prefix(&crates)
                .expect("within")
                .to_string_lossy()
                .into_owned();
            let Some((package, module)) = path.split_once("/src/") else {
                continue;
            };
            // The simulator is not shipped.
            if package == "runtime/sim"
                || !macros
                    .iter()
                    .any(|one| fs::read_to_string(&file).is_ok_and(|text| text.contains(one)))
            {
                continue;
            }
            let module = module
                .trim_end_matches(".rs")
                .trim_end_matches("/mod")
                .replace('/', "::");
            let library = library(&crates.join(package));
            modules.push(if ["lib", "main"].contains(&module.as_str()) {
                library
            } else {
                format!("{library}::{module}")
            });
        }
        modules.sort();
        assert_eq!(KNOWN, modules);
    }
}
