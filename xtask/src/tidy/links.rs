//! Links between the documents: each must lead to an existing file, and to an existing heading if it has an anchor.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Fault, prose};

/// Returns broken links, and pages that docs/SUMMARY.md does not list.
pub(super) fn faults(root: &Path) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).context("docs/SUMMARY.md")?;
    for path in prose::pages(root)? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let place = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        let folder = path.parent().unwrap_or(root);
        for (line, link) in links(&text) {
            if let Some(what) = fault(folder, &path, link) {
                faults.push(Fault {
                    place: format!("{place}:{line}"),
                    what,
                });
            }
        }
        let in_book = place
            .strip_prefix("docs/")
            .filter(|page| *page != "SUMMARY.md");
        if in_book.is_some_and(|page| !summary.contains(&format!("({page})"))) {
            faults.push(Fault {
                place,
                what: "is not listed in docs/SUMMARY.md".to_owned(),
            });
        }
    }
    Ok(faults)
}

/// Returns the targets of `[text](target)` outside code, with their lines.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose::without_code(text)
        .enumerate()
        .flat_map(|(at, line)| {
            line.split("](")
                .skip(1)
                .filter_map(move |rest| Some((at + 1, rest.split_once(')')?.0)))
        })
}

/// Returns the fault of a link on a page in this directory, if any.
pub(crate) fn fault(folder: &Path, page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        page.to_owned()
    } else {
        folder.join(file)
    };
    if !target.exists() {
        return Some(format!("links to {link}, which is not in this tree"));
    }
    if anchor.is_empty() || target.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let text = fs::read_to_string(&target).unwrap_or_default();
    (!anchors(&text).contains(anchor))
        .then(|| format!("links to {link}, but that heading does not exist"))
}

/// Returns the anchors of the headings, as GitHub and mdBook generate them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose::without_code(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading
            .trim()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        anchors.insert(anchor.to_lowercase());
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "see [a](a.md) and [b](b.md#two)\n```\n[c](c.md)\n```\n";
        assert_eq!(
            links(text).collect::<Vec<_>>(),
            [(1, "a.md"), (1, "b.md#two")]
        );
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let text = "# A `raid6:` set\n```\n# no heading\n```\n## Lost writes, and FUA\n";
        assert_eq!(
            anchors(text),
            ["a-raid6-set", "lost-writes-and-fua"]
                .map(str::to_owned)
                .into()
        );
    }

    #[test]
    fn a_link_without_a_file_or_a_heading_is_a_fault() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the root");
        let page = folder.join("README.md");
        assert_eq!(fault(folder, &page, "README.md"), None);
        assert_eq!(fault(folder, &page, "https://example.org/x.md"), None);
        assert!(fault(folder, &page, "none.md").is_some());
        assert!(fault(folder, &page, "README.md#no-such-heading").is_some());
    }
}
