//! MODE SENSE and MODE SELECT: how a unit is set, field by field.

use inspect::commands;
use iscsi_client::Unit;
use iscsi_client::verbs::{ModeFieldError, ModeValues};

use super::unit::UnitArguments;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct ModesArguments {
    #[command(flatten)]
    ask: UnitArguments,
    /// Page by its hexadecimal number, such as 08 [default: all pages]
    #[arg(value_name = "PAGE", value_parser = inspect::pages::code)]
    page: Option<u8>,
    /// Set of values
    #[arg(long, value_name = "WHICH", default_value = "current")]
    values: Values,
    /// Set a field by its name, such as WCE=0 (no write cache) or SWP=1 (write-protected), before printing
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, u64)>,
    /// Save what is set, beyond a reset
    #[arg(long, requires = "set")]
    save: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Values {
    /// Values in force
    Current,
    /// Mask of the bits that may be changed
    Changeable,
    /// Factory values
    Default,
    /// Values after a reset
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

impl ModesArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        self.ask.ask(async |unit| -> Result<_, Failure> {
            self.set(unit).await?;
            Ok(commands::modes(unit, self.page, self.values.of_the_standard()).await?)
        })
    }

    async fn set(&self, unit: &Unit) -> Result<(), Failure> {
        for (name, value) in &self.set {
            unit.set_mode_field(name, *value, self.save).await.map_err(|error| match error {
                ModeFieldError::Verb(error) => Failure::from(error),
                ModeFieldError::Unknown | ModeFieldError::TooLarge => {
                    Failure::refused(format!("{name}: {error}"))
                }
                ModeFieldError::Missing | ModeFieldError::Fixed => {
                    Failure::failed(format!("{name}: {error}"))
                }
            })?;
        }
        Ok(())
    }
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
