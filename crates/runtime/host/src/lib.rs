//! The real world behind the reactor's interface: epoll, io_uring, files, memory. The only home of `unsafe`, file
//! by file, each block with the reason why it is sound.
//!
//! Knows no protocol and reads no configuration. Reading order: [`Epoll`] (one thread's sockets, clock and
//! sleep), [`threads`] (one reactor per core), then the devices: [`RamDevice`] and [`FileDevice`] over
//! [`AsyncFile`]. [`namespace`], [`tap`] and [`rtnetlink`] are what a network on one machine is made of.

mod clock;
pub mod cputime;
mod epoll;
mod file;
mod files;
pub mod interfaces;
pub mod limits;
mod mapped_words;
pub mod namespace;
mod open_error;
mod path;
pub mod private_file;
pub mod processes;
mod ram;
pub mod realtime;
pub mod rtnetlink;
mod spinning;
mod state_directory;
pub mod tap;
mod tasks;
mod tcp;
pub mod threads;

pub use clock::ReactorClock;
pub use epoll::{Epoll, EpollOptions};
pub use file::{FileDevice, FileOptions};
pub use files::{AsyncFile, IoEngine, UnknownEngine};
pub use mapped_words::MappedWords;
pub use open_error::OpenError;
pub use ram::{RamDevice, RamOptions};
pub use spinning::Spinning;
pub use state_directory::StateDirectory;
pub use tasks::ReactorTasks;
