//! The URL of a LUN: `iscsi://[user[%secret]@]host[:port]/target/lun[?key=value&…]`.
//!
//! The form is the same as libiscsi's, so a URL made for QEMU or `iscsi-ls` works here. The keys after the
//! question mark set [`Settings`]. In the target's name, in values, and in the secret, `%` with two
//! hexadecimal digits represents a byte. The first `%` of `user%secret` is the separator. Discovery uses the
//! URL of a portal, which has no target: `iscsi://[user[%secret]@]host[:port][/][?…]`.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use derive_more::Display;
use failover::{ReplayRule, Writers};
use iscsi::chap::{Algorithm, Credentials, Secret};
use iscsi::name::Name;
use iscsi::negotiate::{DigestKind, Offers};
use iscsi::pdu::Isid;
use reactor::{BadAddress, BadHost, Ipv6Host, StreamOptions};
use volume::spec::{Bytes, Time};

use crate::recorder::FlightRecorder;

/// A LUN of a target behind a portal.
#[derive(Clone, Debug)]
pub struct Url {
    /// The target's portal.
    pub portal: Portal,
    /// The target's iSCSI name.
    pub target: String,
    /// The LUN's number, 0 to 16,383.
    pub lun: u16,
    /// Credentials and session settings.
    pub settings: Settings,
}

/// A host and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{}:{port}", reactor::bracketed(host))]
pub struct Portal {
    /// A name, an IPv4 address, or an IPv6 address with its zone and without brackets.
    pub host: String,
    /// The port: 3260 if the URL specifies none.
    pub port: u16,
}

/// An error in a URL, and its position.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("column {}: {problem}", at + 1)]
pub struct UrlError {
    /// The offset of the first invalid byte.
    pub at: usize,
    /// The error.
    pub problem: UrlProblem,
}

/// The errors that a URL can have.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum UrlProblem {
    /// The URL does not start with `iscsi://`.
    #[display("the URL of an iSCSI LUN begins with iscsi://")]
    Scheme,
    /// There is no host between `//` and the next `/`.
    #[display("the host is missing: iscsi://HOST[:PORT]/TARGET/LUN")]
    NoHost,
    /// A `[` has no matching `]`, or there is no IPv6 address between them.
    #[display("an IPv6 address must be in brackets, as in [::1]")]
    Brackets,
    /// A link-local address has no interface, or an address has another error.
    Address(BadAddress),
    /// There is a `%` in the host. It probably belongs to a secret that contains a `/` or `?`. If the secret
    /// were treated as the host, it would be displayed.
    #[display("a host cannot contain %; in a secret before the @, encode / and ? as %2F and %3F")]
    Percent,
    /// An address from a peer is too long to display, or has characters that are not allowed in a host name.
    #[display(
        "an address from a target must have at most {ADDRESS_MAX} printable ASCII characters, without spaces"
    )]
    PeerAddress,
    /// The port is not a number from 1 to 65535.
    #[display("the port must be a number from 1 to 65535")]
    Port,
    /// The account has no user name.
    #[display("the user name before the @ is missing")]
    NoUser,
    /// The account has the form `DOMAIN%5Cuser@`. In an account, `%` separates the name from the secret, and
    /// does not encode a byte.
    #[display(
        "before the @, % separates the user name from the secret; for a name with \\ or @, write \
         ?user=DOMAIN%5Cuser after the LUN; for a secret that begins with 5C or 40, use \
         ?secret-file=PATH"
    )]
    EncodedUser,
    /// The account has the form `user:password@`, as in web URLs.
    #[display(
        "a user name before the @ cannot contain a colon; for a name with a colon, write ?user=NAME \
         after the LUN, and put the secret into a file (secret-file=PATH)"
    )]
    Password,
    /// There is no target name after the portal.
    #[display("the target name is missing: iscsi://HOST[:PORT]/TARGET/LUN")]
    NoTarget,
    /// There is no LUN after the target's name.
    #[display("the LUN after the target name is missing; add one, such as /0")]
    NoLun,
    /// The LUN is not a number from 0 to 16383.
    #[display("a LUN is a number from 0 to 16383")]
    Lun,
    /// A `%` is not followed by two hexadecimal digits, or the decoded bytes are not UTF-8.
    #[display("% must be followed by two hexadecimal digits; write %25 for % itself")]
    Encoding,
    /// A key or value is invalid.
    Setting(SettingError),
    /// The URL specifies a session identifier together with several sessions.
    #[display("isid applies to a single session; omit it if there are several")]
    Isid,
    /// The journal is too small for a journal file, or there is a replay rule without a file.
    #[display(
        "journal-file needs a journal of 64KiB or more, and journal-replay needs a journal-file"
    )]
    Journal,
}

impl std::error::Error for UrlError {}

/// The port that IANA assigned to iSCSI.
pub const PORT: u16 = 3260;
const SCHEME: &str = "iscsi://";
/// The maximum LUN of flat space addressing (SAM-5 4.7.7.4).
const LUN_MAX: u16 = 16_383;
/// Maximum length of a peer's address: the longest host name (RFC 1123), and a port.
const ADDRESS_MAX: usize = 255 + 6;

