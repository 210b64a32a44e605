//! The exports of a server, and the name of a connection.
//!
//! A connection name identifies a connection among those of one client. It is sent in the private metadata
//! context `x-linerate:channel/SESSION/NUMBER[/ENDED,…]` (the standard reserves namespaces that start with
//! `x-` for experiments).
//!
//! If a server selects the context and accepts GO, each connection listed in ENDED has ended, and none of its
//! requests will be executed any more. So a write that was sent over a failed connection cannot overwrite a
//! newer one. Other servers ignore the query, as the standard requires.
//!
//! The server answers with the context `x-linerate:channel/START`. If START differs from an earlier one,
//! acknowledged writes may have been lost in between. If it is the same, none were, even if the server was
//! restarted.
//!
//! Clients also query the context `x-linerate:volume`. A server that supports it answers with
//! `x-linerate:volume/IDENTITY`, where IDENTITY is the UUID of the volume. A changed UUID means that the
//! export is now another disk. This is a separate context, so that older clients and servers remain
//! compatible.

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
    /// Offsets and lengths should be multiples of it: a power of two of at least 512.
    pub preferred: u32,
    /// Maximum payload.
    pub maximum: u32,
}

/// The exports that one client may see.
pub trait Exports {
    /// Names and descriptions of the exports from number `from` on. A long list is sent in parts, with a new
    /// call for each part. If exports are added or removed between the calls, the list may contain an export
    /// twice, or omit one.
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a>;

    /// The export of this name. The empty name is the default export, if there is one.
    fn find(&self, name: &str) -> Option<Export>;

    /// The cache generation of this export, which the server reports as START to clients that name their
    /// connections. It changes after each event that may have lost acknowledged writes, and stays the same
    /// after a restart without a loss. A client replays its journal if the number has changed. A server that
    /// cannot determine whether its cache has survived returns another number after each of its starts, and
    /// each time it has opened the volume.
    fn start(&self, _export: &str) -> u128 {
        0
    }

    /// The UUID of the volume of this export, for clients that request it.
    fn volume(&self, _export: &str) -> Option<u128> {
        None
    }

    /// Whether the export is available only over TLS, and the client's connection is not encrypted.
    fn needs_tls(&self, _name: &str) -> bool {
        false
    }
}

/// The start of a connection's name: the namespace, and the kind of the context.
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
    /// START in the server's answer ([`Exports::start`](crate::Exports::start)); 0 before the answer.
    pub start: u128,
    /// The UUID of the export's volume, if the server reported it.
    pub volume: Option<u128>,
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_assert!(
            self.ended.len() <= ENDED_MAX,
            "one name ends too many connections"
        );
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
            ended
                .split(',')
                .take(ENDED_MAX + 1)
                .map(|number| number.parse().ok())
                .collect()
        });
        let ended = ended.filter(|ended| ended.len() <= ENDED_MAX)?;
        Some(ChannelName {
            session,
            number,
            ended,
            start: 0,
            volume: None,
        })
    }

    /// The server's answer, with this START.
    pub(crate) fn accepted(start: u128) -> String {
        format!("{PREFIX}{start:032x}")
    }

    /// START in a server's answer, if the answer contains one.
    pub(crate) fn start(answer: &[u8]) -> Option<u128> {
        digits(std::str::from_utf8(answer).ok()?.strip_prefix(PREFIX)?)
    }

    /// The server's answer, with the UUID of the volume.
    pub(crate) fn identified(volume: u128) -> String {
        format!("{VOLUME}/{volume:032x}")
    }

    /// The UUID of the volume in a server's answer, if the answer contains one.
    pub(crate) fn volume(answer: &[u8]) -> Option<u128> {
        digits(
            std::str::from_utf8(answer)
                .ok()?
                .strip_prefix(VOLUME)?
                .strip_prefix('/')?,
        )
    }
}

fn digits(text: &str) -> Option<u128> {
    (text.len() == 32)
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for ended in [
            vec![],
            vec![1],
            (0..64).map(|number| u64::MAX - number).collect(),
        ] {
            let name = ChannelName {
                session: u128::MAX / 3,
                number: 70,
                ended,
                start: 0,
                volume: None,
            };
            let text = name.to_string();
            assert!(text.len() <= crate::STRING_BYTES_MAX);
            assert_eq!(ChannelName::parse(&text), Some(name));
        }
    }

    #[test]
    fn the_start_of_a_server_is_read_as_it_is_written() {
        for start in [0, 7, u128::MAX] {
            assert_eq!(
                ChannelName::start(ChannelName::accepted(start).as_bytes()),
                Some(start)
            );
        }
        for answer in [
            "base:allocation",
            "x-linerate:channel/7",
            "x-linerate:channel/",
        ] {
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
        for answer in [
            "x-linerate:volume",
            "x-linerate:volume/7",
            "base:allocation",
        ] {
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
