//! Settings of a session except its address: credentials, negotiated keys, timeouts and socket options.
//!
//! Every setting has a key for URLs, and all keys are in one table. Underscores are as good as hyphens there,
//! and the names libiscsi uses for the same things are understood.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use failover::{ReplayRule, Writers};
use iscsi::chap::{Algorithm, Credentials, Secret};
use iscsi::name::Name;
use iscsi::negotiate::{DigestKind, Offers};
use iscsi::pdu::Isid;
use reactor::StreamOptions;
use volume::spec::{Bytes, Time};

use crate::paths::Multipath;
use crate::recorder::FlightRecorder;
use crate::url::Portal;

/// How a session is set up. The defaults are what is fastest with most targets; a target may always insist on
/// less.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our iSCSI name.
    pub initiator: String,
    /// The session's identifier; a random one if `None`. A target knows an initiator by its name and this: a
    /// second session with both ends the first (RFC 7143 section 6.3.5), and persistent reservations belong
    /// to them.
    pub isid: Option<Isid>,
    /// How we prove who we are (CHAP), if the target asks.
    pub account: Option<Credentials>,
    /// What the target must prove to us (mutual CHAP).
    pub target_account: Option<Credentials>,
    /// A file with the secret of `account`, read at every login.
    pub secret_file: Option<PathBuf>,
    /// A file with the secret of `target_account`, read at every login.
    pub target_secret_file: Option<PathBuf>,
    /// The hashes for both, the preferred first. tgt (1.0.85) takes number 7 for SHA-1, which it was before
    /// IANA made it SHA-256, and fails: log in there with MD5 only.
    pub chap: Vec<Algorithm>,
    /// Connections of the session, 1 to 8. A target that allows fewer gets fewer.
    pub connections: u16,
    /// CRC32C over headers.
    pub header_digest: bool,
    /// CRC32C over data.
    pub data_digest: bool,
    /// A write's first data travel in the command's own PDU.
    pub immediate_data: bool,
    /// Even a write's first data wait to be asked for.
    pub initial_r2t: bool,
    /// How much of a write may be sent unasked, in bytes.
    pub first_burst_bytes: u32,
    /// How much a target asks for at once, and sends in one sequence, in bytes.
    pub max_burst_bytes: u32,
    /// The longest data segment we accept, in bytes.
    pub max_segment_bytes: u32,
    /// How many R2Ts of one write may be outstanding.
    pub max_outstanding_r2t: u16,
    /// With many commands under way, to be woken when a quarter of the answers are there instead of for each.
    /// It saves CPU time at both ends, and an answer may wait for others, for 400 µs at most: not for who
    /// measures single answers.
    pub gather: bool,
    /// How the connections' sockets are set up.
    pub stream: StreamOptions,
    /// From connecting to the end of the login.
    pub login_time: Duration,
    /// How long a command may take before it is given up.
    pub command_time: Duration,
    /// How often a block device's command is sent that does not end in its time, before its request fails.
    /// Once, and the request fails when the time is up; more often, and the command is aborted first, as it
    /// must be before it is sent again: for as long as that takes. `None`: once.
    pub command_tries: Option<u32>,
    /// How long a target may take to abort a command, before its logical unit is reset.
    pub abort_time: Duration,
    /// How long it may take to reset the logical unit, before the target is; and that, before the session is
    /// left.
    pub reset_time: Duration,
    /// How long requests wait for a lost session to come back, before they fail. Zero: a lost session is
    /// over.
    pub reconnect_time: Duration,
    /// Silence after which the target is asked whether it is alive.
    pub nop_interval: Duration,
    /// What remembers the last PDUs of each connection.
    pub recorder: FlightRecorder,
    /// Several sessions with a LUN.
    pub paths: Multipath,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            initiator: "iqn.2026-01.io.linerate:initiator".to_owned(),
            isid: None,
            account: None,
            target_account: None,
            secret_file: None,
            target_secret_file: None,
            chap: Algorithm::ALL.to_vec(),
            connections: 1,
            header_digest: false,
            data_digest: false,
            immediate_data: true,
            initial_r2t: false,
            first_burst_bytes: 256 << 10,
            // open-iscsi's: one R2T asks for a whole large write.
            max_burst_bytes: 16_776_192,
            max_segment_bytes: 256 << 10,
            max_outstanding_r2t: 8,
            gather: true,
            stream: StreamOptions::default(),
            login_time: Duration::from_secs(15),
            // These times are open-iscsi's.
            command_time: Duration::from_secs(30),
            command_tries: None,
            abort_time: Duration::from_secs(15),
            reset_time: Duration::from_secs(30),
            reconnect_time: Duration::from_secs(120),
            nop_interval: Duration::from_secs(5),
            recorder: FlightRecorder::default(),
            paths: Multipath::default(),
        }
    }
}

