//! The Linux implementation of the reactor's interface: epoll, io_uring, files, memory. This is the only
//! crate with `unsafe`; each block states why it is sound.
//!
//! This crate does not depend on any protocol and does not read configuration files. Reading order: [`Epoll`]
//! (one thread's sockets, clock and sleep), [`threads`] (one reactor per core), then the devices:
//! [`RamDevice`], [`FileDevice`] over [`AsyncFile`], and [`RbdDevice`]. [`namespace`], [`tap`] and
//! [`rtnetlink`] create test networks on one machine.
//!
//! Sockets use epoll, and files use io_uring. In measurements, the two are within 10 % of each other on
//! sockets, and io_uring is faster on disks. Where io_uring is forbidden, threads serve files. A reactor
//! busy-polls for up to 50 µs before it sleeps. While a file operation is outstanding in io_uring, it polls for
//! up to 500 µs, as long as polling finds work (`reactor::Spin`). With `--gather-us`, a reactor sleeps after
//! work, so that events accumulate and are processed in batches; only other threads and file completions can
//! end that sleep (`Gathering` in `epoll`).

pub mod cputime;
mod datagrams;
mod epoll;
mod file;
mod files;
pub mod local_socket;
mod mapped_words;
pub mod namespace;
mod path;
mod poller;
pub mod private_file;
pub mod processes;
mod ram;
mod rbd;
pub mod rtnetlink;
mod state_directory;
pub mod tap;
mod tcp;
pub mod threads;
pub mod usage;

pub use epoll::{Epoll, EpollOptions};
pub use file::{CreatedFile, FileDevice, FileOptions, OpenError, names_device};
pub use files::{AsyncFile, IoEngine, UnknownEngine};
pub use mapped_words::MappedWords;
pub use ram::{RamDevice, RamOptions};
pub use rbd::{RbdDevice, RbdError, RbdOptions, close_all as close_images};
pub use state_directory::StateDirectory;
pub use threads::{ReactorClock, ReactorTasks, monotonic};
