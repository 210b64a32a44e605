//! Persistent reservations: who may write to a LUN, or read it, beyond the life of a session.
//!
//! Each of these verbs is a session of its own, so they take an ISID that is always the same for a name
//! ([`commands::stable_isid`]), unless the URL has the key `isid`.

use std::sync::LazyLock;

use inspect::commands;
use iscsi_client::Unit;
use iscsi_client::verbs::{PersistentReserve, ReservationType};

use super::unit::UnitArguments;
use crate::completions::Offering;
use crate::failure::Failure;

/// Who acts.
#[derive(Debug, clap::Args)]
pub(super) struct KeyArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// Reservation key that this initiator registers with, hexadecimal
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(super) key: u64,
}

#[derive(Debug, clap::Args)]
pub(super) struct RegisterArguments {
    #[command(flatten)]
    pub(super) ours: KeyArguments,
    /// Let registrations and the reservation outlive a restart of the target (APTPL)
    #[arg(long)]
    pub(super) persist: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReserveArguments {
    #[command(flatten)]
    pub(super) ours: KeyArguments,
    /// Type of reservation: write-exclusive or exclusive-access, with -registrants-only or -all-registrants behind it
    /// to admit all registered initiators
    #[arg(long = "type", value_name = "TYPE", default_value = "write-exclusive", hide_possible_values = true,
        value_parser = Offering(str::parse::<ReservationType>, types))]
    pub(super) kind: ReservationType,
}

#[derive(Debug, clap::Args)]
pub(super) struct PreemptArguments {
    #[command(flatten)]
    reserve: ReserveArguments,
    /// Key whose registrations end, hexadecimal
    #[arg(long, value_name = "KEY", value_parser = key)]
    victim: u64,
    /// Abort their commands too
    #[arg(long)]
    abort: bool,
}

fn types() -> Vec<&'static str> {
    static NAMES: LazyLock<[String; 6]> = LazyLock::new(|| ReservationType::ALL.map(|kind| kind.to_string()));
    NAMES.iter().map(String::as_str).collect()
}

/// A reservation key is eight bytes, which people write as one hexadecimal number.
fn key(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let key = u64::from_str_radix(digits, 16).ok().filter(|key| *key != 0);
    key.ok_or_else(|| format!("{text:?} is no key; write a hexadecimal number from 1 to ffffffffffffffff"))
}

impl KeyArguments {
    fn act(
        &self,
        verb: &'static str,
        act: impl AsyncFnOnce(&Unit) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.unit.with_settings(commands::stable_isid, commands::stable_port, async |unit| {
            match act(unit).await {
                Err(failure) if failure.is_conflict() => {
                    Err(commands::explained(unit, self.key, failure).await)
                }
                done => done,
            }
        })?;
        self.unit.done(verb)
    }

    /// PERSISTENT RESERVE OUT.
    pub(super) fn reserve(&self, verb: &'static str, what: PersistentReserve) -> Result<(), Failure> {
        self.act(verb, async |unit| Ok(unit.persistent_reserve(what).await?))
    }

    /// A reservation is released as it was made, so that its type is asked for first.
    pub(super) fn release(&self) -> Result<(), Failure> {
        self.act("release", async |unit| match unit.reservation().await? {
            Some(reservation) => {
                let release = PersistentReserve::Release { key: self.key, kind: reservation.kind };
                Ok(unit.persistent_reserve(release).await?)
            }
            None => Err(Failure::failed("there is no reservation to release")),
        })
    }
}

impl PreemptArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let PreemptArguments { reserve: ReserveArguments { ours, kind }, victim, abort } = self;
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
    fn a_key_is_a_hexadecimal_number_and_not_zero() {
        assert_eq!([key("abc"), key("0xABC")], [Ok(0xabc), Ok(0xabc)]);
        assert!(key("0").is_err() && key("joe").is_err() && key("11112222333344445").is_err());
    }
}
