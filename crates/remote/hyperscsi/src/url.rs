//! The URL of a LUN: `hyperscsi://INTERFACE[+INTERFACE…]/TARGET/LUN[?KEY=VALUE&…]`, or
//! `hyperscsi+udp://HOST[:PORT][+HOST[:PORT]…]/TARGET/LUN[?…]`.
//!
//! Values are not percent-encoded. If a key occurs more than once, the last value applies. Keys may be
//! written with `_` instead of `-`. A time without a unit is in seconds.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use derive_more::{Display, Error};
use hyperscsi::{Cipher, FRAME_BYTES_MAX, FRAME_BYTES_MIN, PATHS_MAX, UDP_PORT, is_name};
use reactor::{BadAddress, BadHost, MacAddress, NotAMacAddress};
use volume::spec::Time;

/// The URL scheme of a LUN on an Ethernet, in front of `://`.
pub const SCHEME: &str = "hyperscsi";
/// The URL scheme of a LUN over UDP.
pub const SCHEME_UDP: &str = "hyperscsi+udp";
/// Both URL schemes.
pub const SCHEMES: [&str; 2] = [SCHEME, SCHEME_UDP];
/// The keys after the question mark; [`Options`] has a field for each.
pub const KEYS: [&str; 8] = [
    "cipher",
    "frame",
    "key",
    "name",
    "port",
    "reconnect-time",
    "station",
    "timeout",
];

/// The maximum LUN, as in iSCSI URLs: the limit of flat space addressing (SAM-5 4.7.7.4).
const LUN_MAX: u16 = 16_383;
/// Maximum of `reconnect-time`: a week.
const RECONNECT_MAX: Duration = Duration::from_secs(168 * 3600);

/// A LUN of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The location of the target.
    pub place: Place,
    /// The target's name.
    pub target: String,
    /// The LUN.
    pub lun: u16,
    /// The settings of the session.
    pub options: Options,
}

/// The location of targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the Ethernets of these interfaces.
    Ethernet(Vec<String>),
    /// At these hosts.
    Udp(Vec<UdpHost>),
}

/// A host, and the UDP port of the target there.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{}:{port}", reactor::bracketed(host))]
pub struct UdpHost {
    /// The host's name or address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// The settings of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The name of this initiator.
    pub name: String,
    /// The HyperSCSI port of this initiator, which is not a UDP port. If `None`, the sessions of a process
    /// use consecutive ports, starting with a random one. A target identifies an I_T nexus by name and port:
    /// a second session with the same name and port terminates the first, and persistent reservations belong
    /// to the name and port.
    pub port: Option<u32>,
    /// A file with the initiator's key. If `None`, frames are not encrypted, and there is no authentication.
    pub key_file: Option<PathBuf>,
    /// The cipher for frames, if there is a key.
    pub cipher: Cipher,
    /// Maximum frame length to try in bytes, 1232 to 9216; `None` for the maximum that the network supports.
    pub frame: Option<u16>,
    /// The target's stations on the Ethernet; ignored over UDP. If empty, the stations are discovered. They
    /// are needed for a target that is configured not to respond to discovery.
    pub stations: Vec<MacAddress>,
    /// Time limit of a login and of a command, from 1 second to 1 hour.
    pub timeout: Duration,
    /// Time that requests wait for a lost session to be reinstated. If zero, a lost session is not reinstated.
    pub reconnect: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "iqn.2026-01.io.linerate:initiator".to_owned(),
            port: None,
            key_file: None,
            cipher: Cipher::Aes256Gcm,
            frame: None,
            stations: Vec::new(),
            timeout: Duration::from_secs(30),
            reconnect: Duration::from_secs(120),
        }
    }
}

