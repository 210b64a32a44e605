//! Human-readable tables of volumes, targets and sessions, and sessions as JSON for programs.

use std::time::Duration;

use readable::table::{Align, Column, fitted, hanging};
use serde_json::{Map, Value};
use volume::spec::Bytes;

use super::{ServedSession, Target, Volume};

/// Returns a table with a row for each export of each volume, in lines of up to `width` characters.
pub fn volumes(volumes: &[Volume], width: usize) -> String {
    let names = COLUMNS.map(|(name, ..)| name);
    let mut rows = vec![names.map(str::to_owned)];
    for volume in volumes {
        for (index, lun) in volume.luns.iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            rows.push([
                once(volume.name.clone()),
                once(Bytes(volume.bytes).to_string()),
                once(volume.block_bytes.to_string()),
                if lun.front_end == "iscsi" {
                    lun.target.clone()
                } else {
                    export(&lun.front_end, &lun.target)
                },
                lun.lun.map_or_else(String::new, |lun| lun.to_string()),
                once(volume.spec.clone()),
                once(volume.naa.clone()),
                once(volume.serial.clone()),
            ]);
        }
    }
    let table = fitted(
        &COLUMNS.map(|(_, align, rank)| Column { align, rank }),
        &rows,
        width,
    );
    let note = table
        .note(&names)
        .into_iter()
        .flat_map(|note| hanging("", &note, width));
    let table: String = table
        .rows
        .concat()
        .into_iter()
        .chain(note)
        .map(|line| line + "\n")
        .collect();
    volumes.iter().fold(table, |table, volume| {
        table + &volume.layers.paragraphs(&volume.name)
    })
}

/// The columns for volumes: name, alignment, and rank. If space is short, the highest rank is omitted first.
const COLUMNS: [(&str, Align, u8); 8] = [
    ("VOLUME", Align::Left, 0),
    ("SIZE", Align::Right, 0),
    ("BLOCK", Align::Right, 1),
    ("TARGET", Align::Left, 0),
    ("LUN", Align::Right, 0),
    ("MADE OF", Align::Left, 0),
    ("NAA", Align::Left, 2),
    ("SERIAL", Align::Left, 3),
];

/// Returns the name of an export in a front end without targets: `NBD export vm1`.
fn export(front_end: &str, name: &str) -> String {
    format!("{} export {name}", front_end.to_uppercase())
}

/// Returns a paragraph for each target, in lines of up to `width` characters: its access lists, portals and
/// LUNs.
pub fn targets(targets: &[Target], width: usize) -> String {
    targets.iter().map(|it| target(it, width)).collect()
}

