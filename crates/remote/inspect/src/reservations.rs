//! Persistent reservations (SPC-4 5.13): who is registered, who holds the reservation, and who a command is from.
//!
//! A registration belongs to an I_T nexus: the initiator's name and the session's ISID together. A program that registers
//! in one session and reserves in another has to take the same ISID for both ([`stable_isid`]).

use iscsi::pdu::Isid;
use iscsi_client::verbs::{Registration, TransportId, VerbError};
use iscsi_client::{Settings, Unit};
use serde_json::{Value, json};

use backends::Failure;
use backends::hyperscsi::UrlOptions as Options;
use stats::table::{Align, lines};

use crate::Answer;

/// Gives settings without an ISID one that is always the same for the initiator's name: of the random format (RFC 7143
/// section 11.12.5). FNV-1a spreads names enough; two names never share an I_T nexus anyway.
pub fn stable_isid(settings: &mut Settings) {
    let [_, _, _, spread @ ..] = spread(&settings.initiator).to_be_bytes();
    let mut isid = [0x80; 6];
    isid[1..].copy_from_slice(&spread);
    settings.isid.get_or_insert(Isid(isid));
}

/// The same for HyperSCSI, where a port is a number.
pub fn stable_port(options: &mut Options) {
    let port = spread(&options.name) as u32;
    options.port.get_or_insert(port);
}

fn spread(name: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    name.bytes().fold(OFFSET_BASIS, step)
}

/// Why PERSISTENT RESERVE OUT with this key was answered with RESERVATION CONFLICT, if the registrations tell: the key is
/// registered by way of another port than the login has ended at, or this I_T nexus is not registered with it (SPC-4 5.13.5:
/// all service actions but REGISTER of an unregistered nexus, or with another key than its own, are a conflict).
pub async fn explained(unit: &Unit, key: u64, failure: Failure) -> Failure {
    let elsewhere = unit.registrations_elsewhere().await.unwrap_or_default();
    let Some(registration) = elsewhere.iter().find(|registration| registration.key == key) else {
        return unregistered(unit, key).await.unwrap_or(failure);
    };
    let group = unit.target().nexus().target_portal_group_tag;
    let group = group.map_or_else(String::new, |tag| format!(" (portal group {tag})"));
    failure.and(format_args!(
        "the key is registered at port {} of the target, and this session is with another one{group}, where it has \
         to be registered too",
        registration.relative_port
    ))
}

async fn unregistered(unit: &Unit, key: u64) -> Option<Failure> {
    let nexus = unit.target().nexus();
    let initiator = nexus.initiator.clone();
    let ours = TransportId::Iscsi { name: nexus.initiator, isid: Some(nexus.isid.0) };
    let registrations = unit.registrations().await.ok()?;
    let own = registrations.iter().find(|registration| registration.initiator.as_ref() == Some(&ours));
    let why = match own {
        Some(registration) if registration.key == key => return None,
        Some(_) => format!("is registered with another key than {key:x}"),
        None => "has no registration with the LUN".to_owned(),
    };
    let sentence = format_args!(
        "the target refused PERSISTENT RESERVE OUT: RESERVATION CONFLICT: this initiator ({initiator}) {why}; \
         `linerate scsi registrations` shows who is registered"
    );
    Some(Failure::failed(sentence))
}

/// PERSISTENT RESERVE IN: who is registered and who holds the reservation.
///
/// # Errors
/// As [`Unit::registrations`].
pub async fn registrations(unit: &Unit) -> Result<Answer, VerbError> {
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
    Ok(Answer::of_text(format!("{head}\n{none}{list}"), &json))
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
pub(crate) fn hex_key(key: u64) -> String {
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
}
