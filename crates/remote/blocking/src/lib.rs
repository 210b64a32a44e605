//! A remote LUN for programs with another async runtime, or with none.
//!
//! `iscsi_client` runs in a runtime environment of `reactor`, which belongs to one thread. This crate starts
//! such a thread for each session: [`Lun::open`] logs in on that thread, and every request is passed to it.
//! The result is a [`Request`]: a future that any executor may poll, and that a thread without an executor
//! may [wait](Request::wait) for. A [`Lun`] is `Clone`, `Send` and `Sync`; any number of requests may be
//! outstanding.
//!
//! ```text
//!   any thread                          the session's thread
//!   Lun::read ── order ── mailbox ────► Work (a task) ── RemoteLun ── socket
//!   Request ◄── outcome, waker ◄────────┘
//! ```
//!
//! Each request costs a thread wake-up in each direction. A program that can run a `reactor` environment
//! itself should use `iscsi_client` directly.
//!
//! With the feature `tokio`, [`TokioLun`] is a LUN with tokio's file traits `AsyncRead`, `AsyncWrite` and
//! `AsyncSeek`. Everything else works in tokio without it.
//!
//! ```no_run
//! use block::{Buffer, Extent};
//!
//! let url = iscsi_client::Url::parse("iscsi://san1/iqn.2026-01.io.linerate:vm1/0")?;
//! let lun = blocking::Lun::open(&url).wait()?;
//! let requests: Vec<_> = (0..32).map(|lba| lun.read(Extent::new(lba, 1), Buffer::zeroed(512))).collect();
//! for request in requests {
//!     let block = request.wait()?;
//!     println!("{:02x?}", &block[..16]);
//! }
//! lun.close().wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod lun;
#[cfg(feature = "tokio")]
mod tokio_lun;

pub use lun::{Ended, Lun, OpenError, Request, discover, run};

#[cfg(feature = "tokio")]
pub use tokio_lun::TokioLun;

/// Checks that the code of docs/library.md compiles.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../../docs/library.md")]
struct LibraryDocument;
