//! Clients on other machines: agents (`linerate bench agent`). Each agent opens the storage itself, and runs
//! its roles with its own clients.
//!
//! The coordinator (this side) does not measure anything. Before each run it compares the clocks (`post`), so
//! that all agents start at the same time, within the accuracy of the comparison. It receives every sample,
//! and ends the run on all agents. The loss of an agent also ends the run; the samples received from it are
//! kept (`gather`). The agent's side is [`work_for`].

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use agent::wire::Secret;
use agent::wire::message::{Notification, Open, Opened, Order, PATIENCE, Run};
use backends::{Failure, secrets};
use bench::Go;
use bench::plan::{Cell, Role, Span, Step, Stop, Suite};
use bench::record::{Fact, Facts, ServerCpu, ServerMachine, Subject};
use environment::server::{Server, ServerClocks};
use foreign::printable;
use zeroize::Zeroizing;

use crate::agents::gather::Gathering;
use crate::agents::post::{Clock, Post};
use crate::crew::{CellOutcome, Crew, Progress};
use crate::view::Purged;

mod gather;
mod post;
mod work;

pub use post::AgentName;
pub use work::work_for;

/// Agents that have the storage open.
pub struct AgentCrew {
    post: Post,
    facts: Facts,
}

/// The agents of a command line, and the secret shared with them.
pub struct Agents {
    /// The agents that measure; empty if this machine measures.
    pub names: Vec<AgentName>,
    /// The agent on the server's machine, if there is one.
    pub server: Option<AgentName>,
    /// The secret shared with the agents.
    pub secret: Secret,
}

impl Agents {
    /// Returns the named agents and the server's agent, or `None` if no agent is named. Finds the secret as
    /// [`find_secret`] does, and prompts for the secret if necessary.
    ///
    /// # Errors
    /// An agent is named twice, the secret is missing, or there is a secret but no agent.
    pub fn named(
        names: &[AgentName],
        server: Option<&AgentName>,
        secret_file: Option<&Path>,
        option: &str,
    ) -> Result<Option<Agents>, Failure> {
        if let Some(twice) = names
            .iter()
            .enumerate()
            .find(|(at, name)| names[..*at].contains(name))
        {
            let sentence = format!(
                "agent {} is listed twice, but an agent accepts only one connection",
                twice.1
            );
            return Err(Failure::refused(sentence));
        }
        if let Some(both) = server.filter(|server| names.contains(server)) {
            let sentence = format!(
                "agent {both} is listed both for measuring and for the server, but an agent accepts only \
                 one connection"
            );
            return Err(Failure::refused(sentence));
        }
        match (names.is_empty() && server.is_none(), secret_file) {
            (true, None) => Ok(None),
            (true, Some(_)) => Err(Failure::refused(format!(
                "{option} requires --agents or --server-agent"
            ))),
            (false, file) => Ok(Some(Agents {
                names: names.to_vec(),
                server: server.cloned(),
                secret: find_secret(file, option)?,
            })),
        }
    }

    /// Returns the number of agents that measure.
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

impl AgentCrew {
    /// Connects to all of these agents, and orders them to open the storage, which must match `subject`.
    pub async fn assemble(
        agents: &Agents,
        open: &Open,
        subject: &Subject,
    ) -> Result<AgentCrew, Failure> {
        let mut post = Post::connect(&agents.names, &agents.secret).await?;
        let orders = (0..post.count())
            .map(|agent| (agent, Order::Open(open.clone())))
            .collect();
        let mut facts = Facts::default();
        for (agent, news) in post
            .ask(orders, &mut |_| Go::On)
            .await?
            .into_iter()
            .enumerate()
        {
            let Notification::Opened(opened) = news else {
                return Err(post.astray(agent));
            };
            same(&post.name(agent), &opened, subject)?;
            facts.0.extend(
                opened
                    .facts
                    .0
                    .into_iter()
                    .map(|fact| named(&post.name(agent), fact)),
            );
        }
        Ok(AgentCrew { post, facts })
    }

    /// Returns the facts that the agents reported about their machines and their paths to the storage.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the agents with roles in a cell, each with an estimate of its clock.
    async fn clocks(&mut self, cell: &Cell) -> Result<Vec<(usize, Clock)>, Failure> {
        let agents: BTreeSet<usize> = cell
            .roles
            .iter()
            .map(|role| usize::from(role.client))
            .collect();
        let mut clocks = Vec::new();
        for agent in agents {
            clocks.push((agent, self.post.compare_clocks(agent).await?));
        }
        Ok(clocks)
    }