impl Url {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let (portal, settings, path) = front(text)?;
        let (target, lun) = path.split_at_last_slash(UrlProblem::NoLun)?;
        if target.text.is_empty() {
            return Err(target.wrong(UrlProblem::NoTarget));
        }
        let number = lun.text.parse().ok().filter(|lun| *lun <= LUN_MAX);
        let number = number.ok_or_else(|| lun.wrong(UrlProblem::Lun))?;
        Ok(Url {
            portal,
            target: target.decoded()?,
            lun: number,
            settings,
        })
    }
}

impl Portal {
    /// Parses the URL of a portal, without a target, and its settings.
    pub fn parse(text: &str) -> Result<(Portal, Settings), UrlError> {
        let (portal, settings, _) = front(text)?;
        Ok((portal, settings))
    }

    /// Parses `HOST[:PORT]`, with an IPv6 address in brackets.
    pub(crate) fn from_address(text: &str) -> Option<Portal> {
        portal(UrlPart { at: 0, text }).ok()
    }

    /// Parses an address received from a peer, `HOST[:PORT][,TAG]` (RFC 7143 section 13.8). A link-local
    /// address contains no zone, because zones differ from host to host. The zone of the link over which the
    /// peer was queried, at `asked`, is added.
    pub(crate) fn from_peer(text: &str, asked: SocketAddr) -> Result<Portal, UrlError> {
        let address = text.split_once(',').map_or(text, |(address, _tag)| address);
        let is_wrong =
            |(at, character): &(usize, char)| *at >= ADDRESS_MAX || !character.is_ascii_graphic();
        if let Some((at, _)) = address.char_indices().find(is_wrong) {
            return Err(UrlError {
                at,
                problem: UrlProblem::PeerAddress,
            });
        }
        let zone = match asked {
            SocketAddr::V6(asked) if asked.scope_id() != 0 => Some(asked.scope_id().to_string()),
            SocketAddr::V4(_) | SocketAddr::V6(_) => None,
        };
        portal(UrlPart {
            at: 0,
            text: &on_link(address, zone.as_deref()),
        })
    }

    /// Returns the zone of a link-local address.
    pub(crate) fn zone(&self) -> Option<String> {
        Some(self.host.parse::<Ipv6Host>().ok()?.zone()?.to_owned())
    }

    /// Returns the addresses of the host ([`reactor::resolve`]).
    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        reactor::resolve(&self.host, self.port).await
    }
}

/// Prints the URL without the account and the settings, for logs.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{SCHEME}{}/{}/{}",
            self.portal,
            encoded(&self.target),
            self.lun
        )
    }
}

/// Parses the portal and the account before the path, and the settings after it. Also returns the path.
fn front(text: &str) -> Result<(Portal, Settings, UrlPart<'_>), UrlError> {
    let rest = text.strip_prefix(SCHEME).ok_or(UrlError {
        at: 0,
        problem: UrlProblem::Scheme,
    })?;
    let rest = UrlPart {
        at: SCHEME.len(),
        text: rest,
    };
    let (rest, query) = rest.split_or_end('?');
    let (authority, path) = rest.split_or_end('/');
    let mut settings = Settings::default();
    // The last `@` is the separator, because a secret may contain an `@`.
    let host = match authority.text.rfind('@') {
        Some(at) => {
            settings.account = Some(account(authority.before(at))?);
            authority.after(at + 1)
        }
        None => authority,
    };
    let portal = portal(host)?;
    for pair in query.split('&').filter(|pair| !pair.text.is_empty()) {
        let (key, value) = pair.split_or_end('=');
        let decoded = value.decoded()?;
        settings
            .set(key.text, &decoded)
            .map_err(|error| pair.wrong(UrlProblem::Setting(error)))?;
        if settings.isid.is_some() && settings.paths.are_several() {
            return Err(pair.wrong(UrlProblem::Isid));
        }
    }
    if !settings.paths.is_journal_whole() {
        return Err(query.wrong(UrlProblem::Journal));
    }
    Ok((portal, settings, path))
}

fn account(part: UrlPart<'_>) -> Result<Credentials, UrlError> {
    let (user, secret) = part.split_or_end('%');
    if user.text.is_empty() {
        return Err(user.wrong(UrlProblem::NoUser));
    }
    if let Some(colon) = user.text.find(':') {
        return Err(user.after(colon).wrong(UrlProblem::Password));
    }
    // If the rest of the name were treated as a secret, the target would reject it as wrong.
    if ["5C", "5c", "40"]
        .iter()
        .any(|byte| secret.text.starts_with(byte))
    {
        return Err(user.after(user.text.len()).wrong(UrlProblem::EncodedUser));
    }
    Ok(Credentials {
        name: user.text.to_owned(),
        secret: Secret::new(secret.decoded()?.as_bytes()),
    })
}

/// Adds the zone to an address that a peer on this interface has reported, if the address needs one. The
/// address may have the form `[IPv6]` with any suffix.
pub(crate) fn on_link<'a>(address: &'a str, zone: Option<&str>) -> Cow<'a, str> {
    let inside = address
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    let host =
        inside.and_then(|(host, rest)| Some((Ipv6Host::on_link(host, Some(zone?)).ok()?, rest)));
    host.map_or(Cow::Borrowed(address), |(host, rest)| {
        Cow::Owned(format!("[{host}]{rest}"))
    })
}

