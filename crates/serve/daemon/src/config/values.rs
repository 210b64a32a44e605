//! Values used in both the configuration file and the command line, each with its validation.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use front_end_core::ListenAddress;
use reactor::BadAddress;
use volume::spec::{NotAValue, Time, hint};

/// The reason why a text is invalid, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(pub String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// Returns the value named `text` in `table`. `what` names the kind of value, for the error message.
pub fn one_of<T: Copy>(what: &str, text: &str, table: &[(&str, T)]) -> Result<T, Unfit> {
    debug_assert!(!table.is_empty(), "there is something to choose");
    let known: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    let found = table
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value);
    found.ok_or_else(|| Unfit(format!("unknown {what} `{text}`{}", hint(text, &known))))
}

/// A listen address: `iscsi://ADDR:PORT`; the scheme and the port may be omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

/// The port that IANA assigned to iSCSI (RFC 7143 section 4.2.7.3).
pub(crate) const ISCSI_PORT: u16 = 3260;

impl FromStr for Address {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Address, Unfit> {
        listen_address(text, "iscsi", ISCSI_PORT).map(Address)
    }
}

/// Parses a listen address: `SCHEME://ADDR:PORT`. The scheme may be omitted, and so may the protocol's
/// default port.
pub fn listen_address(text: &str, own_scheme: &str, own_port: u16) -> Result<SocketAddr, Unfit> {
    debug_assert_ne!(own_port, 0, "the protocol's port");
    let place = without_scheme(text, own_scheme)?;
    reactor::listen_address(place, Some(own_port)).map_err(|wrong| match wrong {
        BadAddress::Form(_)
            if place.split('%').next().is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok()) =>
        {
            Unfit(format!("an IPv6 address needs brackets; write [{place}]:{own_port}"))
        }
        BadAddress::Form(_) => Unfit(format!(
            "`{place}` is not an address and a port; write one such as 0.0.0.0:{own_port} or [::]:{own_port}"
        )),
        wrong => Unfit(wrong.to_string()),
    })
}

/// Parses a listen address as in [`listen_address`], or a Unix socket: `SCHEME+unix://PATH`.
pub fn listen_address_or_path(
    text: &str,
    own_scheme: &str,
    own_port: u16,
) -> Result<ListenAddress, Unfit> {
    let local = text
        .strip_prefix(own_scheme)
        .and_then(|rest| rest.strip_prefix("+unix://"));
    let Some(path) = local else {
        return Ok(listen_address(text, own_scheme, own_port)?.into());
    };
    // Allow only characters that need no escaping in a URL, because clients use the path in a URL.
    let is_plain = |c: char| !c.is_control() && !" \"#%&?\\".contains(c);
    match path.starts_with('/') && !path.ends_with('/') && path.chars().all(is_plain) {
        true => Ok(ListenAddress::Unix(PathBuf::from(path))),
        false => Err(Unfit(format!(
            "`{path}` is not the absolute path of a socket, without spaces and any of \"#%&?\\; write one such as \
             {own_scheme}+unix:///run/linerate/{own_scheme}.sock"
        ))),
    }
}

/// Parses a network interface of this computer: `[SCHEME://]NAME`.
pub(crate) fn interface<'a>(text: &'a str, own_scheme: &str) -> Result<&'a str, Unfit> {
    let name = without_scheme(text, own_scheme)?;
    // These are the kernel's rules for interface names (`dev_valid_name`).
    let is_name = (1..16).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    match is_name {
        true => Ok(name),
        false => {
            let sentence = format!(
                "`{name}` is not the name of an interface; write one such as {own_scheme}://eth0"
            );
            Err(Unfit(sentence))
        }
    }
}

fn without_scheme<'a>(text: &'a str, own_scheme: &str) -> Result<&'a str, Unfit> {
    match text.split_once("://") {
        None => Ok(text),
        Some((scheme, place)) if scheme == own_scheme => Ok(place),
        Some((scheme, _)) => Err(Unfit(format!(
            "`{scheme}://` is not served here; write {own_scheme}://…"
        ))),
    }
}

/// The address and port of the metrics server.
pub(super) struct MetricsAddress(pub(super) SocketAddr);