    async fn ask(
        &mut self,
        agents: &[usize],
        order: impl Fn(usize) -> Order,
    ) -> Result<(), Failure> {
        let orders = agents.iter().map(|&agent| (agent, order(agent))).collect();
        self.post.ask(orders, &mut |_| Go::On).await.map(drop)
    }
}

/// Minimum time between sending the order and the start of the run, so that the order arrives before the
/// start. On slow paths, the time is longer.
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
        self.ask(&agents, |agent| Order::Prepare {
            cell: part(cell, agent),
        })
        .await?;
        // Compare the clocks again, since the logins took time and clocks drift.
        let clocks = self.clocks(cell).await?;
        let way = clocks
            .iter()
            .map(|(_, clock)| 8 * clock.error)
            .max()
            .unwrap_or_default();
        let start = Instant::now() + BEFORE_THE_START.max(way);
        for (agent, clock) in &clocks {
            let start_ns = u64::try_from(clock.there(start).as_nanos()).unwrap_or(u64::MAX);
            self.post.say(*agent, &Order::Run(Run { stop, start_ns }));
        }
        Gathering::new(&mut self.post, cell, clocks, stop)
            .gather(progress)
            .await
    }

    async fn purge(
        &mut self,
        span: Span,
        progress: &mut dyn FnMut(Purged) -> Go,
    ) -> Result<(), Failure> {
        let each = &mut |news: &Notification| {
            let &Notification::Purged {
                done_bytes,
                of_bytes,
            } = news
            else {
                return Go::On;
            };
            progress(Purged {
                done_bytes,
                of_bytes,
            })
        };
        self.post
            .ask(vec![(0, Order::Purge { span })], each)
            .await
            .map(drop)
    }

    async fn look_alive(&mut self) -> Result<(), Failure> {
        let all: Vec<usize> = (0..self.post.count()).collect();
        self.ask(&all, |_| Order::LookAlive).await
    }

    async fn close(self) {
        self.post.close().await;
    }
}

/// Returns the cell with the roles of one agent.
fn part(cell: &Cell, agent: usize) -> Cell {
    let roles = cell
        .roles
        .iter()
        .filter(|role| usize::from(role.client) == agent)
        .cloned()
        .collect();
    Cell {
        roles,
        ..cell.clone()
    }
}

/// Checks that an agent opened the same storage: a name may mean different storage on another machine.
fn same(agent: &str, opened: &Opened, subject: &Subject) -> Result<(), Failure> {
    let is_lun = subject.kind == "iscsi";
    let place = &subject.place;
    if opened.bytes != subject.bytes || opened.block_bytes != subject.block_bytes {
        return Err(Failure::refused(format_args!(
            "{place} has {} bytes in blocks of {} on agent {agent}, but {} bytes in blocks of {} here: it is \
             different storage",
            opened.bytes, opened.block_bytes, subject.bytes, subject.block_bytes
        )));
    }
    // The identity of a file depends on the machine, so it cannot be compared.
    if is_lun && opened.identity != subject.identity {
        return Err(Failure::refused(format_args!(
            "{place} is a different LUN on agent {agent} than here"
        )));
    }
    Ok(())
}

fn named(agent: &str, fact: Fact) -> Fact {
    Fact {
        name: format!("{agent}: {}", fact.name),
        ..fact
    }
}

// The secret that a coordinator shares with its agents. It is read from a file, from the environment, or from
// a prompt on the terminal. It is never an argument, because every user who can list processes could read it.

/// The environment variable that may contain the secret.
const VARIABLE: &str = "LINERATE_AGENT_SECRET";

/// Finds the secret. `option` is the command line option for its file.
///
/// # Errors
/// The secret is missing or too short, or users other than the owner may read its file.
pub fn find_secret(file: Option<&Path>, option: &str) -> Result<Secret, Failure> {
    let (text, from) = match (file, secrets::in_environment(VARIABLE)) {
        (Some(file), _) => (of_file(file)?, file.display().to_string()),
        (None, Some(text)) => (text, VARIABLE.to_owned()),
        (None, None) => (asked_for(option)?, "the terminal".to_owned()),
    };
    Secret::new(&text).ok_or_else(|| {
        let least = Secret::BYTES_MIN;
        Failure::refused(format!(
            "the agents' secret from {from} is shorter than {least} bytes, and could be guessed; create one \
             with `openssl rand -hex 32`"
        ))
    })
}

