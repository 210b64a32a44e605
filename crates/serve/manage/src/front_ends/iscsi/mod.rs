//! iSCSI: `[[portal]]`, `[[target]]` and `[discovery]`.

pub(crate) mod chap;
mod names;
pub(crate) mod portal;
mod session;
pub(crate) mod target;

pub use chap::{Account, Chap};
pub(crate) use chap::{Protected, Source};
pub use portal::Portal;
pub use target::{Lun, Target};
