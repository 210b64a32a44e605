//! The control socket of a running server: status, reload, changes of single volumes, and injected faults.
//!
//! The control socket is a UNIX socket that only its owner may open. Requests and replies are one line of
//! JSON each; a connection can carry several requests in sequence. After [`ControlRequest::Events`] the
//! connection carries only events, as they happen. The socket serves people and scripts, never the data path.
//!
//! ```text
//! {"version":1,"request":"volumes"}          a request without a version is of version 1
//! {"version":1,"reply":"volumes","volumes":[…]}
//! ```

mod client;
mod events;
mod server;
pub mod tables;

use std::str::FromStr;
use std::time::Duration;

use ::front_end_core::HostAddress;
use backends::layers::LayerStates;
use derive_more::Display;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use volume::spec::{Time, hint};

pub use client::{AskError, ServedSet, Subscription, ask, subscribe, unexpected};
pub use events::{Event, Events, Occurrence};
pub use server::{BindError, Socket};

use crate::config::values::VolumeName;

/// Requests to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// List the sessions.
    Sessions,
    /// Reload the configuration file.
    Reload {
        /// Only report the changes.
        #[serde(default)]
        dry_run: bool,
        /// Also apply changes that remove volumes or exports that initiators are using.
        #[serde(default)]
        force: bool,
    },
    /// List the volumes.
    Volumes,
    /// List the targets and their access lists.
    Targets,
    /// End sessions. Their initiators may log in again.
    Drop {
        /// The sessions: a TSIH, or the name of an initiator.
        sessions: String,
        /// Close their connections immediately, instead of requesting a logout.
        #[serde(default)]
        force: bool,
    },
    /// Return the metrics.
    Metrics,
    /// Show the commands to run on a host to use the exports.
    Usage,
    /// Change the served configuration, and write the change to the configuration file.
    Change {
        /// Add, remove or change one volume.
        change: Change,
        /// Only report the changes.
        #[serde(default)]
        dry_run: bool,
        /// Also apply changes that remove volumes or exports that initiators are using.
        #[serde(default)]
        force: bool,
    },
    /// Report events: after [`ControlReply::Done`] each line is an [`Occurrence`], until either side closes
    /// the connection.
    Events,
    /// Send an order to a RAID set of a volume.
    Raid {
        /// The volume's name.
        volume: String,
        /// The set, counted from the outermost [default: the only one].
        #[serde(default)]
        set: Option<usize>,
        /// The order.
        order: RaidOrder,
    },
    /// Switch the `fault:` layer of a volume.
    Fault {
        /// The volume's name.
        volume: String,
        /// How its requests are treated.
        #[serde(with = "text")]
        mode: FaultMode,
    },
}

/// Orders to a RAID set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RaidOrder {
    /// Mark a member failed and stop using it.
    Fail {
        /// Its number.
        member: usize,
    },
    /// Replace a failed member.
    Replace {
        /// The member's number.
        member: usize,
        /// The volume; files as absolute paths.
        with: String,
        /// Overwrite its content.
        #[serde(default)]
        overwrite: bool,
    },
    /// Add a spare.
    Add {
        /// The volume; files as absolute paths.
        spare: String,
        /// Overwrite its content.
        #[serde(default)]
        overwrite: bool,
    },
    /// Read and compare the whole set.
    Scrub {
        /// Repair inconsistent stripes.
        #[serde(default)]
        repair: bool,
    },
    /// Cancel the current scrub.
    CancelScrub,
    /// Add new space of its members to the set.
    Grow,
    /// Restart the set, if it has stopped.
    Assemble,
}

