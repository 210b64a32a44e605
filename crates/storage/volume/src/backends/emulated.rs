//! `512e:[…]`.

use std::slice;
use std::sync::Arc;

use block::{BlockDevice, BlockSize, Emulated512};

use crate::backend::{Backend, Kind, Opened, Opening, Options};
use crate::spec::{Problem, Spec, Written};

/// 512-byte blocks over longer ones.
pub(super) static EMULATED_512: Kind = Kind {
    name: "512e",
    usage: "512e:[VOLUME]",
    about: "512-byte blocks over a volume of longer ones (`block=4096`), as most disks have them: what is \
            shorter than a block of that volume, or crosses the ends of one, is read, changed and written \
            back",
    is_layer: true,
    options: Options::Known(&[]),
    read,
};

const EXAMPLE: &str = "512e:[ram:1GiB?block=4096]";

#[derive(Debug)]
struct EmulatedBackend {
    inner: Spec,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    written.nothing_before_brackets("512e", EXAMPLE)?;
    let inner = written.member()?;
    match inner.logical_block() {
        Some(BlockSize::B512) => Err(Problem::new(written.place_of_members(), short_already())),
        _ => Ok(Arc::new(EmulatedBackend { inner })),
    }
}

fn short_already() -> String {
    format!("this volume has 512-byte blocks already; write longer ones, as in {EXAMPLE}")
}

impl Backend for EmulatedBackend {
    fn kind(&self) -> &'static Kind {
        &EMULATED_512
    }

    fn argument(&self) -> String {
        String::new()
    }

    fn members(&self) -> &[Spec] {
        slice::from_ref(&self.inner)
    }

    fn logical_block(&self) -> Option<BlockSize> {
        Some(BlockSize::B512)
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let inner = self.inner.open(opening).await?;
            if inner.geometry().block_size == BlockSize::B512 {
                return Err(format!("{}: {}", self.inner, short_already()).into());
            }
            Ok(Arc::new(Emulated512::new(inner, Arc::clone(&opening.spawner))) as _)
        })
    }
}
