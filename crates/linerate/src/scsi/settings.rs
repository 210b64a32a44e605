//! The settings of a unit that persist after the session of the command: mode pages and persistent
//! reservations.

use std::sync::LazyLock;

use inspect::commands;
use iscsi_client::Unit;
use iscsi_client::verbs::{ModeFieldError, ModeValues, PersistentReserve, ReservationType};

use crate::failure::Failure;
use crate::help::Offering;
use crate::scsi::unit::UnitArguments;

#[derive(Debug, clap::Args)]
pub(super) struct ModesArguments {
    #[command(flatten)]
    ask: UnitArguments,
    /// Page number in hexadecimal, such as 08 [default: all pages]
    #[arg(value_name = "PAGE", value_parser = inspect::pages::code)]
    page: Option<u8>,
    /// Set of values
    #[arg(long, value_name = "WHICH", default_value = "current")]
    values: Values,
    /// Set a field by its name, such as WCE=0 (no write cache) or SWP=1 (write-protected), before printing
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, u64)>,
    /// Save the new values, so that they survive a reset
    #[arg(long, requires = "set")]
    save: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Values {
    /// Values in force
    Current,
    /// Mask of the bits that can be changed
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
    let wrong = || format!("{text:?} is not a setting; write a field and a number, such as WCE=0");
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
            unit.set_mode_field(name, *value, self.save)
                .await
                .map_err(|error| match error {
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

// Persistent reservations restrict the access of other initiators to a LUN, and survive sessions.
//
// Each of these verbs uses a separate session. Therefore the verbs use an ISID that is always the same for an
// initiator's name ([`reservations::stable_isid`]), unless the URL has the key `isid`.

/// Who acts.
#[derive(Debug, clap::Args)]
pub(super) struct KeyArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// Reservation key of this initiator, in hexadecimal
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(super) key: u64,
}

#[derive(Debug, clap::Args)]
pub(super) struct RegisterArguments {
    #[command(flatten)]
    pub(super) ours: KeyArguments,
    /// Make registrations and the reservation persist across restarts of the target (APTPL)
    #[arg(long)]
    pub(super) persist: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReserveArguments {
    #[command(flatten)]
    pub(super) ours: KeyArguments,
    /// Type of reservation: write-exclusive or exclusive-access, followed by -registrants-only or
    /// -all-registrants to admit all registered initiators
    #[arg(long = "type", value_name = "TYPE", default_value = "write-exclusive", hide_possible_values = true,
        value_parser = Offering(str::parse::<ReservationType>, types))]
    pub(super) kind: ReservationType,
}

#[derive(Debug, clap::Args)]
pub(super) struct PreemptArguments {
    #[command(flatten)]
    reserve: ReserveArguments,
    /// Key whose registrations are removed, hexadecimal
    #[arg(long, value_name = "KEY", value_parser = key)]
    victim: u64,
    /// Also abort the commands of these registrations
    #[arg(long)]
    abort: bool,
}

fn types() -> Vec<&'static str> {
    static NAMES: LazyLock<[String; 6]> =
        LazyLock::new(|| ReservationType::ALL.map(|kind| kind.to_string()));
    NAMES.iter().map(String::as_str).collect()
}

/// Parses a reservation key, which has eight bytes and is written as one hexadecimal number.
fn key(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let key = u64::from_str_radix(digits, 16).ok().filter(|key| *key != 0);
    key.ok_or_else(|| {
        format!("{text:?} is not a key; write a hexadecimal number from 1 to ffffffffffffffff")
    })
}

impl KeyArguments {
    fn act(
        &self,
        verb: &'static str,
        act: impl AsyncFnOnce(&Unit) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.unit
            .with_settings(
                commands::stable_isid,
                commands::stable_port,
                async |unit| match act(unit).await {
                    Err(failure) if failure.is_conflict() => {
                        Err(commands::explained(unit, self.key, failure).await)
                    }
                    done => done,
                },
            )?;
        self.unit.done(verb)
    }

    /// Sends PERSISTENT RESERVE OUT.
    pub(super) fn reserve(
        &self,
        verb: &'static str,
        what: PersistentReserve,
    ) -> Result<(), Failure> {
        self.act(verb, async |unit| Ok(unit.persistent_reserve(what).await?))
    }

    /// Releases the reservation. The command must contain the reservation's type, which is queried first.
    pub(super) fn release(&self) -> Result<(), Failure> {
        self.act("release", async |unit| match unit.reservation().await? {
            Some(reservation) => {
                let release = PersistentReserve::Release {
                    key: self.key,
                    kind: reservation.kind,
                };
                Ok(unit.persistent_reserve(release).await?)
            }
            None => Err(Failure::failed("there is no reservation to release")),
        })
    }
}

impl PreemptArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let PreemptArguments {
            reserve: ReserveArguments { ours, kind },
            victim,
            abort,
        } = self;
        let (key, victim, kind) = (ours.key, *victim, *kind);
        let what = match abort {
            true => PersistentReserve::PreemptAndAbort { key, victim, kind },
            false => PersistentReserve::Preempt { key, victim, kind },
        };
        ours.reserve("preempt", what)
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

    #[test]
    fn a_key_is_a_hexadecimal_number_and_not_zero() {
        assert_eq!([key("abc"), key("0xABC")], [Ok(0xabc), Ok(0xabc)]);
        assert!(key("0").is_err() && key("joe").is_err() && key("11112222333344445").is_err());
    }
}
