//! `iscsi://host/target/lun?connections=4`: a LUN of another target, so that a server of it is a gateway.

use std::sync::Arc;

use volume::backend::{Backend, Kind, Opened, Opening, Options};
use volume::spec::{Problem, Written};

use crate::remote;

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
struct Iscsi {
    /// What stands behind `iscsi:`.
    place: String,
    options: Vec<String>,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let lun = Iscsi { place: written.argument().text.clone(), options: written.own_options() };
    // The place of a mistake is told by URLs alone; here it is somewhere in this one.
    remote::check(&lun.url()).map_err(|sentence| Problem::new(written.argument().at.clone(), sentence))?;
    Ok(Arc::new(lun))
}

impl Iscsi {
    fn url(&self) -> String {
        let mark = if self.options.is_empty() { "" } else { "?" };
        format!("iscsi:{}{mark}{}", self.place, self.options.join("&"))
    }
}

impl Backend for Iscsi {
    fn kind(&self) -> &'static Kind {
        &ISCSI
    }

    fn argument(&self) -> String {
        self.place.clone()
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, _opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let lun = remote::open(&remote::url(&self.url())?).await?;
            Ok(Arc::new(lun) as _)
        })
    }
}