fn of_file(file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let path = file.display();
    secrets::read(file).map_err(|error| {
        Failure::refused(format!(
            "cannot read the agents' secret from {path}: {error}"
        ))
    })
}

fn asked_for(option: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    secrets::ask("secret of the agents: ").map_err(Failure::refused)?.ok_or_else(|| {
        Failure::refused(format!(
            "the agents' secret is missing; pass the file that contains it with {option}, or set {VARIABLE}"
        ))
    })
}

// Assignment of roles to agents.
//
// A suite with several clients (`clients`, or `--clients` on the command line) runs unchanged: client 1 is
// the first agent. Any other suite runs on all agents concurrently, each in a separate part of the span.
// Otherwise, the storage would serve an agent's reads from a cache that another agent's reads have filled.

/// Assigns the roles of a suite to this number of agents.
pub(crate) fn spread(mut suite: Suite, agents: usize) -> Suite {
    if suite.clients() > 1 || agents < 2 {
        return suite;
    }
    for step in &mut suite.steps {
        let Step::Measure { cells, .. } = step else {
            continue;
        };
        for cell in cells {
            let roles = std::mem::take(&mut cell.roles);
            let name = |agent: u16, role: &Role| match roles.as_slice() {
                [_] => format!("client {}", agent + 1),
                _ => format!("{} {}", role.name, agent + 1),
            };
            let on_agent = |agent| {
                roles
                    .iter()
                    .map(move |role| on(agent, name(agent, role), role))
            };
            cell.roles = (0..agents as u16).flat_map(on_agent).collect();
        }
    }
    suite
}

/// Returns a copy of the role for an agent, with a separate part of the span and different data.
fn on(agent: u16, name: String, role: &Role) -> Role {
    let mut role = Role {
        client: agent,
        apart: true,
        name,
        ..role.clone()
    };
    role.workload.seed = role.workload.seed.wrapping_add(u64::from(agent));
    role
}

/// A connection to the agent on the server's machine.
pub struct ServerAgent {
    post: Post,
}

/// CPU counters that the agent reported, with their time.
struct Load {
    at: Duration,
    busy: Duration,
    cpus: u32,
}

impl ServerAgent {
    /// Connects to the agent.
    ///
    /// # Errors
    /// The agent is unreachable, or has a different secret or version.
    pub async fn connect(name: &AgentName, secret: &Secret) -> Result<ServerAgent, Failure> {
        Ok(ServerAgent {
            post: Post::connect(std::slice::from_ref(name), secret).await?,
        })
    }

    /// Requests the counters; [`ServerAgent::since`] receives them.
    pub(crate) fn ask(&self) {
        self.post.say(0, &Order::Load);
    }

    /// Returns the machine's CPU time since the previous request.
    ///
    /// # Errors
    /// The agent was lost, or its kernel does not report CPU time.
    pub(crate) async fn since(&mut self) -> Result<ServerCpu, Failure> {
        self.ask();
        let (before, now) = (self.load().await?, self.load().await?);
        let seconds =
            |earlier: Duration, later: Duration| later.saturating_sub(earlier).as_secs_f64();
        Ok(ServerCpu {
            of: format!("machine {}", printable(&self.post.name(0))),
            seconds: seconds(before.busy, now.busy),
            busiest_thread_s: None,
            machine: Some(ServerMachine {
                elapsed_s: seconds(before.at, now.at),
                cpus: now.cpus,
            }),
        })
    }

    async fn load(&mut self) -> Result<Load, Failure> {
        match self.post.hear(PATIENCE).await {
            Some((
                _,
                Ok(Notification::Load {
                    ns,
                    busy_ns: Some(busy_ns),
                    cpus,
                }),
            )) => Ok(Load {
                at: Duration::from_nanos(ns),
                busy: Duration::from_nanos(busy_ns),
                cpus,
            }),
            Some((_, Err(failure))) => Err(failure),
            _ => Err(Failure::failed(format_args!(
                "agent {} does not report the CPU load of its machine",
                self.post.name(0)
            ))),
        }
    }

    pub(crate) async fn close(self) {
        self.post.close().await;
    }
}

/// The server whose CPU time is measured.
pub enum Serving {
    /// A process of this machine, or a thread of this process.
    Process(Server),
    /// Another machine, observed by an agent.
    Machine(ServerAgent),
}

/// The counters before a run.
pub(crate) enum Before {
    Clocks(ServerClocks),
    /// The agent's counters have been requested, but have not arrived yet.
    Asked,
}