fn portal(part: UrlPart<'_>) -> Result<Portal, UrlError> {
    if let Some(percent) = part.text.find('%').filter(|_| !part.text.starts_with('[')) {
        return Err(part.after(percent).wrong(UrlProblem::Percent));
    }
    let (host, port) = reactor::host_and_port(part.text).map_err(|wrong| match wrong {
        BadHost::Brackets | BadHost::Address(BadAddress::Form(_)) => {
            part.wrong(UrlProblem::Brackets)
        }
        BadHost::Address(why) => part.after(1).wrong(UrlProblem::Address(why)),
        BadHost::Missing => part.wrong(UrlProblem::NoHost),
        BadHost::Port => {
            let host = part.text.rfind([':', ']']).unwrap_or_default();
            part.after(host).wrong(UrlProblem::Port)
        }
    })?;
    Ok(Portal {
        host,
        port: port.unwrap_or(PORT),
    })
}

/// A part of the URL with its offset.
#[derive(Clone, Copy)]
struct UrlPart<'a> {
    at: usize,
    text: &'a str,
}

impl<'a> UrlPart<'a> {
    fn wrong(self, problem: UrlProblem) -> UrlError {
        UrlError {
            at: self.at,
            problem,
        }
    }

    fn before(self, at: usize) -> UrlPart<'a> {
        UrlPart {
            at: self.at,
            text: &self.text[..at],
        }
    }

    fn after(self, at: usize) -> UrlPart<'a> {
        UrlPart {
            at: self.at + at,
            text: &self.text[at..],
        }
    }

    /// Returns the parts before and after the first `separator`. The second part is empty if there is no
    /// separator.
    fn split_or_end(self, separator: char) -> (UrlPart<'a>, UrlPart<'a>) {
        match self.text.find(separator) {
            Some(at) => (self.before(at), self.after(at + separator.len_utf8())),
            None => (self, self.after(self.text.len())),
        }
    }

    fn split_at_last_slash(
        self,
        otherwise: UrlProblem,
    ) -> Result<(UrlPart<'a>, UrlPart<'a>), UrlError> {
        if self.text.is_empty() {
            return Err(self.wrong(UrlProblem::NoTarget));
        }
        let at = self
            .text
            .rfind('/')
            .ok_or_else(|| self.after(self.text.len()).wrong(otherwise))?;
        Ok((self.before(at), self.after(at + 1)))
    }

    fn split(self, separator: char) -> impl Iterator<Item = UrlPart<'a>> {
        let mut at = self.at;
        self.text.split(separator).map(move |text| {
            let part = UrlPart { at, text };
            at += text.len() + separator.len_utf8();
            part
        })
    }

    fn decoded(self) -> Result<String, UrlError> {
        let mut bytes = Vec::with_capacity(self.text.len());
        let mut rest = self.text.bytes();
        while let Some(byte) = rest.next() {
            let byte = if byte == b'%' {
                hex(rest.next()).zip(hex(rest.next()))
            } else {
                Some((byte, 0))
            }
            .map(|(high, low)| if byte == b'%' { high << 4 | low } else { byte });
            bytes.push(byte.ok_or_else(|| self.wrong(UrlProblem::Encoding))?);
        }
        String::from_utf8(bytes).map_err(|_| self.wrong(UrlProblem::Encoding))
    }
}

fn hex(digit: Option<u8>) -> Option<u8> {
    char::from(digit?).to_digit(16).map(|value| value as u8)
}

/// Percent-encodes characters with a special meaning in a URL.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.chars() {
        match byte {
            '%' | '/' | '?' | '&' | '#' | ' ' => {
                encoded.push_str(&format!("%{:02x}", u32::from(byte)))
            }
            other => encoded.push(other),
        }
    }
    encoded
}

// The settings of a session except its address: credentials, negotiated keys, timeouts and socket options.
//
// Every setting has a key for URLs, and all keys are in one table. Underscores and hyphens are equivalent,
// and libiscsi's names for the same settings are accepted.

