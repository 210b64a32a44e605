//! The front ends of a configured server. The rest of this crate does not refer to any front end by name.
//! Each front end is an entry in the table ([`ALL`]), and implements [`Configured`] and [`RunningFrontEnd`].
//! A program, or a test, may use a different table
//! ([`StartOptions::front_ends`](crate::StartOptions::front_ends)).

pub mod aoe;
pub mod exposed;
pub mod hyperscsi;
pub mod iscsi;
pub mod nbd;
mod sections;

pub use crate::config::values::{listen_address, listen_address_or_path};
pub use crate::config::{
    Beside, Configured, Document, FrontEndKind, FrontEnds, RunningFrontEnd, Serving,
};

/// All front ends. `server add` uses the first one by default.
pub const ALL: &[FrontEndKind] = &[iscsi::KIND, nbd::KIND, aoe::KIND, hyperscsi::KIND];

impl Default for FrontEnds {
    fn default() -> FrontEnds {
        FrontEnds(ALL)
    }
}
