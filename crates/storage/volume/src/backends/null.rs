//! `null:1GiB`.

use std::sync::Arc;

use block::{BlockSize, Null};

use crate::backend::{Backend, Kind, Opened, Opening, Options};
use crate::spec::{BlockShape, Bytes, Problem, Written};

/// A null device: stores no data and completes at once.
pub(super) static NULL: Kind = Kind {
    name: "null",
    usage: "null:SIZE",
    about: "nothing: forgets what is written and reads as zeros, at once. For measuring what lies above it",
    is_layer: false,
    options: Options::Known(&["block", "physical"]),
    read,
};

#[derive(Debug)]
struct NullBackend {
    size: Bytes,
    blocks: BlockShape,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let blocks = BlockShape::read(written)?;
    Ok(Arc::new(NullBackend { size: blocks.capacity(written.argument())?, blocks }))
}

impl Backend for NullBackend {
    fn kind(&self) -> &'static Kind {
        &NULL
    }

    fn argument(&self) -> String {
        self.size.to_string()
    }

    fn options(&self) -> Vec<String> {
        self.blocks.options()
    }

    fn logical_block(&self) -> Option<BlockSize> {
        Some(self.blocks.logical)
    }

    fn open<'a>(&'a self, _opening: &'a Opening) -> Opened<'a> {
        Box::pin(async { Ok(Arc::new(Null::new(self.blocks.geometry(self.size))) as _) })
    }
}
