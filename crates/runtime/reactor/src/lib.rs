//! The interface to the world, and a single-thread executor over it. `host` stands behind [`World`] in the program, `sim`
//! in simulations. [`Alone`] is a world without a network, for tests and measurements: it reads the clock and sleeps, and
//! nothing else here makes a system call.
//!
//! One thread runs one [`World`] and one executor. Tasks are spawned onto the thread they run on and never
//! leave it; another thread reaches them by waking a waker or by a [`mailbox`]. Reading order: [`World`] and
//! [`Stream`] (what can be asked of the world), then the executor ([`block_on`], [`spawn`], [`sleep`]), then
//! [`mailbox`]. [`Spin`] is what a world may use to decide how long to look for events before it sleeps.

mod alone;
mod executor;
mod join;
mod mailbox;
mod path;
mod spin;
mod task;
mod timer;
mod timers;
mod world;

pub use alone::Alone;
pub use executor::{ExecutorId, Suspended, block_on, executor, now, spawn, suspend, world, yield_now};
pub use join::JoinHandle;
pub use mailbox::{Closed, Receiver, Refused, Sender, bounded_mailbox, mailbox};
pub use path::PathInfo;
pub use spin::Spin;
pub use timer::{Elapsed, Sleep, sleep, sleep_until, timeout};
pub use world::{
    Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream, StreamOptions, Unpark,
    World,
};
