//! `aoe://eth0/7.1`: an ATA-over-Ethernet device. Serving such a volume makes the server a gateway.

use std::sync::Arc;
use std::time::Duration;

pub use aoe_client::{Found, Url};
use aoe_client::{KEYS, OpenError, RemoteAoe, SCHEME};
use volume::backend::{Kind, UrlKind};

use crate::failure::{self, Failure, FailureKind};
use crate::peers::{self, has_scheme};

/// An AoE device.
pub(crate) static AOE: Kind = peers::kind(
    SCHEME,
    "aoe://INTERFACE/SHELF.SLOT",
    "an ATA-over-Ethernet device ([aoe.md](aoe.md))",
    &UrlKind {
        has_key: |key| KEYS.contains(&key),
        check: |url| Url::parse(url).map(drop).map_err(|error| error.to_string()),
        open: |url, _| Box::pin(async move { Ok(Arc::new(open(&Url::parse(&url)?).await?) as _) }),
        unreachable: None,
        close: None,
    },
);

/// Returns whether a text is the URL of a device.
pub fn is_url(text: &str) -> bool {
    has_scheme(text, &[SCHEME])
}

/// Opens a device, as [`aoe_client::open`] does.
///
/// # Errors
/// Returns the reason why the device could not be opened.
pub async fn open(url: &Url) -> Result<RemoteAoe, Failure> {
    Ok(peers::announced(url, ("timeout", url.options.timeout), aoe_client::open(url)).await?)
}

/// Discovers the devices on the Ethernet of an interface.
///
/// # Errors
/// The interface cannot be used.
pub async fn discover(interface: &str) -> Result<Vec<Found>, Failure> {
    Ok(aoe_client::discover(interface, LISTEN).await?)
}

/// The time for which discovery waits for replies. One second is enough: servers respond immediately, and the
/// query is repeated in case it is lost.
const LISTEN: Duration = Duration::from_secs(1);

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let kind = match &error {
            OpenError::Interface(error) => failure::of_interface(error),
            OpenError::Silent { .. } => FailureKind::Unreachable,
            OpenError::Refused(..) | OpenError::Unidentified(..) | OpenError::Empty(_) => {
                FailureKind::Failed
            }
        };
        Failure::new(kind, error)
    }
}
