//! Persistent reservations (SPC-4 5.13): who may write to a LUN, or read it, beyond the life of a session.
//!
//! A registration belongs to an I_T nexus: the initiator's name and the session's ISID together. Each of these verbs is
//! a session of its own, so they take an ISID that is always the same for a name ([`stable_isid`]), unless the URL has
//! the key `isid`.

use initiator::verbs::{PersistentReserve, Registration, ReservationType, VerbError};
use initiator::{Settings, Unit};
use iscsi::pdu::Isid;
use serde_json::{Value, json};

use super::answer::Answer;
use super::unit::{AskArguments, UnitArguments};
use crate::failure::Failure;
use stats::table::{Align, lines};

/// Who acts.
#[derive(Debug, clap::Args)]
pub(super) struct KeyArguments {
    #[command(flatten)]
    unit: UnitArguments,
    /// Our reservation key, hexadecimal: what we have registered with
    #[arg(long, value_name = "KEY", value_parser = key)]
    key: u64,
}

#[derive(Debug, clap::Args)]
pub(super) struct RegisterArguments {
    #[command(flatten)]
    ours: KeyArguments,
    /// Let registrations and the reservation outlive a restart of the target (APTPL)
    #[arg(long)]
    persist: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReserveArguments {
    #[command(flatten)]
    ours: KeyArguments,
    /// What others may not do: write-exclusive or exclusive-access, with -registrants-only or -all-registrants behind it
    /// if all that are registered may
    #[arg(long = "type", value_name = "TYPE", default_value = "write-exclusive")]
    kind: ReservationType,
}

#[derive(Debug, clap::Args)]
pub(super) struct PreemptArguments {
    #[command(flatten)]
    reserve: ReserveArguments,
    /// The key of those whose registrations end, hexadecimal
    #[arg(long, value_name = "KEY", value_parser = key)]
    victim: u64,
    /// End their commands too
    #[arg(long)]
    abort: bool,
}

/// A reservation key is eight bytes, which people write as one hexadecimal number.
fn key(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let key = u64::from_str_radix(digits, 16).ok().filter(|key| *key != 0);
    key.ok_or_else(|| format!("{text:?} is no key; write a hexadecimal number from 1 to ffffffffffffffff"))
}

impl KeyArguments {
    fn act(&self, act: impl AsyncFnOnce(&Unit, u64) -> Result<(), Failure>) -> Result<(), Failure> {
        self.unit.with_settings(stable_isid, async |unit| match act(unit, self.key).await {
            Err(failure) if failure.is_conflict() => Err(self.with_other_ports(unit, failure).await),
            done => done,
        })
    }

    /// Says so if the key is registered by way of another port than the login has ended at.
    async fn with_other_ports(&self, unit: &Unit, failure: Failure) -> Failure {
        let elsewhere = unit.registrations_elsewhere().await.unwrap_or_default();
        let Some(registration) = elsewhere.iter().find(|registration| registration.key == self.key) else {
            return failure;
        };
        let group = unit.target().nexus().target_portal_group_tag;
        let group = group.map_or_else(String::new, |tag| format!(" (portal group {tag})"));
        failure.and(format_args!(
            "the key is registered at port {} of the target, and this session is with another one{group}, where it has \
             to be registered too",
            registration.relative_port
        ))
    }

