//! A file or block device, such as `file:/data/vm1.img?size=50GiB`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::BlockSize;
use host::{FileDevice, FileOptions, OpenError};
use volume::backend::{Backend, BlockPlaces, Creation, Kind, Opened, Opening, Options};
use volume::spec::{BlockShape, Bytes, Problem, Token, WhichIdentity, Written, decode, encode};

/// A regular file or a block device.
pub(crate) static FILE: Kind = Kind {
    name: "file",
    usage: "file:PATH",
    about: "an existing file or block device, all of it. A path that begins with `/`, `./` or `../` needs \
        no `file:`",
    blocks: BlockPlaces::Store,
    options: Options::Known(&["block", "physical", "size", "direct", "create", "identity"]),
    read,
};

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// The volume's capacity; `None` for the whole file.
    size: Option<Bytes>,
    blocks: BlockShape,
    /// Whether to bypass the page cache (O_DIRECT).
    direct: bool,
    /// Whether to create a missing file even if its volume was served before.
    create: bool,
    /// The identity to use if the volume has no stored identity.
    identity: Option<WhichIdentity>,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let blocks = BlockShape::read(written)?;
    let size = written
        .value("size")?
        .map(|size| blocks.capacity(size))
        .transpose()?;
    let path = path(written.argument())?;
    let (direct, create) = (written.flag("direct")?, written.flag("create")?);
    let identity = written.parsed("identity")?;
    Ok(Arc::new(File {
        path,
        size,
        blocks,
        direct,
        create,
        identity,
    }))
}

fn path(word: &Token) -> Result<PathBuf, Problem> {
    let wrong = |sentence: &str| Err(Problem::new(word.at.clone(), sentence));
    if word.text.is_empty() {
        return wrong("a path is missing; write one such as file:/data/vm1.img");
    }
    if word.text.starts_with("//") {
        return wrong("a file has no host; write one slash: file:/data/vm1.img");
    }
    let bytes = decode(word)?;
    if bytes.contains(&0) {
        return wrong("a path cannot contain the character %00");
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

impl Backend for File {
    fn kind(&self) -> &'static Kind {
        &FILE
    }

    fn argument(&self) -> String {
        let path = encode(self.path.as_os_str().as_bytes());
        // Two slashes would be parsed as a host.
        path.strip_prefix("//")
            .map(|rest| format!("/%2f{rest}"))
            .unwrap_or(path)
    }

    fn options(&self) -> Vec<String> {
        let size = self.size.map(|size| format!("size={size}"));
        let direct = self.direct.then(|| "direct".to_owned());
        let create = self.create.then(|| "create".to_owned());
        let identity = self.identity.map(|which| format!("identity={which}"));
        size.into_iter()
            .chain(self.blocks.options())
            .chain(direct)
            .chain(create)
            .chain(identity)
            .collect()
    }

    fn logical_block(&self) -> Option<BlockSize> {
        Some(self.blocks.logical)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn makes_file(&self) -> Option<&Path> {
        self.size
            .and(Some(self.path.as_path()))
            .filter(|path| !path.exists())
    }

    fn orders_creation(&self) -> bool {
        self.create
    }

    fn which_identity(&self) -> Option<WhichIdentity> {
        self.identity
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn cache_outlives_process(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let device = FileDevice::open(FileOptions {
                path: self.path.clone(),
                bytes: self.size.map(|size| size.0),
                create: match opening.creation {
                    Creation::Free => true,
                    Creation::Ordered => self.create,
                    Creation::Never => false,
                },
                direct: self.direct,
                read_only: opening.read_only,
                block_size: self.blocks.logical,
                physical_exponent: self.blocks.physical_exponent(),
            });
            let device = device.map_err(|error| match (error, self.size) {
                (OpenError::Missing { path }, Some(Bytes(bytes))) if self.create => {
                    OpenError::OrderUsed { path, bytes }
                }
                (error, _) => error,
            })?;
            if let Some(created) = device.created() {
                opening.undo.add(move || created.remove());
            }
            Ok(Arc::new(device) as _)
        })
    }
}
