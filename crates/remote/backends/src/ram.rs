//! RAM volumes, such as `ram:1GiB?block=4096`.

use std::sync::Arc;

use block::BlockSize;
use host::{RamDevice, RamOptions};
use volume::backend::{Backend, BlockPlaces, Kind, Opened, Opening, Options};
use volume::spec::{BlockShape, Bytes, Problem, Written};

/// A volume in memory, which is allocated when it is first written.
pub(crate) static RAM: Kind = Kind {
    name: "ram",
    usage: "ram:SIZE",
    about: "memory, allocated on write and released by UNMAP; empty after a restart",
    blocks: BlockPlaces::Store,
    options: Options::Known(&["block", "physical", "small-pages"]),
    read,
};

#[derive(Debug)]
struct Ram {
    size: Bytes,
    blocks: BlockShape,
    /// Use 4 KiB pages only. This is slower, but takes no more memory than was written.
    small_pages: bool,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let blocks = BlockShape::read(written)?;
    let size = blocks.capacity(written.argument())?;
    Ok(Arc::new(Ram {
        size,
        blocks,
        small_pages: written.flag("small-pages")?,
    }))
}

impl Backend for Ram {
    fn kind(&self) -> &'static Kind {
        &RAM
    }

    fn argument(&self) -> String {
        self.size.to_string()
    }

    fn options(&self) -> Vec<String> {
        let pages = self.small_pages.then(|| "small-pages".to_owned());
        self.blocks.options().into_iter().chain(pages).collect()
    }

    fn logical_block(&self) -> Option<BlockSize> {
        Some(self.blocks.logical)
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let device = RamDevice::new(RamOptions {
                bytes: self.size.0,
                block_size: self.blocks.logical,
                physical_exponent: self.blocks.physical_exponent(),
                read_only: opening.read_only,
                huge_pages: !self.small_pages,
            })?;
            Ok(Arc::new(device) as _)
        })
    }
}
