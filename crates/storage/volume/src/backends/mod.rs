//! The back ends that need no system: layers over other volumes, and nothing at all.

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