/// Why a text is not the URL of a LUN.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
pub enum UrlError {
    /// The text does not have the form of a HyperSCSI URL.
    #[display(
        "the URL of a HyperSCSI LUN is hyperscsi://INTERFACE/TARGET/LUN or hyperscsi+udp://HOST[:PORT]/TARGET/LUN, such as \
         hyperscsi://eth0/iqn.2026-01.io.linerate:san/0"
    )]
    Form,
    /// The URL names no LUN.
    #[display("the URL has no LUN; add one, such as {_0}/0")]
    NoLun(#[error(not(source))] String),
    /// The LUN is invalid.
    #[display("a LUN is a number from 0 to {LUN_MAX}, not {_0:?}")]
    Lun(#[error(not(source))] String),
    /// An interface or host is invalid: the text, and its expected form.
    #[display("{_0:?} is not {_1}")]
    Place(#[error(not(source))] String, &'static str),
    /// An IPv6 address is invalid, for instance a link-local address without its interface.
    Address(BadAddress),
    /// The URL has more interfaces or hosts than a session can have paths.
    #[display("a session has at most {PATHS_MAX} paths")]
    Paths,
    /// The target name is invalid.
    #[display(
        "{_0:?} is not a valid target name: use only letters, digits, and the characters .:-_"
    )]
    Target(#[error(not(source))] String),
    /// The key does not exist.
    #[display("`{_0}` is not a key of a HyperSCSI URL; the keys are {}", KEYS.join(", "))]
    UnknownKey(#[error(not(source))] String),
    /// A value is not valid for its key.
    #[display("{key}={value}: expected {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The expected value.
        why: &'static str,
    },
}

impl Place {
    /// Parses the part between `://` and the slash: `INTERFACE[+INTERFACE…]`, or `HOST[:PORT][+HOST[:PORT]…]`
    /// over UDP. Checks only the syntax: an interface need not exist, and a host is not resolved.
    pub fn parse(text: &str, is_udp: bool) -> Result<Place, UrlError> {
        let parts: Vec<&str> = text.split('+').collect();
        if parts.len() > PATHS_MAX {
            return Err(UrlError::Paths);
        }
        if is_udp {
            return Ok(Place::Udp(
                parts
                    .into_iter()
                    .map(UdpHost::parse)
                    .collect::<Result<_, _>>()?,
            ));
        }
        // IFNAMSIZ is 16, including the terminating zero.
        let is_interface = |name: &str| {
            (1..=15).contains(&name.len())
                && !name.contains(|c: char| c == '/' || c.is_whitespace())
        };
        match parts.iter().find(|name| !is_interface(name)) {
            Some(wrong) => Err(UrlError::Place(
                (*wrong).to_owned(),
                "the name of an interface",
            )),
            None => Ok(Place::Ethernet(
                parts.into_iter().map(str::to_owned).collect(),
            )),
        }
    }

    /// The scheme of URLs with this place.
    pub fn scheme(&self) -> &'static str {
        match self {
            Place::Ethernet(_) => SCHEME,
            Place::Udp(_) => SCHEME_UDP,
        }
    }
}

/// Prints the place as in a URL, between `://` and the first slash.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = match self {
            Place::Ethernet(interfaces) => interfaces.clone(),
            Place::Udp(hosts) => hosts.iter().map(UdpHost::to_string).collect(),
        };
        f.write_str(&parts.join("+"))
    }
}

impl UdpHost {
    fn parse(text: &str) -> Result<UdpHost, UrlError> {
        let wrong = || UrlError::Place(text.to_owned(), "a host with a port from 1 to 65535");
        let (host, port) = reactor::host_and_port(text).map_err(|bad| match bad {
            BadHost::Address(why) => UrlError::Address(why),
            BadHost::Brackets | BadHost::Missing | BadHost::Port => wrong(),
        })?;
        match host.contains(|c: char| c.is_whitespace() || "/@?".contains(c)) {
            true => Err(wrong()),
            false => Ok(UdpHost {
                host,
                port: port.unwrap_or(UDP_PORT),
            }),
        }
    }
}

impl Url {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let (url, lun) = Url::of_target(text)?;
        if lun.is_none() {
            return Err(UrlError::NoLun(
                url.to_string().trim_end_matches("/0").to_owned(),
            ));
        }
        Ok(url)
    }

    /// Parses a URL that may end after the target. Also returns the LUN, if the URL names one; otherwise, the
    /// LUN in the returned URL is 0.
    pub fn of_target(text: &str) -> Result<(Url, Option<u16>), UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Form)?;
        if !SCHEMES.contains(&scheme) {
            return Err(UrlError::Form);
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parts = path.split('/');
        let (Some(place), Some(target)) = (parts.next(), parts.next()) else {
            return Err(UrlError::Form);
        };
        let (lun, None) = (parts.next().filter(|lun| !lun.is_empty()), parts.next()) else {
            return Err(UrlError::Form);
        };
        let place = Place::parse(place, scheme == SCHEME_UDP)?;
        if !is_name(target) {
            return Err(UrlError::Target(target.to_owned()));
        }
        let number = |lun: &str| {
            lun.parse()
                .ok()
                .filter(|lun| *lun <= LUN_MAX)
                .ok_or(UrlError::Lun(lun.to_owned()))
        };
        let lun = lun.map(number).transpose()?;
        let mut options = Options::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(key, value)?;
        }
        let target = target.to_owned();
        Ok((
            Url {
                place,
                target,
                lun: lun.unwrap_or(0),
                options,
            },
            lun,
        ))
    }
}

