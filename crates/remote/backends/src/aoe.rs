//! `aoe://eth0/7.1`: an ATA-over-Ethernet device, so that a server of it is a gateway.

use std::sync::Arc;
use std::time::Duration;

pub use aoe_client::{Found, Url};
use aoe_client::{OpenError, RemoteAoe, SCHEME, UrlError};
use volume::backend::{Backend, Kind, Opened, Opening, Options};
use volume::spec::{Problem, Written};

use crate::failure::{self, Failure};
use crate::url_spec::{UrlSpec, has_scheme};
use crate::waiting;

/// An AoE device.
pub(crate) static AOE: Kind = Kind {
    name: SCHEME,
    usage: "aoe://INTERFACE/SHELF.SLOT",
    about: "an ATA-over-Ethernet device on the Ethernet of an interface, so that this server is a gateway to it ([aoe.md](aoe.md))",
    is_layer: false,
    options: Options::Own,
    read,
};

#[derive(Debug)]
struct Aoe(UrlSpec);

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let device = Aoe(UrlSpec::new(AOE.name, written)?);
    device.url().map_err(|error| Problem::new(written.argument().at.clone(), error.to_string()))?;
    Ok(Arc::new(device))
}

impl Aoe {
    fn url(&self) -> Result<Url, UrlError> {
        Url::parse(&self.0.text())
    }
}

impl Backend for Aoe {
    fn kind(&self) -> &'static Kind {
        &AOE
    }

    fn argument(&self) -> String {
        self.0.place.clone()
    }

    fn options(&self) -> Vec<String> {
        self.0.options.clone()
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, _: &'a Opening) -> Opened<'a> {
        Box::pin(async { Ok(Arc::new(open(&self.url()?).await?) as _) })
    }
}

/// Whether a text is the URL of a device.
pub fn is_url(text: &str) -> bool {
    has_scheme(text, &[SCHEME])
}

/// Opens a device, as [`aoe_client::open`] does.
///
/// # Errors
/// What kept it from being opened.
pub async fn open(url: &Url) -> Result<RemoteAoe, Failure> {
    Ok(waiting::announced(url, ("timeout", url.options.timeout), aoe_client::open(url)).await?)
}

/// The devices on the Ethernet of an interface.
///
/// # Errors
/// The interface cannot be used.
pub async fn discover(interface: &str) -> Result<Vec<Found>, Failure> {
    Ok(aoe_client::discover(interface, LISTEN).await?)
}

/// Servers answer at once, and a query that is lost is repeated.
const LISTEN: Duration = Duration::from_secs(1);

/// The kind of a failure to open a device.
pub(crate) fn kind_of(error: &OpenError) -> failure::FailureKind {
    match error {
        OpenError::Interface(_) => failure::FailureKind::Refused,
        OpenError::Silent { .. } => failure::FailureKind::Unreachable,
        OpenError::Refused(..) | OpenError::Unidentified(..) | OpenError::Empty(_) => {
            failure::FailureKind::Failed
        }
    }
}
