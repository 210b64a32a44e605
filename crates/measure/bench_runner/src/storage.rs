//! The measured storage: opens, inspects and purges it, and describes it for the record. Also opens the
//! journal file of its guarantees.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use backends::location::{self, Location, Opened};
use backends::{Failure, FailureKind, hyperscsi, nbd, peers};
use bench::Go;
use bench::journal::Journal;
use bench::plan::{Span, Suite, Workload};
use bench::record::{Facts, Limit, Subject};
use block::{BlockDevice, BlockSize, Blocks, Extent, Geometry, Lba, SingleUser};
use environment::server::Server;
use host::{FileDevice, FileOptions, MappedWords, OpenError};
use iscsi_client::RemoteLun;
use volume::spec::Bytes;

use crate::client_paths::Source;
use crate::view::Purged;

/// The opened storage.
pub struct Storage {
    /// Name and size of the storage, for the record.
    pub subject: Subject,
    /// The clients' access to the storage.
    pub source: Source,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// The LUN, if the storage is a LUN.
    pub lun: Option<Arc<RemoteLun>>,
    /// Whether the storage may have content worth keeping. It has none if it is memory or a new file.
    pub keeps: bool,
    /// Whether this command created the file, so that it consists of holes.
    pub is_new: bool,
    /// Notes on how the storage was opened, for readers of the result.
    pub notes: Vec<String>,
}

impl Storage {
    /// Opens the storage, read-only unless writes are planned. A missing file is created if its size is
    /// known: for a path, from an option, which also permits the creation; for a volume, from its
    /// specification if writes are planned.
    pub async fn open(
        place: &Location,
        writes: bool,
        size: Option<Bytes>,
    ) -> Result<Storage, Failure> {
        let mut notes = Vec::new();
        let new_file = place.new_file();
        if let Some(path) = new_file.filter(|_| !writes) {
            let shown = path.display();
            return Err(Failure::refused(format!(
                "{shown} does not exist; use --allow-write to create it"
            )));
        }
        let is_new_path = matches!(place, Location::Path(path) if size.is_some() && !path.exists());
        let is_new = new_file.is_some() || is_new_path;
        let writable = writes || is_new || place.is_fleeting();
        let (opened, source) = match place {
            Location::Path(path) => {
                let device = path_opened(path, !writable, size.filter(|_| is_new), &mut notes)?;
                let cached =
                    SingleUser::new(device.through_page_cache().map_err(Failure::refused)?);
                let device = Arc::new(SingleUser::new(device));
                let cached = Some(Arc::new(cached));
                let source = Source::Local {
                    export: None,
                    device: device.clone(),
                    channels: None,
                    cached,
                };
                (Opened::local(device, location::file_identity(path)), source)
            }
            Location::Volume(spec) => {
                let opened = place.open(!writable).await?;
                let export = nbd::url_of(spec).map(Box::new);
                let (device, channels) = (Arc::clone(&opened.device), peers::channels(spec));
                let source = match hyperscsi::url_of(spec) {
                    Some(url) => Source::HyperScsi(Box::new(url)),
                    None => Source::Local {
                        export,
                        device,
                        channels,
                        cached: None,
                    },
                };
                (opened, source)
            }
            Location::Lun(url) => (place.open(!writable).await?, Source::Lun(url.clone())),
        };
        let lun = opened.lun();
        let geometry = opened.device.geometry();
        let subject = Subject {
            place: place.to_string(),
            kind: kind(place),
            bytes: geometry.bytes(),
            block_bytes: geometry.block_size.bytes(),
            product: None,
            identity: opened.identity.clone(),
        };
        let keeps = !is_new && !place.is_fleeting();
        Ok(Storage {
            subject,
            source,
            device: opened.device,
            lun,
            keeps,
            is_new,
            notes,
        })
    }

    /// Returns facts about this machine, the path to the storage, and the storage.
    pub async fn facts(&self, place: &Location) -> Facts {
        let unit = self.lun.as_ref().map(|lun| lun.unit());
        environment::facts(place, &*self.device, unit.as_ref()).await
    }

