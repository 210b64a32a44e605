//! Clients on other machines: agents (`linerate bench agent`). Each opens the storage itself and carries out its
//! roles with its own clients.
//!
//! The coordinator (this side) measures nothing. It compares clocks before each run ([`clock`]), so that all begin at the
//! same moment as well as that can be known, hears every sample, and ends the run for all. An agent that is lost ends it
//! too: what it told until then stays ([`gather`]). An agent's own side is [`work_for`].

mod clock;
mod gather;
mod name;
mod post;
pub mod secret;
mod server;
mod spread;
mod work;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use agent::wire::Secret;
use agent::wire::message::{Notification, Open, Opened, Order, Run};
use bench::Go;
use bench::plan::{Cell, Span, Stop};
use bench::record::{Fact, Facts, Subject};

pub use name::AgentName;
pub use server::ServerAgent;
pub use spread::spread;
pub use work::work_for;

use self::clock::Clock;
use self::gather::Gathering;
use self::post::Post;
use super::crew::{CellOutcome, Crew, Progress, Purged};
use backends::Failure;

/// Agents that have the storage open.
pub struct AgentCrew {
    post: Post,
    facts: Facts,
}

/// The agents of a command line, and the secret shared with them.
pub struct Agents {
    /// How those who measure are reached; nobody, if this machine does.
    pub names: Vec<AgentName>,
    /// The one on the machine that serves, if there is one.
    pub server: Option<AgentName>,
    /// What both sides know.
    pub secret: Secret,
}

impl Agents {
    /// Those of these names, and the one of the server; nothing if nobody is named. Looks for the secret as [`secret::find`] does, and asks if it has to.
    ///
    /// # Errors
    /// One is named twice, there is no secret, or one for nobody.
    pub fn named(
        names: &[AgentName],
        server: Option<&AgentName>,
        secret_file: Option<&Path>,
        option: &str,
    ) -> Result<Option<Agents>, Failure> {
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            let sentence = format!("agent {} is named twice, and works for one at a time", twice.1);
            return Err(Failure::refused(sentence));
        }
        if let Some(both) = server.filter(|server| names.contains(server)) {
            let sentence =
                format!("agent {both} is to measure and to look at the server, and works for one at a time");
            return Err(Failure::refused(sentence));
        }
        match (names.is_empty() && server.is_none(), secret_file) {
            (true, None) => Ok(None),
            (true, Some(_)) => Err(Failure::refused(format!(
                "{option} is for --agents and --server-agent: name one of them"
            ))),
            (false, file) => Ok(Some(Agents {
                names: names.to_vec(),
                server: server.cloned(),
                secret: secret::find(file, option)?,
            })),
        }
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

impl AgentCrew {
    /// Connects to all of these agents, and has them open the storage, which must be the one that is known as
    /// `subject`.
    pub async fn assemble(agents: &Agents, open: &Open, subject: &Subject) -> Result<AgentCrew, Failure> {
        let mut post = Post::connect(&agents.names, &agents.secret).await?;
        let orders = (0..post.count()).map(|agent| (agent, Order::Open(open.clone()))).collect();
        let mut facts = Facts::default();
        for (agent, news) in post.ask(orders, &mut |_| Go::On).await?.into_iter().enumerate() {
            let Notification::Opened(opened) = news else { return Err(post.astray(agent)) };
            same(&post.name(agent), &opened, subject)?;
            facts.0.extend(opened.facts.0.into_iter().map(|fact| named(&post.name(agent), fact)));
        }
        Ok(AgentCrew { post, facts })
    }

    /// The facts that agents reported of their machines and of their paths to the storage.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The agents that have something to do in a cell, and how their clocks go.
    async fn clocks(&mut self, cell: &Cell) -> Result<Vec<(usize, Clock)>, Failure> {
        let agents: BTreeSet<usize> = cell.roles.iter().map(|role| usize::from(role.client)).collect();
        let mut clocks = Vec::new();
        for agent in agents {
            clocks.push((agent, self.post.compare_clocks(agent).await?));
        }
        Ok(clocks)
    }

    async fn ask(&mut self, agents: &[usize], order: impl Fn(usize) -> Order) -> Result<(), Failure> {
        let orders = agents.iter().map(|&agent| (agent, order(agent))).collect();
        self.post.ask(orders, &mut |_| Go::On).await.map(drop)
    }
}

/// The time between sending the order and the start of the run, so that it arrives before; longer on slow
/// paths.
const BEFORE_THE_START: Duration = Duration::from_millis(50);

impl Crew for AgentCrew {
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        let clocks = self.clocks(cell).await?;
        let agents: Vec<usize> = clocks.iter().map(|(agent, _)| *agent).collect();
        self.ask(&agents, |agent| Order::Prepare { cell: part(cell, agent) }).await?;
        // Again, since logging in took its time, and clocks do not go alike.
        let clocks = self.clocks(cell).await?;
        let way = clocks.iter().map(|(_, clock)| 8 * clock.error).max().unwrap_or_default();
        let start = Instant::now() + BEFORE_THE_START.max(way);
        for (agent, clock) in &clocks {
            let start_ns = u64::try_from(clock.there(start).as_nanos()).unwrap_or(u64::MAX);
            self.post.say(*agent, &Order::Run(Run { stop, start_ns }));
        }
        Gathering::new(&mut self.post, cell, clocks, stop).gather(progress).await
    }

    async fn purge(&mut self, span: Span, progress: &mut dyn FnMut(Purged) -> Go) -> Result<(), Failure> {
        let each = &mut |news: &Notification| {
            let &Notification::Purged { done_bytes, of_bytes } = news else { return Go::On };
            progress(Purged { done_bytes, of_bytes })
        };
        self.post.ask(vec![(0, Order::Purge { span })], each).await.map(drop)
    }

    async fn look_alive(&mut self) -> Result<(), Failure> {
        let all: Vec<usize> = (0..self.post.count()).collect();
        self.ask(&all, |_| Order::LookAlive).await
    }

    async fn close(self) {
        self.post.close().await;
    }
}

/// An agent's roles.
fn part(cell: &Cell, agent: usize) -> Cell {
    let roles = cell.roles.iter().filter(|role| usize::from(role.client) == agent).cloned().collect();
    Cell { roles, ..cell.clone() }
}

/// Two machines that know a place by the same name may still mean two places.
fn same(agent: &str, opened: &Opened, subject: &Subject) -> Result<(), Failure> {
    let is_lun = subject.kind == "iscsi";
    let place = &subject.place;
    if opened.bytes != subject.bytes || opened.block_bytes != subject.block_bytes {
        return Err(Failure::refused(format_args!(
            "{place} has {} bytes in blocks of {} for agent {agent}, and {} in blocks of {} here: it is not \
             the same",
            opened.bytes, opened.block_bytes, subject.bytes, subject.block_bytes
        )));
    }
    // What a file is known by differs from machine to machine.
    if is_lun && opened.identity != subject.identity {
        return Err(Failure::refused(format_args!(
            "{place} is another LUN for agent {agent} than it is here"
        )));
    }
    Ok(())
}

fn named(agent: &str, fact: Fact) -> Fact {
    Fact { name: format!("{agent}: {}", fact.name), ..fact }
}
