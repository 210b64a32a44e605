//! What is attached: a LUN by its URL, or any volume that could be served.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;
use initiator::{RemoteLun, Url};

use crate::failure::Failure;
use crate::place;
use crate::remote;
use crate::spec::Spec;

/// Something to attach, not looked at yet.
pub(super) enum Volume {
    Remote(Box<Url>),
    Local(Spec),
}

/// The same, open.
pub(super) struct Opened {
    pub(super) device: Arc<dyn BlockDevice>,
    /// The LUN that the device is, if it is one.
    pub(super) remote: Option<Arc<RemoteLun>>,
}

/// As often as Linux disks try.
const TRIES: u32 = 5;

impl Volume {
    /// Asks for secrets if there is need to.
    pub(super) fn parse(text: &str) -> Result<Volume, Failure> {
        if !place::is_url(text) {
            return backends::parse(text).map(Volume::Local).map_err(Failure::refused);
        }
        let mut url = remote::url(text)?;
        // They are read again at every login.
        make_absolute(url.settings.secret_file.as_mut())?;
        make_absolute(url.settings.target_secret_file.as_mut())?;
        // A file system takes a command that was late for a broken disk.
        url.settings.command_tries.get_or_insert(TRIES);
        Ok(Volume::Remote(Box::new(url)))
    }

    /// For reading alone, a file that does not exist is not made.
    pub(super) async fn open(&self, read_only: bool) -> Result<Opened, Failure> {
        match self {
            Volume::Local(spec) => {
                let spec = Spec { readonly: spec.readonly || read_only, ..spec.clone() };
                let device = backends::open(&spec).await?;
                Ok(Opened { device, remote: None })
            }
            Volume::Remote(url) => {
                let lun = Arc::new(remote::open(url).await?);
                Ok(Opened { device: Arc::clone(&lun) as Arc<dyn BlockDevice>, remote: Some(lun) })
            }
        }
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Volume::Remote(url) => url.fmt(f),
            Volume::Local(spec) => spec.fmt(f),
        }
    }
}

fn make_absolute(path: Option<&mut std::path::PathBuf>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    *path = std::path::absolute(Path::new(path)).map_err(Failure::refused)?;
    Ok(())
}
