//! The source of a copy.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use backends::Failure;
use backends::location::{self, Location, Opened};
use block::{BlockDevice, BlockSize, Buffer, DeviceError, Run, Slice, bytewise};
use host::FileOptions;
use iscsi_client::Unit;
use sha2::{Digest as _, Sha256};

use crate::stream::requests;

/// A source, open for reading.
pub(crate) struct Source {
    opened: Opened,
    pub(crate) name: String,
    /// The source's length in bytes.
    pub(crate) bytes: u64,
    /// The bytes after the last whole block of a file whose length is not a multiple of the block size.
    tail: Option<Slice>,
    /// The modification time of a file in nanoseconds; LUNs have none.
    modified: Option<i128>,
}

impl Source {
    pub(crate) async fn open(place: &Location) -> Result<Source, Failure> {
        let name = place.to_string();
        match place {
            Location::Path(path) if !is_block_device(path) => of_file(path, name),
            _ => Ok(Source::from_opened(place.open_by_bytes(true).await?, name)),
        }
    }

    /// Rejects a copy of a disk image in a container format to a device, because the copied bytes would not
    /// be a usable disk there. Copies to a file are allowed, and any content of a LUN may be copied.
    pub(crate) async fn refuse_image(&self, to: &Location) -> Result<(), Failure> {
        let is_file = matches!(to, Location::Path(path) if !is_block_device(path));
        if is_file || self.unit().is_some() {
            return Ok(());
        }
        // If the content cannot be read, the copy will report the error.
        let found = disk_contents::contents(&*self.opened.device)
            .await
            .ok()
            .flatten();
        match found.and_then(|found| found.disk_image()) {
            None => Ok(()),
            Some(image) => Err(Failure::refused(format_args!(
                "{} is {image}, and {to} would get its bytes, not the disk in it; convert it first (qemu-img \
                 convert -O raw), or use --raw to copy the bytes",
                self.name
            ))),
        }
    }

    /// Uses the whole device as the source.
    pub(crate) fn from_opened(opened: Opened, name: String) -> Source {
        let bytes = opened.device.length_bytes();
        Source {
            opened,
            name,
            bytes,
            tail: None,
            modified: None,
        }
    }

    /// Uses the part of a device that ends at byte `end` as the source.
    pub(crate) fn up_to(end: u64, device: Arc<dyn BlockDevice>, name: String) -> Source {
        Source {
            opened: Opened::local(device, None),
            name,
            bytes: end,
            tail: None,
            modified: None,
        }
    }

    /// The identity that must match for a copy to be resumed; `None` if it is not resumable.
    pub(crate) fn identity(&self) -> Option<String> {
        let identity = self.opened.identity.as_ref()?;
        let modified = self
            .modified
            .map(|time| format!(", changed at {time} ns"))
            .unwrap_or_default();
        Some(format!("{identity}, {} bytes{modified}", self.bytes))
    }

    /// Whether the storage `other` is this source.
    pub(crate) fn is_at(&self, other: &Opened) -> bool {
        self.opened.identity.is_some() && self.opened.identity == other.identity
    }

    /// Whether `path` names this source.
    pub(crate) fn is_path(&self, path: &Path) -> bool {
        self.opened.identity.is_some() && self.opened.identity == location::file_identity(path)
    }

    /// The block size.
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.opened.device.geometry().block_size.bytes())
    }

    pub(crate) async fn read(&self, range: Range<u64>) -> Result<Slice, DeviceError> {
        let whole_end = self.whole_bytes();
        let Some(tail) = self.tail.as_ref().filter(|_| range.end > whole_end) else {
            return bytewise::read(&*self.opened.device, range).await;
        };
        let blocks =
            bytewise::read(&*self.opened.device, range.start.min(whole_end)..whole_end).await?;
        Ok(Buffer::from(&[&*blocks, &**tail].concat()[..]).share())
    }

    /// The length of the device's whole blocks, in bytes.
    fn whole_bytes(&self) -> u64 {
        self.bytes - self.tail.as_ref().map_or(0, |tail| tail.len() as u64)
    }

    /// Queries the allocation of `range`. The result may cover only its beginning.
    pub(crate) async fn allocation(&self, range: Range<u64>) -> Result<Vec<Run>, DeviceError> {
        /// Maximum number of runs per query (GET LBA STATUS).
        const RUNS: usize = 256;
        let range = range.start..range.end.min(self.whole_bytes());
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let extent = bytewise::covering(&*self.opened.device, &range)?;
        self.opened.device.allocation(extent, RUNS).await
    }

    /// The logical unit, if it is one, and the address of its target.
    pub(crate) fn unit(&self) -> Option<(Unit, SocketAddr)> {
        self.opened.unit()
    }

    /// Adds the reason to a failure of the source, if it can no longer be reached.
    pub(crate) async fn explained<T>(&self, done: Result<T, Failure>) -> Result<T, Failure> {
        self.opened.explained(done).await
    }

    pub(crate) async fn close(&self) {
        self.opened.close().await;
    }
}