impl Options {
    /// Sets the option of a URL key.
    fn set(&mut self, key: &str, value: &str) -> Result<(), UrlError> {
        let spelt = key.replace('_', "-");
        let key = KEYS
            .into_iter()
            .find(|known| *known == spelt)
            .ok_or(UrlError::UnknownKey(key.to_owned()))?;
        let wrong = |why| UrlError::Value {
            key,
            value: value.to_owned(),
            why,
        };
        let time = |least: Duration, most: Duration, why| {
            let time = value.parse::<Time>().ok().map(|time| time.0);
            time.filter(|time| (least..=most).contains(time))
                .ok_or(wrong(why))
        };
        match key {
            "cipher" => {
                self.cipher = match value {
                    "aes256-gcm" => Cipher::Aes256Gcm,
                    "chacha20-poly1305" => Cipher::ChaCha20Poly1305,
                    _ => return Err(wrong("aes256-gcm or chacha20-poly1305")),
                }
            }
            "frame" => {
                let range = FRAME_BYTES_MIN as u16..=FRAME_BYTES_MAX as u16;
                let frame = value.parse().ok().filter(|frame| range.contains(frame));
                self.frame = Some(frame.ok_or(wrong("a frame length from 1232 to 9216 bytes"))?);
            }
            "key" => {
                let path = Some(value).filter(|value| !value.is_empty());
                self.key_file = Some(path.ok_or(wrong("a file with the key"))?.into());
            }
            "name" => {
                let name = Some(value).filter(|name| is_name(name));
                name.ok_or(wrong("the initiator's name, of letters, digits and .:-_"))?
                    .clone_into(&mut self.name);
            }
            "port" => {
                self.port = Some(
                    value
                        .parse()
                        .map_err(|_| wrong("a number from 0 to 4294967295"))?,
                )
            }
            "reconnect-time" => {
                self.reconnect = time(
                    Duration::ZERO,
                    RECONNECT_MAX,
                    "a time from 0 to 168h, such as 2min",
                )?;
            }
            "station" => {
                let stations: Result<Vec<MacAddress>, NotAMacAddress> =
                    value.split(',').map(str::parse).collect();
                let stations = stations.ok().filter(|stations| stations.len() <= PATHS_MAX);
                self.stations = stations.ok_or(wrong(
                    "MAC addresses such as 02:00:00:00:00:01, separated by commas",
                ))?;
            }
            _ => {
                let (least, most) = (Duration::from_secs(1), Duration::from_secs(3600));
                self.timeout = time(least, most, "a time from 1s to 1h, such as 30s")?;
            }
        }
        Ok(())
    }
}

/// Prints the URL without its options. Parsing the result yields the default options.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Url {
            place, target, lun, ..
        } = self;
        write!(f, "{}://{place}/{target}/{lun}", place.scheme())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_interfaces_or_hosts() {
        let url =
            Url::parse("hyperscsi://eth0+eth1/iqn.x:san/3?timeout=5s&reconnect_time=0&frame=4000")
                .expect("a URL");
        assert_eq!(
            url.place,
            Place::Ethernet(vec!["eth0".to_owned(), "eth1".to_owned()])
        );
        assert_eq!(
            (url.to_string().as_str(), url.lun),
            ("hyperscsi://eth0+eth1/iqn.x:san/3", 3)
        );
        assert_eq!(
            (url.options.timeout, url.options.reconnect),
            (Duration::from_secs(5), Duration::ZERO)
        );
        assert_eq!(url.options.frame, Some(4000));

        let url =
            Url::parse("hyperscsi+udp://san1+[::1]:99/x/0?key=/k&cipher=chacha20-poly1305&name=me")
                .expect("a URL");
        assert_eq!(url.to_string(), "hyperscsi+udp://san1:5674+[::1]:99/x/0");
        assert_eq!(url.options.key_file.as_deref(), Some("/k".as_ref()));
        assert_eq!(
            (url.options.cipher, url.options.name.as_str()),
            (Cipher::ChaCha20Poly1305, "me")
        );
        assert_eq!(
            Url::of_target("hyperscsi://eth0/x").expect("a target").1,
            None
        );

        let url = Url::parse("hyperscsi+udp://[fe80::1%25eth0]/x/0").expect("a link-local address");
        assert_eq!(url.to_string(), "hyperscsi+udp://[fe80::1%eth0]:5674/x/0");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text| Url::parse(text).expect_err(text).to_string();
        for text in [
            "hyperscsi://eth0",
            "iscsi://eth0/x/0",
            "hyperscsi:eth0/x/0",
            "hyperscsi://eth0/x/0/1",
        ] {
            assert!(
                error(text).starts_with("the URL of a HyperSCSI LUN is"),
                "{text}"
            );
        }
        assert_eq!(
            error("hyperscsi://eth0/x"),
            "the URL has no LUN; add one, such as hyperscsi://eth0/x/0"
        );
        assert_eq!(
            error("hyperscsi://eth0+/x/0"),
            "\"\" is not the name of an interface"
        );
        assert_eq!(
            error("hyperscsi+udp://h:0/x/0"),
            "\"h:0\" is not a host with a port from 1 to 65535"
        );
        assert!(
            error("hyperscsi+udp://[fe80::1]/x/0")
                .ends_with("add the interface, as in fe80::1%eth0")
        );
        assert_eq!(
            error("hyperscsi://e/x y/0"),
            "\"x y\" is not a valid target name: use only letters, digits, and the characters .:-_"
        );
        assert_eq!(
            error("hyperscsi://e/x/99999"),
            "a LUN is a number from 0 to 16383, not \"99999\""
        );
        assert_eq!(
            error("hyperscsi://e/x/0?mtu=9000"),
            "`mtu` is not a key of a HyperSCSI URL; the keys are cipher, frame, key, name, port, reconnect-time, \
             station, timeout"
        );
        assert_eq!(
            error("hyperscsi://e/x/0?cipher=rot13"),
            "cipher=rot13: expected aes256-gcm or chacha20-poly1305"
        );
        assert_eq!(
            error("hyperscsi://a+b+c+d+e+f+g+h+i/x/0"),
            "a session has at most 8 paths"
        );
    }
}
