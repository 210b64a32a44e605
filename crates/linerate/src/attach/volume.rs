//! What is attached: a LUN by its URL, or any volume that could be served.

use std::path::PathBuf;
use std::sync::Arc;

use attach::Volume;
use initiator::Url;

use crate::failure::Failure;
use crate::location;
use crate::remote;
use crate::spec::Spec;

/// Something to attach, not looked at yet.
pub(super) enum Named {
    Remote(Box<Url>),
    Local(Spec),
}

/// As often as Linux disks try.
const TRIES: u32 = 5;

impl Named {
    /// Asks for secrets if there is need to.
    pub(super) fn parse(text: &str) -> Result<Named, Failure> {
        if !location::is_url(text) {
            return backends::parse(text).map(Named::Local).map_err(Failure::refused);
        }
        let mut url = remote::url(text)?;
        // They are read again at every login.
        make_absolute(url.settings.secret_file.as_mut())?;
        make_absolute(url.settings.target_secret_file.as_mut())?;
        // A file system takes a command that was late for a broken disk.
        url.settings.command_tries.get_or_insert(TRIES);
        Ok(Named::Remote(Box::new(url)))
    }

    /// For reading alone, a file that does not exist is not made.
    pub(super) async fn open(&self, read_only: bool) -> Result<Volume, Failure> {
        match self {
            Named::Local(spec) => {
                let opened = Spec { readonly: spec.readonly || read_only, ..spec.clone() };
                let device = backends::open(&opened).await?;
                Ok(Volume { device, lun: None, name: spec.to_string() })
            }
            Named::Remote(url) => {
                let lun = Arc::new(remote::open(url).await?);
                Ok(Volume { device: Arc::clone(&lun) as _, lun: Some(lun), name: url.to_string() })
            }
        }
    }
}

fn make_absolute(path: Option<&mut PathBuf>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    *path = std::path::absolute(&*path).map_err(Failure::refused)?;
    Ok(())
}