impl FromStr for MetricsAddress {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<MetricsAddress, Unfit> {
        reactor::listen_address(text, None).map(MetricsAddress).map_err(|wrong| match wrong {
            BadAddress::Form(_) => Unfit(format!(
                "`{text}` is not an address and a port; write one such as 127.0.0.1:9260 or [::1]:9260"
            )),
            wrong => Unfit(wrong.to_string()),
        })
    }
}

/// The name of a volume. It becomes part of iSCSI names and file names, so only lower-case letters, digits,
/// dots and dashes are allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

impl VolumeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for VolumeName {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<VolumeName, Unfit> {
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if begins && text.chars().all(letter) && text.len() <= NAME_MAX {
            debug_assert!(!text.contains('/'), "it is a part of file names");
            return Ok(VolumeName(text.to_owned()));
        }
        let example = text.to_ascii_lowercase();
        let example: String = example
            .chars()
            .map(|c| if letter(c) { c } else { '-' })
            .take(NAME_MAX)
            .collect();
        let example = example.trim_start_matches(['-', '.']);
        let example = if example.is_empty() { "vm1" } else { example };
        Err(Unfit(format!(
            "`{text}` is not a valid volume name; use up to {NAME_MAX} lower-case letters, digits, dots and \
             dashes, with a letter or digit first, such as `{example}`"
        )))
    }
}

/// Maximum length of a volume name. It leaves space for the rest of an iSCSI name, whose maximum is 223 bytes
/// (RFC 7143 section 4.2.7.1).
const NAME_MAX: usize = 64;

/// A UUID in its usual form, of any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Creates a random UUID (RFC 9562 version 4) from these bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        debug_assert!(
            bytes[6] >> 4 == 4 && bytes[8] >> 6 == 2,
            "version 4 of the usual variant"
        );
        Uuid(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&index) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Uuid, Unfit> {
        let digits: Option<Vec<u8>> = text
            .chars()
            .filter(|c| *c != '-')
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        let bytes: Option<Vec<u8>> = digits.map(|digits| {
            digits
                .chunks(2)
                .map(|pair| pair.iter().fold(0, |byte, d| byte << 4 | d))
                .collect()
        });
        let uuid = bytes.and_then(|bytes| bytes.try_into().ok()).map(Uuid);
        // Accept only the two usual forms: with dashes in the standard positions, or without dashes.
        uuid.filter(|uuid| !text.contains('-') || uuid.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                Unfit(format!(
                    "`{text}` is not a UUID; write one such as 6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e6f"
                ))
            })
    }
}

// Settings for a reactor that waits for events: how long it polls before it sleeps, and how long it lets
// events accumulate.

/// The time for which a reactor polls for events before it sleeps (`50us`, or `always`). The value for
/// `always` is [`reactor::Spin::ALWAYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll(pub Duration);

/// The time for which events accumulate before a reactor polls again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather(pub Duration);

const ALWAYS: &str = "always";
/// The longest time for which a request may be delayed to batch it with others: about the seek time of a
/// disk.
const GATHER_MAX: Duration = Duration::from_millis(10);

impl Poll {
    /// Parses a number of microseconds, or `always`: the value of `--poll-us`.
    pub fn of_microseconds(text: &str) -> Result<Poll, String> {
        if text == ALWAYS {
            return Ok(Poll(reactor::Spin::ALWAYS));
        }
        let microseconds: u32 = text
            .parse()
            .map_err(|_| "write a whole number of microseconds, or `always`")?;
        Ok(Poll(Duration::from_micros(microseconds.into())))
    }
}

impl FromStr for Poll {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Poll, NotAValue> {
        match text {
            ALWAYS => Ok(Poll(reactor::Spin::ALWAYS)),
            time => Ok(Poll(time.parse::<Time>()?.0)),
        }
    }
}

impl Gather {
    /// Parses a number of microseconds: the value of `--gather-us`.
    pub fn of_microseconds(text: &str) -> Result<Gather, String> {
        let microseconds: u32 = text
            .parse()
            .map_err(|_| "write a whole number of microseconds")?;
        Gather::new(Duration::from_micros(microseconds.into()))
    }

