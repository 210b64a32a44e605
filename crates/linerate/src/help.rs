//! Help for users: commands in groups, each with examples; and topics (`linerate help targets`). Examples,
//! files and references of all commands are in `manual.txt`, also for manual pages.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Subcommand};
use clap_complete::Shell;

use crate::output::say;

/// The headings of `linerate --help`, with the commands below them. Commands that are missing here are added
/// under the last heading.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Serve", &["serve", "server", "raid", "import"]),
    (
        "Use",
        &[
            "discover", "info", "attach", "detach", "copy", "read", "write", "scsi",
        ],
    ),
    (
        "Measure",
        &[
            "bench",
            "compare",
            "report",
            "reproduce",
            "diagnose",
            "selftest",
        ],
    ),
    ("Other", &["lab"]),
];

/// Topics common to all commands.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Topic {
    /// Ways to specify storage: URLs, volumes and paths
    #[command(hide = true, long_about = TARGETS, help_template = "{about}")]
    Targets,
    /// Syntax of sizes, times and rates
    #[command(hide = true, long_about = UNITS, help_template = "{about}")]
    Units,
}

const TARGETS: &str = include_str!("targets.txt");
const UNITS: &str = include_str!("units.txt");
const MANUAL: &str = include_str!("manual.txt");

impl Topic {
    pub(crate) const ALL: [(&str, Topic); 2] =
        [("targets", Topic::Targets), ("units", Topic::Units)];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Topic::Targets => TARGETS,
            Topic::Units => UNITS,
        }
    }
}

/// The manual's content for a command in addition to its options.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// Examples: the purpose of a command line, and the command line.
    pub(crate) examples: Vec<(&'static str, &'static str)>,
    /// Files: a path, and the content of the file.
    pub(crate) files: Vec<(&'static str, &'static str)>,
    /// Manual pages, such as `linerate.toml(5)`.
    pub(crate) see_also: Vec<&'static str>,
}

/// The additional content for a command, given by its words, such as `linerate server sessions`.
pub(crate) fn extras(words: &str) -> Extras {
    let mut blocks = MANUAL.split("\n== ").skip(1);
    let block =
        blocks.find_map(|block| block.split_once('\n').filter(|(title, _)| *title == words));
    let (mut extras, mut what) = (Extras::default(), "");
    for line in block.map_or("", |(_, lines)| lines).lines() {
        if let Some(example) = line.strip_prefix("  ") {
            extras.examples.push((what, example));
        } else if let Some((path, what)) = line
            .strip_prefix("@ ")
            .and_then(|file| file.split_once("  "))
        {
            extras.files.push((path, what));
        } else if let Some(pages) = line.strip_prefix("& ") {
            extras.see_also.extend(pages.split(' '));
        } else {
            what = line;
        }
    }
    extras
}

/// The command line with everything that `--help` shows.
pub(crate) fn explained(command: Command) -> Command {
    let command = with_examples(command, "linerate");
    let header = *command.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{header}Options:{header:#}\n{{options}}{{after-help}}",
        groups(&command)
    );
    command.help_template(template)
}

/// An example command line that can be pasted. It is broken before options, so that it fits in 80 columns
/// with an indent of two.
pub(crate) fn folded(example: &str) -> String {
    const COLUMNS: usize = 80 - "  ".len() - " \\".len();
    let mut parts = example.split(" --");
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut columns = text.chars().count();
    for part in parts {
        let length = " --".len() + part.chars().count();
        if columns + length > COLUMNS {
            text += " \\\n     ";
            columns = "   ".len();
        }
        let _ = write!(text, " --{part}");
        columns += length;
    }
    text
}

fn with_examples(command: Command, words: &str) -> Command {
    let header = *command.get_styles().get_header();
    let mut text = String::new();
    for (what, line) in extras(words).examples {
        let _ = write!(text, "\n  # {what}\n  {}", folded(line));
    }
    let command = match text.is_empty() {
        true => command,
        false => command.after_help(format!("{header}Examples:{header:#}{text}")),
    };
    command.mut_subcommands(|below| {
        let words = format!("{words} {}", below.get_name());
        with_examples(below, &words)
    })
}

fn groups(command: &Command) -> String {
    let (header, literal) = (
        *command.get_styles().get_header(),
        *command.get_styles().get_literal(),
    );
    let visible = || {
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
    };
    let is_in = |names: &[&str], below: &Command| names.contains(&below.get_name());
    let mut text = String::new();
    for (at, (heading, names)) in GROUPS.iter().enumerate() {
        let is_last = at + 1 == GROUPS.len();
        let is_left =
            |below: &Command| is_last && !GROUPS.iter().any(|(_, names)| is_in(names, below));
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for below in visible().filter(|below| is_in(names, below) || is_left(below)) {
            let about = below
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let _ = writeln!(
                text,
                "  {literal}{:<10}{literal:#}{about}",
                below.get_name()
            );
        }
        if is_last {
            let _ = writeln!(
                text,
                "  {literal}help      {literal:#}Help for a command, or for a topic: targets, units"
            );
        }
        text.push('\n');
    }
    text
}