/// Parses a key and its value, written `KEY=VALUE`. The error is a sentence.
pub fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("write a key, `=` and its value, such as serial=AB12")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A change of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// Add a volume.
    Add {
        /// Its name.
        #[serde(with = "text")]
        volume: VolumeName,
        /// Its specification; files as absolute paths.
        spec: String,
        /// The front end that exports the volume [default: the first in the table, which is iSCSI].
        #[serde(default)]
        front_end: Option<String>,
        /// The target to which the volume is added [default: a separate target for this volume].
        #[serde(default)]
        target: Option<String>,
        /// Its LUN in the target [default: the first free one].
        #[serde(default)]
        lun: Option<u16>,
        /// Initiators that can see the volume: iSCSI names, or prefixes followed by `*` [default: all that
        /// may log in to the target].
        #[serde(default)]
        initiators: Vec<String>,
        /// Additional keys of the volume's section in the configuration file, with their values, such as
        /// `serial` and `naa`.
        #[serde(default)]
        keys: Vec<(String, String)>,
    },
    /// Stop serving a volume. Its data is not deleted.
    Remove {
        /// Its name.
        #[serde(with = "text")]
        volume: VolumeName,
    },
    /// Change the size of a volume.
    Resize {
        /// Its name.
        #[serde(with = "text")]
        volume: VolumeName,
        /// The new size.
        bytes: u64,
        /// Allow the volume to shrink if the part to be cut off contains no data.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shrink: bool,
        /// Discard any data in the part cut off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        discard_data: bool,
    },
}

/// Replies of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum ControlReply {
    /// To [`ControlRequest::Sessions`].
    Sessions {
        /// All of them.
        sessions: Vec<ServedSession>,
    },
    /// To [`ControlRequest::Volumes`].
    Volumes {
        /// All of them.
        volumes: Vec<Volume>,
    },
    /// To [`ControlRequest::Targets`].
    Targets {
        /// All of them.
        targets: Vec<Target>,
    },
    /// To [`ControlRequest::Drop`].
    Dropped {
        /// Sessions that are ending.
        sessions: usize,
    },
    /// To [`ControlRequest::Metrics`].
    Metrics {
        /// In Prometheus' text format.
        text: String,
    },
    /// To [`ControlRequest::Usage`].
    Usage {
        /// Human-readable lines.
        text: String,
    },
    /// To [`ControlRequest::Reload`], [`ControlRequest::Change`] and [`ControlRequest::Raid`].
    Reloaded {
        /// The changes, one line each.
        changes: Vec<String>,
        /// Additional notes.
        notes: Vec<String>,
        /// Changes that failed.
        failed: Vec<String>,
    },
    /// The request succeeded.
    Done,
    /// The request was refused.
    Refused {
        /// Human-readable reason.
        reason: String,
    },
}

/// A volume that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its specification.
    pub spec: String,
    /// Its size.
    pub bytes: u64,
    /// Size of a logical block.
    pub block_bytes: u32,
    /// Its NAA identifier: `naa.…`.
    #[serde(default)]
    pub naa: String,
    /// Its serial number.
    #[serde(default)]
    pub serial: String,
    /// The LUNs and exports where initiators find it.
    pub luns: Vec<Lun>,
    /// Whether it is from the configuration file, as opposed to the command line.
    pub in_file: bool,
    /// The state of its layers, by kind: `raid`.
    #[serde(flatten)]
    pub layers: LayerStates,
}

/// A target that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The front end: `iscsi`.
    pub front_end: String,
    /// The name of the target in that front end.
    pub name: String,
    /// Its display name.
    pub alias: Option<String>,
    /// The portals through which it can be reached.
    pub portals: Vec<String>,
    /// The names, or patterns of names, that may log in; `None` allows any.
    pub initiators: Option<Vec<String>>,
    /// The networks from which it accepts logins; `None` allows any.
    pub networks: Option<Vec<String>>,
    /// The CHAP users; empty without CHAP.
    pub users: Vec<String>,
    /// The address to which initiators are redirected.
    pub redirect: Option<String>,
    /// Its LUNs and their volumes.
    pub luns: Vec<TargetLun>,
    /// Number of current sessions.
    pub sessions: usize,
}

/// A LUN of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetLun {
    /// Its number.
    pub lun: u16,
    /// The volume that it maps to.
    pub volume: String,
}

