//! Our server's speed and CPU beside tgt's, istgt's and the raw server's, cell by cell in turn on the machine at hand.
//!
//! One client measures all; a leaner one measures ours and the raw server again, since a client that is the bottleneck
//! would make all fast servers equal. NBD's servers are not here: there is no NBD in linerate yet.

mod cells;
mod held;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::measuring::client::{Arrivals, Client, Measured};
use crate::measuring::document;
use crate::measuring::machine::Setting;
use crate::measuring::namespace::Namespace;
use crate::measuring::scope::Scope;
use crate::measuring::{Server, cell, in_turn};
use crate::process;
use crate::serving::Peer;
use crate::tally::Verdict;
use crate::workspace;
use cells::{CONTESTS, Contest};
use held::Held;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    scope: Scope,
    /// Only these servers
    #[arg(long, value_enum, value_delimiter = ',')]
    servers: Vec<Peer>,
    /// Only this client measures; iscsi-perf only reads, and it and qemu-img have one session
    #[arg(long, value_enum)]
    client: Option<Client>,
    /// A linerate that was built before, instead of building it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// For each figure, if nobody says.
const SECONDS: f64 = 1.0;

/// Everything measured, a list of rounds for each cell, server and client.
#[derive(Debug)]
struct Results {
    setting: Setting,
    measured: BTreeMap<(&'static str, Peer, Client), Vec<Measured>>,
    held: Vec<Held>,
}

const SERVERS: [Peer; 7] = [
    Peer::Tgt,
    Peer::TgtAio,
    Peer::Istgt,
    Peer::RawSleeping,
    Peer::RawSpinning,
    Peer::Linerate,
    Peer::LineratePolling,
];

/// Who measures all, and who measures again where the first may be the bottleneck.
const MAIN: Client = Client::Linerate;
const LEAN: Client = Client::Lean;
const FAST: [Peer; 3] = [Peer::RawSpinning, Peer::Linerate, Peer::LineratePolling];

/// Measures, prints the tables, writes the page and its numbers. Holds if every floor is reached.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let cells: Vec<&Contest> = CONTESTS.iter().filter(|contest| options.scope.has(&contest.cell)).collect();
    ensure!(!cells.is_empty(), "no cell has that name: {}", cell::names(CONTESTS.iter().map(|c| &c.cell)));
    let servers = if options.servers.is_empty() { SERVERS.to_vec() } else { options.servers.clone() };
    for program in ["tgtd", "istgt", "qemu-io", "taskset", "ip", "nsenter"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let binary = options.binary.clone().map_or_else(workspace::release_binary, Ok)?;
    let namespace = Namespace::create()?;
    let setting = Setting::look(&namespace, options.scope.rounds, options.scope.seconds(SECONDS));
    let mut results = Results { setting, measured: BTreeMap::new(), held: Vec::new() };
    for round in 0..options.scope.rounds {
        let started = servers.iter().map(|peer| paused(*peer, &binary, &namespace));
        let started = started.collect::<Result<Vec<_>>>()?;
        let mut measuring =
            Round { number: round, binary: &binary, namespace: &namespace, options, servers: started };
        for contest in &cells {
            println!("round {} of {}: {}", round + 1, options.scope.rounds, contest.cell.name);
            measuring.measure(contest, &mut results)?;
        }
        results.held.extend(measuring.hold(&results)?);
    }
    print!("{}", page::tables(&cells, &results));
    write(&cells, &servers, &results, options)?;
    Ok(if page::all_reached(&cells, &results) { Verdict::Holds } else { Verdict::Fails })
}

/// A server that waits until it is measured.
fn paused(peer: Peer, binary: &std::path::Path, namespace: &Namespace) -> Result<(Peer, Server)> {
    let server =
        Server::start(peer, binary, namespace).with_context(|| format!("starting {}", peer.name()))?;
    server.process().pause();
    Ok((peer, server))
}

/// A round's servers, all paused but the one that is measured.
struct Round<'a> {
    number: usize,
    binary: &'a std::path::Path,
    namespace: &'a Namespace,
    options: &'a Options,
    servers: Vec<(Peer, Server)>,
}

impl Round<'_> {
    /// A cell, with all servers one right after the other: what the machine does meanwhile, it does to all.
    fn measure(&mut self, contest: &Contest, results: &mut Results) -> Result<()> {
        let order = in_turn(&(0..self.servers.len()).collect::<Vec<_>>(), self.number);
        for (peer, server) in order.into_iter().map(|at| &self.servers[at]) {
            for client in self.clients(*peer).into_iter().filter(|client| client.can(&contest.cell)) {
                server.process().resume();
                let measured = self.one(client, contest, server);
                server.process().pause();
                let measured = measured.with_context(|| peer.name())?;
                results.measured.entry((contest.cell.name, *peer, client)).or_default().push(measured);
            }
        }
        Ok(())
    }

    fn clients(&self, peer: Peer) -> Vec<Client> {
        match self.options.client {
            Some(client) => vec![client],
            None if FAST.contains(&peer) => vec![MAIN, LEAN],
            None => vec![MAIN],
        }
    }

    fn one(&self, client: Client, contest: &Contest, server: &Server) -> Result<Measured> {
        let target = server.target();
        client.warm_up(&contest.cell, self.binary, &target)?;
        client.measure(&contest.cell, self.binary, &target, self.options.scope.seconds(SECONDS))
    }

    /// Our server at the rate that was tgt's in this round.
    fn hold(&self, results: &Results) -> Result<Option<Held>> {
        let of = |wanted| self.servers.iter().find(|(peer, _)| *peer == wanted).map(|(_, server)| server);
        let rounds = results.measured.get(&(cells::DEEP_READ, Peer::TgtAio, MAIN));
        let Some((ours, tgt)) = of(Peer::Linerate).zip(rounds.and_then(|rounds| rounds.last())) else {
            return Ok(None);
        };
        let gathering = Server::start(Peer::LinerateGathering, self.binary, self.namespace)?;
        gathering.process().pause();
        let at_rate = |server: &Server, arrivals| {
            server.process().resume();
            let measured = Held::at_rate(
                self.binary,
                &server.target(),
                tgt,
                arrivals,
                self.options.scope.seconds(SECONDS),
            );
            server.process().pause();
            measured
        };
        Ok(Some(Held {
            tgt: *tgt,
            ours: at_rate(ours, Arrivals::Even)?,
            in_bursts: at_rate(ours, Arrivals::EveryMillisecond)?,
            gathering: at_rate(&gathering, Arrivals::Even)?,
        }))
    }
}

fn write(cells: &[&Contest], servers: &[Peer], results: &Results, options: &Options) -> Result<()> {
    let path = workspace::target_directory().join("peers.json");
    fs::write(&path, page::json(results)?).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    let is_all = servers.len() == SERVERS.len() && options.client.is_none();
    if is_all && options.scope.is_for_the_page() {
        document::write_section("peers", page::HEADING, &page::section(cells, results))?;
    }
    Ok(())
}
