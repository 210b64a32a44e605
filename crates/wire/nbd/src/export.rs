//! The exports of a server, and the name of a connection.
//!
//! A connection name identifies a connection among those of one client. It is in the private metadata context
//! `x-linerate:channel/SESSION/NUMBER[/ENDED,…]` (the standard reserves namespaces that start with `x-` for
//! experiments).
//!
//! If a server selects the context and accepts GO, each listed connection of this session has ended, and none
//! of its requests will be executed any more. So a write sent over a failed connection cannot land after a
//! newer one. Other servers ignore the query, as the standard requires.
//!
//! The server answers with the context `x-linerate:channel/START`. A changed START means that acknowledged
//! writes may have been lost since; the same START means that none were, even if the server was restarted.
//!
//! Clients also query the context `x-linerate:volume`. A server that supports it answers
//! `x-linerate:volume/IDENTITY`, the UUID of the volume: a changed UUID means another disk. It is a separate
//! context, so that older clients and servers remain compatible.

use std::fmt;

/// Maximum payload of a read or a write, in bytes: every server must accept this much (section "Block size
/// constraints"), and clients that have not requested block sizes send no more.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// An export as reported to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name, up to [`STRING_BYTES_MAX`](crate::STRING_BYTES_MAX) bytes.
    pub name: String,
    /// A human-readable description; may be empty.
    pub description: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its capabilities ([`flags::transmission`](crate::flags::transmission)). The handshake adds HAS_FLAGS,
    /// and DF if the session has chunks.
    pub flags: u16,
    /// Its block sizes.
    pub block_sizes: BlockSizes,
}

/// Size constraints of requests, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of it: a power of two from 1 to 65,536.
    pub minimum: u32,
    /// Offsets and lengths should be multiples of it: a power of two from 512 on.
    pub preferred: u32,
    /// Maximum payload.
    pub maximum: u32,
}

/// The exports that one client may see.
pub trait Exports {
    /// Names and descriptions of the exports from number `from` on. A long list is sent in parts, each with a
    /// new call: if exports are added or removed meanwhile, the list may contain one twice, or miss one.
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a>;

    /// The export of this name. The empty name is the default export, if there is one.
    fn find(&self, name: &str) -> Option<Export>;

    /// The cache number of this export, which named connections report to clients with several of them. It
    /// changes after each event that may have lost acknowledged writes, and stays the same after a restart
    /// without a loss. Clients replay their journal when it differs. A server that cannot determine whether
    /// its cache has survived returns another number after each of its starts and each time that the volume
    /// was opened.
    fn start(&self, _export: &str) -> u128 {
        0
    }

    /// The UUID of the volume of this export, for clients that request it.
    fn volume(&self, _export: &str) -> Option<u128> {
        None
    }

    /// Whether the export exists only over TLS, for a client whose connection is not encrypted.
    fn needs_tls(&self, _name: &str) -> bool {
        false
    }
}

/// The namespace and the kind.
const PREFIX: &str = "x-linerate:channel/";
/// The query for the identity of the volume.
pub(crate) const VOLUME: &str = "x-linerate:volume";
/// Maximum number of connections that one name can end.
const ENDED_MAX: usize = 64;

/// The name of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelName {
    /// Identifies the client: a secret random number.
    pub session: u128,
    /// Identifies the connection. Numbers are never reused.
    pub number: u64,
    /// Connections of this session that must end: up to 64.
    pub ended: Vec<u64>,
    /// The number in the server's acceptance ([`Exports::start`](crate::Exports::start)); 0 before.
    pub start: u128,
    /// The UUID of the export's volume, if the server reported it.
    pub volume: Option<u128>,
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_assert!(self.ended.len() <= ENDED_MAX, "one name ends too many connections");
        write!(f, "{PREFIX}{:032x}/{}", self.session, self.number)?;
        for (place, number) in self.ended.iter().enumerate() {
            write!(f, "{}{number}", if place == 0 { "/" } else { "," })?;
        }
        Ok(())
    }
}

impl ChannelName {
    /// Parses the name in a query, if it contains one.
    pub fn parse(query: &str) -> Option<ChannelName> {
        let mut parts = query.strip_prefix(PREFIX)?.splitn(3, '/');
        let session = parts.next().filter(|session| session.len() == 32)?;
        let session = u128::from_str_radix(session, 16).ok()?;
        let number = parts.next()?.parse().ok()?;
        let ended: Option<Vec<u64>> = parts.next().map_or(Some(Vec::new()), |ended| {
            ended.split(',').take(ENDED_MAX + 1).map(|number| number.parse().ok()).collect()
        });
        let ended = ended.filter(|ended| ended.len() <= ENDED_MAX)?;
        Some(ChannelName { session, number, ended, start: 0, volume: None })
    }

    /// The answer of a server with this start.
    pub(crate) fn accepted(start: u128) -> String {
        format!("{PREFIX}{start:032x}")
    }

    /// The start in such an answer.
    pub(crate) fn start(answer: &[u8]) -> Option<u128> {
        digits(std::str::from_utf8(answer).ok()?.strip_prefix(PREFIX)?)
    }

    /// The answer of a server with this volume.
    pub(crate) fn identified(volume: u128) -> String {
        format!("{VOLUME}/{volume:032x}")
    }

    /// The volume in such an answer.
    pub(crate) fn volume(answer: &[u8]) -> Option<u128> {
        digits(std::str::from_utf8(answer).ok()?.strip_prefix(VOLUME)?.strip_prefix('/')?)
    }
}

fn digits(text: &str) -> Option<u128> {
    (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for ended in [vec![], vec![1], (0..64).map(|number| u64::MAX - number).collect()] {
            let name = ChannelName { session: u128::MAX / 3, number: 70, ended, start: 0, volume: None };
            let text = name.to_string();
            assert!(text.len() <= crate::STRING_BYTES_MAX);
            assert_eq!(ChannelName::parse(&text), Some(name));
        }
    }

    #[test]
    fn the_start_of_a_server_is_read_as_it_is_written() {
        for start in [0, 7, u128::MAX] {
            assert_eq!(ChannelName::start(ChannelName::accepted(start).as_bytes()), Some(start));
        }
        for answer in ["base:allocation", "x-linerate:channel/7", "x-linerate:channel/"] {
            assert_eq!(ChannelName::start(answer.as_bytes()), None);
        }
    }

    #[test]
    fn the_identity_of_a_volume_is_read_as_it_is_written() {
        for volume in [0, 7, u128::MAX] {
            let answer = ChannelName::identified(volume);
            assert_eq!(ChannelName::volume(answer.as_bytes()), Some(volume));
            assert_eq!(ChannelName::start(answer.as_bytes()), None);
        }
        for answer in ["x-linerate:volume", "x-linerate:volume/7", "base:allocation"] {
            assert_eq!(ChannelName::volume(answer.as_bytes()), None);
        }
    }

    #[test]
    fn what_is_no_name_is_ignored() {
        let digits = "0".repeat(32);
        let many = vec!["1"; 65].join(",");
        for query in [
            "base:allocation".to_owned(),
            "x-linerate:channel/12/3".to_owned(),
            format!("x-linerate:channel/{digits}"),
            format!("x-linerate:channel/{digits}/x"),
            format!("x-linerate:channel/{digits}/1/"),
            format!("x-linerate:channel/{digits}/1/2,,3"),
            format!("x-linerate:channel/{digits}/1/{many}"),
            format!("x-linerate:channel/{}é/1", "0".repeat(30)),
        ] {
            assert_eq!(ChannelName::parse(&query), None, "{query}");
        }
    }
}