/// Removes `help help` and `help --help` from the command line, which then requests the help of the preceding
/// command.
pub(crate) fn without_repetition(command: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let (mut command, mut at) = (command, 1);
    while let Some(below) = words.get(at).and_then(|word| command.find_subcommand(word)) {
        (command, at) = (below, at + 1);
    }
    let is_help = |word: &OsString| ["help", "--help", "-h"].iter().any(|help| word == help);
    if command.has_subcommands() && words.get(at).is_some_and(|word| word == "help") {
        while words.get(at + 1).is_some_and(is_help) {
            words.remove(at + 1);
        }
    }
    words
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// Shell
    shell: Shell,
}

/// Prints the completion script for this command line. The script is built in memory, because the reader may
/// close the pipe.
pub(crate) fn run_completions(arguments: &CompletionsArguments, mut command: Command) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, NAME, &mut script);
    say(&with_files(
        arguments.shell,
        &String::from_utf8_lossy(&script),
    ));
}

/// The name of the program in completion scripts.
const NAME: &str = "linerate";

/// Adds the completion of files for suites, because a suite may also be a file. bash completes files if no
/// word matches; the other shells need an explicit rule.
fn with_files(shell: Shell, script: &str) -> String {
    let suites = suites().join(" ");
    let words = format!(":SUITE:({suites})");
    let line = |line: &str| match shell {
        Shell::Zsh => line.replace(
            &words,
            &format!(r#":SUITE: _alternative "suites\:suite\:({suites})" "files\:file\:_files""#),
        ),
        Shell::Fish if line.contains(" -l suite ") => line.replacen(" -r -f -a ", " -r -F -a ", 1),
        _ => line.to_owned(),
    };
    script.lines().map(|text| line(text) + "\n").collect()
}

/// Parses a value with another parser, and offers known words for completion. The parser may accept other
/// values.
#[derive(Clone)]
pub(crate) struct Offering<P>(pub(crate) P, pub(crate) fn() -> Vec<&'static str>);

impl<P: TypedValueParser> TypedValueParser for Offering<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.0.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.1)().into_iter().map(PossibleValue::new)))
    }
}

/// The names of suites.
pub(crate) fn suites() -> Vec<&'static str> {
    bench::suite::names()
        .chain([bench::suite::wan::NAME])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    use crate::arguments::Arguments;

    fn command() -> Command {
        explained(Arguments::command())
    }

    fn all(command: &Command, words: &str) -> Vec<(String, Command)> {
        let below = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set());
        let deeper = below.flat_map(|below| all(below, &format!("{words} {}", below.get_name())));
        std::iter::once((words.to_owned(), command.clone()))
            .chain(deeper)
            .collect()
    }

    #[test]
    fn every_command_has_two_examples_which_are_understood() {
        let every = all(&Arguments::command(), "linerate");
        for (words, _) in &every {
            let examples = extras(words).examples;
            assert!(examples.len() >= 2, "{words}: {examples:?}");
            for (_, example) in examples {
                let line = example
                    .trim_start_matches("sudo ")
                    .split([';', '|', '>', '<']);
                let line = line
                    .map(str::trim)
                    .find(|part| part.starts_with("linerate"));
                let line = line.unwrap_or_else(|| panic!("{words}: {example}"));
                let parsed = command().try_get_matches_from(
                    line.split_whitespace().map(|word| word.trim_matches('\'')),
                );
                parsed.unwrap_or_else(|error| panic!("{example}\n{error}"));
                let folded = folded(example);
                let is_narrow = format!("  {folded}")
                    .lines()
                    .all(|line| line.chars().count() <= 80);
                assert!(is_narrow, "{folded} is too wide");
                assert_eq!(folded.replace(" \\\n     ", ""), example);
            }
        }
        let titles = MANUAL
            .split("\n== ")
            .skip(1)
            .filter_map(|block| block.lines().next());
        for title in titles {
            assert!(
                every.iter().any(|(words, _)| words == title),
                "{title} is no command"
            );
        }
    }

    #[test]
    fn a_screen_of_80_columns_shows_all_commands() {
        let help = command().term_width(80).render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for (_, name) in GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().enumerate())
        {
            let is_there = *name == "import" || help.contains(&format!("\n  {name} "));
            assert!(is_there, "{name}");
        }
    }

    #[test]
    fn help_of_help_is_help() {
        for (line, same) in [
            ("linerate help --help", "linerate help"),
            ("linerate help help -h", "linerate help"),
            ("linerate server help --help", "linerate server help"),
            ("linerate help server", "linerate help server"),
            ("linerate copy help help", "linerate copy help help"),
        ] {
            let words =
                without_repetition(&command(), line.split(' ').map(OsString::from).collect());
            assert_eq!(words, same.split(' ').collect::<Vec<_>>(), "{line}");
        }
    }
}
