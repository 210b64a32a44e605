//! `linerate man` prints or writes the manual, which has a page for the program, for each command, for each
//! topic, and for the configuration file.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use daemon::config::reference;

use crate::failure::{Failure, exit_codes};
use crate::help::{self, Topic};
use crate::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// Directory, such as ~/.local/share/man/man1; created if it does not exist. With a directory man1, pages
    /// of sections 5 and 7 go into man5 and man7 next to it, otherwise into the same directory
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    folder: Option<PathBuf>,
}

/// A manual page: its file name, such as `linerate-serve.1`, and its text.
type Page = (String, String);

/// Runs the command.
pub(crate) fn run(arguments: &ManArguments, command: Command) -> Result<(), Failure> {
    match &arguments.folder {
        Some(folder) => write_all(folder, command),
        None => {
            let first = pages(command)
                .into_iter()
                .find(|(name, _)| name == "linerate.1");
            say(&first.map_or_else(String::new, |(_, text)| text));
            Ok(())
        }
    }
}

fn write_all(folder: &Path, command: Command) -> Result<(), Failure> {
    for (name, text) in pages(command) {
        let section = name.rsplit('.').next().unwrap_or("1");
        let folder = match folder.file_name() {
            Some(last) if last == "man1" => folder.with_file_name(format!("man{section}")),
            _ => folder.to_owned(),
        };
        let path = folder.join(name);
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, text));
        written.map_err(|error| Failure::unwritten(path.display(), &error))?;
    }
    Ok(())
}

/// All pages: `linerate.1`, `linerate-serve.1`, `linerate-scsi-inquiry.1` and so on, topics, and the
/// configuration file.
fn pages(command: Command) -> Vec<Page> {
    let mut root = command.disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, "linerate", &mut pages);
    for (name, topic) in Topic::ALL {
        let about = root
            .find_subcommand(name)
            .and_then(Command::get_about)
            .map(ToString::to_string);
        let about = roff(&about.unwrap_or_default());
        let text = format!(
            ".TH LINERATE-{} 7\n.SH NAME\nlinerate\\-{name} \\- {about}\n.SH DESCRIPTION\n.nf\n{}.fi\n{}",
            name.to_uppercase(),
            roff(topic.text()),
            see_also(&["linerate(1)"])
        );
        pages.push((format!("linerate-{name}.7"), text));
    }
    pages.push(("linerate.toml.5".to_owned(), configuration()));
    pages
}

/// The layout of pages: left-aligned and without hyphenation. URLs and options are too long for justified
/// lines of 80 columns, and must not be broken.
const LAYOUT: &str = ".ad l\n.nh\n";

