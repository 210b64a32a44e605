//! Who serves what is measured, and the CPU time that this takes.

use bench::record::ServerCpu;
use environment::server::{Server, ServerClocks};

use super::agents::ServerAgent;
use backends::Failure;

/// Who serves.
pub enum Serving {
    /// A process of this machine, or a thread of our own.
    Process(Server),
    /// Another machine, on which an agent looks.
    Machine(ServerAgent),
}

/// A look before a run.
pub(crate) enum Before {
    Clocks(ServerClocks),
    /// The agent was asked, and its answer is not awaited yet.
    Asked,
}

impl Serving {
    /// Looks when counting begins; `None` if the process has ended.
    pub(crate) fn look(&self) -> Option<Before> {
        match self {
            Serving::Process(server) => server.clocks().ok().map(Before::Clocks),
            Serving::Machine(agent) => {
                agent.ask();
                Some(Before::Asked)
            }
        }
    }

    /// What it has used since then, for the record.
    ///
    /// # Errors
    /// The agent was lost.
    pub(crate) async fn since(&mut self, before: Before) -> Result<Option<ServerCpu>, Failure> {
        match (self, before) {
            (Serving::Process(server), Before::Clocks(clocks)) => Ok(server.cpu_since(&clocks)),
            (Serving::Machine(agent), Before::Asked) => agent.since().await.map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) async fn close(self) {
        if let Serving::Machine(agent) = self {
            agent.close().await;
        }
    }
}

impl From<Server> for Serving {
    fn from(server: Server) -> Serving {
        Serving::Process(server)
    }
}
