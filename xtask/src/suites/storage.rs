//! The kinds of storage that people measure.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::measuring::namespace::Namespace;
use crate::measuring::{CLIENT_CORE, SERVER_CORE};
use crate::serving::Placement;
use crate::serving::attached::{Attached, Mounted};
use crate::serving::linerate::Linerate;
use crate::serving::tgt::Tgt;
use crate::workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Linerate,
    Tgt,
    File,
    Ext4,
}

/// Something to measure, gone when it is dropped.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) kind: Kind,
    lies: Lies,
    client: Placement,
}

#[derive(Debug)]
enum Lies {
    Linerate(Linerate),
    Tgt(Tgt),
    File(PathBuf),
    // In the order of dropping: first the file system, then the server under it.
    Ext4(Mounted, #[expect(dead_code, reason = "is there to be dropped")] Linerate),
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Linerate, Kind::Tgt, Kind::File, Kind::Ext4];

    /// For the table.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Kind::Linerate => "`linerate serve`",
            Kind::Tgt => "tgt",
            Kind::File => "local file",
            Kind::Ext4 => "ext4 on a LUN",
        }
    }
}

impl Storage {
    /// Makes it, with room for so many bytes.
    pub(super) fn prepare(kind: Kind, bytes: u64, binary: &Path, namespace: &Namespace) -> Result<Storage> {
        let server = Placement { namespace: Some(namespace.name.clone()), core: Some(SERVER_CORE) };
        let client = Placement { core: Some(CLIENT_CORE), ..server.clone() };
        let serving = |mib: u64| Linerate::start(binary, &[format!("ram0=ram:{mib}MiB")], 1, &server);
        let lies = match kind {
            Kind::Linerate => Lies::Linerate(serving(bytes >> 20)?),
            Kind::Tgt => Lies::Tgt(Tgt::start(bytes, &server)?),
            Kind::File => Lies::File(image(&workspace::target_directory().join("xtask"), bytes)?),
            Kind::Ext4 => {
                let linerate = serving((bytes >> 20) * 2)?; // the file system wants some of it
                let url = format!("{}?congestion=cubic", linerate.url("ram0", 0));
                let mounted = Mounted::on(Attached::to(&url, binary, &server)?)?;
                image(mounted.folder(), bytes)?;
                Lies::Ext4(mounted, linerate)
            }
        };
        Ok(Storage { kind, lies, client })
    }

    /// How `linerate bench` calls it.
    pub(super) fn place(&self) -> String {
        match &self.lies {
            Lies::Linerate(server) => format!("{}?congestion=cubic", server.url("ram0", 0)),
            Lies::Tgt(server) => format!("{}?congestion=cubic", server.url()),
            Lies::File(path) => format!("file:{}?direct=on", path.display()),
            Lies::Ext4(mounted, _) => format!("file:{}?direct=on", mounted.folder().join(IMAGE).display()),
        }
    }

    /// Where the program runs.
    pub(super) fn client(&self) -> &Placement {
        &self.client
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Lies::File(path) = &self.lies {
            let _ = fs::remove_file(path);
        }
    }
}

const IMAGE: &str = "suites.img";

/// A file of zeros: without holes, which a file system would not ask its disk for.
fn image(folder: &Path, bytes: u64) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(IMAGE);
    let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), bytes), &mut &file)?;
    file.sync_all()?;
    Ok(path)
}
