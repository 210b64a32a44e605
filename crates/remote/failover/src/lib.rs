//! Several connections to one device: balancing, failover, and fencing of ghost writes. It knows no protocol.
//!
//! ```text
//!   Channels::ask ── Claims ──► Balance ──► Link ──► Transport's protocol
//!        ▲            │ one change of a block at a time       │ lost, or silent
//!        └─ again, until its deadline ◄── another link ◄──────┘
//!                     ▲
//!                     └── the claim stays with the lost link until the server has fenced it, or a quarantine ends
//! ```
//!
//! A *ghost* is a change that was sent over a connection that failed, and reaches the medium later. It is harmless
//! while its blocks are unchanged or are changed to the same data, so a lost request is sent again at once. What
//! must not happen is that a newer change of the blocks is acknowledged and the ghost lands after it. Therefore
//!
//! - changes of the same block are never outstanding at the same time ([`Claims`]), and
//! - a claim is held by the request and by each link that it was sent over. A link gives it up when the request is
//!   answered there; when the server says that the connection is dead ([`Connected::fences`]); or, for a server that
//!   cannot say so, when the [quarantine](Settings::quarantine) of the reset connection is over.
//!
//! Acknowledged changes that no flush has covered are kept in a [`Journal`]. When the server tells that it has lost them, the journal is
//! replayed before anything else is sent. When it tells nothing, and no link is left that belongs to the server as it was, the journal
//! is compared with what the server has (`channels` has the table). A [file](Channels::keep_in) has them, too, for the case that
//! this process is killed.
//!
//! # Waits
//!
//! A response counts only while its link is not lost, because the journal may have been replayed meanwhile. `tests/model.rs`
//! checks these rules in virtual time. Linerate's NBD server fences named connections in `serve/nbd/src/channels.rs`: it closes
//! them and waits for their requests.
//!
//! | wait | limit |
//! |---|---|
//! | a claim, space in the journal, a usable channel, a response, earlier flushes | the deadline that `ask` sets |
//! | a flush because the journal file is full | its own deadline: twice the time in all |
//!
//! NBD's responses are timed from the last progress (`patience`), up to 10 times the limit. A response over several iSCSI sessions is waited
//! for while no command of the session is late. Claims and space end with what they wait for.
//! A channel that breaks within `BRIEF` backs off like a failed login.
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
pub use session::{Settings, Untold};
pub use transport::{
    ChannelStatus, Channelled, Connected, Failed, Link, Loss, Name, Request, RequestKind, Status, Transport,
    watch,
};
