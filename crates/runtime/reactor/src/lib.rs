//! The interface to the operating system, and a single-thread executor over it. `host` implements [`World`]
//! in the program, `sim` in simulations. [`Alone`] is a world without a network, for tests and measurements:
//! it reads the clock and sleeps; nothing else here makes a system call.
//!
//! One thread runs one [`World`] and one executor. Tasks run on the thread that spawned them and never leave
//! it; another thread reaches them through a waker or a [`mailbox`]. Reading order: [`World`] and [`Stream`]
//! (the interface), then the executor ([`block_on`], [`spawn`], [`sleep`]), then [`mailbox`]. [`Spin`]
//! determines the time for which a world busy-polls before it sleeps.

mod alone;
mod datagrams;
mod executor;
mod mailbox;
mod names;
mod resident;
mod send_queue;
mod spin;
mod stream;
mod timer;
mod timers;
mod waiting;
mod world;

pub use alone::Alone;
pub use datagrams::{
    DatagramAddress, DatagramBatch, DatagramDrops, DatagramEndpoint, DatagramOptions, DatagramRing,
    DatagramShare, Datagrams, DetachedDatagrams, MacAddress, NotAMacAddress, OutDatagram,
};
pub use executor::{
    ExecutorId, JoinHandle, Suspended, block_on, catch_up, consume_budget, executor, now, spawn,
    suspend, world, yield_now,
};
pub use mailbox::{Closed, Receiver, Refused, Sender, bounded_mailbox, mailbox};
pub use names::{
    BadAddress, BadHost, Ipv6Host, bracketed, host_and_port, listen_address, numeric_address,
    resolve,
};
pub use resident::Resident;
pub use send_queue::{Payload, Segment, SendQueue};
pub use spin::Spin;
pub use stream::{Detached, InSlice, OutSlice, PathInfo, Received, Stream, StreamOptions};
pub use timer::{Elapsed, Sleep, sleep, sleep_until, timeout, timeout_at};
pub use world::{ListenOptions, Listener, Park, SharedWorld, Unpark, World};
