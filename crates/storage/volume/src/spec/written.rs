//! A volume specification as written, from which the back end reads its argument, its options with their
//! values, and its member volumes in brackets.

use std::ops::Range;
use std::str::FromStr;

use super::Spec;
use super::syntax::{Choice, Grammar, Node, Problem, SpecError, Token, parse};
use crate::backend::{Kind, Options};
use crate::spec::syntax::hint;

type Parsed<T> = Result<T, Problem>;

/// The options that exist for every volume.
const OF_ALL: [&str; 3] = ["read-only", "removable", "thick"];

impl Grammar {
    /// Parses all of `text` as one volume.
    ///
    /// # Errors
    /// Returns the error, its position, and the remedy.
    pub fn parse(self, text: &str) -> Result<Spec, SpecError> {
        let spec = parse(self, text).and_then(|node| {
            let spec = volume(&node)?;
            inner_of(&node)
                .try_for_each(none_of_a_whole_volume)
                .map(|()| spec)
        });
        spec.map_err(|problem| SpecError::new(text, problem))
    }
}

fn volume(node: &Node) -> Parsed<Spec> {
    check_options(node)?;
    let written = Written { node };
    Ok(Spec {
        backend: (node.kind.read)(&written)?,
        readonly: written.flag("read-only")?,
        removable: written.flag("removable")?,
        thick: written.flag("thick")?,
    })
}

/// Checks that every option is known, and that none is repeated.
fn check_options(node: &Node) -> Parsed<()> {
    for (index, choice) in node.options.iter().enumerate() {
        let key = &choice.key;
        if let Options::Known(own) = node.kind.options
            && !own.contains(&key.text.as_str())
            && !OF_ALL.contains(&key.text.as_str())
        {
            let mut known = [own, &OF_ALL].concat();
            known.sort_unstable();
            let sentence = format!("unknown option `{}`{}", key.text, hint(&key.text, &known));
            return Err(Problem::new(key.at.clone(), sentence));
        }
        if node
            .options
            .iter()
            .take(index)
            .any(|earlier| earlier.key.text == key.text)
        {
            let sentence = format!("`{}` occurs twice; keep one of them", key.text);
            return Err(Problem::new(key.at.clone(), sentence));
        }
    }
    Ok(())
}

fn inner_of(node: &Node) -> impl Iterator<Item = &Node> {
    node.members.iter().flat_map(|members| &members.nodes)
}

fn none_of_a_whole_volume(node: &Node) -> Parsed<()> {
    let whole = ["removable", "thick"];
    if let Some(choice) = node
        .options
        .iter()
        .find(|choice| whole.contains(&choice.key.text.as_str()))
    {
        let sentence = format!(
            "`{}` applies to the whole volume; write it after the last bracket",
            choice.key.text
        );
        return Err(Problem::new(choice.key.at.clone(), sentence));
    }
    inner_of(node).try_for_each(none_of_a_whole_volume)
}

/// One volume as written.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    node: &'a Node,
}