    fn new(span: Duration) -> Result<Gather, String> {
        (span <= GATHER_MAX)
            .then_some(Gather(span))
            .ok_or_else(|| "the maximum is 10 ms".to_owned())
    }
}

impl FromStr for Gather {
    type Err = String;

    fn from_str(text: &str) -> Result<Gather, String> {
        Gather::new(text.parse::<Time>().map_err(|error| error.to_string())?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> Result<String, String> {
        text.parse::<Address>()
            .map(|address| address.0.to_string())
            .map_err(|error| error.0)
    }

    #[test]
    fn scheme_and_port_may_be_left_out() {
        for text in [
            "iscsi://127.0.0.1:3260",
            "127.0.0.1:3260",
            "iscsi://127.0.0.1",
            "127.0.0.1",
        ] {
            assert_eq!(address(text), Ok("127.0.0.1:3260".to_owned()), "{text}");
        }
        assert_eq!(address("[::1]:3261"), Ok("[::1]:3261".to_owned()));
        assert_eq!(address("iscsi://[::1]"), Ok("[::1]:3260".to_owned()));
    }

    #[test]
    fn addresses_that_cannot_be_meant_name_the_remedy() {
        assert!(
            address("::1")
                .expect_err("a mistake")
                .contains("write [::1]:3260")
        );
        assert!(
            address("nbd://127.0.0.1")
                .expect_err("a mistake")
                .contains("not served here")
        );
        for bad in [
            "",
            "localhost:3260",
            "127.0.0.1:99999",
            "3260",
            "*:3260",
            ":3260",
        ] {
            assert!(
                address(bad)
                    .expect_err("a mistake")
                    .contains("0.0.0.0:3260"),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_volume_name_can_be_part_of_an_iscsi_name() {
        let name = |text: &str| text.parse::<VolumeName>().map_err(|error| error.0);
        assert_eq!(name("vm-1.disk0").expect("a name").as_str(), "vm-1.disk0");
        assert!(
            name("VM_1")
                .expect_err("a mistake")
                .ends_with("such as `vm-1`")
        );
        for bad in ["", "../etc", ".a", "a/b", "ä", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_uuid_is_written_with_dashes_in_their_places_or_with_none() {
        let text = "6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e6f";
        let uuid: Uuid = text.parse().expect("a UUID");
        assert_eq!(uuid.to_string(), text);
        assert_eq!(text.replace('-', "").parse(), Ok(uuid));
        for bad in [
            "",
            "6f2d4c1e",
            "6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e6g",
            "6f2d4c1e8-a3b-4f5d-9c7e-1b2a3c4d5e6f",
        ] {
            assert!(bad.parse::<Uuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_gather_for_ten_milliseconds_at_most() {
        assert_eq!("10ms".parse(), Ok(Gather(GATHER_MAX)));
        assert!("11ms".parse::<Gather>().is_err() && Gather::of_microseconds("10001").is_err());
        assert_eq!(
            Gather::of_microseconds("200"),
            Ok(Gather(Duration::from_micros(200)))
        );
    }

    #[test]
    fn a_time_or_always() {
        assert_eq!("50us".parse(), Ok(Poll(Duration::from_micros(50))));
        assert_eq!("always".parse(), Ok(Poll(reactor::Spin::ALWAYS)));
        assert!("often".parse::<Poll>().is_err());
        assert_eq!(Poll::of_microseconds("0"), Ok(Poll(Duration::ZERO)));
        assert_eq!(
            Poll::of_microseconds("always"),
            Ok(Poll(reactor::Spin::ALWAYS))
        );
        assert!(Poll::of_microseconds("50us").is_err());
    }

    proptest! {
        #[test]
        fn uuids_read_back(bytes: [u8; 16]) {
            let uuid = Uuid::from_random(bytes);
            prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
        }

        #[test]
        fn no_text_makes_them_panic(text in "[\\[\\]:/0-9a-fäß.-]{0,40}") {
            let _ = (text.parse::<Uuid>(), text.parse::<Address>(), text.parse::<VolumeName>());
        }
    }
}
