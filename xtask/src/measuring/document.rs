//! docs/performance.md, of which each comparison writes one section and leaves the others alone.

use std::fs;

use anyhow::{Context, Result};

use crate::workspace;

const TITLE: &str = "# Performance beside peers\n";

/// Writes a section, in place of the one with its heading or behind all others.
pub(crate) fn write_section(heading: &str, body: &str) -> Result<()> {
    let path = workspace::root().join("docs/performance.md");
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    fs::write(&path, with_section(&page, heading, body)).with_context(|| path.display().to_string())?;
    println!("wrote {}: {heading}", path.display());
    Ok(())
}

fn with_section(page: &str, heading: &str, body: &str) -> String {
    let begin = format!("## {heading}\n");
    let section = format!("{begin}\n{}\n", body.trim_end());
    let mut sections: Vec<String> = page.split("\n## ").skip(1).map(|text| format!("## {text}")).collect();
    match sections.iter_mut().find(|text| text.starts_with(&begin)) {
        Some(old) => *old = section,
        None => sections.push(section),
    }
    sections.iter().fold(TITLE.to_owned(), |page, text| page + "\n" + text.trim_end() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_takes_the_place_of_the_one_with_its_heading() {
        let page = format!("{TITLE}\n## one\n\nold\n\n## two\n\nkept\n");
        let new = with_section(&page, "one", "new\n");
        assert_eq!(new, format!("{TITLE}\n## one\n\nnew\n\n## two\n\nkept\n"));
        assert_eq!(with_section(&new, "one", "new"), new);
        assert!(with_section(&new, "three", "last").ends_with("kept\n\n## three\n\nlast\n"));
    }
}
