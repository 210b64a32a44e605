//! The URL of an export: `nbd://HOST[:PORT]/EXPORT[?KEY=VALUE&…]`, `nbd+unix:///EXPORT?socket=PATH`, and both
//! over TLS as `nbds` and `nbds+unix`. The NBD project defines these URLs in doc/uri.md, with the keys
//! `socket` and `tls-hostname`. `tls-certificates` is an extension of libnbd, and the other keys are
//! Linerate's.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use derive_more::Display;
use failover::{ReplayRule, Writers};
use nbd::STRING_BYTES_MAX;
use reactor::{BadAddress, BadHost, Ipv6Host};
use volume::spec::Time;

/// The port that IANA assigned to NBD.
pub const PORT: u16 = 10809;
/// The schemes: the part in front of `://`.
pub const SCHEMES: [&str; 4] = ["nbd", "nbds", "nbd+unix", "nbds+unix"];
/// The keys after the question mark.
pub const KEYS: [&str; 17] = [
    "address",
    "connections",
    "congestion",
    "journal",
    "journal-file",
    "journal-replay",
    "quarantine",
    "source",
    "stall",
    "timeout",
    "socket",
    "tls-ca",
    "tls-certificate",
    "tls-key",
    "tls-certificates",
    "tls-hostname",
    "writers",
];
/// The expected name in the certificate of a server on a Unix socket, unless the URL specifies another.
const LOCAL: &str = "localhost";
/// Maximum number of connections. No server can make use of more.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of other addresses, and of source addresses.
const PATHS_MAX: usize = 16;
/// Maximum default of `stall`, which lets a TCP connection recover from some losses.
const STALL: Duration = Duration::from_secs(10);
const JOURNAL_BYTES_MAX: usize = 4 << 30;
/// Minimum size of a journal with a file. A smaller file would cause constant flushes.
const JOURNAL_BYTES_LEAST: usize = 64 << 10;

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// A host name, an IPv4 address, or an IPv6 address without its brackets; empty for a Unix socket.
    pub host: String,
    /// The port; 10809 if the URL has none.
    pub port: u16,
    /// The server's Unix socket, used instead of a host and a port.
    pub socket: Option<PathBuf>,
    /// The export's name; empty for the server's default.
    pub export: String,
    /// The certificates for TLS; `None` without TLS.
    pub tls: Option<TlsFiles>,
    /// The settings of the connections.
    pub options: Options,
}

/// Certificate files, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The trusted CAs for server certificates.
    pub ca: PathBuf,
    /// The client's own certificate and its private key, for servers that request one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Whether the files of `own` may be missing.
    pub may_lack_own: bool,
    /// The name for which the server's certificate must be valid.
    pub hostname: String,
}

/// The values of the TLS keys.
#[derive(Default)]
struct TlsKeys {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    folder: Option<PathBuf>,
    hostname: Option<String>,
    /// The last TLS key found in the URL.
    any: Option<&'static str>,
}

/// The settings of the connections to an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of concurrent connections, 1 to 64. More than one is used only if the server reports that all
    /// of them share a cache.
    pub connections: usize,
    /// The name of the TCP congestion control; the system's default if `None`.
    pub congestion: Option<String>,
    /// Other addresses of the same server, each with its port.
    pub addresses: Vec<(String, u16)>,
    /// Source addresses: the first is for the host, the others are for the host's other addresses, in order.
    pub sources: Vec<SocketAddr>,
    /// Time limit of a request, over all connections, and of the first connection attempt.
    pub timeout: Duration,
    /// Time without any progress after which a connection is dropped, while replies are outstanding. `None`
    /// for a third of the timeout, but at most 10 s.
    pub stall: Option<Duration>,
    /// Time that newer writes wait for an unfinished write of a lost connection to the same blocks, if the
    /// server cannot confirm the end of the connection.
    pub quarantine: Duration,
    /// Memory for acknowledged writes that no flush has covered, in bytes.
    pub journal_bytes: usize,
    /// A file that also contains these writes, for the next process. `journal_replay` determines how the
    /// writes found in the file are treated.
    pub journal_file: Option<PathBuf>,
    /// How to treat unflushed writes of an earlier process in the journal file.
    pub journal_replay: ReplayRule,
    /// Which other hosts write to the export.
    pub writers: Writers,
    /// Whether the user addresses bytes, so that the export may end within a block. There is no key for this
    /// option.
    pub by_bytes: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections: 1,
            congestion: None,
            addresses: Vec::new(),
            sources: Vec::new(),
            timeout: Duration::from_secs(30),
            stall: None,
            quarantine: Duration::from_secs(10),
            journal_bytes: 64 << 20,
            journal_file: None,
            journal_replay: ReplayRule::Auto,
            writers: Writers::Unknown,
            by_bytes: false,
        }
    }
}

