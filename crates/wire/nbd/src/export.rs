//! What a server offers, and the name of a connection.
//!
//! The name stands among those of one client, in the private metadata context
//! `x-linerate:channel/SESSION/NUMBER[/ENDED,…]` (the standard leaves namespaces that begin with `x-` to experiments).
//!
//! A server that selects the context and accepts GO promises: each connection of this session whose number is named as
//! ended has ended, and none of its requests will be carried out any more. So a client can be sure that a write which it sent
//! over a connection that failed does not land after a newer one. Other servers ignore the query, as they have to.
//!
//! The server answers with the context `x-linerate:channel/START`: another START than before tells the client that acknowledged writes
//! may have been lost since, the same that none were, even if the server was restarted.
//!
//! Clients ask for the context `x-linerate:volume` beside it. A server that knows it answers `x-linerate:volume/IDENTITY`, the UUID of the
//! volume: another one than before is another disk. It is a context of its own, so that older clients and servers understand each other.

use std::fmt;

/// The longest payload of a read or a write, in bytes: every server must take so much (section "Block size
/// constraints"), and clients that have not asked for block sizes send no more.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// An export as clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name, at most [`STRING_BYTES_MAX`](crate::STRING_BYTES_MAX) bytes.
    pub name: String,
    /// A description for people; empty if there is none.
    pub description: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it can do ([`flags::transmission`](crate::flags::transmission)). The handshake adds HAS_FLAGS,
    /// and DF if the session has chunks.
    pub flags: u16,
    /// Its block sizes.
    pub block_sizes: BlockSizes,
}

/// Lengths that requests should have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of it: a power of two from 1 to 65,536.
    pub minimum: u32,
    /// Offsets and lengths should be multiples of it: a power of two from 512 on.
    pub preferred: u32,
    /// The longest payload.
    pub maximum: u32,
}

/// The exports that one client may see.
pub trait Exports {
    /// Names and descriptions of the exports from number `from` on. A long list is sent in parts, and each part asks again:
    /// a list during which exports come and go may name one twice, or miss one.
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a>;

    /// The export of this name. The empty name is the default export, if there is one.
    fn find(&self, name: &str) -> Option<Export>;

    /// The number of this export's cache, which named connections report to clients with several of them: another one after each
    /// event that may have lost acknowledged writes, and the same after a restart that has lost none. Clients write their journal again
    /// when it differs. A server that cannot tell whether its cache has outlived it gives another number after each of its starts and
    /// each time that the volume was opened.
    fn start(&self, _export: &str) -> u128 {
        0
    }

    /// The UUID of the volume of this export, for clients that ask for it.
    fn volume(&self, _export: &str) -> Option<u128> {
        None
    }

    /// Whether this client, whose connection is not encrypted, would find it over TLS.
    fn needs_tls(&self, _name: &str) -> bool {
        false
    }
}

/// The namespace and the kind.
const PREFIX: &str = "x-linerate:channel/";
/// The query for the identity of the volume.
pub(crate) const VOLUME: &str = "x-linerate:volume";
/// Connections that one name can end.
const ENDED_MAX: usize = 64;

/// The name of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelName {
    /// The client: a random number that only it knows.
    pub session: u128,
    /// The connection. None has the number of an earlier one.
    pub number: u64,
    /// Connections of this session that have to end: at most 64.
    pub ended: Vec<u64>,
    /// The number that the server has told with its acceptance ([`Exports::start`](crate::Exports::start)); 0 before.
    pub start: u128,
    /// The UUID of the export's volume, if the server has told it.
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
    /// The name that a query is, if it is one.
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

    /// What a server answers whose start this is.
    pub(crate) fn accepted(start: u128) -> String {
        format!("{PREFIX}{start:032x}")
    }

    /// The start that such an answer tells of.
    pub(crate) fn start(answer: &[u8]) -> Option<u128> {
        digits(std::str::from_utf8(answer).ok()?.strip_prefix(PREFIX)?)
    }

    /// What a server answers whose volume this is.
    pub(crate) fn identified(volume: u128) -> String {
        format!("{VOLUME}/{volume:032x}")
    }

    /// The volume that such an answer tells of.
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
