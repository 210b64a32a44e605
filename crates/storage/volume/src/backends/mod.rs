//! The back ends that need no operating system: layers over other volumes, and the null device.

mod buffered;
mod delay;
mod emulated;
mod fault;
mod limit;
mod null;

pub use buffered::BUFFERED;
pub use delay::DELAY;
pub use emulated::EMULATED_512;
pub use fault::FAULT;
pub use limit::LIMIT;
pub use null::NULL;
