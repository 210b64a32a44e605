//! The pages of docs/measured/, one for each measuring command: `cargo xtask NAME` writes NAME.md. Each measurement
//! writes only its own section.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace;

/// Returns the path of a command's page.
fn path(command: &str) -> PathBuf {
    workspace::root()
        .join("docs/measured")
        .join(format!("{command}.md"))
}

/// Writes a section of a command's page: replaces the section with this heading, or appends a new one.
pub fn write_section(command: &str, heading: &str, body: &str) -> Result<()> {
    let path = path(command);
    let page = fs::read_to_string(&path).unwrap_or_else(|_| format!("# `{command}`\n"));
    write(command, &with_section(&page, heading, body))
}

/// Writes a whole page, without spaces around the cells of its tables.
pub fn write(command: &str, page: &str) -> Result<()> {
    let path = path(command);
    fs::write(&path, without_padding(page)).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(())
}

fn with_section(page: &str, heading: &str, body: &str) -> String {
    let begin = format!("## {heading}\n");
    let section = format!("{begin}\n{}\n", body.trim_end());
    let (head, rest) = page.split_once("\n## ").unwrap_or((page, ""));
    let rest = rest.split("\n## ").filter(|text| !text.is_empty());
    let mut sections: Vec<String> = rest.map(|text| format!("## {text}")).collect();
    match sections.iter_mut().find(|text| text.starts_with(&begin)) {
        Some(old) => *old = section,
        None => sections.push(section),
    }
    let head = format!("{}\n", head.trim_end());
    sections
        .iter()
        .fold(head, |page, text| format!("{page}\n{}\n", text.trim_end()))
}

/// Removes the spaces around the cells of tables: pages are read rendered, and half of a page consists of tables.
fn without_padding(page: &str) -> String {
    let line = |line: &str| match line.starts_with('|') {
        true => line.split('|').map(str::trim).collect::<Vec<_>>().join("|"),
        false => line.to_owned(),
    };
    page.lines().map(|text| line(text) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_no_padding() {
        let page = "# a | b\n\n| a | | c d |\n|---|---:|---|\n";
        assert_eq!(
            without_padding(page),
            "# a | b\n\n|a||c d|\n|---|---:|---|\n"
        );
    }

    #[test]
    fn a_section_takes_the_place_of_the_one_with_its_heading() {
        let head = "# Title\n\nA paragraph.\n";
        let page = format!("{head}\n## one\n\nold\n\n## two\n\nkept\n");
        let new = with_section(&page, "one", "new\n");
        assert_eq!(new, format!("{head}\n## one\n\nnew\n\n## two\n\nkept\n"));
        assert_eq!(with_section(&new, "one", "new"), new);
        assert!(with_section(&new, "three", "last").ends_with("kept\n\n## three\n\nlast\n"));
    }
}