    /// Returns the limits of the link to the storage, for the requests of a suite.
    pub async fn ceilings(&self, suite: &Suite) -> Vec<Limit> {
        let Some(lun) = &self.lun else {
            return Vec::new();
        };
        let workloads = suite
            .cells()
            .flat_map(|cell| &cell.roles)
            .map(|role| &role.workload);
        let lengths = workloads
            .flat_map(|workload| &workload.accesses)
            .map(|access| access.block_bytes);
        let lengths: BTreeSet<u32> = lengths.collect();
        environment::ceilings(&lun.unit(), &lengths.into_iter().collect::<Vec<_>>()).await
    }

    /// Returns the process that serves the storage, if it runs on this machine.
    pub async fn server(&self, place: &Location) -> Option<Server> {
        if let Some(lun) = &self.lun {
            return Server::serving(lun.target()).await;
        }
        let Location::Volume(spec) = place else {
            return None;
        };
        let export = nbd::url_of(spec)?;
        match &export.socket {
            Some(socket) => Server::on_socket(socket),
            None => Server::connected(&export.host, export.port),
        }
    }

    /// Logs out. Clients have their own sessions.
    pub async fn close(self) {
        if let Some(lun) = self.lun {
            lun.target().close().await;
        }
    }
}

/// Returns the kind of storage: its layers and the store below them, such as `iscsi`, `file`, or `disk over ram`.
fn kind(place: &Location) -> String {
    match place {
        Location::Lun(_) => "iscsi".to_owned(),
        Location::Path(path) => path_kind(path).to_owned(),
        Location::Volume(spec) => {
            let backend = spec.backend();
            match backend.members().first() {
                Some(member) => {
                    let below = kind(&Location::Volume(member.clone()));
                    format!("{} over {below}", backend.kind().name)
                }
                None => backend
                    .path()
                    .map_or(backend.kind().name, path_kind)
                    .to_owned(),
            }
        }
    }
}

fn path_kind(path: &Path) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let is_device = path
        .metadata()
        .is_ok_and(|metadata| metadata.file_type().is_block_device());
    if is_device { "block device" } else { "file" }
}

/// Opens a path, without the page cache if possible: otherwise the measurement would include memory accesses.
fn path_opened(
    path: &Path,
    read_only: bool,
    size: Option<Bytes>,
    notes: &mut Vec<String>,
) -> Result<FileDevice, Failure> {
    let bytes = size.map(|size| size.0);
    let through_the_cache = FileOptions {
        read_only,
        bytes,
        ..FileOptions::new(path)
    };
    let direct = FileOptions {
        direct: true,
        ..through_the_cache.clone()
    };
    let large = FileOptions {
        block_size: BlockSize::B4096,
        ..direct.clone()
    };
    let opened = match FileDevice::open(direct) {
        Err(OpenError::DirectNeedsLargerBlocks { .. }) => FileDevice::open(large),
        opened => opened,
    };
    let opened = match opened {
        Err(OpenError::NoDirect { .. }) => {
            let shown = path.display();
            notes.push(format!(
                "{shown} uses the page cache, because its file system does not support direct I/O"
            ));
            FileDevice::open(through_the_cache)
        }
        opened => opened,
    };
    opened.map_err(|error| unopened(path, read_only, error))
}

fn unopened(path: &Path, read_only: bool, error: OpenError) -> Failure {
    let shown = path.display();
    match error {
        OpenError::NotFound { .. } if read_only => Failure::refused(format!(
            "{shown} does not exist; use --size to create a file of this size"
        )),
        error => Failure::refused(error),
    }
}

/// The number of bytes purged in one step: small enough for frequent progress reports and a prompt end.
const PIECE_BYTES: u64 = 64 << 20;