/// The settings of a session. The defaults are the fastest settings for most targets. A target may always
/// negotiate lower values.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The session's identifier; random if `None`. A target identifies an initiator port by its name and this
    /// value: a second session with the same values terminates the first (RFC 7143 section 6.3.5), and
    /// persistent reservations belong to the port.
    pub isid: Option<Isid>,
    /// The initiator's credentials (CHAP), if the target requires them.
    pub account: Option<Credentials>,
    /// The credentials that the target must prove (mutual CHAP).
    pub target_account: Option<Credentials>,
    /// A file with the secret of `account`, read at every login.
    pub secret_file: Option<PathBuf>,
    /// A file with the secret of `target_account`, read at every login.
    pub target_secret_file: Option<PathBuf>,
    /// The hash algorithms for both accounts, in order of preference. tgt (1.0.85) interprets algorithm 7 as
    /// SHA-1, its meaning before IANA assigned the number to SHA-256, so the login fails. Use only MD5 with
    /// tgt.
    pub chap: Vec<Algorithm>,
    /// The values that a login offers to the target. The number of connections is 1 to 8, or fewer if the
    /// target allows fewer.
    pub offers: Offers,
    /// Whether to wake up when a quarter of the responses have arrived, instead of for each response, while
    /// many commands are outstanding. This saves CPU time on both sides. A response may wait up to 400 µs for
    /// others, so do not use this setting to measure single responses.
    pub gather: bool,
    /// Socket options of the connections.
    pub stream: StreamOptions,
    /// Maximum time from connecting to the end of the login.
    pub login_time: Duration,
    /// The timeout of a command.
    pub command_time: Duration,
    /// Maximum number of times that a block device sends a command that times out, before the request fails.
    /// With one try, the request fails at the timeout. With more tries, the command is first aborted, however
    /// long this takes, because it must have ended before it is resent. `None` means one try.
    pub command_tries: Option<u32>,
    /// The timeout of an abort. When it expires, the logical unit is reset.
    pub abort_time: Duration,
    /// The timeout of a reset. When it expires, a reset of the logical unit is followed by a reset of the
    /// target, and after a reset of the target the session is dropped.
    pub reset_time: Duration,
    /// The maximum time for which requests wait for a lost session to recover before they fail. If zero, a
    /// lost session is not recovered.
    pub reconnect_time: Duration,
    /// Idle time after which the target is pinged.
    pub nop_interval: Duration,
    /// Records the last PDUs of each connection.
    pub recorder: FlightRecorder,
    /// The settings for several sessions with one LUN.
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
            offers: Offers::of_initiator(),
            gather: true,
            stream: StreamOptions::default(),
            login_time: Duration::from_secs(15),
            // These times are the defaults of open-iscsi.
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

/// An invalid key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// There is no setting with this name.
    Unknown(String),
    /// The value is invalid for the setting.
    Value {
        /// The setting.
        key: &'static str,
        /// The values that it accepts.
        takes: &'static str,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::Unknown(key) => {
                write!(f, "unknown setting {key:?}; the settings are ")?;
                let mut names = KEYS.iter().map(|key| key.name);
                names
                    .next()
                    .into_iter()
                    .try_for_each(|first| f.write_str(first))?;
                names.try_for_each(|name| write!(f, ", {name}"))
            }
            SettingError::Value { key, takes } => write!(f, "{key} takes {takes}"),
        }
    }
}

impl std::error::Error for SettingError {}

/// A setting's name, the values that it accepts, and the function that sets it. The function returns `None`
/// for an invalid value.
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
    Key {
        name,
        also,
        takes,
        set,
    }
}

/// Maximum number of other portals, and of local addresses.
const PATHS_MAX: usize = 16;
const JOURNAL_BYTES_MAX: u64 = 4 << 30;
const YES_NO: &str = "yes or no";
const DIGEST: &str = "none or crc32c";
/// The range of lengths (RFC 7143 sections 13.12 to 13.14: "A number from 512 to (2**24 - 1)").
const BYTES: &str = "a number of bytes from 512 to 16777215";
const SECONDS: &str = "a time from 1s to 1h, such as 15 or 2min";

