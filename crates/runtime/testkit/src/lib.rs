//! Shared test utilities. This crate is only a dev-dependency, except in the simulator, which is not shipped
//! either.
//!
//! [`Random`] prints its seed when a test fails. [`TestDisk`] is an in-memory disk with a cache. [`Ethernet`]
//! loses, duplicates, delays and reorders frames. [`logged`] returns the log. [`poll`] and [`ready`] poll
//! futures that need no reactor. [`says`] checks messages. [`assert_table`] keeps a table in a document consistent with the code.

mod disk;
mod document;
mod ethernet;
mod log;
mod random;

pub use disk::TestDisk;
pub use document::assert_table;
pub use ethernet::{Conditions, Ethernet};
pub use log::logged;
pub use random::Random;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Checks that a text contains all of these parts.
#[track_caller]
pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// Polls a future once, with a waker that does nothing.
pub fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The output of a future that completes in its first poll. Panics if it does not.
pub fn ready<F: Future>(future: F) -> F::Output {
    poll(pin!(future)).expect("the future ends in its first poll")
}
