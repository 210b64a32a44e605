//! Messages after authentication: orders of the coordinator, and notifications of the agent.
//!
//! An order is answered by the notifications named at it, or by [`Notification::Failed`]; the next order is
//! sent after the answer, except [`Order::Stop`] and [`Order::Alive`], which can be sent at any time. While
//! an agent works, it sends progress notifications. A side that is silent for [`PATIENCE`] is lost.

use std::time::Duration;

use bench::plan::{Cell, Span, Stop};
use bench::record::{ClientRun, Facts, Sample};
use serde::{Deserialize, Serialize};

/// The longest time between two messages of a side; keepalives fill pauses.
pub const BREATH: Duration = Duration::from_secs(1);

/// A side that is silent for this long is lost: ten keepalives, since the network may be saturated by the
/// measurement.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// An order to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Open the storage that is to be measured: [`Notification::Opened`]. The first order.
    Open(Open),
    /// Say what time it is: [`Notification::Time`].
    Time,
    /// Say how much CPU time its machine has used: [`Notification::Load`].
    Load,
    /// Get ready for these roles (log in): [`Notification::Done`].
    Prepare {
        /// The cell, with the roles that are this agent's.
        cell: Cell,
    },
    /// Carry them out: [`Notification::Counting`] and [`Notification::Sample`]s, then
    /// [`Notification::Ended`].
    Run(Run),
    /// End the run, which is then answered as if its time were over.
    Stop,
    /// Give the blocks of a part of the storage back: [`Notification::Purged`], then [`Notification::Done`].
    Purge {
        /// Which part.
        span: Span,
    },
    /// See whether the storage can still be reached: [`Notification::Done`].
    LookAlive,
    /// Nothing: the coordinator is there.
    Alive,
}

/// What is to be opened, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// As on the command line of `linerate bench`, without secrets: an agent has its own.
    pub place: String,
    /// Whether anything will be written.
    pub write: bool,
    /// Connections of each session, instead of what the URL says.
    pub connections: Option<u16>,
    /// Congestion control of its sockets, instead of what the URL says.
    pub congestion: Option<String>,
    /// How long a thread looks for answers before it sleeps, in microseconds.
    pub poll_us: u64,
}

/// A run of the roles that were prepared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// When it ends.
    pub stop: Stop,
    /// When the first request is made, by the agent's clock ([`Notification::Time`]).
    pub start_ns: u64,
}

/// A notification of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Notification {
    /// It works for another coordinator. Nothing follows.
    Busy {
        /// For whom: an address.
        coordinator: String,
    },
    /// The storage is open.
    Opened(Opened),
    /// What time it is.
    Time {
        /// Since the agent met this coordinator, in nanoseconds.
        ns: u64,
    },
    /// How much CPU time its machine has used.
    Load {
        /// When that was: since the agent met this coordinator, in nanoseconds.
        ns: u64,
        /// Time that all CPUs together have worked since the machine was started, in nanoseconds; `None` if the kernel does
        /// not tell.
        busy_ns: Option<u64>,
        /// How many they are.
        cpus: u32,
    },
    /// The warm-up is over.
    Counting,
    /// What one role did in a short time.
    Sample {
        /// Which of the roles in the order.
        role: usize,
        /// What it did.
        sample: Sample,
    },
    /// The run is over.
    Ended {
        /// What came of the roles, in their order.
        parts: Vec<RoleReport>,
    },
    /// How far a purge is.
    Purged {
        /// Bytes.
        done_bytes: u64,
        /// Of so many.
        of_bytes: u64,
    },
    /// It is done.
    Done,
    /// It could not be done.
    Failed {
        /// The exit code that says what kind of failure it is.
        code: u8,
        /// Why.
        sentence: String,
    },
    /// Nothing: the agent is there.
    Alive,
}

/// The storage, as the agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// Its capacity.
    pub bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// What tells it from other places; nothing if it is the agent's alone.
    pub identity: Option<String>,
    /// Facts about the agent's machine and its path to the storage.
    pub facts: Facts,
}

/// The result of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleReport {
    /// What it did.
    pub run: ClientRun,
    /// What its sessions told, as people read it.
    pub tables: Vec<String>,
    /// When it really began, by the agent's clock.
    pub started_ns: u64,
}

/// A message that cannot be parsed.
pub type Unintelligible = serde_json::Error;

impl Order {
    /// Reads a message.
    ///
    /// # Errors
    /// It is no order.
    pub fn parse(message: &[u8]) -> Result<Order, Unintelligible> {
        serde_json::from_slice(message)
    }

    /// As it is sent.
    pub fn text(&self) -> Vec<u8> {
        json(self)
    }
}

impl Notification {
    /// Whether it is a progress notification.
    pub fn is_progress(&self) -> bool {
        matches!(self, Notification::Counting | Notification::Sample { .. } | Notification::Purged { .. })
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is no notification.
    pub fn parse(message: &[u8]) -> Result<Notification, Unintelligible> {
        serde_json::from_slice(message)
    }

    /// As it is sent.
    pub fn text(&self) -> Vec<u8> {
        json(self)
    }
}

fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("the names of all fields are texts, as JSON wants it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_passed_over() {
        for text in
            [r#"{"reboot":null}"#, r#"{"purge":{"span":{"start_bytes":0},"twice":true}}"#, "", "[]", "7"]
        {
            assert!(Order::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn orders_and_news_come_back_as_they_were() {
        for order in [Order::Time, Order::Load, Order::Stop, Order::Purge { span: Span::default() }] {
            assert_eq!(Order::parse(&order.text()).expect("an order"), order);
        }
        let news =
            Notification::Sample { role: 3, sample: Sample { at_s: 0.1, p50_us: 17.3, ..Sample::default() } };
        assert_eq!(Notification::parse(&news.text()).expect("news"), news);
    }
}
