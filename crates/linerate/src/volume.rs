//! Makes devices of volume specifications.

use std::sync::Arc;

use block::BlockDevice;
use host::{RamDevice, RamOptions};

use crate::spec::{BlockShape, Bytes, Layer, Spec};

/// Opens the volume that `spec` describes.
pub(crate) fn open(spec: &Spec) -> Result<Arc<dyn BlockDevice>, String> {
    Ok(match &spec.layer {
        Layer::Ram { size, blocks } => ram(*size, *blocks, spec.readonly)?,
        Layer::File { .. } | Layer::Delay { .. } | Layer::Fault { .. } => return Err(format!("{spec} is not in this build")),
    })
}

fn ram(size: Bytes, blocks: BlockShape, read_only: bool) -> Result<Arc<dyn BlockDevice>, String> {
    let options = RamOptions {
        bytes: size.0,
        block_size: blocks.logical,
        physical_exponent: blocks.physical_exponent(),
        read_only,
    };
    Ok(Arc::new(RamDevice::new(options).map_err(|error| error.to_string())?))
}
