//! MODE SENSE and MODE SELECT: how a unit is set, field by field.

use initiator::Unit;
use initiator::verbs::{ModeFieldError, ModePage, ModeValues, Modes};
use serde_json::{Value, json};

use super::answer::Answer;
use super::unit::AskArguments;
use crate::failure::Failure;
use crate::page::{self, dump, fields, fields_text, hex};

#[derive(Debug, clap::Args)]
pub(super) struct ModesArguments {
    #[command(flatten)]
    ask: AskArguments,
    /// The page by its hexadecimal number, such as 08; all of them if not given
    #[arg(value_name = "PAGE", value_parser = page::code)]
    page: Option<u8>,
    /// Which values
    #[arg(long, value_name = "WHICH", default_value = "current")]
    values: Values,
    /// Set a field by its name, such as WCE=0 (no write cache) or SWP=1 (write-protected), before printing
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, u64)>,
    /// Keep what is set beyond a reset
    #[arg(long, requires = "set")]
    save: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Values {
    /// Those in force
    Current,
    /// Ones where a bit may be changed
    Changeable,
    /// Those it was delivered with
    Default,
    /// Those that will be in force after a reset
    Saved,
}

impl Values {
    fn of_the_standard(self) -> ModeValues {
        match self {
            Values::Current => ModeValues::Current,
            Values::Changeable => ModeValues::Changeable,
            Values::Default => ModeValues::Default,
            Values::Saved => ModeValues::Saved,
        }
    }
}

fn assignment(text: &str) -> Result<(String, u64), String> {
    let wrong = || format!("{text:?} sets nothing; write a field and a number, such as WCE=0");
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.to_owned(), value.parse().map_err(|_| wrong())?))
}

pub(super) fn modes(asked: &ModesArguments) -> Result<(), Failure> {
    let values = asked.values.of_the_standard();
    let modes = asked.ask.unit.with(async |unit| {
        set(unit, asked).await?;
        Ok(match asked.page {
            Some(page) => unit.mode_sense(page, 0, values).await?,
            None => unit.modes(values).await?,
        })
    })?;
    Answer::new(text(&modes), to_json(&modes)).say(asked.ask.json)
}

async fn set(unit: &Unit, asked: &ModesArguments) -> Result<(), Failure> {
    for (name, value) in &asked.set {
        unit.set_mode_field(name, *value, asked.save).await.map_err(|error| match error {
            ModeFieldError::Verb(error) => Failure::from(error),
            ModeFieldError::Unknown | ModeFieldError::TooLarge => {
                Failure::refused(format!("{name}: {error}"))
            }
            ModeFieldError::Missing | ModeFieldError::Fixed => Failure::failed(format!("{name}: {error}")),
        })?;
    }
    Ok(())
}

fn text(modes: &Modes) -> String {
    let writing = if modes.write_protected { "write-protected" } else { "writable" };
    let fua = if modes.force_unit_access { "FUA obeyed" } else { "FUA not obeyed" };
    let pages: String = modes.pages.iter().map(page_text).collect();
    format!("{writing}, {fua}\n{pages}")
}

fn page_text(page: &ModePage) -> String {
    let fields = page.fields();
    let subpage = if page.subpage == 0 { String::new() } else { format!("/{:02x}h", page.subpage) };
    let content = if fields.is_empty() { dump(&page.bytes) } else { fields_text(&fields) };
    format!("\n{} ({:02x}h{subpage})\n{content}", page.name(), page.code)
}

fn to_json(modes: &Modes) -> Value {
    let page = |page: &ModePage| {
        json!({
            "page": format!("{:02x}", page.code),
            "subpage": format!("{:02x}", page.subpage),
            "name": page.name(),
            "saveable": page.saveable,
            "fields": fields(&page.fields()),
            "bytes": hex(&page.bytes),
        })
    };
    json!({
        "write_protected": modes.write_protected,
        "force_unit_access": modes.force_unit_access,
        "pages": modes.pages.iter().map(page).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_set_to_a_number() {
        assert_eq!(assignment("WCE=0"), Ok(("WCE".to_owned(), 0)));
        assert!(assignment("WCE").is_err() && assignment("WCE=on").is_err());
    }
}
