//! `nbd://host/export?connections=4`: an export of an NBD server, so that a server of it is a gateway; by TLS, and on a Unix
//! socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use nbd_client::SCHEMES;
pub use nbd_client::Url;
use nbd_client::{OpenError, RemoteExport, TlsFiles, UrlError};
use tls::CredentialsError;
use volume::backend::{Backend, Kind, Opened, Opening};
use volume::spec::{Problem, Spec, Written};

use crate::channelled;
use crate::failure::{self, Failure};
use crate::remote::random;
use crate::url_spec::{self, UrlSpec, has_scheme, kind};
use crate::{secrets, waiting};

/// An export of an NBD server.
pub(crate) static NBD: Kind = kind(
    SCHEMES[0],
    "nbd://HOST/EXPORT",
    "an export of an NBD server, so that this server is a gateway to it ([nbd.md](nbd.md))",
    |written| read(&NBD, written),
);

/// The same over TLS.
pub(crate) static NBDS: Kind =
    kind(SCHEMES[1], "nbds://HOST/EXPORT?tls-ca=FILE", "the same over TLS", |written| read(&NBDS, written));

/// The same on a Unix socket.
pub(crate) static NBD_UNIX: Kind = kind(
    SCHEMES[2],
    "nbd+unix:///EXPORT?socket=PATH",
    "an export of an NBD server of this machine, by a Unix socket",
    |written| read(&NBD_UNIX, written),
);

/// Both.
pub(crate) static NBDS_UNIX: Kind =
    kind(SCHEMES[3], "nbds+unix:///EXPORT?socket=PATH&tls-ca=FILE", "the same over TLS", |written| {
        read(&NBDS_UNIX, written)
    });

#[derive(Debug)]
struct Nbd {
    kind: &'static Kind,
    written: UrlSpec,
}

fn read(kind: &'static Kind, written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let export = Nbd { kind, written: UrlSpec::new(kind.name, written)? };
    let wrong = |error: UrlError| Problem::new(written.argument().at.clone(), error.to_string());
    export.url().map_err(wrong)?;
    Ok(Arc::new(export))
}

impl Nbd {
    fn url(&self) -> Result<Url, UrlError> {
        Url::parse(&self.written.text())
    }
}

impl Backend for Nbd {
    fn kind(&self) -> &'static Kind {
        self.kind
    }

    fn argument(&self) -> String {
        self.written.place.clone()
    }

    fn options(&self) -> Vec<String> {
        self.written.options.clone()
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let url = self.url()?;
            let mut url = if opening.read_only { beside(&url) } else { url };
            url.options.by_bytes = opening.by_bytes;
            let export = Arc::new(open(&url).await?);
            channelled::keep(self, &export);
            Ok(export as _)
        })
    }
}

/// Whether a text is the URL of an export.
pub fn is_url(text: &str) -> bool {
    has_scheme(text, &SCHEMES)
}

/// The URL of the export below all layers of a volume, if there is one.
pub fn url_of(spec: &Spec) -> Option<Url> {
    Url::parse(&url_spec::url_of(spec.store(), &SCHEMES)?).ok()
}

/// Connects to an export, as [`nbd_client::open`] does, with the certificates of its URL.
///
/// # Errors
/// What kept it from being opened.
pub async fn open(url: &Url) -> Result<RemoteExport, Failure> {
    let credentials = url.tls.as_ref().map(credentials).transpose()?;
    let opened = nbd_client::open(url, credentials.as_ref(), random);
    Ok(waiting::announced(url, timeout(url), opened).await?)
}

/// The same over TLS with a server of this process, by [`tls::loopback`].
///
/// # Errors
/// As [`open`].
pub async fn open_over_loopback_tls(url: &Url) -> Result<RemoteExport, Failure> {
    let credentials = tls::loopback::client().map_err(Failure::failed)?;
    Ok(nbd_client::open(url, Some(&credentials), random).await?)
}

/// The same export without its journal file: for who writes nothing, and beside who has the file.
pub fn beside(url: &Url) -> Url {
    let mut url = url.clone();
    url.options.journal_file = None;
    url
}

/// Why the server of an export cannot be reached, if it cannot.
pub async fn unreachable(url: &Url) -> Option<Failure> {
    match reactor::timeout(PROBE, open(&beside(url))).await {
        Ok(Ok(_)) => None,
        Ok(Err(failure)) => failure.is_unreachable().then_some(failure),
        Err(_) => {
            let why = format_args!("the server does not answer within {} s", PROBE.as_secs());
            Some(Failure::new(failure::FailureKind::Unreachable, why))
        }
    }
}

/// A server that has failed requests for as long as they may take gets no long time more.
const PROBE: Duration = Duration::from_secs(3);

/// The exports that the server of a URL tells of, names and descriptions.
///
/// # Errors
/// As [`open`].
pub async fn list(url: &Url) -> Result<Vec<(String, String)>, Failure> {
    let credentials = url.tls.as_ref().map(credentials).transpose()?;
    let listed = nbd_client::list(url, credentials.as_ref());
    Ok(waiting::announced(url, timeout(url), listed).await?)
}

/// The key that bounds a handshake, and its value.
fn timeout(url: &Url) -> (&'static str, Duration) {
    ("timeout", url.options.timeout)
}

fn credentials(files: &TlsFiles) -> Result<tls::Client, Failure> {
    let unread = |path: &Path, error| Failure::refused(format!("cannot read {}: {error}", path.display()));
    let contents = |path: &Path| std::fs::read(path).map_err(|error| unread(path, error));
    let own = files.own.as_ref().filter(|(certificate, _)| !files.may_lack_own || certificate.exists());
    let own = match own {
        None => None,
        Some((certificate, key)) => {
            let private_key = secrets::read_key(key).map_err(|error| unread(key, error))?;
            Some((contents(certificate)?, private_key))
        }
    };
    let proof = own.as_ref().map(|(certificate, key)| (&certificate[..], &key[..]));
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

/// The kind of a failure to open an export.
pub(crate) fn kind_of(error: &OpenError) -> failure::FailureKind {
    match error {
        OpenError::Resolve(..) | OpenError::Connection(..) | OpenError::TimedOut(_) => {
            failure::FailureKind::Unreachable
        }
        OpenError::Refused(_, refused) => match refused {
            nbd_client::Refused::NoExport(_) => failure::FailureKind::NotFound,
            nbd_client::Refused::TlsRequired
            | nbd_client::Refused::NoTls(_)
            | nbd_client::Refused::Server(_) => failure::FailureKind::LoginRefused,
            nbd_client::Refused::NotNbd(_)
            | nbd_client::Refused::OldStyle
            | nbd_client::Refused::Violation(_) => failure::FailureKind::Failed,
        },
        OpenError::JournalFile(error) => failure::of_journal_file(error),
        OpenError::Changed(..) | OpenError::Empty(_) => failure::FailureKind::Failed,
        OpenError::Ragged { .. } | OpenError::Unreachable { .. } => failure::FailureKind::Failed,
        OpenError::Tls(_, tls::Failure::Socket(_)) => failure::FailureKind::Unreachable,
        OpenError::Tls(_, tls::Failure::Tls(_)) => failure::FailureKind::LoginRefused,
    }
}
