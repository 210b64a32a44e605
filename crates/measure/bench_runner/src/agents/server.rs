//! The machine of a server, on which an agent looks how busy it is. The agent measures nothing.

use std::time::Duration;

use agent::wire::Secret;
use agent::wire::message::{Notification, Order, PATIENCE};
use bench::record::{ServerCpu, ServerMachine};
use foreign::printable;

use super::name::AgentName;
use super::post::Post;
use backends::Failure;

/// A connection to the agent.
pub struct ServerAgent {
    post: Post,
}

/// What it told at a moment.
struct Load {
    at: Duration,
    busy: Duration,
    cpus: u32,
}

impl ServerAgent {
    /// Connects to it.
    ///
    /// # Errors
    /// It cannot be reached, or has another secret or version.
    pub async fn connect(name: &AgentName, secret: &Secret) -> Result<ServerAgent, Failure> {
        Ok(ServerAgent { post: Post::connect(std::slice::from_ref(name), secret).await? })
    }

    /// Asks it to look; [`ServerAgent::since`] hears what it saw.
    pub(crate) fn ask(&self) {
        self.post.say(0, &Order::Load);
    }

    /// What the machine has used since it was asked before.
    ///
    /// # Errors
    /// The agent was lost, or its kernel does not tell.
    pub(crate) async fn since(&mut self) -> Result<ServerCpu, Failure> {
        self.ask();
        let (before, now) = (self.load().await?, self.load().await?);
        let seconds = |earlier: Duration, later: Duration| later.saturating_sub(earlier).as_secs_f64();
        Ok(ServerCpu {
            of: format!("machine {}", printable(&self.post.name(0))),
            seconds: seconds(before.busy, now.busy),
            busiest_thread_s: None,
            machine: Some(ServerMachine { elapsed_s: seconds(before.at, now.at), cpus: now.cpus }),
        })
    }

    async fn load(&mut self) -> Result<Load, Failure> {
        match self.post.hear(PATIENCE).await {
            Some((_, Ok(Notification::Load { ns, busy_ns: Some(busy_ns), cpus }))) => {
                Ok(Load { at: Duration::from_nanos(ns), busy: Duration::from_nanos(busy_ns), cpus })
            }
            Some((_, Err(failure))) => Err(failure),
            _ => Err(Failure::failed(format_args!(
                "agent {} does not tell how busy its machine is",
                self.post.name(0)
            ))),
        }
    }

    pub(crate) async fn close(self) {
        self.post.close().await;
    }
}
