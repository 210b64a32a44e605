//! `[metrics]`: where metrics and health are served over HTTP.

use std::net::SocketAddr;
use std::str::FromStr;

use super::section::Section;
use super::values::Unfit;
use crate::metrics::http::Bound;
use backends::Failure;
use reactor::BadAddress;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
}

impl Metrics {
    /// Listens there.
    pub(crate) fn bind(&self) -> Result<Bound, Failure> {
        Bound::new(self.listen)
            .map_err(|error| Failure::refused(format!("cannot listen for [metrics] on {error}")))
    }
}

/// An address and a port.
struct Place(SocketAddr);

impl FromStr for Place {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Place, Unfit> {
        reactor::listen_address(text, None).map(Place).map_err(|wrong| match wrong {
            BadAddress::Form(_) => {
                Unfit(format!("`{text}` is not an address and a port; write one such as {EXAMPLE}"))
            }
            wrong => Unfit(wrong.to_string()),
        })
    }
}

const EXAMPLE: &str = "127.0.0.1:9260 or [::1]:9260";

pub(super) fn read(section: &Section<'_>) -> Option<Metrics> {
    let listen = section.required("listen", section.parsed::<Place>("listen"), "\"127.0.0.1:9260\"");
    section.done();
    Some(Metrics { listen: listen?.value.0 })
}