/// A key or value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// No setting has this name.
    Unknown(String),
    /// The setting takes another kind of value.
    Value {
        /// The setting.
        key: &'static str,
        /// What it takes.
        takes: &'static str,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::Unknown(key) => {
                write!(f, "no setting is called {key:?}; there are ")?;
                let mut names = KEYS.iter().map(|key| key.name);
                names.next().into_iter().try_for_each(|first| f.write_str(first))?;
                names.try_for_each(|name| write!(f, ", {name}"))
            }
            SettingError::Value { key, takes } => write!(f, "{key} takes {takes}"),
        }
    }
}

impl std::error::Error for SettingError {}

/// A setting's name, what it takes, and how it is set; `None` if the value does not fit.
struct Key {
    name: &'static str,
    also: &'static str,
    takes: &'static str,
    set: fn(&mut Settings, &str) -> Option<()>,
}

const fn key(
    name: &'static str,
    also: &'static str,
    takes: &'static str,
    set: fn(&mut Settings, &str) -> Option<()>,
) -> Key {
    Key { name, also, takes, set }
}

/// Other portals, and addresses to come from.
const PATHS_MAX: usize = 16;
const JOURNAL_BYTES_MAX: u64 = 4 << 30;
const YES_NO: &str = "yes or no";
const DIGEST: &str = "none or crc32c";
/// RFC 7143 sections 13.12 to 13.14: "A number from 512 to (2**24 - 1)".
const BYTES: &str = "a number of bytes from 512 to 16777215";
const SECONDS: &str = "a time from 1s to 1h, such as 15 or 2min";

