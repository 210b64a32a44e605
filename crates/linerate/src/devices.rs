//! Makes devices of volume specifications.

use std::sync::Arc;

use block::{
    BlockDevice, Buffered, Delay, Emulated512, Fault, FaultControl, Limit, Null, SingleUser, Window,
};
use host::{FileDevice, FileOptions, OpenError, RamDevice, RamOptions, ReactorClock, ReactorTasks};

use crate::spec::{Layer, Spec};

/// Opens the volume that `spec` describes, for one user. Blocks; for the time before measuring or copying.
pub(crate) fn open(spec: &Spec) -> Result<Arc<dyn BlockDevice>, OpenError> {
    Ok(Arc::new(SingleUser::new(open_with_faults(spec, &FaultControl::default())?)))
}

/// The same for serving: each of its users is told of lost writes by its logical unit. `faults` makes all its `fault:` layers
/// misbehave.
pub(crate) fn open_with_faults(
    spec: &Spec,
    faults: &FaultControl,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    layer(spec, false, faults)
}

/// What may not be written is opened for reading alone down to its store, which is not made either then.
fn layer(spec: &Spec, read_only: bool, faults: &FaultControl) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let read_only = spec.readonly || read_only;
    let open = |inner| layer(inner, read_only, faults);
    Ok(match &spec.layer {
        Layer::Ram { size, blocks, small_pages } => Arc::new(RamDevice::new(RamOptions {
            bytes: size.0,
            block_size: blocks.logical,
            physical_exponent: blocks.physical_exponent(),
            read_only,
            huge_pages: !small_pages,
        })?),
        Layer::File { path, size, blocks, direct } => Arc::new(FileDevice::open(FileOptions {
            path: path.clone(),
            bytes: size.map(|size| size.0),
            direct: *direct,
            read_only,
            block_size: blocks.logical,
            physical_exponent: blocks.physical_exponent(),
        })?),
        Layer::Null { size, blocks } => Arc::new(Null::new(blocks.geometry(*size))),
        Layer::Delay { times, inner } => Arc::new(Delay::new(open(inner)?, *times, Arc::new(ReactorClock))),
        Layer::Limit { rate, inner } => Arc::new(Limit::new(open(inner)?, rate.0, Arc::new(ReactorClock))),
        Layer::Buffered { window, inner } => {
            Arc::new(Buffered::new(open(inner)?, Window::of(window.0), Arc::new(ReactorTasks)))
        }
        Layer::Emulated512 { inner } => Arc::new(Emulated512::new(open(inner)?, Arc::new(ReactorTasks))),
        Layer::Fault { inner } => Arc::new(Fault::new(open(inner)?, Arc::new(ReactorClock), faults.clone())),
    })
}