/// An error in a URL.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum UrlError {
    /// The scheme is unknown.
    #[display("the URL of an NBD export begins with nbd://, nbds://, nbd+unix:// or nbds+unix://")]
    Scheme,
    /// A URL for a Unix socket names no socket, or it names a host.
    #[display("a Unix socket is written as nbd+unix:///EXPORT?socket=PATH")]
    Socket,
    /// A key for Unix sockets or TLS is used in another kind of URL.
    #[display("`{_0}` applies only to {_1} URLs")]
    Stray(&'static str, &'static str),
    /// The URL uses TLS without a CA.
    #[display(
        "the server's CA is missing: add tls-ca=FILE, or tls-certificates=DIR with a ca-cert.pem"
    )]
    NoCa,
    /// There is a certificate without a key, or a key without a certificate.
    #[display("tls-certificate=FILE and tls-key=FILE must be used together")]
    HalfCertificate,
    /// The host is missing.
    #[display("the host is missing: nbd://HOST[:PORT]/EXPORT")]
    NoHost,
    /// A `[` has no matching `]`, or there is no IPv6 address between them.
    #[display("an IPv6 address must be in brackets, as in [::1]")]
    Brackets,
    /// A link-local address has no interface, or an address has another error.
    Address(BadAddress),
    /// The port is invalid.
    #[display("the port must be a number from 1 to 65535")]
    Port,
    /// The URL has a user name, which the protocol does not support.
    #[display("NBD URLs have no user name; use nbd://HOST[:PORT]/EXPORT")]
    User,
    /// The export's name is too long.
    #[display("the export name is longer than 4096 bytes")]
    Name,
    /// A `%` is not followed by two hexadecimal digits, or the decoded bytes are not UTF-8.
    #[display("% must be followed by two hexadecimal digits; write %25 for % itself")]
    Encoding,
    /// The key does not exist.
    #[display("unknown key `{_0}`; the keys are {}", KEYS.join(", "))]
    Key(String),
    /// There is a replay rule without a journal file.
    #[display("`journal-replay` needs a `journal-file`")]
    NoJournalFile,
    /// The value is invalid for its key.
    #[display("`{_0}`: write {_1}")]
    Value(String, &'static str),
}

impl std::error::Error for UrlError {}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// The first error found.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        if !SCHEMES.contains(&scheme) {
            return Err(UrlError::Scheme);
        }
        let (is_local, is_encrypted) = (scheme.ends_with("+unix"), scheme.starts_with("nbds"));
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = place.split_once('/').unwrap_or((place, ""));
        let (host, port) = match is_local {
            true if authority.is_empty() => (String::new(), PORT),
            true => return Err(UrlError::Socket),
            false => host_and_port(authority)?,
        };
        let export = decoded(export)?;
        if export.len() > STRING_BYTES_MAX {
            return Err(UrlError::Name);
        }
        let (mut options, mut keys, mut socket) = (Options::default(), TlsKeys::default(), None);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key {
                "socket" if value.is_empty() => return Err(UrlError::Socket),
                "socket" => socket = Some(PathBuf::from(decoded(value)?)),
                _ if keys.set(key, value)? => {}
                _ => options.set(option)?,
            }
        }
        match (is_local, &socket) {
            (true, None) => return Err(UrlError::Socket),
            (false, Some(_)) => {
                return Err(UrlError::Stray("socket", "nbd+unix:// and nbds+unix://"));
            }
            (true, Some(_)) if !options.addresses.is_empty() => {
                return Err(UrlError::Stray("address", "nbd:// and nbds://"));
            }
            (true, Some(_)) if !options.sources.is_empty() => {
                return Err(UrlError::Stray("source", "nbd:// and nbds://"));
            }
            _ => {}
        }
        if options.journal_file.is_some() && options.journal_bytes < JOURNAL_BYTES_LEAST {
            let size = format!("journal={}", options.journal_bytes);
            return Err(UrlError::Value(
                size,
                "64KiB or more with `journal-file`, for example journal=64MiB",
            ));
        }
        if options.journal_file.is_none() && options.journal_replay != ReplayRule::Auto {
            return Err(UrlError::NoJournalFile);
        }
        let tls = match (is_encrypted, keys.any) {
            (true, _) => Some(keys.files(if is_local { LOCAL } else { &host })?),
            (false, Some(key)) => return Err(UrlError::Stray(key, "nbds:// and nbds+unix://")),
            (false, None) => None,
        };
        Ok(Url {
            host,
            port,
            socket,
            export,
            tls,
            options,
        })
    }
}

