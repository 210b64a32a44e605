//! Several machines measure the same storage at the same time: a coordinator tells agents what to do, and hears what came of
//! it. Here is what they say to each other and how each knows the other; what is done for whom is `bench_runner`'s.
//!
//! Reading order: [`wire`] (messages, without I/O), [`channel`] (connections, and access control of an
//! agent).
//!
//! ```
//! use agent::wire::message::{Notification, Order};
//!
//! let order = Order::parse(br#""time""#).expect("an order");
//! assert_eq!(order, Order::Time);
//! assert_eq!(Notification::Time { ns: 7 }.text(), br#"{"time":{"ns":7}}"#);
//! ```

pub mod channel;
pub mod wire;

#[cfg(test)]
mod tests;

/// The default port of agents. Not assigned by IANA.
pub const PORT: u16 = 9860;
