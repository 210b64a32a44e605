//! The ways in which the same requests are served, and how each is measured.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::fio::storage::Storage;
use crate::fio::tools::Tool;
use crate::measuring::cell::Cell;
use crate::measuring::client::{Client, Target};
use crate::measuring::namespace::Namespace;
use crate::measuring::{CLIENT_CORE, SERVER_CORE, Server, VOLUME_BYTES};
use crate::serving::linerate::Linerate;
use crate::serving::{Peer, Placement};

/// Who serves, and from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Served {
    /// Ours: a RAM volume.
    Ram,
    /// Ours: a file on disk that the page cache has.
    Cached,
    /// The same without io_uring.
    CachedThreads,
    /// Ours: a file in memory (/dev/shm).
    Memory,
    /// The same without io_uring.
    MemoryThreads,
    /// Ours: the file on disk, past the page cache.
    Direct,
    /// No iSCSI: fio on the file on disk, past the page cache.
    Fio,
    /// tgt: a file in memory (/dev/shm).
    Tgt,
}

/// One run of one cell.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) iops: f64,
    /// Microseconds of CPU time for each request, of the server; of fio itself where there is none.
    pub(super) cpu_us_per_io: f64,
}

/// What all of them share.
pub(super) struct Site<'a> {
    binary: &'a Path,
    fio: &'a Path,
    namespace: &'a Namespace,
    storage: &'a Storage,
    memory: Image,
}

/// A written file in memory, gone when dropped.
struct Image(PathBuf);

impl Served {
    pub(super) const ALL: [Served; 8] = [
        Served::Ram,
        Served::Cached,
        Served::CachedThreads,
        Served::Memory,
        Served::MemoryThreads,
        Served::Direct,
        Served::Fio,
        Served::Tgt,
    ];

    /// For the tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Served::Ram => "RAM volume",
            Served::Cached => "file in the page cache",
            Served::CachedThreads => "the same, `--io-engine threads`",
            Served::Memory => "file on /dev/shm",
            Served::MemoryThreads => "the same, `--io-engine threads`",
            Served::Direct => "file, direct",
            Served::Fio => "fio, direct, no iSCSI",
            Served::Tgt => "tgt, file on /dev/shm",
        }
    }

    /// Which cells say something of it: tgt is only asked what a goal is about.
    pub(super) fn takes(self, cell: &Cell) -> bool {
        self != Served::Tgt || (cell.depth == 32 && cell.block_bytes == 4 << 10)
    }

    /// Starts it, measures every cell it takes, stops it.
    pub(super) fn measure(
        self,
        cells: &[&'static Cell],
        site: &Site<'_>,
        seconds: f64,
    ) -> Result<Vec<(&'static str, Figures)>> {
        let cells = cells.iter().copied().filter(|cell| self.takes(cell));
        match self {
            Served::Fio => cells.map(|cell| Ok((cell.name, site.ask_fio(cell, seconds)?))).collect(),
            Served::Ram | Served::Tgt => {
                let peer = if self == Served::Tgt { Peer::Tgt } else { Peer::Linerate };
                let server = Server::start(peer, site.binary, site.namespace)?;
                cells.map(|cell| Ok((cell.name, site.ask(cell, &server.target(), seconds)?))).collect()
            }
            Served::Cached
            | Served::CachedThreads
            | Served::Memory
            | Served::MemoryThreads
            | Served::Direct => {
                let server = self.start(site)?;
                let url = server.url(VOLUME, 0);
                let target = Target { url, server: server.pid(), placement: site.here(CLIENT_CORE) };
                cells.map(|cell| Ok((cell.name, site.ask(cell, &target, seconds)?))).collect()
            }
        }
    }

    fn start(self, site: &Site<'_>) -> Result<Linerate> {
        let on_disk = site.storage.for_fio();
        let in_memory = site.memory.0.display().to_string();
        let (path, keys) = match self {
            Served::Memory | Served::MemoryThreads => (in_memory, ""),
            Served::Direct => (on_disk, "?direct=on"),
            _ => {
                load(&on_disk)?;
                (on_disk, "")
            }
        };
        let threads = matches!(self, Served::CachedThreads | Served::MemoryThreads);
        let options: &[&str] = if threads { &["--io-engine", "threads"] } else { &[] };
        let volumes = [format!("{VOLUME}=file:{path}{keys}")];
        Linerate::start_with(options, site.binary, &volumes, 1, &site.here(SERVER_CORE))
    }
}

const VOLUME: &str = "file0";

/// Brings a file into the page cache: direct writes have put it out of there.
fn load(path: &str) -> Result<()> {
    let read = File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    read.map(drop).with_context(|| path.to_owned())
}

impl<'a> Site<'a> {
    pub(super) fn new(
        binary: &'a Path,
        fio: &'a Path,
        namespace: &'a Namespace,
        storage: &'a Storage,
    ) -> Result<Site<'a>> {
        let memory = Image::written(VOLUME_BYTES).context("a file in /dev/shm")?;
        Ok(Site { binary, fio, namespace, storage, memory })
    }

    fn here(&self, core: usize) -> Placement {
        Placement { namespace: Some(self.namespace.name.clone()), core: Some(core) }
    }

    fn ask(&self, cell: &Cell, target: &Target, seconds: f64) -> Result<Figures> {
        let measured = Client::Linerate.measure(cell, self.binary, target, seconds)?;
        Ok(Figures { iops: measured.iops, cpu_us_per_io: measured.server_cpu_us_per_io })
    }

    fn ask_fio(&self, cell: &Cell, seconds: f64) -> Result<Figures> {
        let measured = Tool::Fio.measure(self.fio, cell, self.storage, seconds)?;
        Ok(Figures { iops: measured.iops, cpu_us_per_io: measured.cpu_us_per_io })
    }
}

impl Image {
    fn written(bytes: u64) -> io::Result<Image> {
        let path = PathBuf::from(format!("/dev/shm/linerate-xtask-volumes-{}.img", std::process::id()));
        let image = Image(path);
        let mut file = File::create(&image.0)?;
        io::copy(&mut io::Read::take(io::repeat(90), bytes), &mut file)?;
        Ok(image)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // it has this process's number in its name
    }
}
