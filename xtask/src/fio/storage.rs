//! What both programs are measured on, and how each of them calls it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::measuring::cell::{Cell, Places};
use crate::measuring::namespace::Namespace;
use crate::measuring::{CLIENT_CORE, SERVER_CORE};
use crate::process;
use crate::serving::Placement;
use crate::serving::attached::Attached;
use crate::serving::linerate::Linerate;
use crate::workspace;

/// A kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Nothing: what a program takes for itself.
    Null,
    /// A file on the disk that this source tree lies on.
    Disk,
    /// A file in memory (/dev/shm): a device that takes next to no time.
    Memory,
    /// A LUN of ours, attached, as a block device.
    Loop,
    /// The same LUN by each program's own initiator.
    Lun,
}

/// Something to measure, gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) kind: Kind,
    place: Lies,
    client: Placement,
}

#[derive(Debug)]
enum Lies {
    Nowhere,
    File(PathBuf),
    // In the order of dropping: first the device, then the server under it.
    Loop(Attached, #[expect(dead_code, reason = "is there to be dropped")] Linerate),
    Lun(Linerate),
}

/// Far larger than a processor's cache, and small enough to be written in a moment.
pub(crate) const SPAN_BYTES: u64 = 1 << 30;

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Null, Kind::Disk, Kind::Memory, Kind::Loop, Kind::Lun];

    /// fio's way there.
    pub(crate) fn engine(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Disk | Kind::Memory | Kind::Loop => "io_uring",
            Kind::Lun => "libiscsi",
        }
    }

    /// Where nothing is moved, only the number of requests matters.
    pub(crate) fn takes(self, cell: &Cell) -> bool {
        self != Kind::Null || cell.places == Places::Random && cell.is_read()
    }

    /// For a heading.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Kind::Null => "Nothing: `null:1TiB`, fio's engine `null`",
            Kind::Disk => "A file on this machine's disk",
            Kind::Memory => "A file in memory (`/dev/shm`)",
            Kind::Loop => "A LUN of `linerate serve`, by `linerate attach` and a loop device",
            Kind::Lun => "The same LUN, each with its own initiator (fio: libiscsi)",
        }
    }
}

impl Storage {
    /// Makes it, and writes all of it, so that nobody reads holes.
    pub(crate) fn prepare(kind: Kind, binary: &Path, fio: &Path, namespace: &Namespace) -> Result<Storage> {
        let server = Placement { namespace: Some(namespace.name.clone()), core: Some(SERVER_CORE) };
        let client = Placement { core: Some(CLIENT_CORE), ..server.clone() };
        let serving = || Linerate::start(binary, &["ram0=ram:1GiB".to_owned()], 1, &server);
        let place = match kind {
            Kind::Null => Lies::Nowhere,
            Kind::Disk => Lies::File(workspace::target_directory().join("xtask").join(file_name())),
            Kind::Memory => Lies::File(Path::new("/dev/shm").join(file_name())),
            Kind::Loop => {
                let linerate = serving()?;
                let url = format!("{}?congestion=cubic", linerate.url("ram0", 0));
                Lies::Loop(Attached::to(&url, binary, &server)?, linerate)
            }
            Kind::Lun => Lies::Lun(serving()?),
        };
        let storage = Storage { kind, place, client };
        storage.fill(fio)?;
        Ok(storage)
    }

    /// How `linerate bench` calls it.
    pub(crate) fn for_linerate(&self) -> String {
        match &self.place {
            Lies::Nowhere => "null:1TiB".to_owned(),
            Lies::File(path) => format!("file:{}?direct=on", path.display()),
            Lies::Loop(attached, _) => format!("file:{}?direct=on", attached.device()),
            Lies::Lun(server) => format!("{}?congestion=cubic", server.url("ram0", 0)),
        }
    }

    /// How fio calls it.
    pub(crate) fn for_fio(&self) -> String {
        match &self.place {
            Lies::Nowhere => "nothing".to_owned(),
            Lies::File(path) => path.display().to_string(),
            Lies::Loop(attached, _) => attached.device().to_owned(),
            // A colon separates files.
            Lies::Lun(server) => server.url("ram0", 0).replace(':', "\\:"),
        }
    }

    /// Where both programs run.
    pub(crate) fn client(&self) -> &Placement {
        &self.client
    }

    fn fill(&self, fio: &Path) -> Result<()> {
        if self.kind == Kind::Null {
            return Ok(());
        }
        let mut command = self.client.command(fio);
        command.args([
            "--name=fill",
            "--rw=write",
            "--bs=1M",
            "--iodepth=8",
            "--direct=1",
            "--refill_buffers",
        ]);
        command.arg(format!("--ioengine={}", self.kind.engine())).arg(format!("--size={SPAN_BYTES}"));
        command.arg(format!("--filename={}", self.for_fio()));
        process::capture(command).context("filling it").map(drop)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Lies::File(path) = &self.place {
            let _ = fs::remove_file(path); // it has this process's number in its name
        }
    }
}

fn file_name() -> String {
    format!("linerate-xtask-fio-{}.img", std::process::id())
}
