//! The Linux implementation of the reactor's interface: epoll, io_uring, files, memory. This is the only
//! crate with `unsafe`; each block states why it is sound.
//!
//! It depends on no protocol and reads no configuration. Reading order: [`Epoll`] (one thread's sockets,
//! clock and sleep), [`threads`] (one reactor per core), then the devices: [`RamDevice`], [`FileDevice`]
//! over [`AsyncFile`], and [`RbdDevice`]. [`namespace`], [`tap`] and [`rtnetlink`] make test networks on one machine.
//!
//! Sockets use epoll, files io_uring: in measurements the two are within 10 % of each other on sockets, and
//! io_uring is faster on disks. If it is forbidden, a pool of threads serves files. A reactor busy-polls for
//! up to 50 µs before it sleeps, or 500 µs while io_uring has a file operation, as long as that finds work
//! (`reactor::Spin`). With `--gather-us` it sleeps after work, on its eventfd only, so that arrivals are
//! processed in batches (`epoll`'s `Gathering`).

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
