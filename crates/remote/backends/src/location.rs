//! Storage named on a command line: the URL of a LUN, a volume specification, or the path of a file or block
//! device.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{BlockDevice, SingleUser};
use host::{FileDevice, FileOptions};
use iscsi_client::{RemoteLun, Transfer, Unit, Url, cdb};
use volume::spec::Spec;

use crate::GRAMMAR;
use crate::failure::Failure;
use crate::peers::{self, Channelled};
use crate::remote::{self, has_port};

/// The name of storage that has not been opened yet.
pub enum Location {
    /// A LUN of a target.
    Lun(Box<Url>),
    /// A volume specification.
    Volume(Spec),
    /// A path: a regular file, a block device, or a file to be created.
    Path(PathBuf),
}

/// Opened storage.
pub struct Opened {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// The LUN, if the storage is one. Its session must be closed, and it has more functions than other block
    /// devices.
    lun: Option<Arc<RemoteLun>>,
    /// The specification, if the storage is a volume.
    volume: Option<Spec>,
    /// The underlying device with channels, if there is one.
    channels: Option<Arc<dyn Channelled>>,
    /// An identity that distinguishes this storage from other storage; `None` if its data is lost when this
    /// process ends.
    pub identity: Option<String>,
}

impl Location {
    /// Parses an argument. Looks up secrets, and prompts for missing ones.
    ///
    /// # Errors
    /// Fails if the text has an error, or a secret is missing.
    pub fn parse(text: &str) -> Result<Location, Failure> {
        if is_url(text) {
            return Ok(Location::Lun(Box::new(remote::url(text)?)));
        }
        if GRAMMAR.is_meant(text) {
            return crate::parse(text)
                .map(Location::Volume)
                .map_err(Failure::refused);
        }
        if has_port(text) && !Path::new(text).exists() {
            return Err(Failure::refused(format!(
                "{text} is a portal without a LUN: `linerate discover {text} --luns` lists the URLs of its LUNs, \
                 such as iscsi://{text}/IQN/0; for a file of this name, write ./{text}"
            )));
        }
        Ok(Location::Path(PathBuf::from(text)))
    }

    /// Sets the number of connections per session and the congestion control of the local sockets. Applies to
    /// a LUN only.
    ///
    /// # Errors
    /// The storage is not a LUN, so it has no connections.
    pub fn reached_by(
        self,
        connections: Option<u16>,
        congestion: Option<&str>,
    ) -> Result<Location, Failure> {
        match self {
            Location::Lun(mut url) => {
                let settings = &mut url.settings;
                let most = &mut settings.offers.max_connections;
                *most = connections.unwrap_or(*most);
                settings.stream.congestion = congestion
                    .map(str::to_owned)
                    .or(settings.stream.congestion.take());
                Ok(Location::Lun(url))
            }
            place if connections.is_none() && congestion.is_none() => Ok(place),
            _ => Err(Failure::refused(
                "--connections and --congestion apply only to URLs",
            )),
        }
    }

    /// Returns whether the data is lost when this process ends. A path is always persistent, even if no file
    /// exists there yet.
    pub fn is_fleeting(&self) -> bool {
        match self {
            Location::Volume(spec) => !spec.keeps_data(),
            Location::Lun(_) | Location::Path(_) => false,
        }
    }

    /// Returns the missing file that opening this volume for writing would create; `None` if there is none.
    pub fn new_file(&self) -> Option<&Path> {
        let Location::Volume(spec) = self else {
            return None;
        };
        spec.store().makes_file()
    }

    /// Opens the storage for reading and, unless `read_only`, for writing.
    ///
    /// # Errors
    /// Returns the reason why the storage cannot be used.
    pub async fn open(&self, read_only: bool) -> Result<Opened, Failure> {
        self.opened(read_only, false).await
    }

    /// Like [`Location::open`], for a caller that addresses bytes and uses [`BlockDevice::length_bytes`]. The
    /// length of an NBD export need not be a multiple of the block size.
    ///
    /// # Errors
    /// Returns the same errors as [`Location::open`].
    pub async fn open_by_bytes(&self, read_only: bool) -> Result<Opened, Failure> {
        self.opened(read_only, true).await
    }

    async fn opened(&self, read_only: bool, by_bytes: bool) -> Result<Opened, Failure> {
        match self {
            Location::Lun(url) => lun(url).await,
            Location::Volume(spec) => {
                let spec = Spec {
                    readonly: spec.readonly || read_only,
                    ..spec.clone()
                };
                let device = match by_bytes {
                    true => crate::open_by_bytes(&spec).await?,
                    false => crate::open(&spec).await?,
                };
                let channels = peers::channels(&spec);
                let told = || channels.as_ref()?.identity();
                let identity = spec.path().and_then(file_identity).or_else(told);
                Ok(Opened {
                    device,
                    lun: None,
                    volume: Some(spec),
                    channels,
                    identity,
                })
            }
            Location::Path(path) => file(FileOptions {
                read_only,
                ..FileOptions::new(path)
            }),
        }
    }
}

/// Returns whether a text is the URL of a LUN, and not of a volume. Some URLs are always volumes, for
/// instance the URL of a LUN over several sessions.
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let Some(scheme) = scheme.filter(|scheme| !scheme.contains(['[', ':', '/'])) else {
        return false;
    };
    let kind = GRAMMAR.kind(scheme).filter(|kind| kind.url().is_some());
    kind.is_none_or(|kind| kind.name == remote::ISCSI.name && !remote::has_paths(text))
}

