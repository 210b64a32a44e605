//! `nbd://host/export?connections=4`: an export of an NBD server, so that a server of it is a gateway.

use std::sync::Arc;

use nbd_client::{OpenError, Url, UrlError};
use volume::backend::{Backend, Kind, Opened, Opening, Options};
use volume::spec::{Problem, Written};

use crate::failure::{self, Failure};
use crate::url_spec::UrlSpec;

/// An export of an NBD server.
pub(crate) static NBD: Kind = Kind {
    name: "nbd",
    usage: "nbd://HOST/EXPORT",
    about: "an export of an NBD server, so that this server is a gateway to it ([nbd.md](nbd.md))",
    is_layer: false,
    options: Options::Own,
    read,
};

#[derive(Debug)]
struct Nbd(UrlSpec);

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let export = Nbd(UrlSpec::new(NBD.name, written));
    let wrong = |error: UrlError| Problem::new(written.argument().at.clone(), error.to_string());
    export.url().map_err(wrong)?;
    Ok(Arc::new(export))
}

impl Nbd {
    fn url(&self) -> Result<Url, UrlError> {
        Url::parse(&self.0.text())
    }
}

impl Backend for Nbd {
    fn kind(&self) -> &'static Kind {
        &NBD
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

    fn open<'a>(&'a self, _opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let export = nbd_client::open(&self.url()?).await.map_err(Failure::from)?;
            Ok(Arc::new(export) as _)
        })
    }
}

/// The kind of a failure to open an export.
pub(crate) fn kind_of(error: &OpenError) -> failure::Kind {
    match error {
        OpenError::Resolve(..) | OpenError::Connection(..) | OpenError::TimedOut(_) => {
            failure::Kind::Unreachable
        }
        OpenError::Refused(_, refused) => match refused {
            nbd_client::Refused::NoExport(_) => failure::Kind::NotFound,
            nbd_client::Refused::TlsRequired | nbd_client::Refused::Server(_) => failure::Kind::LoginRefused,
            nbd_client::Refused::NotNbd(_)
            | nbd_client::Refused::OldStyle
            | nbd_client::Refused::Violation(_) => failure::Kind::Failed,
        },
        OpenError::Changed(..) | OpenError::Empty(_) => failure::Kind::Failed,
    }
}