/// An export of a volume: a LUN of a target, or a name in a front end without LUNs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lun {
    /// The front end: `iscsi`.
    pub front_end: String,
    /// The target's iSCSI name; in other front ends, the name of the export.
    pub target: String,
    /// The LUN, in front ends with LUNs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
}

/// A session; totals count from its login.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServedSession {
    /// The front end: `iscsi`.
    pub front_end: String,
    /// The host's name in that protocol: the initiator's iSCSI name.
    pub initiator: String,
    /// The authenticated CHAP name.
    pub user: Option<String>,
    /// The initiator's half of an iSCSI session's identity, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isid: Option<String>,
    /// The target's half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsih: Option<u16>,
    /// The target, or the export; `None` for a discovery session.
    pub target: Option<String>,
    /// Time since its login.
    pub age_seconds: f64,
    /// The reactor thread that runs it.
    pub core: usize,
    /// Its current connections.
    pub connections: Vec<Connection>,
    /// The negotiated parameters, as `Key=Value`.
    pub parameters: Vec<String>,
    /// Outstanding commands.
    pub in_flight: usize,
    /// SCSI commands started.
    pub commands: u64,
    /// Bytes read by the initiator.
    pub read_bytes: u64,
    /// Bytes written by the initiator.
    pub written_bytes: u64,
}

/// A connection of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its number within an iSCSI session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cid: Option<u16>,
    /// The initiator's address. A client of a Unix socket has port 0 of 127.0.0.1.
    #[serde(with = "text")]
    pub peer: HostAddress,
    /// The local address: an address with its port, or `unix:PATH`.
    pub local: String,
}

/// How requests to a volume with a `fault:` layer are treated: `pass`, `hang`, `fail`, `lose` or `slow=5ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum FaultMode {
    /// Requests are passed on; hanging requests continue.
    #[display("pass")]
    Pass,
    /// Requests wait until the mode changes.
    #[display("hang")]
    Hang,
    /// Requests fail as if the device were gone.
    #[display("fail")]
    Fail,
    /// Flushes fail as if acknowledged writes had been lost.
    #[display("lose")]
    Lose,
    /// Requests take longer by this time.
    #[display("slow={}", Time(*_0))]
    Slow(Duration),
}

impl FromStr for FaultMode {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultMode, String> {
        match (text, text.split_once('=')) {
            ("pass", _) => Ok(FaultMode::Pass),
            ("hang", _) => Ok(FaultMode::Hang),
            ("fail", _) => Ok(FaultMode::Fail),
            ("lose", _) => Ok(FaultMode::Lose),
            ("slow", _) => Err("`slow` needs a time; write one such as slow=5ms".to_owned()),
            (_, Some(("slow", time))) => time
                .parse()
                .map(|Time(time)| FaultMode::Slow(time))
                .map_err(|error| error.to_string()),
            _ => Err(format!(
                "unknown fault `{text}`{}",
                hint(text, &["pass", "hang", "fail", "lose", "slow=5ms"])
            )),
        }
    }
}

