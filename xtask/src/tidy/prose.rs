//! The prose of documents, documentation comments and messages: words typical of translated text, and long sentences.
//!
//! `xtask/prose.toml` contains the last accepted counts. A higher count is a fault. `cargo xtask tidy --ratchet` stores lower
//! counts, which then become the limits. For the terms to use, see docs/glossary.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Fault;
use super::sources::Source;

/// Ambiguous words, clauses used as nouns, and foreign idioms. Lower case; a space matches any white space.
const AVOIDED: &[&str] = &[
    "anew",
    "as it is",
    "as many as",
    "at once",
    "beside",
    "besides",
    "by turns",
    "goes before",
    "in turns",
    "is told",
    "lacks",
    "let go of",
    "lets go of",
    "nobody",
    "nothing but",
    "of its own",
    "says so",
    "so much",
    "that which",
    "what lacks",
    "whoever",
];

/// A sentence with more words is long.
const LONG_WORDS: usize = 30;

/// Counts of one kind of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    /// Occurrences of [`AVOIDED`] words.
    avoided: usize,
    /// Sentences of more than [`LONG_WORDS`] words.
    long: usize,
    sentences: usize,
    words: usize,
}

impl Counts {
    /// Counts the words of plain-text paragraphs.
    fn of<'a>(paragraphs: impl IntoIterator<Item = &'a str>) -> Counts {
        let mut counts = Counts::default();
        for paragraph in paragraphs {
            let words: Vec<&str> = paragraph.split_whitespace().collect();
            let plain: Vec<String> = words.iter().map(|word| plain(word)).collect();
            let text = format!(" {} ", plain.join(" "));
            counts.avoided += AVOIDED
                .iter()
                .map(|word| text.matches(&format!(" {word} ")).count())
                .sum::<usize>();
            let ends = |word: &&str| {
                word.trim_end_matches(['"', ')', '*', '_'])
                    .ends_with(['.', '!', '?', ':'])
            };
            for sentence in words.split_inclusive(ends) {
                counts.sentences += 1;
                counts.words += sentence.len();
                counts.long += usize::from(sentence.len() > LONG_WORDS);
            }
        }
        counts
    }

    fn plus(self, other: Counts) -> Counts {
        Counts {
            avoided: self.avoided + other.avoided,
            long: self.long + other.long,
            sentences: self.sentences + other.sentences,
            words: self.words + other.words,
        }
    }
}

fn plain(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric())
        .to_lowercase()
}

/// The counts of each kind of text: `documents`, `comments` and `messages`.
pub(super) type Prose = BTreeMap<&'static str, Counts>;

/// Counts the whole tree.
pub(super) fn count(root: &Path, sources: &[Source]) -> Result<Prose> {
    let mut documents = Counts::default();
    for path in pages(root)? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        documents = documents.plus(of_document(&text));
    }
    let of = |count: fn(&str) -> Counts| {
        let texts = sources
            .iter()
            .filter(|source| source.path.starts_with("crates/"));
        texts
            .map(|source| count(&source.text))
            .fold(Counts::default(), Counts::plus)
    };
    Ok(Prose::from([
        ("documents", documents),
        ("comments", of(of_comments)),
        ("messages", of(of_messages)),
    ]))
}

/// Returns the hand-written pages. Pages below docs/measured are generated.
pub(super) fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/design"] {
        let entries = fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Returns the lines of a page, with code replaced by empty lines.
pub(super) fn without_code(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().map(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence { "" } else { line }
    })
}

/// Counts a document without its code, tables and headings.
fn of_document(text: &str) -> Counts {
    let mut prose = String::new();
    for line in without_code(text) {
        let is_left_out = line.trim_start().starts_with(['#', '|', '`', '<']);
        let is_item = line.trim_start().starts_with(['-', '*'])
            || line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        if is_left_out || is_item {
            prose.push('\n');
        }
        if !is_left_out {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    Counts::of(prose.split("\n\n"))
}

/// Counts documentation comments, which include the help of commands.
fn of_comments(source: &str) -> Counts {
    let text: Vec<&str> = source
        .lines()
        .map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///")
                .or(line.strip_prefix("//!"))
                .map_or("", str::trim_start)
        })
        .collect();
    of_document(&text.join("\n"))
}