/// Parses `HOST[:PORT]`, with an IPv6 address in brackets.
fn host_and_port(authority: &str) -> Result<(String, u16), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::User);
    }
    let (host, port) = reactor::host_and_port(authority).map_err(|wrong| match wrong {
        BadHost::Brackets | BadHost::Address(BadAddress::Form(_)) => UrlError::Brackets,
        BadHost::Address(why) => UrlError::Address(why),
        BadHost::Missing => UrlError::NoHost,
        BadHost::Port => UrlError::Port,
    })?;
    Ok((host, port.unwrap_or(PORT)))
}

/// Removes the zone of a link-local address. Certificates contain such addresses without a zone, because a
/// zone is local to a host.
fn without_zone(host: &str) -> String {
    host.parse::<Ipv6Host>()
        .map_or_else(|_| host.to_owned(), |host| host.address().to_string())
}

impl TlsKeys {
    /// Sets a TLS key. Returns false for other keys.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, UrlError> {
        let Some(name) = KEYS
            .into_iter()
            .find(|name| *name == key && name.starts_with("tls-"))
        else {
            return Ok(false);
        };
        let value = decoded(value)?;
        if value.is_empty() {
            return Err(UrlError::Value(
                key.to_owned(),
                "a value, for example tls-ca=ca.pem",
            ));
        }
        self.any = Some(name);
        match name {
            "tls-ca" => self.ca = Some(value.into()),
            "tls-certificate" => self.certificate = Some(value.into()),
            "tls-key" => self.key = Some(value.into()),
            "tls-certificates" => self.folder = Some(value.into()),
            _ if !tls::is_server_name(&value) => {
                return Err(UrlError::Value(
                    key.to_owned(),
                    "a DNS name or an address, for example tls-hostname=san1",
                ));
            }
            _ => self.hostname = Some(value),
        }
        Ok(true)
    }

    fn files(self, host: &str) -> Result<TlsFiles, UrlError> {
        let in_folder = |name: &str| self.folder.as_ref().map(|folder| folder.join(name));
        let ca = self
            .ca
            .clone()
            .or_else(|| in_folder("ca-cert.pem"))
            .ok_or(UrlError::NoCa)?;
        let of_folder = in_folder("client-cert.pem").zip(in_folder("client-key.pem"));
        let (own, may_lack_own) = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => (Some((certificate, key)), false),
            (None, None) => (of_folder, true),
            _ => return Err(UrlError::HalfCertificate),
        };
        Ok(TlsFiles {
            ca,
            own,
            may_lack_own,
            hostname: self.hostname.unwrap_or_else(|| without_zone(host)),
        })
    }
}

impl Options {
    /// Time without progress after which a connection is dropped.
    pub fn stall(&self) -> Duration {
        self.stall.unwrap_or((self.timeout / 3).min(STALL))
    }

    fn set(&mut self, option: &str) -> Result<(), UrlError> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let wrong = |example| UrlError::Value(option.to_owned(), example);
        match key {
            "connections" => {
                let count = value
                    .parse()
                    .ok()
                    .filter(|count| (1..=CONNECTIONS_MAX).contains(count));
                self.connections =
                    count.ok_or(wrong("a number from 1 to 64, for example connections=4"))?;
            }
            "congestion" if !value.is_empty() => self.congestion = Some(decoded(value)?),
            "congestion" => {
                return Err(wrong(
                    "a congestion control algorithm, for example congestion=cubic",
                ));
            }
            "timeout" => {
                self.timeout = seconds(value, 1).ok_or(wrong(
                    "a time from 1s to 24h, for example timeout=30 or timeout=2min",
                ))?
            }
            "stall" => {
                self.stall = Some(
                    seconds(value, 1).ok_or(wrong("a time from 1s to 24h, for example stall=5"))?,
                )
            }
            "quarantine" => {
                self.quarantine = seconds(value, 0)
                    .ok_or(wrong("a time up to 24h, for example quarantine=500ms"))?;
            }
            "journal" => {
                let bytes = bytes(value).filter(|bytes| *bytes <= JOURNAL_BYTES_MAX);
                self.journal_bytes =
                    bytes.ok_or(wrong("a size up to 4GiB, for example journal=64MiB"))?;
            }
            "journal-file" if !value.is_empty() => {
                self.journal_file = Some(PathBuf::from(decoded(value)?))
            }
            "journal-file" => {
                return Err(wrong(
                    "a path, for example journal-file=/var/lib/vm1.journal",
                ));
            }
            "journal-replay" => {
                self.journal_replay = ReplayRule::parse(value).ok_or(wrong(
                    "auto, force or discard, for example journal-replay=force",
                ))?;
            }
            "writers" => {
                self.writers = Writers::parse(value)
                    .ok_or(wrong("one or several, for example writers=one"))?;
            }
            "address" if self.addresses.len() < PATHS_MAX => {
                let address = host_and_port(&decoded(value)?);
                self.addresses
                    .push(address.map_err(|_| wrong("HOST[:PORT], for example address=10.0.1.2"))?);
            }
            "source" if self.sources.len() < PATHS_MAX => {
                let address = reactor::numeric_address(
                    value.trim_start_matches('[').trim_end_matches(']'),
                    0,
                );
                self.sources.push(address.map_err(|why| match why {
                    BadAddress::Form(_) => wrong("a local IP address, for example source=10.0.1.1"),
                    why => UrlError::Address(why),
                })?);
            }
            "address" | "source" => return Err(wrong("this key at most 16 times")),
            _ => return Err(UrlError::Key(key.to_owned())),
        }
        Ok(())
    }
}

