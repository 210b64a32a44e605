//! What a verb is answered with: for people, and for programs.

use std::fmt::Display;

use serde_json::Value;

use crate::failure::Failure;
use crate::output::say;

/// The same in words and in JSON, whose names are promised.
#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    json: Value,
}

impl Answer {
    pub(super) fn new(text: impl Display, json: Value) -> Answer {
        Answer { text: text.to_string(), json }
    }

    /// Prints it.
    pub(super) fn say(&self, json: bool) -> Result<(), Failure> {
        let text = if json {
            serde_json::to_string_pretty(&self.json).map_err(Failure::failed)?
        } else {
            self.text.trim_end().to_owned()
        };
        say(&(text + "\n"));
        Ok(())
    }
}