/// `also` is libiscsi's name, if it has another. Secrets that are no part of `user%secret` have keys as well.
const KEYS: &[Key] = &[
    key("initiator", "initiator-name", "an iSCSI name", |s, v| {
        s.initiator = Name::to_send(v).ok()?.to_string();
        Some(())
    }),
    key("isid", "", "twelve hexadecimal digits", |s, v| {
        s.isid = Some(isid(v)?);
        Some(())
    }),
    key("user", "", "the name that we prove ourselves with, where none is in front of the @", |s, v| {
        let name = some(v).filter(|_| s.account.is_none())?.to_owned();
        s.account = Some(Credentials { name, secret: Secret::new(&[]) });
        Some(())
    }),
    key("secret-file", "", "a file with the user's secret", |s, v| {
        s.secret_file = Some(some(v)?.into());
        Some(())
    }),
    key("target-secret-file", "", "a file with the target's secret, beside target-user", |s, v| {
        s.target_secret_file = Some(some(v)?.into());
        Some(())
    }),
    key("target-user", "", "the name the target proves itself with", |s, v| {
        s.target_account = Some(Credentials { name: some(v)?.to_owned(), secret: Secret::new(&[]) });
        Some(())
    }),
    key("target-secret", "target-password", "the target's secret, after target-user", |s, v| {
        s.target_account.as_mut()?.secret = Secret::new(some(v)?.as_bytes());
        Some(())
    }),
    key("chap", "", "hashes out of sha3-256, sha256, sha1 and md5, the preferred first", |s, v| {
        s.chap = v.split(',').map(algorithm).collect::<Option<_>>()?;
        Some(())
    }),
    key("connections", "", "a number from 1 to 8", |s, v| {
        s.connections = number(v, 1, 8)? as u16;
        Some(())
    }),
    key("header-digest", "", DIGEST, |s, v| {
        s.header_digest = digest(v)?;
        Some(())
    }),
    key("data-digest", "", DIGEST, |s, v| {
        s.data_digest = digest(v)?;
        Some(())
    }),
    key("immediate-data", "", YES_NO, |s, v| {
        s.immediate_data = yes_no(v)?;
        Some(())
    }),
    key("initial-r2t", "", YES_NO, |s, v| {
        s.initial_r2t = yes_no(v)?;
        Some(())
    }),
    key("first-burst", "", BYTES, |s, v| {
        s.first_burst_bytes = bytes(v)?;
        Some(())
    }),
    key("max-burst", "", BYTES, |s, v| {
        s.max_burst_bytes = bytes(v)?;
        Some(())
    }),
    key("max-segment", "max-recv-data-segment-length", BYTES, |s, v| {
        s.max_segment_bytes = bytes(v)?;
        Some(())
    }),
    key("max-outstanding-r2t", "", "a number from 1 to 64", |s, v| {
        s.max_outstanding_r2t = number(v, 1, 64)? as u16;
        Some(())
    }),
    key("gather", "", YES_NO, |s, v| {
        s.gather = yes_no(v)?;
        Some(())
    }),
    key("congestion", "", "a congestion control the kernel has, such as cubic", |s, v| {
        s.stream.congestion = Some(some(v)?.to_owned());
        Some(())
    }),
    key("send-buffer", "", "a number of bytes", |s, v| {
        s.stream.send_buffer_bytes = Some(number(v, 1, i32::MAX as u32)? as usize);
        Some(())
    }),
    key("receive-buffer", "", "a number of bytes", |s, v| {
        s.stream.receive_buffer_bytes = Some(number(v, 1, i32::MAX as u32)? as usize);
        Some(())
    }),
    key("tcp-segment", "", "a number of bytes from 88 to 32767", |s, v| {
        // What Linux takes: TCP_MIN_MSS and MAX_TCP_WINDOW of net/tcp.h.
        s.stream.segment_bytes = Some(number(v, 88, 32_767)? as u16);
        Some(())
    }),
    key(
        "source",
        "",
        "an address of this host (a link-local one with its interface, as in fe80::1%25eth0), at most 16 times",
        |s, v| {
            let source = reactor::numeric_address(v, 0).ok().filter(|_| s.paths.sources.len() < PATHS_MAX)?;
            s.paths.sources.push(source);
            s.stream.source = Some(source);
            Some(())
        },
    ),
    key("address", "", "another portal of the target, HOST[:PORT], at most 16 times", |s, v| {
        let portal = Portal::from_address(v).filter(|_| s.paths.addresses.len() < PATHS_MAX)?;
        s.paths.addresses.push(portal);
        Some(())
    }),
    key("sessions", "", "a number from 1 to 64", |s, v| {
        s.paths.sessions = Some(number(v, 1, 64)? as u16);
        Some(())
    }),
    key("quarantine", "", "a time up to 24h, such as 10 or 500ms", |s, v| {
        s.paths.quarantine = time(v, 0, 86_400)?;
        Some(())
    }),
    key("journal", "", "a size up to 4GiB, such as 64MiB", |s, v| {
        let Bytes(bytes) = v.parse().ok()?;
        s.paths.journal_bytes = usize::try_from(bytes).ok().filter(|_| bytes <= JOURNAL_BYTES_MAX)?;
        Some(())
    }),
    key("journal-file", "", "a path", |s, v| {
        s.paths.journal_file = Some(some(v)?.into());
        Some(())
    }),
    key("journal-replay", "", "auto, force or discard", |s, v| {
        s.paths.journal_replay = Some(ReplayRule::parse(v)?);
        Some(())
    }),
    key("writers", "", "one or several", |s, v| {
        s.paths.writers = Writers::parse(v)?;
        Some(())
    }),
    key("login-time", "", SECONDS, |s, v| {
        s.login_time = seconds(v)?;
        Some(())
    }),
    key("command-time", "scsi-timeout", SECONDS, |s, v| {
        s.command_time = seconds(v)?;
        Some(())
    }),
    key("command-tries", "", "a number from 1 to 10", |s, v| {
        s.command_tries = Some(number(v, 1, 10)?);
        Some(())
    }),
    key("abort-time", "", SECONDS, |s, v| {
        s.abort_time = seconds(v)?;
        Some(())
    }),
    key("reset-time", "", SECONDS, |s, v| {
        s.reset_time = seconds(v)?;
        Some(())
    }),
    key("reconnect-time", "", "a time from 0 to 168h, such as 0, 90 or 10min", |s, v| {
        s.reconnect_time = time(v, 0, 604_800)?;
        Some(())
    }),
    key("nop-interval", "", SECONDS, |s, v| {
        s.nop_interval = seconds(v)?;
        Some(())
    }),
    key("record", "", "a number of PDUs from 0 to 65536", |s, v| {
        s.recorder = FlightRecorder::new(number(v, 0, FlightRecorder::PDUS_MAX as u32)? as usize);
        Some(())
    }),
];

impl Settings {
    /// The names of all settings in URLs, with what each takes.
    pub fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
        KEYS.iter().map(|key| (key.name, key.takes))
    }

    /// The values that a login offers to the target.
    pub fn offers(&self) -> Offers {
        Offers {
            header_digest: vec![digest_kind(self.header_digest)],
            data_digest: vec![digest_kind(self.data_digest)],
            max_connections: self.connections,
            initial_r2t: self.initial_r2t,
            immediate_data: self.immediate_data,
            max_recv_data_segment_length: self.max_segment_bytes,
            max_burst_length: self.max_burst_bytes,
            first_burst_length: self.first_burst_bytes.min(self.max_burst_bytes),
            max_outstanding_r2t: self.max_outstanding_r2t,
            // The target decides how long to wait: a lost session is reinstated as soon as it allows.
            default_time2wait_s: 0,
            ..Offers::of_initiator()
        }
    }

    /// Sets one setting by its name in URLs.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let wanted = name.replace('_', "-");
        let key = KEYS.iter().find(|key| key.name == wanted || (!key.also.is_empty() && key.also == wanted));
        let key = key.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
        (key.set)(self, value).ok_or(SettingError::Value { key: key.name, takes: key.takes })
    }
}