/// All settings. `also` is libiscsi's name of a setting, if it differs. Secrets that are not part of
/// `user%secret` also have keys.
const KEYS: &[Key] = &[
    key("initiator", "initiator-name", "an iSCSI name", |s, v| {
        s.initiator = Name::to_send(v).ok()?.to_string();
        Some(())
    }),
    key("isid", "", "twelve hexadecimal digits", |s, v| {
        put(&mut s.isid, isid(v).map(Some))
    }),
    key(
        "user",
        "",
        "the CHAP user name, if the URL has none before the @",
        |s, v| {
            let name = some(v).filter(|_| s.account.is_none())?.to_owned();
            s.account = Some(Credentials {
                name,
                secret: Secret::new(&[]),
            });
            Some(())
        },
    ),
    key(
        "secret-file",
        "",
        "a file with the user's secret",
        |s, v| {
            s.secret_file = Some(some(v)?.into());
            Some(())
        },
    ),
    key(
        "target-secret-file",
        "",
        "a file with the target's secret, used with target-user",
        |s, v| {
            s.target_secret_file = Some(some(v)?.into());
            Some(())
        },
    ),
    key(
        "target-user",
        "",
        "the name with which the target authenticates",
        |s, v| {
            s.target_account = Some(Credentials {
                name: some(v)?.to_owned(),
                secret: Secret::new(&[]),
            });
            Some(())
        },
    ),
    key(
        "target-secret",
        "target-password",
        "the target's secret, used after target-user",
        |s, v| {
            s.target_account.as_mut()?.secret = Secret::new(some(v)?.as_bytes());
            Some(())
        },
    ),
    key(
        "chap",
        "",
        "a list of sha3-256, sha256, sha1 and md5, the preferred hash first",
        |s, v| {
            put(
                &mut s.chap,
                v.split(',').map(algorithm).collect::<Option<_>>(),
            )
        },
    ),
    key("connections", "", "a number from 1 to 8", |s, v| {
        put(&mut s.offers.max_connections, number(v, 1, 8))
    }),
    key("header-digest", "", DIGEST, |s, v| {
        put(&mut s.offers.header_digest, digest(v))
    }),
    key("data-digest", "", DIGEST, |s, v| {
        put(&mut s.offers.data_digest, digest(v))
    }),
    key("immediate-data", "", YES_NO, |s, v| {
        put(&mut s.offers.immediate_data, yes_no(v))
    }),
    key("initial-r2t", "", YES_NO, |s, v| {
        put(&mut s.offers.initial_r2t, yes_no(v))
    }),
    key("first-burst", "", BYTES, |s, v| {
        put(&mut s.offers.first_burst_length, bytes(v))
    }),
    key("max-burst", "", BYTES, |s, v| {
        put(&mut s.offers.max_burst_length, bytes(v))
    }),
    key(
        "max-segment",
        "max-recv-data-segment-length",
        BYTES,
        |s, v| put(&mut s.offers.max_recv_data_segment_length, bytes(v)),
    ),
    key(
        "max-outstanding-r2t",
        "",
        "a number from 1 to 64",
        |s, v| put(&mut s.offers.max_outstanding_r2t, number(v, 1, 64)),
    ),
    key("gather", "", YES_NO, |s, v| put(&mut s.gather, yes_no(v))),
    key(
        "congestion",
        "",
        "a congestion control algorithm of the kernel, such as cubic",
        |s, v| {
            s.stream.congestion = Some(some(v)?.to_owned());
            Some(())
        },
    ),
    key("send-buffer", "", "a number of bytes", |s, v| {
        put(
            &mut s.stream.send_buffer_bytes,
            number(v, 1, i32::MAX as u32).map(Some),
        )
    }),
    key("receive-buffer", "", "a number of bytes", |s, v| {
        put(
            &mut s.stream.receive_buffer_bytes,
            number(v, 1, i32::MAX as u32).map(Some),
        )
    }),
    key(
        "tcp-segment",
        "",
        "a number of bytes from 88 to 32767",
        |s, v| {
            // The limits of Linux: TCP_MIN_MSS and MAX_TCP_WINDOW in net/tcp.h.
            put(&mut s.stream.segment_bytes, number(v, 88, 32_767).map(Some))
        },
    ),
    key(
        "source",
        "",
        "a local IP address (a link-local one with its interface, such as fe80::1%25eth0), up to 16 times",
        |s, v| {
            let source = reactor::numeric_address(v, 0)
                .ok()
                .filter(|_| s.paths.sources.len() < PATHS_MAX)?;
            s.paths.sources.push(source);
            s.stream.source = Some(source);
            Some(())
        },
    ),
    key(
        "address",
        "",
        "another portal of the target, HOST[:PORT], up to 16 times",
        |s, v| {
            let portal = Portal::from_address(v).filter(|_| s.paths.addresses.len() < PATHS_MAX)?;
            s.paths.addresses.push(portal);
            Some(())
        },
    ),
    key("sessions", "", "a number from 1 to 64", |s, v| {
        put(&mut s.paths.sessions, number(v, 1, 64).map(Some))
    }),
    key(
        "quarantine",
        "",
        "a time up to 24h, such as 10 or 500ms",
        |s, v| put(&mut s.paths.quarantine, time(v, 0, 86_400)),
    ),
    key("journal", "", "a size up to 4GiB, such as 64MiB", |s, v| {
        let Bytes(bytes) = v.parse().ok()?;
        s.paths.journal_bytes = usize::try_from(bytes)
            .ok()
            .filter(|_| bytes <= JOURNAL_BYTES_MAX)?;
        Some(())
    }),
    key("journal-file", "", "a path", |s, v| {
        s.paths.journal_file = Some(some(v)?.into());
        Some(())
    }),
    key("journal-replay", "", "auto, force or discard", |s, v| {
        put(&mut s.paths.journal_replay, ReplayRule::parse(v).map(Some))
    }),
    key("writers", "", "one or several", |s, v| {
        put(&mut s.paths.writers, Writers::parse(v))
    }),
    key("login-time", "", SECONDS, |s, v| {
        put(&mut s.login_time, seconds(v))
    }),
    key("command-time", "scsi-timeout", SECONDS, |s, v| {
        put(&mut s.command_time, seconds(v))
    }),
    key("command-tries", "", "a number from 1 to 10", |s, v| {
        put(&mut s.command_tries, number(v, 1, 10).map(Some))
    }),
    key("abort-time", "", SECONDS, |s, v| {
        put(&mut s.abort_time, seconds(v))
    }),
    key("reset-time", "", SECONDS, |s, v| {
        put(&mut s.reset_time, seconds(v))
    }),
    key(
        "reconnect-time",
        "",
        "a time from 0 to 168h, such as 0, 90 or 10min",
        |s, v| put(&mut s.reconnect_time, time(v, 0, 604_800)),
    ),
    key("nop-interval", "", SECONDS, |s, v| {
        put(&mut s.nop_interval, seconds(v))
    }),
    key("record", "", "a number of PDUs from 0 to 65536", |s, v| {
        put(
            &mut s.recorder,
            number(v, 0, FlightRecorder::PDUS_MAX as u32).map(FlightRecorder::new),
        )
    }),
];

