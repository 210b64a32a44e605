//! The documented configuration file: [`TEXT`] is an example with every section and key, each below a
//! comment, and [`sections`] combines it with the keys that the parser accepts.

use super::known_keys;

/// The example. A key after `#` without a space is commented out, because another key of the example excludes
/// it.
pub const TEXT: &str = include_str!("reference.toml");

/// A section of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    /// Its heading in the file: `[[target]]`. Empty for the keys before the first heading.
    pub heading: String,
    /// Its purpose.
    pub text: String,
    /// Its keys, in the order of the example.
    pub keys: Vec<Key>,
}

/// A key of a section.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// The kind of its value: `a string`, `a number from 1 to 1024`; empty if the parser does not accept the
    /// key.
    pub kind: String,
    /// An example of its value.
    pub example: String,
    /// Its meaning.
    pub text: String,
}

/// All sections; each heading occurs once.
pub fn sections() -> Vec<Section> {
    let known = known_keys(TEXT);
    let kind = |heading: &str, name: &str| {
        let of_section = known.iter().filter(|(title, _)| generic(title) == heading);
        let key = of_section
            .flat_map(|(_, keys)| keys)
            .find(|key| key.name == name);
        key.map_or_else(String::new, |key| key.kind.clone())
    };
    let mut sections = vec![Section {
        heading: String::new(),
        text: String::new(),
        keys: Vec::new(),
    }];
    let (mut current, mut above) = (0, String::new());
    for line in TEXT.lines() {
        if line.starts_with('[') {
            let (text, heading) = (std::mem::take(&mut above), generic(line));
            current = sections
                .iter()
                .position(|section| section.heading == heading)
                .unwrap_or(sections.len());
            if current == sections.len() {
                sections.push(Section {
                    heading: heading.to_owned(),
                    text,
                    keys: Vec::new(),
                });
            }
        } else if let Some(comment) = line.strip_prefix("# ") {
            add(&mut above, comment);
        } else if let Some((name, example)) = line.trim_start_matches('#').split_once(" = ") {
            let text = std::mem::take(&mut above);
            let keys = &mut sections[current].keys;
            if !keys.iter().any(|key| key.name == name) {
                let kind = kind(&sections[current].heading, name);
                let (name, example) = (name.to_owned(), example.trim().to_owned());
                sections[current].keys.push(Key {
                    name,
                    kind,
                    example,
                    text,
                });
            }
        }
    }
    sections
}

/// Returns the heading, with a placeholder in place of a name that users choose.
fn generic(heading: &str) -> &str {
    if heading.starts_with("[volume.") {
        "[volume.NAME]"
    } else {
        heading
    }
}

fn add(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(more.trim());
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn every_key_that_is_accepted_is_explained_and_no_other() {
        Config::parse("reference.toml", TEXT).unwrap_or_else(|error| panic!("{error}"));
        let explained = sections();
        for Section { heading, keys, .. } in &explained {
            for key in keys {
                assert!(
                    !key.kind.is_empty(),
                    "{} of {heading} is not accepted",
                    key.name
                );
                assert!(
                    !key.text.is_empty(),
                    "{} of {heading} is not explained",
                    key.name
                );
            }
        }
        for (heading, keys) in known_keys(TEXT) {
            let section = explained
                .iter()
                .find(|section| section.heading == generic(&heading));
            let path = |name: &str| {
                format!("{}.{name}", heading.trim_matches(['[', ']']))
                    .trim_start_matches('.')
                    .to_owned()
            };
            for key in keys {
                let path = path(key.name);
                let is_below = |other: &Section| {
                    let other = other.heading.trim_matches(['[', ']']);
                    other == path || other.starts_with(&format!("{path}."))
                };
                let is_there = match key.kind.as_str() {
                    "a table" | "tables" => explained.iter().any(is_below),
                    _ => section.is_some_and(|section| {
                        section.keys.iter().any(|told| told.name == key.name)
                    }),
                };
                assert!(
                    is_there,
                    "{} of {heading} is missing in reference.toml",
                    key.name
                );
            }
        }
    }
}
