//! Makes devices of volume specifications.

use std::sync::Arc;

use block::BlockDevice;
use host::{OpenError, RamDevice, RamOptions};

use crate::spec::{BlockShape, Bytes, Layer, Spec};

/// Opens the volume that `spec` describes.
pub(crate) fn open(spec: &Spec) -> Result<Arc<dyn BlockDevice>, OpenError> {
    Ok(match &spec.layer {
        Layer::Ram { size, blocks } => ram(*size, *blocks, spec.readonly)?,
        _ => unreachable!(),
    })
}

fn ram(size: Bytes, blocks: BlockShape, read_only: bool) -> Result<Arc<dyn BlockDevice>, OpenError> {
    Ok(Arc::new(RamDevice::new(RamOptions {
        bytes: size.0,
        block_size: blocks.logical,
        physical_exponent: blocks.physical_exponent(),
        read_only,
    })?))
}