fn some(value: &str) -> Option<&str> {
    (!value.is_empty()).then_some(value)
}

fn isid(value: &str) -> Option<Isid> {
    let is_hex = value.len() == 12 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = u64::from_str_radix(value, 16).ok().filter(|_| is_hex)?;
    let [0, 0, bytes @ ..] = digits.to_be_bytes() else { return None };
    Some(Isid(bytes))
}

fn algorithm(name: &str) -> Option<Algorithm> {
    match name.to_ascii_lowercase().as_str() {
        "sha3-256" => Some(Algorithm::Sha3_256),
        "sha256" => Some(Algorithm::Sha256),
        "sha1" => Some(Algorithm::Sha1),
        "md5" => Some(Algorithm::Md5),
        _ => None,
    }
}

fn yes_no(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" | "1" => Some(true),
        "no" | "off" | "false" | "0" => Some(false),
        _ => None,
    }
}

fn digest(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "crc32c" => Some(true),
        "none" => Some(false),
        _ => None,
    }
}

fn number(value: &str, least: u32, most: u32) -> Option<u32> {
    value.parse().ok().filter(|number| (least..=most).contains(number))
}

fn bytes(value: &str) -> Option<u32> {
    number(value, 512, (1 << 24) - 1)
}

fn seconds(value: &str) -> Option<Duration> {
    time(value, 1, 3600)
}

/// A time of so many seconds at least and at most, with a unit or without.
fn time(value: &str, least: u64, most: u64) -> Option<Duration> {
    let Time(time) = value.parse().ok()?;
    (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&time).then_some(time)
}

fn digest_kind(wanted: bool) -> DigestKind {
    if wanted { DigestKind::Crc32c } else { DigestKind::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_answered_with_those_there_are() {
        let error = Settings::default().set("depth", "4").unwrap_err();
        assert!(error.to_string().contains("header-digest"), "{error}");
    }

    #[test]
    fn values_out_of_range_say_what_is_taken() {
        for (name, value) in [
            ("connections", "0"),
            ("connections", "9"),
            ("max-burst", "511"),
            ("first-burst", "16777216"),
            ("header-digest", "md5"),
            ("initial-r2t", "maybe"),
            ("initiator", ""),
            ("initiator", "iqn.2026-11.x:a\nb"),
            ("login-time", "0"),
            ("command-time", "61min"),
            ("abort-time", "5m"),
            ("chap", "md4"),
            ("isid", "8000"),
            ("isid", "+80000000001"),
            ("source", "san1"),
            ("address", "san1:0"),
            ("address", ""),
            ("sessions", "65"),
            ("journal", "5GiB"),
            ("journal-file", ""),
            ("journal-replay", "yes"),
            ("quarantine", "25h"),
            ("reconnect-time", "604801"),
            ("record", "65537"),
        ] {
            let error = Settings::default().set(name, value).unwrap_err();
            assert!(matches!(error, SettingError::Value { .. }), "{name}={value}");
        }
    }

    /// tgt accepts such a name in a target's access list, and libiscsi sends it.
    #[test]
    fn an_initiator_may_have_a_name_outside_the_standards_form() {
        let mut settings = Settings::default();
        for name in ["xxxx-client.000200000318", "iqn.2004-10.com.ubuntu:01:a_b"] {
            settings.set("initiator", name).unwrap();
            assert_eq!(settings.initiator, name);
        }
    }

    #[test]
    fn times_have_a_unit_or_count_seconds() {
        let mut settings = Settings::default();
        settings.set("command-time", "2min").unwrap();
        settings.set("abort-time", "1500ms").unwrap();
        settings.set("reconnect-time", "90").unwrap();
        let times = [settings.command_time, settings.abort_time, settings.reconnect_time];
        assert_eq!(times.map(|time| time.as_millis()), [120_000, 1500, 90_000]);
    }

    #[test]
    fn the_names_of_libiscsi_are_understood() {
        let mut settings = Settings::default();
        settings.set("header_digest", "CRC32C").unwrap();
        settings.set("target_user", "san").unwrap();
        settings.set("target_password", "twelve bytes").unwrap();
        assert!(settings.header_digest);
        assert_eq!(settings.target_account.map(|account| account.secret), Some(Secret::new(b"twelve bytes")));
    }

    #[test]
    fn every_setting_has_its_own_name() {
        let mut names: Vec<&str> =
            KEYS.iter().flat_map(|key| [key.name, key.also]).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}
