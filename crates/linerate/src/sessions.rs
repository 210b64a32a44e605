//! `linerate sessions`: who is logged in, what was negotiated, and how busy each session is.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::output::say;
use manage::control::{Reply, Request, Session, ask, unexpected};
use stats::table::{Align, lines};

/// Between the two samples that rates are made of.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lists the sessions of a running server
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArguments {
    /// The control socket of the server [default: control.sock in the state directory]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Prints JSON: an array of sessions with sums since login, without rates
    #[arg(long)]
    json: bool,
}

/// Asks, waits and asks again, since rates need two samples; JSON has sums only and is asked for once.
pub(crate) fn run(arguments: &SessionsArguments) -> Result<(), Failure> {
    let socket = manage::state::control_socket(arguments.control.as_deref())?;
    let first = sample(&socket)?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&first).map_err(Failure::failed)?;
        say(&(json + "\n"));
        return Ok(());
    }
    let begin = Instant::now();
    thread::sleep(INTERVAL);
    let second = sample(&socket)?;
    say(&table(&first, &second, begin.elapsed()));
    Ok(())
}

fn sample(socket: &Path) -> Result<Vec<Session>, Failure> {
    match ask(socket, &Request::Sessions).map_err(Failure::failed)? {
        Reply::Sessions { sessions } => Ok(sessions),
        other => Err(unexpected(other)),
    }
}

const HEADINGS: [&str; 9] =
    ["TSIH", "TARGET", "INITIATOR", "CONNECTIONS", "AGE", "IN FLIGHT", "IOPS", "READ MB/s", "WRITE MB/s"];

/// Numbers stand to the right.
const ALIGN: [Align; 9] = [
    Align::Right,
    Align::Left,
    Align::Left,
    Align::Left,
    Align::Right,
    Align::Right,
    Align::Right,
    Align::Right,
    Align::Right,
];

/// A line for each session of `after`, its further connections and its keys below it. `interval` lies between
/// the samples.
fn table(before: &[Session], after: &[Session], interval: Duration) -> String {
    if after.is_empty() {
        return "nobody is logged in\n".to_owned();
    }
    let rows = after.iter().map(|now| row(past(before, now), now, interval));
    let rows: Vec<[String; 9]> = std::iter::once(HEADINGS.map(str::to_owned)).chain(rows).collect();
    let below = std::iter::once(String::new()).chain(after.iter().map(details));
    lines(ALIGN, &rows).into_iter().zip(below).map(|(line, below)| format!("{line}\n{below}")).collect()
}

/// The same session a sample ago. A handle may have passed on to another one since.
fn past<'a>(before: &'a [Session], now: &Session) -> Option<&'a Session> {
    let same = |past: &&Session| {
        let names =
            |session: &Session| (session.front_end.clone(), session.initiator.clone(), session.isid.clone());
        // A session without a handle is its connection.
        let is_same = past.tsih == now.tsih && (now.tsih.is_some() || past.connections == now.connections);
        is_same && names(past) == names(now)
    };
    before.iter().find(same).filter(|past| past.commands <= now.commands)
}

fn row(past: Option<&Session>, now: &Session, interval: Duration) -> [String; 9] {
    let per_second = |sum: fn(&Session) -> u64| {
        let moved = past.map_or(0, |past| sum(now).saturating_sub(sum(past)));
        moved as f64 / interval.as_secs_f64()
    };
    let first = now.connections.first().map_or("none".to_owned(), |connection| connection.peer.to_string());
    [
        now.tsih.map_or_else(|| "-".to_owned(), |tsih| tsih.to_string()),
        now.target.clone().unwrap_or_else(|| "(discovery)".to_owned()),
        now.initiator.clone(),
        first,
        age(now.age_seconds),
        now.in_flight.to_string(),
        format!("{:.0}", per_second(|session| session.commands)),
        format!("{:.1}", per_second(|session| session.read_bytes) / 1e6),
        format!("{:.1}", per_second(|session| session.written_bytes) / 1e6),
    ]
}

fn details(session: &Session) -> String {
    let mut text = String::new();
    for connection in &session.connections {
        let cid = connection.cid.map_or_else(String::new, |cid| format!(" {cid}"));
        let _ = writeln!(text, "      connection{cid}: {} to {}", connection.peer, connection.local);
    }
    let user = session.user.as_ref().map_or(String::new(), |user| format!(" user={user}"));
    let keys = session.parameters.join(" ");
    let isid = session.isid.as_ref().map_or(String::new(), |isid| format!(" isid={isid}"));
    let _ = writeln!(text, "      {keys}{user}{isid} core={}", session.core);
    text
}

fn age(seconds: f64) -> String {
    // A negative or absurd age becomes 0 or the largest number.
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
    use manage::control::Connection;

    fn session(tsih: u16, commands: u64, read_bytes: u64) -> Session {
        let peer = "192.0.2.7:51000".parse().expect("an address");
        let local = "192.0.2.1:3260".parse().expect("an address");
        Session {
            front_end: "iscsi".into(),
            initiator: "iqn.1993-08.org.debian:01:ab".into(),
            user: Some("alice".into()),
            isid: Some("00023d000001".into()),
            tsih: Some(tsih),
            target: Some("iqn.2026-01.io.linerate:vm1".into()),
            age_seconds: 192.4,
            core: 1,
            connections: vec![Connection { cid: Some(0), peer, local }],
            parameters: vec!["HeaderDigest=None".into(), "MaxBurstLength=262144".into()],
            in_flight: 32,
            commands,
            read_bytes,
            written_bytes: 0,
        }
    }

    #[test]
    fn rates_are_differences_by_time() {
        let text = table(&[session(1, 100, 0)], &[session(1, 300, 8_000_000)], Duration::from_secs(2));
        let expected = "\
TSIH  TARGET                       INITIATOR                     CONNECTIONS        AGE  IN FLIGHT  IOPS  READ MB/s  WRITE MB/s
   1  iqn.2026-01.io.linerate:vm1  iqn.1993-08.org.debian:01:ab  192.0.2.7:51000  3m12s         32   100        4.0         0.0
      connection 0: 192.0.2.7:51000 to 192.0.2.1:3260
      HeaderDigest=None MaxBurstLength=262144 user=alice isid=00023d000001 core=1
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_new_session_has_no_rate_yet() {
        let other = Session { isid: Some("00023d000002".into()), ..session(1, 5, 5) };
        for before in [vec![], vec![other], vec![session(1, 999, 0)]] {
            assert!(past(&before, &session(1, 300, 0)).is_none());
        }
    }

    #[test]
    fn an_idle_server_says_so() {
        assert_eq!(table(&[], &[], INTERVAL), "nobody is logged in\n");
    }

    #[test]
    fn ages_are_readable() {
        let texts = [0.4, 75.0, 3700.0, 90_061.0].map(age);
        assert_eq!(texts, ["0s", "1m15s", "1h01m", "1d01h"]);
    }
}