/// Makes all whole blocks of the span read as zeros: deallocates them (UNMAP) if the device supports this,
/// and otherwise writes zeros (with WRITE SAME, or as the device prefers).
pub(crate) async fn purge(
    device: &dyn BlockDevice,
    span: Span,
    progress: &mut dyn FnMut(Purged) -> Go,
) -> Result<(), Failure> {
    let geometry = device.geometry();
    let block_bytes = u64::from(geometry.block_size.bytes());
    let end = span.bytes.map_or(geometry.bytes(), |bytes| {
        span.start_bytes.saturating_add(bytes)
    });
    let (first, end) = (
        span.start_bytes.div_ceil(block_bytes),
        end.min(geometry.bytes()) / block_bytes,
    );
    let piece = PIECE_BYTES / block_bytes;
    let mut at = first;
    while at < end {
        let blocks = piece.min(end - at);
        let zeroed = device
            .write_zeroes(
                Extent {
                    lba: Lba(at),
                    blocks: Blocks(blocks),
                },
                true,
            )
            .await;
        zeroed.map_err(|error| Failure::device(format_args!("cannot purge block {at}"), error))?;
        at += blocks;
        let purged = Purged {
            done_bytes: (at - first) * block_bytes,
            of_bytes: (end - first) * block_bytes,
        };
        if let Go::Stop = progress(purged) {
            break;
        }
    }
    device
        .flush()
        .await
        .map_err(|error| Failure::device("cannot flush after the purge", error))
}

/// Opens the journal of a completed run.
pub fn open_journal(path: &Path) -> Result<Journal, Failure> {
    let words = MappedWords::open(path).map_err(|error| unusable(path, &error))?;
    Journal::open(Rc::new(words)).map_err(|error| Failure::refused(about_journal(path, error)))
}

/// Opens the journal of a run, or creates it if the file does not exist.
pub(crate) fn journal_of_run(
    path: &Path,
    workload: &Workload,
    geometry: Geometry,
) -> Result<Rc<Journal>, Failure> {
    let journal = if path.exists() {
        open_journal(path)?
    } else {
        let count = Journal::words(workload, geometry).map_err(Failure::refused)?;
        let words = MappedWords::create(path, count).map_err(|error| unusable(path, &error))?;
        let mut epoch = [0; 4];
        peers::random(&mut epoch);
        let epoch = u32::from_le_bytes(epoch);
        Journal::begin(Rc::new(words), workload, geometry, epoch).map_err(Failure::refused)?
    };
    Ok(Rc::new(journal))
}

/// Formats a message about a journal.
pub fn about_journal(path: &Path, what: impl Display) -> String {
    format!("{}: {what}", path.display())
}

// The journal file of a run, which records acknowledged writes. It is a mapped file ([`host::MappedWords`])
// in the format of [`bench::journal`].

fn unusable(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock => Failure::refused(about_journal(
            path,
            "another run is using this log; wait until it completes",
        )),
        io::ErrorKind::StorageFull => Failure::new(
            FailureKind::NoSpace,
            about_journal(path, "no space is left for the log"),
        ),
        _ => Failure::refused(about_journal(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use backends::remote;
    use block::{Buffer, Durability};
    use host::{RamDevice, RamOptions};

    #[test]
    fn a_layer_is_part_of_the_kind() {
        let kind_of = |text: &str| kind(&Location::parse(text).expect("storage"));
        assert_eq!(kind_of("ram:1MiB"), "ram");
        assert_eq!(kind_of("disk:sata2009:[ram:1MiB]"), "disk over ram");
        assert_eq!(
            kind_of("limit:1000iops:[raid0:64KiB:[nbd://a/b,nbd://a/c]]"),
            "limit over raid0 over nbd"
        );
        assert_eq!(kind_of("iscsi://a/iqn.b/0"), "iscsi");
    }

    #[test]
    fn only_the_span_is_purged() {
        let device = Arc::new(RamDevice::new(RamOptions::new(1 << 20)).expect("memory"));
        let read = remote::run(async {
            let mut ones = Buffer::zeroed(1 << 20);
            ones.fill(1);
            let all = Extent::new(0, 2048);
            device
                .write(all, ones.share(), Durability::Cached)
                .await
                .expect("a write");
            let mut heard = Vec::new();
            let span = Span {
                start_bytes: 4096,
                bytes: Some(8192),
            };
            purge(&*device, span, &mut |purged| {
                heard.push((purged.done_bytes, purged.of_bytes));
                Go::On
            })
            .await?;
            assert_eq!(heard, [(8192, 8192)]);
            Ok(device
                .read(all, Buffer::zeroed(1 << 20))
                .await
                .expect("a read"))
        });
        let read = read.unwrap_or_else(|failure| panic!("{failure}"));
        let zeros: Vec<usize> = (0..read.len()).filter(|at| read[*at] == 0).collect();
        assert_eq!((zeros.first(), zeros.len()), (Some(&4096), 8192));
    }
}
