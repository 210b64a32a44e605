//! The back ends that need no system: layers over other volumes, and nothing at all. One more is a file and its two lines here.

mod buffered;
mod delay;
mod disk;
mod emulated;
mod fault;
mod limit;
mod null;

use crate::backend::Kind;

/// All of them, in the order of the document.
pub const ALL: &[&Kind] = &[
    &null::NULL,
    &delay::DELAY,
    &limit::LIMIT,
    &disk::DISK,
    &buffered::BUFFERED,
    &emulated::EMULATED_512,
    &fault::FAULT,
];
