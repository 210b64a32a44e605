//! The URL of a device: `aoe://INTERFACE/SHELF.SLOT[?KEY=VALUE&…]`.

use std::time::Duration;

use aoe::{Address, NotAnAddress};
use derive_more::{Display, Error};
use volume::spec::Time;

/// The URL scheme, in front of `://`.
pub const SCHEME: &str = "aoe";
/// The keys after the question mark.
pub const KEYS: [&str; 4] = ["cache-loss-unseen", "quarantine", "sectors", "timeout"];

/// A device on the Ethernet of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{SCHEME}://{interface}/{address}")]
pub struct Url {
    /// The local network interface.
    pub interface: String,
    /// Shelf and slot.
    pub address: Address,
    /// The settings of the session.
    pub options: Options,
}

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time limit of a command, and of the first reply of the device.
    pub timeout: Duration,
    /// Time in which copies of a retransmitted write may still arrive. Newer writes to its sectors wait this long.
    pub quarantine: Duration,
    /// Maximum number of sectors per frame; `None` for the maximum that both hosts' interfaces support.
    pub sectors: Option<u8>,
    /// Whether a RAID set accepts the device as a member although a loss of the server's cache would be
    /// undetected.
    pub cache_loss_unseen: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(30),
            quarantine: Duration::from_secs(2),
            sectors: None,
            cache_loss_unseen: false,
        }
    }
}

/// Why a text is not the URL of a device.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
pub enum UrlError {
    /// The text does not have the form of an AoE URL.
    #[display("the URL of an AoE device is aoe://INTERFACE/SHELF.SLOT, such as aoe://eth0/7.1")]
    Form,
    /// The address is invalid.
    #[display("{_0}")]
    Address(NotAnAddress),
    /// The key does not exist.
    #[display("`{_0}` is not a key of an aoe:// URL; the keys are {}", KEYS.join(", "))]
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

impl Url {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let rest = text
            .strip_prefix(SCHEME)
            .and_then(|rest| rest.strip_prefix("://"))
            .ok_or(UrlError::Form)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (interface, address) = place.split_once('/').ok_or(UrlError::Form)?;
        if interface.is_empty() || interface.len() > 15 {
            return Err(UrlError::Form);
        }
        let address = address.parse().map_err(UrlError::Address)?;
        let mut options = Options::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = KEYS
                .into_iter()
                .find(|known| *known == key)
                .ok_or(UrlError::UnknownKey(key.to_owned()))?;
            let wrong = |why| UrlError::Value {
                key,
                value: value.to_owned(),
                why,
            };
            let time = |least: Duration| {
                let time = value
                    .parse::<Time>()
                    .ok()
                    .map(|time| time.0)
                    .filter(|time| *time >= least);
                time.ok_or(wrong("a time such as 30s"))
            };
            match key {
                "timeout" => options.timeout = time(Duration::from_millis(1))?,
                "quarantine" => options.quarantine = time(Duration::ZERO)?,
                "cache-loss-unseen" if value.is_empty() => options.cache_loss_unseen = true,
                "cache-loss-unseen" => return Err(wrong("no value")),
                _ => {
                    let sectors = value.parse().ok().filter(|sectors| *sectors > 0);
                    options.sectors = Some(sectors.ok_or(wrong("1 to 255 sectors of 512 bytes"))?);
                }
            }
        }
        Ok(Url {
            interface: interface.to_owned(),
            address,
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_an_interface_and_an_address() {
        let url = Url::parse("aoe://eth0/7.1?timeout=5s&sectors=2").expect("a URL");
        assert_eq!(
            (url.to_string(), url.options.timeout),
            ("aoe://eth0/7.1".to_owned(), Duration::from_secs(5))
        );
        assert_eq!(
            (url.options.sectors, url.options.quarantine),
            (Some(2), Duration::from_secs(2))
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text| Url::parse(text).expect_err("wrong").to_string();
        assert!(error("aoe://eth0").starts_with("the URL of an AoE device is"));
        assert!(error("aoe:///7.1").starts_with("the URL of an AoE device is"));
        assert!(error("aoe://eth0/7").starts_with("an AoE address is SHELF.SLOT"));
        assert_eq!(
            error("aoe://eth0/7.1?mtu=9000"),
            "`mtu` is not a key of an aoe:// URL; the keys are cache-loss-unseen, quarantine, sectors, timeout"
        );
        assert_eq!(
            error("aoe://eth0/7.1?sectors=0"),
            "sectors=0: expected 1 to 255 sectors of 512 bytes"
        );
        assert_eq!(
            error("aoe://eth0/7.1?cache-loss-unseen=yes"),
            "cache-loss-unseen=yes: expected no value"
        );
    }
}
