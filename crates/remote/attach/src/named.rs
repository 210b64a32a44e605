//! What is to be attached: a LUN by its URL, or any volume that could be served.

use std::path::PathBuf;
use std::sync::Arc;

use backends::{Failure, location, remote};
use iscsi_client::Url;
use volume::spec::Spec;

use crate::Volume;

/// Something to attach, not looked at yet.
pub enum NamedVolume {
    /// A LUN.
    Remote(Box<Url>),
    /// A volume of this machine.
    Local(Spec),
}

/// As often as Linux disks try.
const TRIES: u32 = 5;

impl NamedVolume {
    /// Reads the text of an argument. Asks for secrets if there is need to.
    ///
    /// # Errors
    /// The mistake in the text, or that a secret is missing.
    pub fn parse(text: &str) -> Result<NamedVolume, Failure> {
        if !location::is_url(text) {
            return backends::parse(text).map(NamedVolume::Local).map_err(Failure::refused);
        }
        let mut url = remote::url(text)?;
        // They are read again at every login.
        make_absolute(url.settings.secret_file.as_mut())?;
        make_absolute(url.settings.target_secret_file.as_mut())?;
        // A file system takes a command that was late for a broken disk.
        url.settings.command_tries.get_or_insert(TRIES);
        Ok(NamedVolume::Remote(Box::new(url)))
    }

    /// Opens it. For reading alone, a file that does not exist is not made.
    ///
    /// # Errors
    /// Whatever keeps it from being used.
    pub async fn open(&self, read_only: bool) -> Result<Volume, Failure> {
        match self {
            NamedVolume::Local(spec) => {
                let opened = Spec { readonly: spec.readonly || read_only, ..spec.clone() };
                let device = backends::open_by_bytes(&opened).await?;
                Ok(Volume { device, lun: None, name: spec.to_string() })
            }
            NamedVolume::Remote(url) => {
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
