//! What was asked for, for people and for programs.

use std::fmt::Display;

use serde::Serialize;

/// A version of the names of the JSON: another one has a name less, or one that means something else.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    answer: &'a T,
}

/// The same as text and as JSON, whose names are promised.
#[derive(Clone, Debug)]
pub struct Answer {
    text: String,
    json: String,
}

impl Answer {
    /// `text` as it is printed; `json` an object, since a list has no place for a version, without infinite numbers or keys
    /// that are not text.
    pub(crate) fn new(text: String, json: &impl Serialize) -> Answer {
        let versioned = serde_json::to_string_pretty(&Versioned { version: VERSION, answer: json });
        Answer { text, json: versioned.expect("an object whose keys are text") + "\n" }
    }

    /// The same for text of any form, which gets one end of line.
    pub(crate) fn of_text(text: impl Display, json: &impl Serialize) -> Answer {
        Answer::new(text.to_string().trim_end().to_owned() + "\n", json)
    }

    /// What to print.
    pub fn printed(&self, as_json: bool) -> &str {
        if as_json { &self.json } else { &self.text }
    }
}