impl Settings {
    /// Returns the names of all settings in URLs, with the values that each accepts.
    pub fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
        KEYS.iter().map(|key| (key.name, key.takes))
    }

    /// Sets one setting by its name in URLs.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let wanted = name.replace('_', "-");
        let key = KEYS
            .iter()
            .find(|key| key.name == wanted || (!key.also.is_empty() && key.also == wanted));
        let key = key.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
        (key.set)(self, value).ok_or(SettingError::Value {
            key: key.name,
            takes: key.takes,
        })
    }
}

fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn some(value: &str) -> Option<&str> {
    (!value.is_empty()).then_some(value)
}

fn isid(value: &str) -> Option<Isid> {
    let is_hex = value.len() == 12 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = u64::from_str_radix(value, 16).ok().filter(|_| is_hex)?;
    let [0, 0, bytes @ ..] = digits.to_be_bytes() else {
        return None;
    };
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

fn digest(value: &str) -> Option<Vec<DigestKind>> {
    match value.to_ascii_lowercase().as_str() {
        "crc32c" => Some(vec![DigestKind::Crc32c]),
        "none" => Some(vec![DigestKind::None]),
        _ => None,
    }
}

fn number<T: TryFrom<u32>>(value: &str, least: u32, most: u32) -> Option<T> {
    value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number))?
        .try_into()
        .ok()
}

fn bytes(value: &str) -> Option<u32> {
    number(value, 512, (1 << 24) - 1)
}

fn seconds(value: &str) -> Option<Duration> {
    time(value, 1, 3600)
}

/// Parses a time in this range of seconds, with or without a unit.
fn time(value: &str, least: u64, most: u64) -> Option<Duration> {
    let Time(time) = value.parse().ok()?;
    (Duration::from_secs(least)..=Duration::from_secs(most))
        .contains(&time)
        .then_some(time)
}

// Timeouts, and the escalation when they expire.
//
// A command that does not complete is escalated by one [`EscalationStep`] at a time: its requester receives
// an error, then the target is asked to abort the task, to reset its logical unit, and to reset itself.
// Finally the session is dropped and reinstated, which terminates all tasks. The settings contain the timeout
// of each step. SAM-5 leaves the order of the steps to initiators; open-iscsi's error handler uses the same
// order.

/// The timeouts of a session.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The timeout of a command.
    pub command: Duration,
    /// Maximum number of times that a block device sends a command that times out.
    pub tries: u32,
    /// The timeout of an abort.
    pub abort: Duration,
    /// The timeout of a reset.
    pub reset: Duration,
    /// The maximum time for which requests wait for a lost session.
    pub reconnect: Duration,
}

/// Steps of the escalation for a command that does not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscalationStep {
    /// No step: the command's timeout has not expired.
    Wait,
    /// ABORT TASK.
    AbortTask,
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// TARGET WARM RESET.
    TargetReset,
    /// The session is restarted.
    LeaveSession,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts::new(&Settings::default())
    }
}

impl Timeouts {
    pub(crate) fn new(settings: &Settings) -> Timeouts {
        Timeouts {
            command: settings.command_time,
            tries: settings.command_tries.unwrap_or(1),
            abort: settings.abort_time,
            reset: settings.reset_time,
            reconnect: settings.reconnect_time,
        }
    }

    /// Returns the total time limit of a request after its first try has failed. It allows for one outage and
    /// all tries. The limit covers all waits of a request, so a session that is lost repeatedly cannot delay
    /// a request forever.
    pub fn request(&self) -> Duration {
        let escalation = if self.tries > 1 {
            self.abort + self.reset * 3
        } else {
            Duration::ZERO
        };
        self.reconnect
            .saturating_add((self.command + escalation).saturating_mul(self.tries.max(1)))
    }

    /// Returns the timeout of a step.
    pub fn time_limit(&self, step: EscalationStep) -> Duration {
        match step {
            EscalationStep::Wait => self.command,
            EscalationStep::AbortTask => self.abort,
            EscalationStep::LogicalUnitReset
            | EscalationStep::TargetReset
            | EscalationStep::LeaveSession => self.reset,
        }
    }
}

impl EscalationStep {
    /// Returns the next step. The last step is repeated: a session that does not end when it is dropped is
    /// dropped again.
    pub fn next(self) -> EscalationStep {
        match self {
            EscalationStep::Wait => EscalationStep::AbortTask,
            EscalationStep::AbortTask => EscalationStep::LogicalUnitReset,
            EscalationStep::LogicalUnitReset => EscalationStep::TargetReset,
            EscalationStep::TargetReset | EscalationStep::LeaveSession => {
                EscalationStep::LeaveSession
            }
        }
    }
}

// The settings for several sessions with one LUN.

/// Several sessions with one LUN, over one or more portals of its target ([`crate::open_paths`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// Number of concurrent sessions, 1 to 64; `None` for one session for each path.
    pub sessions: Option<u16>,
    /// Other portals of the target, in addition to the URL's portal.
    pub addresses: Vec<Portal>,
    /// Local addresses. The first is used for the URL's portal, and the others for the other portals, in
    /// order.
    pub sources: Vec<SocketAddr>,
    /// The time for which an outstanding write of a lost session delays newer writes to its blocks, if no
    /// login can terminate that session.
    pub quarantine: Duration,
    /// Memory for acknowledged writes that no flush has covered, in bytes.
    pub journal_bytes: usize,
    /// A file to which the journal is also written, for the next process. With it, even a single session uses
    /// `open_paths`.
    pub journal_file: Option<PathBuf>,
    /// The treatment of unflushed writes that an earlier process left in the file; `None` to replay them if
    /// that is safe.
    pub journal_replay: Option<ReplayRule>,
    /// Whether other hosts also write to the LUN.
    pub writers: Writers,
}