impl<'a> Written<'a> {
    /// Returns the kind of the volume.
    pub fn kind(&self) -> &'static Kind {
        self.node.kind
    }

    /// Returns the text between the kind and the brackets or options.
    pub fn argument(&self) -> &'a Token {
        &self.node.argument
    }

    /// Parses the argument of a layer, which stands before the brackets and between colons. In an error,
    /// `wants` describes the argument, and `example` shows it.
    ///
    /// # Errors
    /// The argument is missing or not a valid value.
    pub fn before_brackets<T: FromStr<Err: ToString>>(
        &self,
        wants: &str,
        example: &str,
    ) -> Parsed<T> {
        let argument = self.argument();
        match argument.text.strip_suffix(':') {
            Some(text) => Token {
                text: text.to_owned(),
                at: argument.at.start..argument.at.end - 1,
            }
            .parsed(),
            None => Err(Problem::new(
                argument.at.clone(),
                format!("{wants}, a colon and a volume in brackets, such as {example}"),
            )),
        }
    }

    /// Checks that this `layer` has no argument before its brackets.
    ///
    /// # Errors
    /// There is an argument.
    pub fn nothing_before_brackets(&self, layer: &str, example: &str) -> Parsed<()> {
        match self.argument().text.is_empty() {
            true => Ok(()),
            false => Err(Problem::new(
                self.argument().at.clone(),
                format!(
                    "{layer} needs a volume in brackets and nothing before them, such as {example}"
                ),
            )),
        }
    }

    /// Returns the volumes in the brackets, of which there must be at least one.
    ///
    /// # Errors
    /// There are no brackets, or a member has an error.
    pub fn members(&self) -> Parsed<Vec<Spec>> {
        let Some(members) = &self.node.members else {
            let end = self.argument().at.end;
            return Err(Problem::new(
                end..end,
                "a volume in brackets is missing here, such as [ram:1GiB]",
            ));
        };
        debug_assert!(!members.nodes.is_empty(), "brackets have a volume in them");
        members.nodes.iter().map(volume).collect()
    }

    /// Returns the single member volume of a layer.
    ///
    /// # Errors
    /// There is no member, or more than one, or it has an error.
    pub fn member(&self) -> Parsed<Spec> {
        if inner_of(self.node).count() > 1 {
            return Err(Problem::new(
                self.place_of_members(),
                "this layer takes a single volume; write one in the brackets",
            ));
        }
        Ok(self.members()?.swap_remove(0))
    }

    /// Returns the position of the brackets, or of the argument if there are no brackets.
    pub fn place_of_members(&self) -> Range<usize> {
        self.node
            .members
            .as_ref()
            .map_or(self.argument().at.clone(), |members| members.at.clone())
    }

    fn find(&self, key: &str) -> Option<&'a Choice> {
        self.node
            .options
            .iter()
            .find(|choice| choice.key.text == key)
    }

    /// Returns the options as written, except those of every volume, for a kind with its own grammar.
    pub fn own_options(&self) -> Vec<String> {
        let own = self
            .node
            .options
            .iter()
            .filter(|choice| !OF_ALL.contains(&choice.key.text.as_str()));
        own.map(|choice| match &choice.value {
            Some(value) => format!("{}={}", choice.key.text, value.text),
            None => choice.key.text.clone(),
        })
        .collect()
    }

    /// Returns the value of an option that must have a value.
    ///
    /// # Errors
    /// The option has no value.
    pub fn value(&self, key: &str) -> Parsed<Option<&'a Token>> {
        let Some(choice) = self.find(key) else {
            return Ok(None);
        };
        choice
            .value
            .as_ref()
            .filter(|value| !value.text.is_empty())
            .map(Some)
            .ok_or_else(|| {
                Problem::new(
                    choice.key.at.clone(),
                    format!("`{key}` needs a value: {key}=…"),
                )
            })
    }

    /// Returns the parsed value of an option.
    ///
    /// # Errors
    /// The option has no value, or an invalid one.
    pub fn parsed<T: FromStr<Err: ToString>>(&self, key: &str) -> Parsed<Option<T>> {
        self.value(key)?.map(Token::parsed).transpose()
    }

    /// Returns the state of a flag, which is on if it is present, unless its value turns it off.
    ///
    /// # Errors
    /// The flag has any other value.
    pub fn flag(&self, key: &str) -> Parsed<bool> {
        let Some(choice) = self.find(key) else {
            return Ok(false);
        };
        match choice.value.as_ref().map(|value| value.text.as_str()) {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(_) => {
                let at = choice
                    .value
                    .as_ref()
                    .map_or_else(|| choice.key.at.clone(), |value| value.at.clone());
                Err(Problem::new(
                    at,
                    format!("`{key}` is on or off; write {key}=on, {key}=off or just {key}"),
                ))
            }
        }
    }

    /// Returns the values of two options, of which each requires the other.
    ///
    /// # Errors
    /// Only one of them is present.
    pub fn both(&self, one: &str, other: &str) -> Parsed<Option<(&'a Token, &'a Token)>> {
        match (self.value(one)?, self.value(other)?) {
            (Some(first), Some(second)) => Ok(Some((first, second))),
            (None, None) => Ok(None),
            (Some(word), None) => Err(Problem::new(
                word.at.clone(),
                format!("`{one}` needs `{other}`"),
            )),
            (None, Some(word)) => Err(Problem::new(
                word.at.clone(),
                format!("`{other}` needs `{one}`"),
            )),
        }
    }
}

impl Token {
    /// Parses the token as a value.
    ///
    /// # Errors
    /// The value is invalid.
    pub fn parsed<T: FromStr<Err: ToString>>(&self) -> Parsed<T> {
        self.text
            .parse()
            .map_err(|error: T::Err| Problem::new(self.at.clone(), error.to_string()))
    }
}