fn target(target: &Target, width: usize) -> String {
    let alias = target
        .alias
        .as_ref()
        .map_or_else(String::new, |alias| format!("  ({alias})"));
    let or_any = |list: &Option<Vec<String>>| {
        list.as_ref()
            .map_or_else(|| "any".to_owned(), |all| all.join(", "))
    };
    let chap = if target.users.is_empty() {
        "none".to_owned()
    } else {
        target.users.join(", ")
    };
    let is_iscsi = target.front_end == "iscsi";
    let mut pairs = vec![
        ("portals", target.portals.join(", ")),
        (
            if is_iscsi { "initiators" } else { "clients" },
            or_any(&target.initiators),
        ),
        ("networks", or_any(&target.networks)),
    ];
    pairs.extend(is_iscsi.then_some(("CHAP users", chap)));
    pairs.push(("sessions", target.sessions.to_string()));
    pairs.extend(
        target
            .redirect
            .clone()
            .map(|address| ("redirects to", address)),
    );
    // Front ends other than iSCSI have no LUNs.
    let label = |lun| {
        if is_iscsi {
            format!("LUN {lun}")
        } else {
            "volume".to_owned()
        }
    };
    let luns: Vec<(String, &str)> = target
        .luns
        .iter()
        .map(|lun| (label(lun.lun), lun.volume.as_str()))
        .collect();
    pairs.extend(
        luns.iter()
            .map(|(lun, volume)| (lun.as_str(), (*volume).to_owned())),
    );
    let names = pairs
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let rows = pairs
        .iter()
        .flat_map(|(name, value)| hanging(&format!("  {name:<names$}  "), value, width));
    let name = if is_iscsi {
        target.name.clone()
    } else {
        export(&target.front_end, &target.name)
    };
    let head = hanging("", &format!("{name}{alias}"), width);
    head.into_iter()
        .chain(rows)
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

const HEADINGS: [&str; 9] = [
    "TSIH",
    "TARGET",
    "INITIATOR",
    "CONNECTIONS",
    "AGE",
    "IN FLIGHT",
    "IOPS",
    "READ MB/s",
    "WRITE MB/s",
];

/// Numbers are right-aligned. If space is short, columns whose values also appear below each line are omitted
/// first. The TSIH is never omitted, because `linerate server drop` takes it.
const SESSION_COLUMNS: [Column; 9] = [
    Column {
        align: Align::Right,
        rank: 0,
    },
    Column {
        align: Align::Left,
        rank: 0,
    },
    Column {
        align: Align::Left,
        rank: 0,
    },
    Column {
        align: Align::Left,
        rank: 4,
    },
    Column {
        align: Align::Right,
        rank: 2,
    },
    Column {
        align: Align::Right,
        rank: 2,
    },
    Column {
        align: Align::Right,
        rank: 1,
    },
    Column {
        align: Align::Right,
        rank: 1,
    },
    Column {
        align: Align::Right,
        rank: 1,
    },
];

/// Totals since login, one object per session.
///
/// # Errors
/// A session cannot be serialised, which does not happen in practice.
pub fn sessions_json(sessions: &[ServedSession]) -> serde_json::Result<Vec<Value>> {
    sessions.iter().map(value).collect()
}

/// Converts a session with its keys to an object; numeric values are numbers.
fn value(session: &ServedSession) -> serde_json::Result<Value> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_or_else(|_| Value::from(text), Value::from)
    };
    let keys = session
        .parameters
        .iter()
        .filter_map(|key| key.split_once('='));
    let keys: Map<String, Value> = keys
        .map(|(key, text)| (key.to_owned(), number(text)))
        .collect();
    let mut session = serde_json::to_value(session)?;
    session["parameters"] = Value::Object(keys);
    Ok(session)
}

/// Returns a line for each session of `after`, with its connections and keys below, for a terminal with this
/// number of columns. `interval` is the time between the samples.
pub fn sessions(
    before: &[ServedSession],
    after: &[ServedSession],
    interval: Duration,
    width: usize,
) -> String {
    if after.is_empty() {
        return "no sessions\n".to_owned();
    }
    let rows = after
        .iter()
        .map(|now| row(past(before, now), now, interval));
    let rows: Vec<[String; 9]> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(rows)
        .collect();
    let below =
        std::iter::once(Vec::new()).chain(after.iter().map(|session| details(session, width)));
    let table = fitted(&SESSION_COLUMNS, &rows, width);
    let note = table.note(&HEADINGS);
    let lines = table
        .rows
        .into_iter()
        .zip(below)
        .flat_map(|(row, below)| row.into_iter().chain(below));
    lines.chain(note).map(|line| line + "\n").collect()
}

/// Returns the same session in the previous sample. The handle alone does not identify it, because it may
/// have been reused.
fn past<'a>(before: &'a [ServedSession], now: &ServedSession) -> Option<&'a ServedSession> {
    let same = |past: &&ServedSession| {
        let names = |session: &ServedSession| {
            (
                session.front_end.clone(),
                session.initiator.clone(),
                session.isid.clone(),
            )
        };
        // A session without a handle is identified by its connection.
        let is_same =
            past.tsih == now.tsih && (now.tsih.is_some() || past.connections == now.connections);
        is_same && names(past) == names(now)
    };
    before
        .iter()
        .find(same)
        .filter(|past| past.commands <= now.commands)
}

fn row(past: Option<&ServedSession>, now: &ServedSession, interval: Duration) -> [String; 9] {
    let per_second = |sum: fn(&ServedSession) -> u64| {
        let moved = past.map_or(0, |past| sum(now).saturating_sub(sum(past)));
        moved as f64 / interval.as_secs_f64()
    };
    let first = now
        .connections
        .first()
        .map_or("none".to_owned(), |connection| connection.peer.to_string());
    [
        number(now),
        now.target
            .clone()
            .unwrap_or_else(|| "(discovery)".to_owned()),
        now.initiator.clone(),
        first,
        age(now.age_seconds),
        now.in_flight.to_string(),
        format!("{:.0}", per_second(|session| session.commands)),
        format!("{:.1}", per_second(|session| session.read_bytes) / 1e6),
        format!("{:.1}", per_second(|session| session.written_bytes) / 1e6),
    ]
}