    fn reserve_out(&self, what: PersistentReserve) -> Result<(), Failure> {
        self.act(async |unit, _| Ok(unit.persistent_reserve(what).await?))
    }
}

/// An ISID for a name: of the random format (RFC 7143 section 11.12.5), and always the same. FNV-1a spreads names
/// enough; two names never share an I_T nexus anyway.
fn stable_isid(settings: &mut Settings) {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let [_, _, _, spread @ ..] = settings.initiator.bytes().fold(OFFSET_BASIS, step).to_be_bytes();
    let mut isid = [0x80; 6];
    isid[1..].copy_from_slice(&spread);
    settings.isid.get_or_insert(Isid(isid));
}

pub(super) fn register(asked: &RegisterArguments) -> Result<(), Failure> {
    let RegisterArguments { ours, persist } = asked;
    ours.reserve_out(PersistentReserve::RegisterAndIgnoreExistingKey { new_key: ours.key, persist: *persist })
}

pub(super) fn unregister(asked: &KeyArguments) -> Result<(), Failure> {
    asked.reserve_out(PersistentReserve::Register { key: asked.key, new_key: 0, persist: false })
}

pub(super) fn reserve(asked: &ReserveArguments) -> Result<(), Failure> {
    asked.ours.reserve_out(PersistentReserve::Reserve { key: asked.ours.key, kind: asked.kind })
}

/// A reservation is released as it was made, so that its type is asked for first.
pub(super) fn release(asked: &KeyArguments) -> Result<(), Failure> {
    asked.act(async |unit, key| match unit.reservation().await? {
        Some(reservation) => {
            let kind = reservation.kind;
            Ok(unit.persistent_reserve(PersistentReserve::Release { key, kind }).await?)
        }
        None => Err(Failure::failed("there is no reservation to release")),
    })
}

pub(super) fn clear(asked: &KeyArguments) -> Result<(), Failure> {
    asked.reserve_out(PersistentReserve::Clear { key: asked.key })
}

pub(super) fn preempt(asked: &PreemptArguments) -> Result<(), Failure> {
    let PreemptArguments { reserve: ReserveArguments { ours, kind }, victim, abort } = asked;
    let (key, victim, kind) = (ours.key, *victim, *kind);
    ours.reserve_out(if *abort {
        PersistentReserve::PreemptAndAbort { key, victim, kind }
    } else {
        PersistentReserve::Preempt { key, victim, kind }
    })
}

/// Who is registered and who holds the reservation.
pub(super) fn registrations(asked: &AskArguments) -> Result<(), Failure> {
    asked.ask(async |unit| {
        let reservation = unit.reservation().await?;
        let registered = registered(unit).await?;
        let rows: Vec<[String; 3]> = registered.iter().map(row).collect();
        let list = lines([Align::Left; 3], &rows).join("\n");
        let head = match reservation {
            Some(reservation) => format!("reserved: {}, key {:x}", reservation.kind, reservation.key),
            None => "not reserved".to_owned(),
        };
        let none = if registered.is_empty() { "nobody is registered" } else { "" };
        let json = json!({
            "reservation": reservation.map(|held| json!({ "type": held.kind.to_string(), "key": hex_key(held.key) })),
            "registrations": registered.iter().map(to_json).collect::<Value>(),
        });
        Ok(Answer::new(format!("{head}\n{none}{list}"), json))
    })
}

/// Who is registered. Of a target that cannot tell whose the keys are, the keys.
pub(crate) async fn registered(unit: &Unit) -> Result<Vec<Registration>, VerbError> {
    match unit.registrations().await {
        Err(error) if error.is_unsupported() => {
            Ok(unit.registered_keys().await?.keys.into_iter().map(of_nobody).collect())
        }
        registered => registered,
    }
}

fn of_nobody(key: u64) -> Registration {
    Registration { key, holds: None, all_ports: false, relative_port: 0, initiator: None }
}

fn row(registration: &Registration) -> [String; 3] {
    let initiator = registration.initiator.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let holds = registration.holds.map_or_else(String::new, |_| "holds the reservation".to_owned());
    [format!("key {:x}", registration.key), initiator, holds]
}

fn to_json(registration: &Registration) -> Value {
    json!({
        "key": hex_key(registration.key),
        "initiator": registration.initiator.as_ref().map(ToString::to_string),
        "holds": registration.holds.map(|kind| kind.to_string()),
        "all_ports": registration.all_ports,
        "relative_port": registration.relative_port,
    })
}

/// As a string: JSON's numbers are too short for it.
fn hex_key(key: u64) -> String {
    format!("{key:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isid_of(initiator: &str) -> Option<Isid> {
        let mut settings = Settings { initiator: initiator.to_owned(), ..Settings::default() };
        stable_isid(&mut settings);
        settings.isid
    }

    #[test]
    fn a_name_has_one_isid_of_the_random_format() {
        let (one, other) = (isid_of("iqn.2026-01.com.example:a"), isid_of("iqn.2026-01.com.example:b"));
        assert_eq!(one, isid_of("iqn.2026-01.com.example:a"));
        assert_ne!(one, other);
        assert_eq!(one.map(|isid| isid.0[0]), Some(0x80));
    }

    #[test]
    fn an_isid_of_the_callers_own_stays() {
        let own = Some(Isid([0x80, 1, 2, 3, 4, 5]));
        let mut settings = Settings { isid: own, ..Settings::default() };
        stable_isid(&mut settings);
        assert_eq!(settings.isid, own);
    }

    #[test]
    fn a_key_is_a_hexadecimal_number_and_not_zero() {
        assert_eq!([key("abc"), key("0xABC")], [Ok(0xabc), Ok(0xabc)]);
        assert!(key("0").is_err() && key("joe").is_err() && key("11112222333344445").is_err());
    }
}