impl Serving {
    /// Reads or requests the counters at the start of counting. Returns `None` if the process has ended.
    pub(crate) fn look(&self) -> Option<Before> {
        match self {
            Serving::Process(server) => server.clocks().ok().map(Before::Clocks),
            Serving::Machine(agent) => {
                agent.ask();
                Some(Before::Asked)
            }
        }
    }

    /// Returns the CPU time since `before`, for the record.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use bench::plan::{Cell, Order, Percent, Stop, Workload};

    #[test]
    fn an_agent_is_named_as_people_name_hosts() {
        for (text, expected) in [
            ("client1", Some("client1:9860")),
            ("client1:7000", Some("client1:7000")),
            ("10.0.0.7", Some("10.0.0.7:9860")),
            ("::1", Some("[::1]:9860")),
            ("[::1]", Some("[::1]:9860")),
            ("[::1]:7000", Some("[::1]:7000")),
            ("fe80::1%eth0", Some("[fe80::1%eth0]:9860")),
            ("[fe80::1%25eth0]:7000", Some("[fe80::1%eth0]:7000")),
            ("fe80::1", None),
            ("", None),
            (":7000", None),
            ("client1:", None),
            ("client1:0", None),
            ("client1:70000", None),
            ("a:b:c", None),
            ("[client1]:7000", None),
            ("[::1]7000", None),
        ] {
            assert_eq!(
                text.parse::<AgentName>()
                    .ok()
                    .map(|name| name.to_string())
                    .as_deref(),
                expected,
                "{text}"
            );
        }
    }

    fn found(text: &str, mode: u32) -> Result<Secret, Failure> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("a temporary file");
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("our own file");
        find_secret(Some(file.path()), "--secret-file")
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let said = found("correct horse battery\n", 0o640)
            .expect_err("a refusal")
            .to_string();
        assert!(
            said.contains("mode 640") && said.contains("chmod 600"),
            "{said}"
        );
    }

    #[test]
    fn a_short_secret_is_refused_and_not_repeated() {
        let said = found("hush-hush\n", 0o600)
            .expect_err("a refusal")
            .to_string();
        assert!(
            said.contains("shorter than 16 bytes") && !said.contains("hush"),
            "{said}"
        );
    }

    #[test]
    fn the_end_of_the_line_is_no_part_of_it() {
        found("0123456789abcdef\n", 0o600).expect("a secret");
        found("0123456789abcde\n", 0o600).expect_err("16 bytes with the end of the line only");
    }

    fn suite(clients: u16) -> Suite {
        let role = |client| {
            Role::new(
                "reader",
                client,
                Workload::simple(4096, 8, Percent::ALL, Percent::ALL),
            )
        };
        let cell = Cell::new("read", "read", (0..clients).map(role).collect());
        let step = Step::Measure {
            stop: Stop::after(1.0),
            order: Order::Once,
            cells: vec![cell],
        };
        let (name, title, about) = ("x".to_owned(), String::new(), String::new());
        Suite {
            name,
            title,
            about,
            document: None,
            assumed: Vec::new(),
            steps: vec![step],
        }
    }

    #[test]
    fn a_suite_that_names_clients_stays_as_it_is() {
        assert_eq!(spread(suite(2), 3), suite(2));
        assert_eq!(spread(suite(1), 1), suite(1));
    }

    #[test]
    fn any_other_is_carried_out_by_all_with_seeds_and_parts_of_their_own() {
        let spread = spread(suite(1), 3);
        let cell = spread.cells().next().expect("a cell");
        let roles: Vec<_> = cell
            .roles
            .iter()
            .map(|role| {
                (
                    role.name.as_str(),
                    role.client,
                    role.workload.seed,
                    role.apart,
                )
            })
            .collect();
        assert_eq!(
            roles,
            [
                ("client 1", 0, 1, true),
                ("client 2", 1, 2, true),
                ("client 3", 2, 3, true)
            ]
        );
    }

    #[test]
    fn several_roles_on_each_agent_keep_their_names() {
        let mut suite = suite(1);
        let Step::Measure { cells, .. } = &mut suite.steps[0] else {
            unreachable!("it measures")
        };
        let writer = Role {
            name: "writer".to_owned(),
            ..cells[0].roles[0].clone()
        };
        cells[0].roles.push(writer);
        let spread = spread(suite, 2);
        let roles = spread
            .cells()
            .flat_map(|cell| &cell.roles)
            .map(|role| role.name.as_str());
        assert_eq!(
            roles.collect::<Vec<_>>(),
            ["reader 1", "writer 1", "reader 2", "writer 2"]
        );
    }
}