/// Returns the argument for `linerate server drop`. Each front end numbers its sessions separately, and only
/// the numbers of iSCSI are TSIHs.
fn number(session: &ServedSession) -> String {
    match session.tsih {
        None => "-".to_owned(),
        Some(tsih) if session.front_end == "iscsi" => tsih.to_string(),
        Some(number) => format!("{}:{number}", session.front_end),
    }
}

fn details(session: &ServedSession, width: usize) -> Vec<String> {
    const INDENT: &str = "      ";
    let mut lines = Vec::new();
    for connection in &session.connections {
        let cid = connection
            .cid
            .map_or_else(String::new, |cid| format!(" {cid}"));
        lines.push(format!(
            "{INDENT}connection{cid}: {} to {}",
            connection.peer, connection.local
        ));
    }
    let user = session
        .user
        .as_ref()
        .map_or(String::new(), |user| format!(" user={user}"));
    let keys = session.parameters.join(" ");
    let isid = session
        .isid
        .as_ref()
        .map_or(String::new(), |isid| format!(" isid={isid}"));
    lines.extend(hanging(
        INDENT,
        &format!("{keys}{user}{isid} core={}", session.core),
        width.min(100),
    ));
    lines
}

fn age(seconds: f64) -> String {
    // A negative age becomes 0, and an impossibly large one the maximum.
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Connection;

    fn session(tsih: u16, commands: u64, read_bytes: u64) -> ServedSession {
        let peer = "192.0.2.7:51000".parse().expect("an address");
        let local = "192.0.2.1:3260".to_owned();
        ServedSession {
            front_end: "iscsi".into(),
            initiator: "iqn.1993-08.org.debian:01:ab".into(),
            user: Some("alice".into()),
            isid: Some("00023d000001".into()),
            tsih: Some(tsih),
            target: Some("iqn.2026-01.io.linerate:vm1".into()),
            age_seconds: 192.4,
            core: 1,
            connections: vec![Connection {
                cid: Some(0),
                peer,
                local,
            }],
            parameters: vec!["HeaderDigest=None".into(), "MaxBurstLength=262144".into()],
            in_flight: 32,
            commands,
            read_bytes,
            written_bytes: 0,
        }
    }

    #[test]
    fn rates_are_differences_by_time() {
        let text = sessions(
            &[session(1, 100, 0)],
            &[session(1, 300, 8_000_000)],
            Duration::from_secs(2),
            200,
        );
        let expected = "\
TSIH  TARGET                       INITIATOR                     CONNECTIONS        AGE  IN FLIGHT  IOPS  READ MB/s  WRITE MB/s
   1  iqn.2026-01.io.linerate:vm1  iqn.1993-08.org.debian:01:ab  192.0.2.7:51000  3m12s         32   100        4.0         0.0
      connection 0: 192.0.2.7:51000 to 192.0.2.1:3260
      HeaderDigest=None MaxBurstLength=262144 user=alice isid=00023d000001 core=1
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_narrow_terminal_shows_every_key_and_programs_get_them_as_values() {
        let text = sessions(&[], &[session(1, 300, 0)], Duration::from_secs(1), 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(
            text.starts_with("TSIH  TARGET")
                && text.contains("MaxBurstLength=262144")
                && text.contains("no space for CONNECTIONS, "),
            "{text}"
        );
        let told = value(&session(1, 300, 0)).expect("JSON");
        let keys = serde_json::json!({ "HeaderDigest": "None", "MaxBurstLength": 262_144 });
        assert_eq!(told["parameters"], keys);
    }

    #[test]
    fn a_new_session_has_no_rate_yet() {
        let other = ServedSession {
            isid: Some("00023d000002".into()),
            ..session(1, 5, 5)
        };
        for before in [vec![], vec![other], vec![session(1, 999, 0)]] {
            assert!(past(&before, &session(1, 300, 0)).is_none());
        }
    }

    #[test]
    fn an_idle_server_says_so() {
        assert_eq!(
            sessions(&[], &[], Duration::from_secs(1), 80),
            "no sessions\n"
        );
    }

    #[test]
    fn ages_are_readable() {
        let texts = [0.4, 75.0, 3700.0, 90_061.0].map(age);
        assert_eq!(texts, ["0s", "1m15s", "1h01m", "1d01h"]);
    }
}
