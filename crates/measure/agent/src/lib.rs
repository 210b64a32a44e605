//! Measurements of the same storage by several machines. A coordinator sends orders to agents, and receives
//! the results. This crate contains their messages and authentication; `bench_runner` executes the orders.
//!
//! Reading order: [`wire`] (messages, without I/O), [`channel`] (connections, and the access control of an
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

/// The default port of agents. IANA has not assigned it.
pub const PORT: u16 = 9860;
