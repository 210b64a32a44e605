//! `iscsi://host/target/lun?connections=4`: a LUN of another target, so that a server of it is a gateway.

use std::sync::Arc;

use volume::backend::{Backend, Kind, Opened, Opening, Options};
use volume::spec::{Problem, Written};

use crate::channelled;
use crate::remote;
use crate::url_spec::UrlSpec;

/// A LUN of another target.
pub(crate) static ISCSI: Kind = Kind {
    name: "iscsi",
    usage: "iscsi://HOST/TARGET/LUN",
    about: "a LUN of another iSCSI target, so that this server is a gateway to it. Its options are those of \
            URLs ([initiator.md](initiator.md)); secrets come from files or the environment, never from the \
            specification",
    is_layer: false,
    options: Options::Own,
    read,
};

#[derive(Debug)]
struct Iscsi(UrlSpec);

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let lun = Iscsi(UrlSpec::new(ISCSI.name, written)?);
    // The place of a mistake is told by URLs alone; here it is somewhere in this one.
    remote::check(&lun.0.text()).map_err(|sentence| Problem::new(written.argument().at.clone(), sentence))?;
    Ok(Arc::new(lun))
}

impl Backend for Iscsi {
    fn kind(&self) -> &'static Kind {
        &ISCSI
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

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let mut url = remote::url(&self.0.text())?;
            if opening.read_only {
                url.settings.paths.journal_file = None; // it is for who writes
            }
            if !url.settings.paths.are_several() {
                return Ok(Arc::new(remote::open(&url).await?) as _);
            }
            let lun = Arc::new(remote::open_paths(&url).await?);
            channelled::keep(self, &lun);
            Ok(lun as _)
        })
    }
}