fn seconds(text: &str, least: u64) -> Option<Duration> {
    let Time(time) = text.parse().ok()?;
    (Duration::from_secs(least)..=Duration::from_secs(86_400))
        .contains(&time)
        .then_some(time)
}

/// Parses a number of bytes, KiB, MiB or GiB.
fn bytes(text: &str) -> Option<usize> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// Prints the URL without the options, for logs.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port, export) = (&self.host, self.port, encoded(&self.export));
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        match &self.socket {
            Some(path) => write!(
                f,
                "{scheme}+unix:///{export}?socket={}",
                encoded(&path.to_string_lossy())
            ),
            None => write!(f, "{scheme}://{}:{port}/{export}", reactor::bracketed(host)),
        }
    }
}

fn decoded(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let digits = rest
                    .get(..2)
                    .and_then(|digits| std::str::from_utf8(digits).ok());
                let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let digits = digits.filter(is_hex).ok_or(UrlError::Encoding)?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).map_err(|_| UrlError::Encoding)?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding)
}

fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/:".contains(byte);
    let mut url = String::new();
    for byte in text.bytes() {
        match plain(&byte) {
            true => url.push(byte.into()),
            false => url += &format!("%{byte:02X}"),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_they_are_written() {
        for (text, shown) in [
            ("nbd://san1", "nbd://san1:10809/"),
            ("nbd://san1/", "nbd://san1:10809/"),
            ("nbd://san1:1/disk", "nbd://san1:1/disk"),
            ("nbd://[::1]/a/b", "nbd://[::1]:10809/a/b"),
            (
                "nbd://[::1]:7/a%20b%25?connections=4&timeout=5s",
                "nbd://[::1]:7/a%20b%25",
            ),
            (
                "nbd+unix:///?socket=/run/nbd.sock",
                "nbd+unix:///?socket=/run/nbd.sock",
            ),
            (
                "nbd+unix:///a/b?socket=%2Frun%2Fa%20b",
                "nbd+unix:///a/b?socket=/run/a%20b",
            ),
        ] {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(url.to_string(), shown);
            let again = Url {
                options: url.options.clone(),
                ..Url::parse(shown).expect("as it is shown")
            };
            assert_eq!(again, url);
        }
    }

    #[test]
    fn paths_and_times_are_options() {
        let url = "nbd://san1/x?address=10.0.1.2&address=[::1]:7&source=10.0.0.1&source=::2&journal=1MiB&timeout=3&stall=2s&quarantine=500ms";
        let options = Url::parse(url).expect("a URL").options;
        assert_eq!(
            options.addresses,
            [("10.0.1.2".to_owned(), PORT), ("::1".to_owned(), 7)]
        );
        assert_eq!(options.sources.len(), 2);
        assert_eq!(
            (options.journal_bytes, options.stall()),
            (1 << 20, Duration::from_secs(2))
        );
        assert_eq!(options.quarantine, Duration::from_millis(500));
        assert_eq!(
            Options {
                stall: None,
                ..options
            }
            .stall(),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn files_of_certificates_are_named_one_by_one_or_by_their_folder() {
        let files = |text| {
            Url::parse(text)
                .unwrap_or_else(|error| panic!("{text}: {error}"))
                .tls
                .expect("TLS")
        };
        let own = |folder: &str| {
            Some((
                format!("{folder}client-cert.pem").into(),
                format!("{folder}client-key.pem").into(),
            ))
        };
        let hostname = "san1".to_owned();
        let ca = "/pki/ca-cert.pem".into();
        let wanted = TlsFiles {
            ca,
            own: own("/pki/"),
            may_lack_own: true,
            hostname,
        };
        assert_eq!(files("nbds://san1:7/x?tls-certificates=/pki"), wanted);
        let ca_alone = TlsFiles {
            ca: "ca".into(),
            own: None,
            ..wanted.clone()
        };
        assert_eq!(files("nbds://san1/x?tls-ca=ca"), ca_alone);
        let own = own("");
        let wanted = TlsFiles {
            ca: "ca".into(),
            own,
            may_lack_own: false,
            hostname: "x.y".to_owned(),
        };
        let text = "nbds://[::1]/x?tls-ca=ca&tls-certificate=client-cert.pem&tls-key=client-key.pem&tls-hostname=x.y";
        assert_eq!(files(text), wanted);
        assert_eq!(files("nbds://[::1]/x?tls-ca=ca").hostname, "::1");
        assert_eq!(
            files("nbds://[fe80::1%25eth0]/x?tls-ca=ca").hostname,
            "fe80::1"
        );
        assert_eq!(
            files("nbds+unix:///x?socket=/s&tls-ca=ca").hostname,
            "localhost"
        );
    }

    #[test]
    fn a_mistake_is_told_with_what_is_meant() {
        for (text, says) in [
            ("iscsi://san1/x", "begins with nbd://"),
            ("nbd://", "the host is missing"),
            ("nbd:///x", "the host is missing"),
            ("nbd://[::1/x", "must be in brackets"),
            ("nbd://[san1]/x", "must be in brackets"),
            ("nbd://[fe80::1]/x", "add the interface, as in fe80::1%eth0"),
            ("nbd://[::1%25eth0]/x", "not a link-local address"),
            ("nbd://san1:0/x", "the port must be a number"),
            ("nbd://san1:/x", "the port must be a number"),
            ("nbd://joe@san1/x", "no user name"),
            ("nbd://san1/%zz", "hexadecimal"),
            ("nbd://san1/%ff", "hexadecimal"),
            ("nbd://san1/x?conections=4", "unknown key `conections`"),
            ("nbd://san1/x?connections=0", "connections=4"),
            ("nbd://san1/x?timeout=0", "timeout=30"),
            ("nbd://san1/x?congestion=", "congestion=cubic"),
            ("nbd://san1/x?stall=0", "stall=5"),
            ("nbd://san1/x?quarantine=x", "quarantine=500ms"),
            ("nbd://san1/x?journal=5GiB", "journal=64MiB"),
            ("nbd://san1/x?journal-file=", "journal-file=/var"),
            ("nbd://san1/x?journal-file=/j&journal=0", "64KiB or more"),
            (
                "nbd://san1/x?journal-file=/j&journal-replay=yes",
                "journal-replay=force",
            ),
            (
                "nbd://san1/x?journal-replay=force",
                "needs a `journal-file`",
            ),
            ("nbd://san1/x?address=:5", "address=10.0.1.2"),
            ("nbd://san1/x?source=san2", "source=10.0.1.1"),
            ("nbd+unix:///x", "nbd+unix:///EXPORT?socket=PATH"),
            ("nbd+unix:///x?socket=", "nbd+unix:///EXPORT?socket=PATH"),
            (
                "nbd+unix://san1/x?socket=/s",
                "nbd+unix:///EXPORT?socket=PATH",
            ),
            (
                "nbd://san1/x?socket=/s",
                "`socket` applies only to nbd+unix://",
            ),
            (
                "nbd+unix:///x?socket=/s&address=san1",
                "`address` applies only to nbd://",
            ),
            (
                "nbds+unix:///x?socket=/s&tls-ca=ca&source=::1",
                "`source` applies only to nbd://",
            ),
            (
                "nbd://san1/x?tls-ca=ca.pem",
                "`tls-ca` applies only to nbds://",
            ),
            ("nbds://san1/x", "tls-ca=FILE"),
            ("nbds://san1/x?tls-ca=", "tls-ca=ca.pem"),
            ("nbds://san1/x?tls-ca=a&tls-key=b", "must be used together"),
            (
                "nbds://san1/x?tls-ca=a&tls-hostname=a/b",
                "tls-hostname=san1",
            ),
            ("nbdx://san1/x", "begins with nbd://"),
        ] {
            let error = Url::parse(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