fn is_block_device(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Opens a file as the source. Unlike a device, a file need not have a whole number of blocks.
fn of_file(path: &Path, name: String) -> Result<Source, Failure> {
    let refused = |error| Failure::refused(format!("{name}: {error}"));
    let metadata = path.metadata().map_err(refused)?;
    let (bytes, block) = (metadata.len(), u64::from(BlockSize::B512.bytes()));
    let whole = bytes - bytes % block;
    if whole == 0 {
        return Err(Failure::refused(format!(
            "{name} has {bytes} bytes, less than one block"
        )));
    }
    let options = FileOptions {
        bytes: Some(whole),
        read_only: true,
        ..FileOptions::new(path)
    };
    let opened = location::file(options)?;
    let tail = (whole < bytes)
        .then(|| tail(path, whole..bytes))
        .transpose()
        .map_err(refused)?;
    let modified =
        Some(i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()));
    Ok(Source {
        opened,
        name,
        bytes,
        tail,
        modified,
    })
}

fn tail(path: &Path, range: Range<u64>) -> std::io::Result<Slice> {
    let mut tail = Buffer::zeroed((range.end - range.start) as usize);
    File::open(path)?.read_exact_at(&mut tail, range.start)?;
    Ok(tail.share())
}

// SHA-256 over the source, with holes as zeros: the same value as `sha256sum` for a file with the same
// content.

/// Bytes that are hashed between two charges to the task's budget.
const STEP_BYTES: usize = 64 << 10;

/// A digest of pieces in any order.
#[derive(Default)]
pub(crate) struct Digest {
    state: Sha256,
    at: u64,
    /// Pieces that cannot be hashed yet because an earlier piece is missing, by start.
    waiting: BTreeMap<u64, (u64, Option<Slice>)>,
}

impl Digest {
    /// Adds a piece. A piece without data is a hole. SHA-256 must process every zero byte, so hashing a hole
    /// takes as long as hashing data.
    pub(crate) async fn add(&mut self, range: Range<u64>, data: Option<Slice>) {
        const ZEROS: &[u8] = &[0; STEP_BYTES];
        debug_assert!(range.start >= self.at, "no byte is hashed twice");
        debug_assert!(
            !self.waiting.contains_key(&range.start),
            "a piece is hashed once"
        );
        self.waiting.insert(range.start, (range.end, data));
        while let Some((end, data)) = self.waiting.remove(&self.at) {
            match data {
                Some(data) => self.update(&data).await,
                None => {
                    for zeros in requests(self.at..end, STEP_BYTES as u64) {
                        self.update(&ZEROS[..(zeros.end - zeros.start) as usize])
                            .await;
                    }
                }
            }
            self.at = end;
        }
    }

    /// Hashes bytes within the budget of a task. Otherwise, the session could not answer a NOP while a long
    /// hole is hashed, and the target would close the session.
    async fn update(&mut self, bytes: &[u8]) {
        for step in bytes.chunks(STEP_BYTES) {
            self.state.update(step);
            reactor::consume_budget(step.len()).await;
        }
    }

    /// The digest of all pieces.
    pub(crate) fn hex(self) -> String {
        written(&self.state.finalize())
    }
}

/// The digest of these bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    written(&Sha256::digest(bytes))
}

fn written(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing into a String does not fail
        text
    })
}

#[cfg(test)]
mod tests {
    use block::Buffer;
    use reactor::Alone;

    use super::*;

    #[test]
    fn pieces_count_in_their_places_whenever_they_come() {
        let long = STEP_BYTES as u64 * 3 + 5;
        let digest = reactor::block_on(Alone::virtual_time(), async {
            let mut digest = Digest::default();
            digest
                .add(long..long + 3, Some(Buffer::from(&b"def"[..]).share()))
                .await;
            digest
                .add(0..3, Some(Buffer::from(&b"abc"[..]).share()))
                .await;
            digest.add(3..long, None).await;
            digest.hex()
        });
        let zeros = vec![0; long as usize - 3];
        assert_eq!(digest, hex(&[b"abc", &zeros[..], b"def"].concat()));
    }

    #[test]
    fn it_is_the_one_that_everybody_computes() {
        // The SHA-256 of empty data (FIPS 180-4).
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::default().hex(), expected);
    }
}