/// The version of the protocol. An addition (a request, a key in a reply) does not change the version. It
/// changes if a client for the previous version would misinterpret a reply.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Message<'a, T> {
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Encodes a request or reply as a line.
fn line_of<T: Serialize>(body: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Message {
        version: VERSION,
        body,
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Decodes a line. The error is a sentence.
fn message_of<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let mut value: serde_json::Value =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let version = value
        .as_object_mut()
        .and_then(|message| message.remove("version"));
    match version {
        Some(version) if version != VERSION => Err(format!(
            "version {version} of the control protocol is not supported; this is version {VERSION}"
        )),
        _ => serde_json::from_value(value).map_err(|error| error.to_string()),
    }
}

/// Values that JSON represents as strings, in the form in which users write them.
mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_on_the_socket_are_frozen() {
        let fault = ControlRequest::Fault {
            volume: "vm1".into(),
            mode: FaultMode::Slow(Duration::from_millis(5)),
        };
        let line = r#"{"request":"fault","volume":"vm1","mode":"slow=5ms"}"#;
        assert_eq!(serde_json::to_string(&fault).expect("JSON"), line);
        assert_eq!(
            serde_json::from_str::<ControlRequest>(line).expect("a request"),
            fault
        );
        let sessions = serde_json::to_string(&ControlRequest::Sessions).expect("JSON");
        assert_eq!(sessions, r#"{"request":"sessions"}"#);
        let reload: ControlRequest =
            serde_json::from_str(r#"{"request":"reload","force":true}"#).expect("a request");
        assert_eq!(
            reload,
            ControlRequest::Reload {
                dry_run: false,
                force: true
            }
        );
        let line = r#"{"request":"change","change":{"add":{"volume":"vm2","spec":"ram:1GiB"}}}"#;
        let change = Change::Add {
            volume: "vm2".parse().expect("a name"),
            spec: "ram:1GiB".to_owned(),
            front_end: None,
            target: None,
            lun: None,
            initiators: Vec::new(),
            keys: Vec::new(),
        };
        let add = ControlRequest::Change {
            change,
            dry_run: false,
            force: false,
        };
        assert_eq!(
            serde_json::from_str::<ControlRequest>(line).expect("a request"),
            add
        );
        for what in [
            r#"{"remove":{"volume":"vm2"}}"#,
            r#"{"resize":{"volume":"vm2","bytes":4096}}"#,
        ] {
            let change: Change = serde_json::from_str(what).expect("a change");
            assert_eq!(serde_json::to_string(&change).expect("JSON"), what);
        }
        let reloaded = ControlReply::Reloaded {
            changes: vec!["+ a".into()],
            notes: Vec::new(),
            failed: Vec::new(),
        };
        let line = r#"{"reply":"reloaded","changes":["+ a"],"notes":[],"failed":[]}"#;
        assert_eq!(serde_json::to_string(&reloaded).expect("JSON"), line);
        assert_eq!(
            serde_json::to_string(&ControlReply::Done).expect("JSON"),
            r#"{"reply":"done"}"#
        );
    }

    #[test]
    fn a_fault_is_one_of_five() {
        for text in ["pass", "hang", "fail", "lose", "slow=250us"] {
            assert_eq!(
                text.parse::<FaultMode>().map(|mode| mode.to_string()),
                Ok(text.to_owned())
            );
        }
        assert!(
            "hagn"
                .parse::<FaultMode>()
                .expect_err("a mistake")
                .contains("did you mean `hang`?")
        );
        assert!(
            "slow"
                .parse::<FaultMode>()
                .expect_err("a mistake")
                .contains("slow=5ms")
        );
        assert!(
            "slow=5m"
                .parse::<FaultMode>()
                .expect_err("a mistake")
                .contains("a unit")
        );
    }

    #[test]
    fn a_message_says_its_version_and_one_without_is_of_the_first() {
        let request = ControlRequest::Reload {
            dry_run: true,
            force: false,
        };
        let text = line_of(&request).expect("JSON");
        assert_eq!(
            text,
            b"{\"version\":1,\"request\":\"reload\",\"dry_run\":true,\"force\":false}\n"
        );
        assert_eq!(message_of(&text), Ok(request));
        assert_eq!(
            message_of(br#"{"request":"sessions"}"#),
            Ok(ControlRequest::Sessions)
        );
        assert_eq!(
            line_of(&ControlReply::Done).expect("JSON"),
            b"{\"version\":1,\"reply\":\"done\"}\n"
        );
    }

    #[test]
    fn another_version_is_refused() {
        for version in ["2", "0", "\"1\"", "1.0", "null"] {
            let text = format!(r#"{{"version":{version},"request":"sessions"}}"#);
            let refused =
                message_of::<ControlRequest>(text.as_bytes()).expect_err("it is not known");
            assert!(refused.contains("this is version 1"), "{refused}");
        }
        assert!(
            message_of::<ControlRequest>(br#"{"request":"reload","versoin":1}"#).is_err(),
            "nor are other keys"
        );
    }
}
