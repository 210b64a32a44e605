//! `hyperscsi://eth0/iqn.2026-01.io.linerate:san/0`, and `hyperscsi+udp://HOST/…`: a LUN of a HyperSCSI
//! target. Serving such a volume makes the server a gateway.

use std::sync::Arc;
use std::time::Duration;

pub use hyperscsi_client::{
    Counters, Found, Opened as Target, Options as UrlOptions, PathStatus, Place, SCHEME_UDP,
    SessionHandle, SessionStatus, Url,
};
use hyperscsi_client::{KEYS, OpenError, Refusal, SCHEMES, UrlError};
use iscsi_client::RemoteLun;
use volume::backend::{Kind, UrlKind};
use volume::spec::Spec;

use crate::failure::{self, Failure, FailureKind};
use crate::peers::{self, has_scheme, random};
use crate::secrets;

/// A LUN on an Ethernet.
pub(crate) static HYPERSCSI: Kind = peers::kind(
    SCHEMES[0],
    "hyperscsi://INTERFACE/TARGET/LUN",
    "a LUN of a HyperSCSI target; join several interfaces with `+` ([hyperscsi.md](hyperscsi.md))",
    &URL,
);

/// A LUN over UDP.
pub(crate) static HYPERSCSI_UDP: Kind = peers::kind(
    SCHEMES[1],
    "hyperscsi+udp://HOST[:PORT]/TARGET/LUN",
    "the same over UDP",
    &URL,
);

static URL: UrlKind = UrlKind {
    has_key: |key| KEYS.contains(&&*key.replace('_', "-")),
    check: |url| Url::parse(url).map(drop).map_err(|error| error.to_string()),
    open: |url, _| Box::pin(async move { Ok(Arc::new(open(&Url::parse(&url)?).await?) as _) }),
    unreachable: None,
    close: Some(|| Box::pin(hyperscsi_client::closed())),
};

/// Returns the URL of a volume that consists only of a LUN: it has no layers, and is not read-only.
pub fn url_of(spec: &Spec) -> Option<Url> {
    let text = peers::url_of(&*spec.backend, &SCHEMES).filter(|_| !spec.readonly)?;
    Url::parse(&text).ok()
}

/// Returns whether a text is the URL of a LUN or a target.
pub fn is_url(text: &str) -> bool {
    has_scheme(text, &SCHEMES)
}

/// Parses the URL of a target, or of one of its LUNs.
///
/// # Errors
/// Fails if the text is invalid.
pub fn target_url(text: &str) -> Result<(Url, Option<u16>), Failure> {
    Url::of_target(text)
        .map_err(|error| Failure::refused(format!("{}: {error}", secrets::masked_url(text))))
}

/// Opens a LUN, as [`hyperscsi_client::open`] does.
///
/// # Errors
/// Returns the reason why the LUN could not be opened.
pub async fn open(url: &Url) -> Result<RemoteLun, Failure> {
    open_with_session(url).await.map(|(lun, _)| lun)
}

/// Like [`open`], but also returns the session.
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn open_with_session(url: &Url) -> Result<(RemoteLun, SessionHandle), Failure> {
    let opened = hyperscsi_client::open_with_session(url, random);
    Ok(peers::announced(url, ("timeout", url.options.timeout), opened).await?)
}

/// Logs in to a target, without opening a LUN.
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn open_target(url: &Url) -> Result<Target, Failure> {
    let opened = hyperscsi_client::open_target(url, random);
    Ok(peers::announced(url, ("timeout", url.options.timeout), opened).await?)
}

/// Discovers the targets at a place: one `INTERFACE`, several interfaces joined by `+`, or
/// `hyperscsi+udp://HOST[:PORT]`.
///
/// # Errors
/// The text is invalid, or the place cannot be used.
pub async fn discover(text: &str) -> Result<(Place, Vec<Found>), Failure> {
    let (is_udp, rest) = match text.split_once("://") {
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => (scheme == SCHEME_UDP, rest),
        Some(_) => return Err(Failure::refused(UrlError::Form)),
        None => (false, text),
    };
    let place = Place::parse(rest.trim_end_matches('/'), is_udp).map_err(Failure::refused)?;
    let found = hyperscsi_client::discover(&place, LISTEN, random).await?;
    Ok((place, found))
}

/// The time for which discovery waits for replies. One second is enough: targets respond immediately, and the
/// query is repeated in case it is lost.
const LISTEN: Duration = Duration::from_secs(1);

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let kind = match &error {
            OpenError::Interface(error) => failure::of_interface(error),
            OpenError::Key { .. } => FailureKind::Refused,
            OpenError::Resolve { .. } | OpenError::NoAddress(_) | OpenError::Silent { .. } => {
                FailureKind::Unreachable
            }
            OpenError::Elsewhere { .. } => FailureKind::NotFound,
            OpenError::Refused { refusal, .. } => match refusal {
                Refusal::UnknownTarget => FailureKind::NotFound,
                Refusal::Authentication => FailureKind::Authentication,
                Refusal::Full | Refusal::Malformed => FailureKind::LoginRefused,
            },
            OpenError::Login { .. } => FailureKind::LoginRefused,
            OpenError::Lun(error) => failure::of_open(error),
        };
        Failure::new(kind, error)
    }
}