fn add(command: &Command, words: &str, pages: &mut Vec<Page>) {
    let below = || {
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
    };
    for below in below() {
        add(below, &format!("{words} {}", below.get_name()), pages);
    }
    let man = Man::new(command.clone()).source(concat!("linerate ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    // Writing to a Vec does not fail.
    let _ = man.render_title(&mut text);
    text.extend_from_slice(LAYOUT.as_bytes());
    let _ = man.render_name_section(&mut text);
    let _ = man.render_synopsis_section(&mut text);
    let _ = man.render_description_section(&mut text);
    let _ = man.render_options_section(&mut text);
    if below().next().is_some() {
        let _ = man.render_subcommands_section(&mut text);
    }
    let extras = help::extras(words);
    let mut text = String::from_utf8_lossy(&text).into_owned() + ".SH EXAMPLES\n";
    for (what, line) in &extras.examples {
        let _ = write!(
            text,
            ".PP\n{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n",
            roff(what),
            roff(&help::folded(line))
        );
    }
    if !extras.files.is_empty() {
        text += ".SH FILES\n";
        extras
            .files
            .iter()
            .for_each(|(path, what)| text += &entry(path, what));
    }
    let parent = words
        .rsplit_once(' ')
        .map(|(parent, _)| format!("{}(1)", parent.replace(' ', "-")));
    let below = below().map(|below| format!("{}-{}(1)", words.replace(' ', "-"), below.get_name()));
    let pages_to_see: Vec<String> = parent
        .into_iter()
        .chain(below)
        .chain(extras.see_also.iter().map(|page| (*page).to_owned()))
        .collect();
    let pages_to_see: Vec<&str> = pages_to_see.iter().map(String::as_str).collect();
    if words == "linerate" {
        let _ = write!(
            text,
            ".SH \"EXIT STATUS\"\n.nf\n{}\n.fi\n",
            roff(&exit_codes())
        );
    }
    pages.push((
        format!("{}.1", words.replace(' ', "-")),
        text + &see_also(&pages_to_see),
    ));
}

/// The page `linerate.toml.5`, from the reference of the configuration file.
fn configuration() -> String {
    let mut text = format!(
        ".TH LINERATE.TOML 5\n{LAYOUT}.SH NAME\nlinerate.toml \\- configuration of a Linerate server\n"
    );
    text += ".SH DESCRIPTION\nThe configuration is one TOML file, for \\fBlinerate serve \\-\\-config\\fR. \
             \\fBlinerate serve \\-\\-check\\fR reports all errors in it, with line and column. \
             An omitted key has the default given here, or means any.\n";
    for section in reference::sections() {
        let heading = if section.heading.is_empty() {
            "Before the first table"
        } else {
            &section.heading
        };
        let _ = write!(text, ".SS {}\n{}\n", roff(heading), roff(&section.text));
        for key in section.keys {
            let term = format!("{} = {}", key.name, key.example);
            text += &entry(&term, &format!("{} ({})", key.text, key.kind));
        }
    }
    let _ = write!(text, ".SH EXAMPLES\n.nf\n{}.fi\n", roff(reference::TEXT));
    text += ".SH FILES\n";
    text += &entry(
        "/etc/linerate/linerate.toml",
        "the configuration of the unit linerate.service",
    );
    text + &see_also(&[
        "linerate-serve(1)",
        "linerate-server(1)",
        "linerate-units(7)",
    ])
}

/// An entry of a list: a term, and its description.
fn entry(term: &str, text: &str) -> String {
    format!(".TP\n\\fB{}\\fR\n{}\n", roff(term), roff(text))
}

fn see_also(pages: &[&str]) -> String {
    let names = pages.iter().map(|page| {
        format!(
            "\\fB{}\\fR{}",
            roff(&page[..page.len() - 3]),
            &page[page.len() - 3..]
        )
    });
    format!(
        ".SH \"SEE ALSO\"\n{}\n",
        names.collect::<Vec<_>>().join(", ")
    )
}

/// The text in roff syntax, with its line breaks.
fn roff(text: &str) -> String {
    let safe = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = safe
        .split('\n')
        .map(|line| match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_command_topic_and_file_has_a_page() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write_all(&folder.path().join("man1"), Arguments::command()).expect("pages");
        let read = |name: &str| {
            fs::read_to_string(folder.path().join(name)).unwrap_or_else(|_| panic!("{name}"))
        };
        for name in [
            "linerate",
            "linerate-serve",
            "linerate-bench-agent",
            "linerate-scsi-inquiry",
        ] {
            let page = read(&format!("man1/{name}.1"));
            for heading in [
                ".SH NAME",
                ".SH SYNOPSIS",
                ".SH OPTIONS",
                ".SH EXAMPLES",
                "SEE ALSO",
            ] {
                assert!(page.contains(heading), "{name}: {heading}");
            }
        }
        assert!(read("man1/linerate-serve.1").contains(".SH FILES\n"));
        assert!(read("man7/linerate-targets.7").contains("iscsi://"));
        let keys = reference::sections()
            .into_iter()
            .flat_map(|section| section.keys);
        let page = read("man5/linerate.toml.5");
        keys.for_each(|key| {
            assert!(
                page.contains(&roff(&format!("{} = ", key.name))),
                "{}",
                key.name
            )
        });
    }

    #[test]
    fn every_command_and_every_option_says_what_it_does() {
        fn check(command: &Command) {
            let name = command.get_name();
            let about = command
                .get_about()
                .unwrap_or_else(|| panic!("{name}"))
                .to_string();
            assert!(
                about.starts_with(|letter: char| letter.is_ascii_uppercase())
                    && !about.ends_with('.'),
                "{name}: {about}"
            );
            for argument in command.get_arguments() {
                let help = argument
                    .get_help()
                    .unwrap_or_else(|| panic!("{name}: {}", argument.get_id()))
                    .to_string();
                let first = help.split([' ', ',']).next().unwrap_or_default();
                let is_article = [
                    "The", "A", "An", "It", "How", "What", "Where", "Whether", "Who", "Whom",
                    "Which",
                ]
                .contains(&first);
                assert!(
                    !is_article,
                    "{name}: {help}: neither an imperative nor a noun phrase without an article"
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }
}
