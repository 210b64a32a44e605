//! `nbd://host/export?connections=4`: an export of an NBD server; also over TLS, and on a Unix socket.
//! Serving such a volume makes the server a gateway.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use nbd_client::Url;
use nbd_client::{KEYS, OpenError, Refused, RemoteExport, SCHEMES, TlsFiles};
use tls::CredentialsError;
use volume::backend::{Kind, UrlKind};
use volume::spec::Spec;

use crate::failure::{self, Failure, FailureKind};
use crate::peers::{self, has_scheme, random};
use crate::secrets;

/// An export of an NBD server.
pub(crate) static NBD: Kind = peers::kind(
    SCHEMES[0],
    "nbd://HOST/EXPORT",
    "an export of an NBD server ([nbd-client.md](nbd-client.md))",
    &URL,
);

/// An export over TLS.
pub(crate) static NBDS: Kind = peers::kind(
    SCHEMES[1],
    "nbds://HOST/EXPORT?tls-ca=FILE",
    "the same over TLS",
    &URL,
);

/// An export on a Unix socket.
pub(crate) static NBD_UNIX: Kind = peers::kind(
    SCHEMES[2],
    "nbd+unix:///EXPORT?socket=PATH",
    "an export of an NBD server on this machine",
    &URL,
);

/// An export on a Unix socket, over TLS.
pub(crate) static NBDS_UNIX: Kind = peers::kind(
    SCHEMES[3],
    "nbds+unix:///EXPORT?socket=PATH&tls-ca=FILE",
    "the same over TLS",
    &URL,
);

static URL: UrlKind = UrlKind {
    has_key: |key| KEYS.contains(&key),
    check: |url| Url::parse(url).map(drop).map_err(|error| error.to_string()),
    open: |text, opening| {
        Box::pin(async move {
            let mut url = Url::parse(&text)?;
            if opening.read_only {
                url = beside(&url);
            }
            url.options.by_bytes = opening.by_bytes;
            let export = Arc::new(open(&url).await?);
            peers::keep_channels(text, &export);
            Ok(export as _)
        })
    },
    unreachable: Some(|url| {
        Box::pin(async { Some(unreachable(&Url::parse(url).ok()?).await?.into()) })
    }),
    close: None,
};

/// Returns whether a text is the URL of an export.
pub fn is_url(text: &str) -> bool {
    has_scheme(text, &SCHEMES)
}

/// Returns the URL of the export below all layers of a volume, if there is one.
pub fn url_of(spec: &Spec) -> Option<Url> {
    Url::parse(&peers::url_of(spec.store(), &SCHEMES)?).ok()
}

/// Connects to an export, as [`nbd_client::open`] does, with the certificates of its URL.
///
/// # Errors
/// Returns the reason why the export could not be opened.
pub async fn open(url: &Url) -> Result<RemoteExport, Failure> {
    let credentials = url.tls.as_ref().map(credentials).transpose()?;
    let opened = nbd_client::open(url, credentials.as_ref(), random);
    Ok(peers::announced(url, timeout(url), opened).await?)
}

/// Connects to an export of a server in this process, with TLS by [`tls::loopback`].
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn open_over_loopback_tls(url: &Url) -> Result<RemoteExport, Failure> {
    let credentials = tls::loopback::client().map_err(Failure::failed)?;
    Ok(nbd_client::open(url, Some(&credentials), random).await?)
}

/// Returns the URL of the same export without its journal file, which another process may be using. Use it
/// only for connections that write nothing.
pub fn beside(url: &Url) -> Url {
    let mut url = url.clone();
    url.options.journal_file = None;
    url
}

/// Returns the reason why the server of an export cannot be reached; `None` if it can be reached.
pub async fn unreachable(url: &Url) -> Option<Failure> {
    match reactor::timeout(PROBE, open(&beside(url))).await {
        Ok(Ok(_)) => None,
        Ok(Err(failure)) => failure.is_unreachable().then_some(failure),
        Err(_) => {
            let why = format_args!("the server did not respond within {} s", PROBE.as_secs());
            Some(Failure::new(FailureKind::Unreachable, why))
        }
    }
}

/// Time limit for opening a probe connection. It is short because requests to this server have already timed
/// out.
const PROBE: Duration = Duration::from_secs(3);

/// Queries the names and descriptions of a server's exports.
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn list(url: &Url) -> Result<Vec<(String, String)>, Failure> {
    let credentials = url.tls.as_ref().map(credentials).transpose()?;
    let listed = nbd_client::list(url, credentials.as_ref());
    Ok(peers::announced(url, timeout(url), listed).await?)
}

/// Returns the key that limits the time of a handshake, and its value.
fn timeout(url: &Url) -> (&'static str, Duration) {
    ("timeout", url.options.timeout)
}

fn credentials(files: &TlsFiles) -> Result<tls::Client, Failure> {
    let unread =
        |path: &Path, error| Failure::refused(format!("cannot read {}: {error}", path.display()));
    let contents = |path: &Path| std::fs::read(path).map_err(|error| unread(path, error));
    let own = files
        .own
        .as_ref()
        .filter(|(certificate, _)| !files.may_lack_own || certificate.exists());
    let own = match own {
        None => None,
        Some((certificate, key)) => {
            let private_key = secrets::read_key(key).map_err(|error| unread(key, error))?;
            Some((contents(certificate)?, private_key))
        }
    };
    let proof = own
        .as_ref()
        .map(|(certificate, key)| (&certificate[..], &key[..]));
    tls::Client::new(&files.hostname, &contents(&files.ca)?, proof).map_err(|error| {
        let file = match (&error, &files.own) {
            (CredentialsError::Certificate(_), Some((certificate, _))) => certificate,
            (CredentialsError::Key(_), Some((_, key))) => key,
            (CredentialsError::Name(_), _) => return Failure::refused(error),
            _ => &files.ca,
        };
        Failure::refused(format!("{}: {error}", file.display()))
    })
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let kind = match &error {
            OpenError::Resolve(..) | OpenError::Connection(..) | OpenError::TimedOut(_) => {
                FailureKind::Unreachable
            }
            OpenError::Refused(_, refused) => match refused {
                Refused::NoExport(_) => FailureKind::NotFound,
                // The URL is wrong, and the message contains the remedy.
                Refused::TlsRequired => FailureKind::Refused,
                Refused::NoTls(_) | Refused::Server(_) => FailureKind::LoginRefused,
                Refused::NotNbd(_) | Refused::OldStyle | Refused::Violation(_) => {
                    FailureKind::Failed
                }
            },
            OpenError::JournalFile(error) => failure::of_journal_file(error),
            OpenError::Changed(..) | OpenError::Empty(_) => FailureKind::Failed,
            OpenError::Ragged { .. } | OpenError::Unreachable { .. } => FailureKind::Failed,
            OpenError::NoCertificate(_) => FailureKind::Refused,
            OpenError::Tls(_, tls::Failure::Socket(_)) => FailureKind::Unreachable,
            OpenError::Tls(_, tls::Failure::Tls(_)) => FailureKind::LoginRefused,
        };
        Failure::new(kind, error)
    }
}
