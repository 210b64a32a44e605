//! What monitoring is told of a running server: metrics in Prometheus' text format, and whether it is healthy.
//!
//! Nothing is counted here. Cores count for themselves (`target::statistics`), volumes and logical units know their state, and
//! the kernel that of the process; all of it is asked for when somebody wants it ([`Sample`]). A server that is reloading, or
//! of which a core hangs, answers in a second all the same, and says so.
//!
//! Reading order: [`families`] (what there is), [`exposition`] (how it is written), [`sample`] (where it comes from), `render`
//! (one as the other), [`health`], `http` (who asks).

mod exposition;
mod families;
pub(crate) mod health;
pub(crate) mod http;
mod render;
mod sample;

pub use exposition::{Family, Kind};
pub use families::FAMILIES;
pub use health::Health;
pub(crate) use sample::{Probe, Reloads};

use crate::live::Live;

impl Live {
    /// All metrics now. Blocks for at most a second for each who asks at the same time.
    pub fn metrics(&self) -> String {
        render::text(&self.sample())
    }

    /// Whether all is well. Blocks like [`Live::metrics`].
    pub fn health(&self) -> Health {
        Health::of(&self.sample())
    }
}
