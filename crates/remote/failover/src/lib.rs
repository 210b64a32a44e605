//! Several connections to one device: balancing, failover, and fencing of late writes ("ghosts"). This crate
//! does not depend on a protocol.
//!
//! ```text
//!   Channels::ask ── Claims ──► Balance ──► Link ──► Transport's protocol
//!        ▲            │ one change of a block at a time       │ lost, or unresponsive
//!        └─ resent, until its deadline ◄── another link ◄──────┘
//!                     └── the claim stays with the lost link until the server has fenced it, or a quarantine ends
//! ```
//!
//! A *ghost* is a change that was sent over a failed connection and reaches the medium later. It is harmless
//! while its blocks are unchanged, or are changed to the same data, so a lost request can be resent
//! immediately. However, the ghost must not reach the medium after a newer change to the blocks has been
//! acknowledged. Therefore
//!
//! - changes of the same block are never outstanding at the same time ([`Claims`]), and
//! - a claim is held by the request and by each link that it was sent over. A link releases it when the
//!   request is answered there, or when the server reports that the connection is terminated
//!   ([`Connected::fences`]). For a server that cannot report this, the link releases it when the
//!   [quarantine](Settings::quarantine) of the reset connection is over.
//!
//! Acknowledged changes that no flush has covered are kept in a [`Journal`]. If the server reports that it
//! has lost them, the journal is replayed before anything else is sent. If the server reports nothing, and no
//! link to its earlier instance is left, the journal is compared with the server's content (`channels` has a
//! table of the cases). A [file](Channels::keep_in) can also keep the changes, in case this process is
//! killed.
//!
//! # Waits
//!
//! A response is accepted only while its link is not lost, because the journal may have been replayed in the
//! meantime. `tests/model.rs` checks these rules in virtual time. Linerate's NBD server fences named
//! connections in `serve/nbd/src/channels.rs`: it closes them and waits for their requests.
//!
//! | wait | limit |
//! |---|---|
//! | a claim, space in the journal, a usable channel, a response, earlier flushes | the deadline that `ask` sets |
//! | a flush because the journal file is full | its own deadline: twice the time in all |
//!
//! The time limit of an NBD reply restarts on any progress, up to 10 times the limit in total (`patience`).
//! With several iSCSI sessions, a response is awaited as long as no command of the session is overdue. Waits
//! for claims and space end when the requests that hold them end. A channel whose connection is lost within
//! `BRIEF` backs off like one whose login has failed.
//!
//! AoE's client uses the claims: a claim waits for `timeout`; space in the window and a response have the command's deadline.

mod balance;
mod channels;
mod claims;
mod journal;
mod journal_file;
mod patience;
mod session;
mod transport;

pub use balance::{Backoff, Begun, Estimate, REQUEST_BYTES, choose};
pub use channels::Channels;
pub use claims::{Claim, Claims};
pub use journal::{Journal, Mark, Part, Writers};
pub use journal_file::{Content, Doubt, JournalFileError, Owner, ReplayRule};
pub use patience::{Ahead, LIMITS_MAX, Late, Patience};
pub use session::Settings;
pub use transport::{
    ChannelStatus, Channelled, Connected, Failed, Link, Loss, Name, Request, RequestKind, Status,
    Transport, watch,
};
