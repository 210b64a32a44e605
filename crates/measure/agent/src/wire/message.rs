//! Messages after the authentication: orders of the coordinator, and notifications of the agent.
//!
//! The response to an order consists of the notifications that are listed at the order, or of
//! [`Notification::Failed`]. The next order is sent after the response, except [`Order::Stop`] and
//! [`Order::Alive`], which can be sent at any time. While an agent executes an order, it sends progress
//! notifications. A side that sends nothing for [`PATIENCE`] counts as lost.

use std::time::Duration;

use bench::plan::{Cell, Span, Stop};
use bench::record::{ClientRun, Facts, Sample};
use serde::{Deserialize, Serialize};

/// The maximum time between two messages of a side. Keepalives are sent in pauses.
pub const BREATH: Duration = Duration::from_secs(1);

/// The time after which an idle side counts as lost. It is ten times the interval of keepalives, since the
/// measurement may saturate the network.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// An order to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Open the storage to measure: [`Notification::Opened`]. This must be the first order.
    Open(Open),
    /// Report the time: [`Notification::Time`].
    Time,
    /// Report the CPU time used by the machine: [`Notification::Load`].
    Load,
    /// Prepare for these roles (log in): [`Notification::Done`].
    Prepare {
        /// The cell, with this agent's roles.
        cell: Cell,
    },
    /// Run these roles: [`Notification::Counting`] and [`Notification::Sample`]s, and then
    /// [`Notification::Ended`].
    Run(Run),
    /// End the run. It reports its results as if its time had passed.
    Stop,
    /// Deallocate the blocks of a part of the storage: [`Notification::Purged`], then [`Notification::Done`].
    Purge {
        /// The part of the storage.
        span: Span,
    },
    /// Check that the storage is still reachable: [`Notification::Done`].
    LookAlive,
    /// A keepalive of the coordinator.
    Alive,
}

/// The storage, and how to open it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// The storage as on the command line of `linerate bench`, but without secrets: each agent has its own.
    pub place: String,
    /// Whether the measurement writes to the storage.
    pub write: bool,
    /// The number of connections of each session; overrides the URL.
    pub connections: Option<u16>,
    /// The congestion control of the agent's sockets; overrides the URL.
    pub congestion: Option<String>,
    /// The time for which a thread polls before it sleeps, in microseconds.
    pub poll_us: u64,
}

/// A run of the prepared roles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The condition that ends the run.
    pub stop: Stop,
    /// The time of the first request, by the agent's clock ([`Notification::Time`]).
    pub start_ns: u64,
}

/// A notification from an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Notification {
    /// The agent works for another coordinator. No further notification follows.
    Busy {
        /// The address of that coordinator.
        coordinator: String,
    },
    /// The storage is open.
    Opened(Opened),
    /// The agent's current time.
    Time {
        /// The time since the coordinator's authentication, in nanoseconds.
        ns: u64,
    },
    /// The CPU time used by the agent's machine.
    Load {
        /// The time of the measurement since the coordinator's authentication, in nanoseconds.
        ns: u64,
        /// Busy time of all CPUs since the machine was started, in nanoseconds; `None` if the kernel does not
        /// report it.
        busy_ns: Option<u64>,
        /// The number of CPUs.
        cpus: u32,
    },
    /// The warm-up is over.
    Counting,
    /// A sample of one role.
    Sample {
        /// The index of the role in the order.
        role: usize,
        /// The client's sample.
        sample: Sample,
    },
    /// The run is over.
    Ended {
        /// The results of the roles, in order.
        parts: Vec<RoleReport>,
    },
    /// The progress of a purge.
    Purged {
        /// The number of bytes that have been purged.
        done_bytes: u64,
        /// The number of bytes to purge.
        of_bytes: u64,
    },
    /// The order has been executed.
    Done,
    /// The order failed.
    Failed {
        /// The exit code for this kind of failure.
        code: u8,
        /// The reason, in a sentence.
        sentence: String,
    },
    /// A keepalive of the agent.
    Alive,
}

/// The storage as the agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The capacity, in bytes.
    pub bytes: u64,
    /// The length of a logical block, in bytes.
    pub block_bytes: u32,
    /// Distinguishes this storage from other storage; `None` if it exists only in the agent.
    pub identity: Option<String>,
    /// Facts about the agent's machine and its path to the storage.
    pub facts: Facts,
}

/// The result of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleReport {
    /// The client's result.
    pub run: ClientRun,
    /// The statistics of the client's sessions, as text.
    pub tables: Vec<String>,
    /// The actual start time, by the agent's clock.
    pub started_ns: u64,
}

/// A message that cannot be parsed.
pub type Unintelligible = serde_json::Error;

impl Order {
    /// Parses a message.
    ///
    /// # Errors
    /// Fails if the message is not an order.
    pub fn parse(message: &[u8]) -> Result<Order, Unintelligible> {
        serde_json::from_slice(message)
    }

    /// Returns the message to send.
    pub fn text(&self) -> Vec<u8> {
        json(self)
    }
}

impl Notification {
    /// Whether this is a progress notification.
    pub fn is_progress(&self) -> bool {
        matches!(
            self,
            Notification::Counting | Notification::Sample { .. } | Notification::Purged { .. }
        )
    }

    /// Parses a message.
    ///
    /// # Errors
    /// Fails if the message is not a notification.
    pub fn parse(message: &[u8]) -> Result<Notification, Unintelligible> {
        serde_json::from_slice(message)
    }

    /// Returns the message to send.
    pub fn text(&self) -> Vec<u8> {
        json(self)
    }
}

fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("the names of all fields are texts, as JSON requires")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_passed_over() {
        for text in [
            r#"{"reboot":null}"#,
            r#"{"purge":{"span":{"start_bytes":0},"twice":true}}"#,
            "",
            "[]",
            "7",
        ] {
            assert!(Order::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn orders_and_news_come_back_as_they_were() {
        for order in [
            Order::Time,
            Order::Load,
            Order::Stop,
            Order::Purge {
                span: Span::default(),
            },
        ] {
            assert_eq!(Order::parse(&order.text()).expect("an order"), order);
        }
        let news = Notification::Sample {
            role: 3,
            sample: Sample {
                at_s: 0.1,
                p50_us: 17.3,
                ..Sample::default()
            },
        };
        assert_eq!(Notification::parse(&news.text()).expect("news"), news);
    }
}