/// Opens a file or block device.
///
/// # Errors
/// Returns the system's error.
pub fn file(options: FileOptions) -> Result<Opened, Failure> {
    let identity = file_identity(&options.path);
    let device = FileDevice::open(options).map_err(Failure::refused)?;
    Ok(Opened::local(Arc::new(SingleUser::new(device)), identity))
}

async fn lun(url: &Url) -> Result<Opened, Failure> {
    let lun = remote::open(url).await?;
    let serial = serial_number(&lun).await;
    let identity = Some(format!("{} LUN {} {serial}", url.target, url.lun));
    let lun = Arc::new(lun);
    Ok(Opened {
        device: lun.clone(),
        lun: Some(lun),
        volume: None,
        channels: None,
        identity,
    })
}

/// Reads the Unit Serial Number page (SPC-4 7.8.17). A target without this page is identified by its name
/// only.
async fn serial_number(lun: &RemoteLun) -> String {
    let transfer = Transfer::into_all_of(block::Buffer::zeroed(252));
    let answer = lun.command(cdb::inquiry(Some(0x80), 252), transfer).await;
    let answer = answer
        .ok()
        .filter(|answer| answer.status == iscsi_client::status::GOOD);
    let page = answer
        .as_ref()
        .and_then(|answer| answer.data.get(4..))
        .unwrap_or_default();
    String::from_utf8_lossy(page)
        .trim_matches(['\0', ' '])
        .to_owned()
}

/// Returns the identity of a file or block device. A file keeps its identity when it is renamed; another file
/// under the same name has a different one.
pub fn file_identity(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    Some(match metadata.file_type().is_block_device() {
        true => format!("block device {}", metadata.rdev()),
        false => format!("file {} of device {}", metadata.ino(), metadata.dev()),
    })
}

impl Opened {
    /// Returns a device of this machine.
    pub fn local(device: Arc<dyn BlockDevice>, identity: Option<String>) -> Opened {
        Opened {
            device,
            lun: None,
            volume: None,
            channels: None,
            identity,
        }
    }

    /// Returns the LUN, if the storage is one.
    pub fn lun(&self) -> Option<Arc<RemoteLun>> {
        self.lun.clone()
    }

    /// Adds the reason to a failure of work on this device, if its target or server can no longer be reached.
    ///
    /// # Errors
    /// Returns the errors of the work.
    pub async fn explained<T>(&self, done: Result<T, Failure>) -> Result<T, Failure> {
        let failure = match done {
            Err(failure) if failure.is_device() => failure,
            done => return done,
        };
        let store = self.volume.as_ref().map(Spec::store);
        let asks = store.and_then(|store| Some((store, store.kind().url()?.unreachable?)));
        let lost = match (&self.lun, asks, &self.channels) {
            (Some(lun), ..) => remote::lost(&lun.unit()).await,
            (None, Some((store, ask)), _) => ask(&peers::text_of(store)).await.map(Failure::from),
            (None, None, Some(channels)) => peers::unreachable(&**channels).await,
            (None, None, None) => None,
        };
        Err(match lost {
            Some(lost) => failure.since(&lost),
            None => failure,
        })
    }

    /// Logs out of the session, if the storage has one.
    pub async fn close(&self) {
        if let Some(lun) = &self.lun {
            lun.target().close().await;
        }
    }

    /// Returns the logical unit and the address of its target, if the storage is a LUN.
    pub fn unit(&self) -> Option<(Unit, SocketAddr)> {
        self.lun
            .as_ref()
            .map(|lun| (lun.unit(), lun.target().nexus().address))
    }
}

/// Prints the name of the storage without the user name, which is confidential.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Lun(url) => write!(f, "iscsi://{}/{}/{}", url.portal, url.target, url.lun),
            Location::Volume(spec) => spec.fmt(f),
            Location::Path(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Location::parse(text)
            .unwrap_or_else(|failure| panic!("{failure}"))
            .to_string()
    }

    #[test]
    fn a_place_is_a_url_a_volume_or_a_path() {
        assert!(matches!(
            Location::parse("iscsi://san1/iqn.x/3"),
            Ok(Location::Lun(_))
        ));
        assert!(matches!(
            Location::parse("ram:1MiB"),
            Ok(Location::Volume(_))
        ));
        assert!(matches!(
            Location::parse("nbd://san1/x"),
            Ok(Location::Volume(_))
        ));
        assert!(matches!(
            Location::parse("hyperscsi://eth0/x/0"),
            Ok(Location::Volume(_))
        ));
        assert!(matches!(
            Location::parse("hyperscsi+udp://san1/x/0?frame=1500"),
            Ok(Location::Volume(_))
        ));
        let paths = Location::parse("iscsi://san1/iqn.x/3?address=san2&sessions=2");
        assert!(matches!(paths, Ok(Location::Volume(_))));
        assert!(matches!(Location::parse("disk.img"), Ok(Location::Path(_))));
        assert!(matches!(
            Location::parse("./ram:1MiB"),
            Ok(Location::Path(_))
        ));
        assert!(Location::parse("isci://san1/iqn.x/3").is_err());
        assert!(Location::parse("ram:1X").is_err());
        for portal in ["127.0.0.1:3260", "[::1]:3260", "san1:3260"] {
            let refused = Location::parse(portal)
                .err()
                .expect("a portal is no storage")
                .to_string();
            testkit::says(&refused, &[&format!("`linerate discover {portal} --luns`")]);
        }
        assert!(matches!(
            Location::parse("./san1:3260"),
            Ok(Location::Path(_))
        ));
    }

    #[test]
    fn a_url_is_shown_without_options() {
        assert_eq!(
            shown("iscsi://san1/iqn.x/3?connections=4"),
            "iscsi://san1:3260/iqn.x/3"
        );
    }
}
