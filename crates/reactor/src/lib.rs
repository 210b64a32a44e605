//! The interface to the world, and a single-thread executor over it. No system call is made here: `host`
//! stands behind [`World`] in the program, `sim` in tests.
//!
//! One thread runs one [`World`] and one executor. Tasks are spawned onto the thread they run on and never
//! leave it; another thread reaches them by waking a waker or by a [`mailbox`]. Reading order: [`World`] and
//! [`Stream`] (what can be asked of the world), then the executor ([`block_on`], [`spawn`], [`sleep`]), then
//! [`mailbox`].

mod world;

pub use world::{
    Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream, StreamOptions, Unpark,
    World,
};