/// Counts string literals of several words outside tests: errors, log lines and reports.
fn of_messages(source: &str) -> Counts {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let literals = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    Counts::of(literals.filter(|text| text.split_whitespace().count() > 2))
}

/// The last accepted counts.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratchet {
    documents: Limit,
    comments: Limit,
    messages: Limit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    avoided: usize,
    long: usize,
}

impl Ratchet {
    pub(super) fn load(root: &Path) -> Result<Ratchet> {
        let path = path(root);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    fn limits(&mut self) -> [(&'static str, &mut Limit); 3] {
        [
            ("documents", &mut self.documents),
            ("comments", &mut self.comments),
            ("messages", &mut self.messages),
        ]
    }

    /// Returns a fault for each count above its limit.
    pub(super) fn faults(mut self, prose: &Prose) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (kind, limit) in self.limits() {
            let now = prose[kind];
            for (what, now, limit) in [
                ("words to avoid", now.avoided, limit.avoided),
                ("long sentences", now.long, limit.long),
            ] {
                if now > limit {
                    let what = format!(
                        "{now} {what} in {kind}, up from {limit}; see xtask/src/tidy/prose.rs"
                    );
                    faults.push(Fault {
                        place: PATH.to_owned(),
                        what,
                    });
                }
            }
        }
        faults
    }

    /// Lowers the limits to the current counts.
    pub(super) fn lowered(mut self, prose: &Prose) -> Ratchet {
        for (kind, limit) in self.limits() {
            limit.avoided = limit.avoided.min(prose[kind].avoided);
            limit.long = limit.long.min(prose[kind].long);
        }
        self
    }

    pub(super) fn store(&self, root: &Path) -> Result<()> {
        let path = path(root);
        let text = format!(
            "# Limits on prose counts, which can only fall: `cargo xtask tidy --ratchet` stores lower counts.\n\n{}",
            toml::to_string(self)?
        );
        fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

const PATH: &str = "xtask/prose.toml";

fn path(root: &Path) -> PathBuf {
    root.join(PATH)
}

/// Returns one line for each kind of text.
pub(super) fn summary(prose: &Prose) -> String {
    let line = |(kind, counts): (&&str, &Counts)| {
        let Counts {
            avoided,
            long,
            sentences,
            words,
        } = counts;
        let mean = *words as f64 / (*sentences).max(1) as f64;
        let share = *long as f64 * 100.0 / (*sentences).max(1) as f64;
        format!(
            "prose: {kind}: {words} words, {mean:.1} a sentence, {share:.1} % over {LONG_WORDS}; {avoided} words to avoid\n"
        )
    };
    prose.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_across_lines_and_only_as_words() {
        let counts = Counts::of([
            "It stops at\nonce, and nobody hears it.",
            "The sobeside word.",
        ]);
        assert_eq!((counts.avoided, counts.sentences), (2, 2));
    }

    #[test]
    fn code_tables_and_headings_are_no_prose() {
        let page = "# At once\n\n```\nat once\n```\n| at once |\n\nOne sentence.\n- an item\n- another item\n";
        let counts = of_document(page);
        assert_eq!((counts.avoided, counts.sentences, counts.words), (0, 3, 8));
    }

    #[test]
    fn messages_are_literals_outside_tests_and_comments() {
        let source = "// \"at once or never\"\nfn f() { fails(\"it is told at once\"); g(\"one\") }\n#[cfg(test)]\nmod tests { \"nobody is told\" }\n";
        assert_eq!(of_messages(source).avoided, 2);
    }

    #[test]
    fn counts_only_fall() {
        let limit = |avoided| Limit { avoided, long: 1 };
        let ratchet = |avoided| Ratchet {
            documents: limit(avoided),
            comments: limit(2),
            messages: limit(2),
        };
        let counts = |avoided| Counts {
            avoided,
            long: 1,
            ..Counts::default()
        };
        let prose = Prose::from([
            ("documents", counts(3)),
            ("comments", counts(1)),
            ("messages", counts(2)),
        ]);
        let faults = ratchet(2).faults(&prose);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(ratchet(4).faults(&prose), []);
        assert_eq!(
            ratchet(4).lowered(&prose),
            Ratchet {
                documents: limit(3),
                comments: limit(1),
                messages: limit(2)
            }
        );
    }
}