/// Minimum size of a journal with a file. A smaller file would cause constant flushes.
const JOURNAL_BYTES_LEAST: usize = 64 << 10;

impl Default for Multipath {
    fn default() -> Multipath {
        Multipath {
            sessions: None,
            addresses: Vec::new(),
            sources: Vec::new(),
            // These values are the same as for NBD's channels.
            quarantine: Duration::from_secs(10),
            journal_bytes: 64 << 20,
            journal_file: None,
            journal_replay: None,
            writers: Writers::Unknown,
        }
    }
}

impl Multipath {
    /// Returns whether the settings require or allow several sessions.
    pub fn are_several(&self) -> bool {
        self.sessions.is_some_and(|count| count > 1)
            || !self.addresses.is_empty()
            || self.sources.len() > 1
            || self.journal_file.is_some()
    }

    /// Returns whether the settings of the journal are consistent.
    pub(crate) fn is_journal_whole(&self) -> bool {
        match self.journal_file {
            Some(_) => self.journal_bytes >= JOURNAL_BYTES_LEAST,
            None => self.journal_replay.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(text: &str) -> (usize, UrlProblem) {
        let error = Url::parse(text).expect_err(text);
        (error.at, error.problem)
    }

    #[test]
    fn every_mistake_is_shown_where_it_is() {
        assert_eq!(problem("http://a/b/0"), (0, UrlProblem::Scheme));
        assert_eq!(problem("iscsi:///iqn.x/0"), (8, UrlProblem::NoHost));
        assert_eq!(problem("iscsi://:3260/iqn.x/0"), (8, UrlProblem::NoHost));
        assert_eq!(
            problem("iscsi://joe%hu/sh@host/iqn.x/0"),
            (11, UrlProblem::Percent)
        );
        assert_eq!(
            problem("iscsi://joe%hu?sh@host/iqn.x/0"),
            (11, UrlProblem::Percent)
        );
        assert_eq!(problem("iscsi://[::1/iqn.x/0"), (8, UrlProblem::Brackets));
        assert_eq!(
            problem("iscsi://fe80::1:3260/iqn.x/0"),
            (8, UrlProblem::Brackets)
        );
        assert_eq!(
            problem("iscsi://host:99999/iqn.x/0"),
            (12, UrlProblem::Port)
        );
        assert_eq!(problem("iscsi://host:0/iqn.x/0"), (12, UrlProblem::Port));
        assert_eq!(problem("iscsi://@host/iqn.x/0"), (8, UrlProblem::NoUser));
        assert_eq!(
            problem("iscsi://joe:hush@host/iqn.x/0"),
            (11, UrlProblem::Password)
        );
        assert_eq!(
            problem("iscsi://DOM%5Cuser@host/iqn.x/0"),
            (11, UrlProblem::EncodedUser)
        );
        assert_eq!(
            problem("iscsi://joe%40example.com@host/iqn.x/0"),
            (11, UrlProblem::EncodedUser)
        );
        assert_eq!(problem("iscsi://host"), (12, UrlProblem::NoTarget));
        assert_eq!(problem("iscsi://host//0"), (13, UrlProblem::NoTarget));
        assert_eq!(problem("iscsi://host/iqn.x"), (18, UrlProblem::NoLun));
        assert_eq!(problem("iscsi://host/iqn.x/16384"), (19, UrlProblem::Lun));
        assert_eq!(problem("iscsi://host/iqn.x/lun"), (19, UrlProblem::Lun));
        assert_eq!(problem("iscsi://host/iqn%2/0"), (13, UrlProblem::Encoding));
        assert!(matches!(
            problem("iscsi://host/iqn.x/0?speed=9"),
            (21, UrlProblem::Setting(_))
        ));
    }

    #[test]
    fn a_plain_url_has_the_registered_port() {
        let url = Url::parse("iscsi://san1/iqn.2026-01.io.linerate:disk/7").unwrap();
        assert_eq!(
            url.portal,
            Portal {
                host: "san1".to_owned(),
                port: 3260
            }
        );
        assert_eq!(
            (url.target.as_str(), url.lun),
            ("iqn.2026-01.io.linerate:disk", 7)
        );
        assert!(url.settings.account.is_none());
    }

    #[test]
    fn several_sessions_have_their_own_keys() {
        let url =
            Url::parse("iscsi://a/iqn.x/0?address=b:3261&address=[::1]&sessions=4&journal=1MiB")
                .unwrap();
        let portal = |host: &str, port| Portal {
            host: host.to_owned(),
            port,
        };
        assert_eq!(
            url.settings.paths.addresses,
            [portal("b", 3261), portal("::1", 3260)]
        );
        assert!(url.settings.paths.are_several());
        for one in ["", "?sessions=1", "?source=10.0.0.1&quarantine=0"] {
            let url = Url::parse(&format!("iscsi://a/iqn.x/0{one}")).unwrap();
            assert!(!url.settings.paths.are_several(), "{one}");
        }
        let two = "iscsi://a/iqn.x/0?isid=800000000001&sessions=2";
        assert_eq!(problem(two), (36, UrlProblem::Isid));
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        let url = Url::parse("iscsi://[2001:db8::1]:3261/iqn.x:y/0").unwrap();
        assert_eq!(
            url.portal,
            Portal {
                host: "2001:db8::1".to_owned(),
                port: 3261
            }
        );
        assert_eq!(url.to_string(), "iscsi://[2001:db8::1]:3261/iqn.x:y/0");
    }

    #[test]
    fn a_link_local_address_names_its_interface() {
        for text in [
            "iscsi://[fe80::1%25eth0]:3261/iqn.x:y/0",
            "iscsi://joe%hush@[fe80::1%eth0]:3261/iqn.x:y/0",
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(
                url.portal,
                Portal {
                    host: "fe80::1%eth0".to_owned(),
                    port: 3261
                }
            );
            assert_eq!(url.to_string(), "iscsi://[fe80::1%eth0]:3261/iqn.x:y/0");
        }
        // Interface 1 is the loopback interface.
        for zone in ["%1", "%251"] {
            let mut settings = Settings::default();
            settings
                .set("source", &format!("fe80::1{zone}"))
                .expect("an address");
            let source = settings.stream.source.map(|source| source.to_string());
            assert_eq!(source.as_deref(), Some("[fe80::1%1]:0"));
        }
        assert!(Settings::default().set("source", "fe80::1").is_err());
        let (at, problem) = problem("iscsi://[fe80::1]/iqn.x:y/0");
        assert_eq!(
            (at, problem.to_string().contains("fe80::1%eth0")),
            (9, true)
        );
    }

    #[test]
    fn a_link_local_address_from_a_peer_is_on_the_link_of_the_peer() {
        let asked = "[fe80::7%2]:3260".parse().unwrap();
        let portal = |text| Portal::from_peer(text, asked).map(|portal| portal.to_string());
        assert_eq!(
            portal("[fe80::1]:3261,1").as_deref(),
            Ok("[fe80::1%2]:3261")
        );
        assert_eq!(
            portal("[2001:db8::1],1").as_deref(),
            Ok("[2001:db8::1]:3260")
        );
        assert_eq!(portal("san1:3261").as_deref(), Ok("san1:3261"));
        let elsewhere = Portal::from_peer("[fe80::1],1", "10.0.0.1:3260".parse().unwrap());
        assert!(matches!(
            elsewhere,
            Err(UrlError {
                problem: UrlProblem::Address(_),
                ..
            })
        ));
    }

    #[test]
    fn a_secret_may_hold_any_character_and_is_never_printed() {
        let url = Url::parse("iscsi://joe%p%40ss@w%25rd@host/iqn.x/0").unwrap();
        let account = url.settings.account.clone().unwrap();
        assert_eq!(
            (account.name.as_str(), account.secret),
            ("joe", Secret::new(b"p@ss@w%rd"))
        );
        assert!(!format!("{url} {url:?}").contains("ss@w"));
    }

    #[test]
    fn a_portal_needs_no_target() {
        for text in [
            "iscsi://host:3261",
            "iscsi://host:3261/",
            "iscsi://host:3261/?header-digest=crc32c",
        ] {
            assert_eq!(
                Portal::parse(text).unwrap().0,
                Portal {
                    host: "host".to_owned(),
                    port: 3261
                }
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(iscsi://)?[ -~é]{0,60}") {
            if let Err(error) = Url::parse(&text) {
                prop_assert!(error.at <= text.len(), "{error:?}");
            }
        }

        #[test]
        fn what_is_printed_is_parsed_again(
            host in "[a-z0-9.-]{1,20}", port in 1u16.., target in "[ -~]{1,40}", lun in 0u16..16384,
        ) {
            let printed = format!("{SCHEME}{host}:{port}/{}/{lun}", encoded(&target));
            let url = Url::parse(&printed).unwrap();
            prop_assert_eq!(&url.target, &target);
            prop_assert_eq!(url.to_string(), printed);
        }
    }

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
            assert!(
                matches!(error, SettingError::Value { .. }),
                "{name}={value}"
            );
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
        let times = [
            settings.command_time,
            settings.abort_time,
            settings.reconnect_time,
        ];
        assert_eq!(times.map(|time| time.as_millis()), [120_000, 1500, 90_000]);
    }

    #[test]
    fn the_names_of_libiscsi_are_understood() {
        let mut settings = Settings::default();
        settings.set("header_digest", "CRC32C").unwrap();
        settings.set("target_user", "san").unwrap();
        settings.set("target_password", "twelve bytes").unwrap();
        assert_eq!(settings.offers.header_digest, [DigestKind::Crc32c]);
        assert_eq!(
            settings.target_account.map(|account| account.secret),
            Some(Secret::new(b"twelve bytes"))
        );
    }

    #[test]
    fn every_setting_has_its_own_name() {
        let mut names: Vec<&str> = KEYS
            .iter()
            .flat_map(|key| [key.name, key.also])
            .filter(|name| !name.is_empty())
            .collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}
