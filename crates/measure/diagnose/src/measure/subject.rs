//! What is diagnosed: a LUN by iSCSI, or an export by NBD.

use std::fmt;

use backends::location::Location;
use backends::{Failure, nbd, remote};
use environment::server::Server;
use iscsi_client::Url;

/// What is diagnosed.
#[derive(Clone)]
pub enum Subject {
    /// A LUN of an iSCSI target.
    Lun(Box<Url>),
    /// An export of an NBD server.
    Export(Box<nbd_client::Url>),
}

impl Subject {
    /// Reads a URL. Looks for secrets, and asks for them if it has to.
    ///
    /// # Errors
    /// The mistake in it, or that a secret is missing.
    pub fn parse(text: &str) -> Result<Subject, Failure> {
        if !nbd::is_url(text) {
            return Ok(Subject::Lun(Box::new(remote::url(text)?)));
        }
        // As a volume, whose mistakes are pointed at.
        let spec = backends::parse(text).map_err(Failure::refused)?;
        let url = nbd::url_of(&spec).ok_or_else(|| Failure::refused(format!("{text} is no NBD export")))?;
        Ok(Subject::Export(Box::new(url)))
    }

    /// The same with another value of a key. A sentence says why not.
    pub(super) fn with(&self, key: &str, value: &str) -> Result<Subject, String> {
        let mut changed = self.clone();
        let wrong = |why: &dyn fmt::Display| format!("{key}={value}: {why}");
        match &mut changed {
            Subject::Lun(url) => url.settings.set(key, value).map_err(|error| wrong(&error))?,
            Subject::Export(url) => match (key, value, value.parse()) {
                ("connections", _, Ok(count)) => url.options.connections = count,
                ("tls", "off", _) => url.tls = None,
                _ => return Err(wrong(&"no change of an NBD session")),
            },
        }
        Ok(changed)
    }

    /// The same as other commands name storage.
    pub(super) fn location(&self) -> Result<Location, Failure> {
        match self {
            Subject::Lun(url) => Ok(Location::Lun(url.clone())),
            Subject::Export(url) => {
                // Without its keys: what is told of it holds for any.
                let text = nbd_client::Url { tls: None, ..(**url).clone() }.to_string();
                Ok(Location::Volume(backends::parse(&text).map_err(Failure::refused)?))
            }
        }
    }

    /// The process that serves an export to this one, if it is on this machine.
    pub(super) fn server(&self) -> Option<Server> {
        let Subject::Export(url) = self else { return None };
        match &url.socket {
            Some(socket) => Server::on_socket(socket),
            None => Server::connected(&url.host, url.port),
        }
    }

    /// By a Unix socket.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Subject::Export(url) if url.socket.is_some())
    }

    /// By TLS.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Subject::Export(url) if url.tls.is_some())
    }
}

/// Without the user name, which is confidential, and without keys.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Lun(url) => url.fmt(f),
            Subject::Export(url) => url.fmt(f),
        }
    }
}
