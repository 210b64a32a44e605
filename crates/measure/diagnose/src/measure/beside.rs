//! The same load by sessions with something changed, in rounds right before or behind its own: what another number of
//! connections brings, or no TLS, is measured that way and not reckoned.

use block::Random;
use model::Load;

use super::confirm::set;
use super::ladder::shuffle;
use super::load::{Running, Times};
use super::places::Part;
use super::way::Way;
use crate::causes::CONNECTIONS;
use crate::{Beside, LoadRun, NbdSession, Otherwise};
use environment::server::Server;

/// Sessions with something changed, each or why there is none.
pub(super) struct Others(Vec<(Otherwise, Result<Way, String>)>);

/// A load with its runs by them.
pub(super) struct Compared {
    pub(super) own: Running,
    others: Vec<(Running, Beside)>,
}

impl Others {
    /// What is worth a try, opened.
    pub(super) async fn open(way: &Way, session: Option<&NbdSession>) -> Others {
        let mut others = Vec::new();
        for otherwise in session.map(worth_a_try).unwrap_or_default() {
            let way = match set(way.subject(), &otherwise.change().settings) {
                Ok(subject) => Way::open(&subject).await.map_err(|failure| failure.to_string()),
                Err(why) => Err(why),
            };
            others.push((otherwise, has_all(way, otherwise).await));
        }
        Others(others)
    }

    /// How many runs there are of a round of these loads.
    pub(super) fn runs(&self, loads: &[(Load, bool)]) -> usize {
        let there = self.0.iter().filter(|(_, way)| way.is_ok()).count();
        loads.iter().map(|(load, _)| 1 + if is_compared(load) { there } else { 0 }).sum()
    }

    /// The load, to be run by all of them.
    pub(super) fn compare(&self, own: Running) -> Compared {
        let load = *own.load();
        let one = |(otherwise, way): &(Otherwise, Result<Way, String>)| {
            let first_failure = way.as_ref().err().cloned();
            (Running::new(&load, false), Beside { otherwise: *otherwise, pairs: Vec::new(), first_failure })
        };
        let others = self.0.iter().filter(|_| is_compared(&load)).map(one).collect();
        Compared { own, others }
    }

    pub(super) async fn close(self) {
        for way in self.0.into_iter().filter_map(|(_, way)| way.ok()) {
            way.close().await;
        }
    }
}

/// A server may accept fewer connections than were asked for.
async fn has_all(way: Result<Way, String>, otherwise: Otherwise) -> Result<Way, String> {
    let mut way = way?;
    let Otherwise::Connections(wanted) = otherwise else { return Ok(way) };
    let told = way.device().await?.told().await;
    let there = told.map_or(0, |told| told.connections.len());
    match there >= usize::from(wanted) {
        true => Ok(way),
        false => Err(format!("the server accepted {there} of {wanted} connections")),
    }
}

fn worth_a_try(session: &NbdSession) -> Vec<Otherwise> {
    let more = session.multi_conn && session.connections < CONNECTIONS;
    let connections = more.then_some(Otherwise::Connections(CONNECTIONS));
    connections.into_iter().chain(session.encrypted.then_some(Otherwise::Plain)).collect()
}

/// A request at a time has no use for a second connection.
fn is_compared(load: &Load) -> bool {
    load.depth > 1
}

impl Compared {
    /// Rounds of it by all sessions, in random order.
    pub(super) async fn round(
        &mut self,
        (way, others): (&mut Way, &mut Others),
        part: Part,
        server: Option<&Server>,
        times: Times,
        random: &mut Random,
    ) {
        let seed = random.next();
        let mut order: Vec<usize> = (0..=self.others.len()).collect();
        shuffle(&mut order, random);
        let mut rates = vec![None; order.len()];
        for index in order {
            rates[index] = match index {
                0 => self.own.round(way, part, server, times, seed).await,
                _ => match (&mut others.0[index - 1].1, &mut self.others[index - 1].0) {
                    (Ok(other), running) if running.goes_on() => {
                        running.round(other, part, None, times, seed).await
                    }
                    _ => None,
                },
            };
        }
        for (index, (_, beside)) in self.others.iter_mut().enumerate() {
            beside.pairs.extend(rates[0].zip(rates[index + 1]));
        }
    }

    pub(super) async fn finish(self) -> LoadRun {
        let mut run = self.own.finish().await;
        for (other, mut beside) in self.others {
            beside.first_failure = beside.first_failure.or(other.finish().await.first_failure);
            run.beside.push(beside);
        }
        run
    }
}
