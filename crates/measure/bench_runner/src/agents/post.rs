//! Messages between the coordinator and all agents. Orders are sent to all agents without waiting. A task per
//! agent receives its notifications and records their time of arrival, however busy the coordinator is.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::time::{Duration, Instant};

use agent::PORT;
use agent::channel::{Broken, Channel, MessageReceiver, MessageSender};
use agent::wire::Secret;
use agent::wire::message::{Notification, Order};
use backends::{Failure, FailureKind};
use bench::Go;
use foreign::printable;
use reactor::{BadAddress, BadHost, Ipv6Host, JoinHandle, Receiver, Sender, mailbox};

/// Connections to all agents.
pub(super) struct Post {
    agents: Vec<Agent>,
    heard: Receiver<Received>,
}

/// The connection to an agent.
struct Agent {
    name: AgentName,
    sender: MessageSender,
    hearing: JoinHandle<()>,
    /// Why the connection was lost, if it was.
    lost: Option<Broken>,
}

/// A notification of an agent.
struct Received {
    agent: usize,
    at: Instant,
    news: Result<Notification, Broken>,
}

/// Timeout for opening the storage and logging in, while the agent sends keepalives: longer than that of an
/// initiator.
const PATIENCE: Duration = Duration::from_secs(120);

/// Round trips per clock comparison. On a quiet network, one would be enough.
const ROUND_TRIPS: usize = 16;

impl Post {
    /// Connects to all of them, one after the other.
    pub(super) async fn connect(names: &[AgentName], secret: &Secret) -> Result<Post, Failure> {
        let (tell, heard) = mailbox();
        let mut agents = Vec::new();
        for name in names {
            let Channel { receiver, sender } = connect(name, secret).await?;
            let hearing = reactor::spawn(hear(agents.len(), receiver, tell.clone()));
            agents.push(Agent { name: name.clone(), sender, hearing, lost: None });
        }
        Ok(Post { agents, heard })
    }

    /// The number of agents.
    pub(super) fn count(&self) -> usize {
        self.agents.len()
    }

    pub(super) fn name(&self, agent: usize) -> String {
        self.agents[agent].name.to_string()
    }

    pub(super) fn say(&self, agent: usize, order: &Order) {
        self.agents[agent].sender.send(order.text());
    }

    /// The next notification of any agent; `None` after this time.
    pub(super) async fn hear(
        &mut self,
        patience: Duration,
    ) -> Option<(usize, Result<Notification, Failure>)> {
        let Received { agent, news, .. } = self.next(patience).await?;
        Some((agent, self.judged(agent, news)))
    }

    /// Sends each of these agents an order and waits for all responses. Progress notifications go to `each`,
    /// which may stop the order.
    pub(super) async fn ask(
        &mut self,
        orders: Vec<(usize, Order)>,
        each: &mut dyn FnMut(&Notification) -> Go,
    ) -> Result<Vec<Notification>, Failure> {
        let mut answers: Vec<(usize, Option<Notification>)> =
            orders.iter().map(|(agent, _)| (*agent, None)).collect();
        for (agent, order) in &orders {
            self.check(*agent)?;
            self.say(*agent, order);
        }
        while answers.iter().any(|(_, answer)| answer.is_none()) {
            let Some((agent, news)) = self.hear(PATIENCE).await else {
                let late = answers.iter().find(|(_, answer)| answer.is_none());
                let name = late.map_or_else(String::new, |(agent, _)| self.name(*agent));
                return Err(Failure::new(FailureKind::Unreachable, format_args!("agent {name} timed out")));
            };
            match news? {
                news if news.is_progress() => {
                    if each(&news) == Go::Stop {
                        self.say(agent, &Order::Stop);
                    }
                }
                news => {
                    let due = answers.iter_mut().find(|(due, answer)| *due == agent && answer.is_none());
                    due.into_iter().for_each(|(_, answer)| *answer = Some(news.clone()));
                }
            }
        }
        Ok(answers.into_iter().filter_map(|(_, answer)| answer).collect())
    }

    /// Compares an agent's clock with ours.
    pub(super) async fn compare_clocks(&mut self, agent: usize) -> Result<Clock, Failure> {
        self.check(agent)?;
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        while trips.len() < ROUND_TRIPS {
            let sent = Instant::now();
            self.say(agent, &Order::Time);
            let Some(Received { agent: who, at, news }) = self.next(PATIENCE).await else { break };
            match self.judged(who, news)? {
                Notification::Time { ns } if who == agent => {
                    trips.push(RoundTrip { sent, theirs: Duration::from_nanos(ns), heard: at });
                }
                _ => return Err(self.astray(who)),
            }
        }
        Clock::compared(&trips).ok_or_else(|| self.astray(agent))
    }

    /// Fails if the agent has already been lost.
    fn check(&self, agent: usize) -> Result<(), Failure> {
        let agent = &self.agents[agent];
        agent.lost.as_ref().map_or(Ok(()), |why| Err(lost(&agent.name, why)))
    }

    /// The failure of an agent that sent an unexpected notification.
    pub(super) fn astray(&self, agent: usize) -> Failure {
        Failure::failed(format_args!("agent {} sent an unexpected message", self.name(agent)))
    }

    async fn next(&mut self, patience: Duration) -> Option<Received> {
        reactor::timeout(patience, self.heard.recv()).await.ok().flatten()
    }

    /// The notification, or a failure: the agent failed, is busy, or was lost.
    fn judged(&mut self, agent: usize, news: Result<Notification, Broken>) -> Result<Notification, Failure> {
        let Agent { name, lost: is_lost, .. } = &mut self.agents[agent];
        match news {
            Ok(Notification::Failed { code, sentence }) => Err(Failure::new(
                FailureKind::of_code(code),
                format_args!("agent {name}: {}", printable(&sentence)),
            )),
            Ok(Notification::Busy { coordinator }) => Err(Failure::failed(format_args!(
                "agent {name} is in use by another coordinator, {}; only one can use it at a time",
                printable(&coordinator)
            ))),
            Ok(news) => Ok(news),
            Err(why) => {
                let failure = lost(name, &why);
                *is_lost = Some(why);
                Err(failure)
            }
        }
    }

    /// Whether the connection to an agent was lost.
    pub(super) fn is_lost(&self, agent: usize) -> bool {
        self.agents[agent].lost.is_some()
    }

    /// Closes all connections.
    pub(super) async fn close(self) {
        for Agent { sender, hearing, .. } in self.agents {
            sender.close().await;
            hearing.abort();
        }
    }
}

async fn connect(name: &AgentName, secret: &Secret) -> Result<Channel, Failure> {
    let channel = Channel::connect(name.address()?, secret, Order::Alive.text()).await;
    channel.map_err(|why| {
        let sentence = format!("cannot use agent {name}: {why}");
        match &why {
            Broken::Refused(refusal) if refusal.is_about_secrets() => {
                Failure::new(FailureKind::Authentication, sentence)
            }
            Broken::Refused(_) => Failure::refused(sentence),
            _ => Failure::new(FailureKind::Unreachable, sentence),
        }
    })
}

fn lost(name: &AgentName, why: &Broken) -> Failure {
    Failure::new(FailureKind::Unreachable, format_args!("the connection to agent {name} was lost: {why}"))
}

/// Receives until the connection ends, or the coordinator has gone.
async fn hear(agent: usize, mut receiver: MessageReceiver, tell: Sender<Received>) {
    loop {
        let message = receiver.receive().await;
        let at = Instant::now();
        let news = message.and_then(|message| Notification::parse(&message).map_err(Broken::Unintelligible));
        let is_last = news.is_err();
        if matches!(news, Ok(Notification::Alive)) {
            continue;
        }
        if tell.send(Received { agent, at, news }).is_err() || is_last {
            return;
        }
    }
}

// An estimate of the clock of another machine.
//
// ```text
//   here   ──sent────────────────heard──▶
//               \               /
//   there  ──────theirs────────────────▶      theirs is between sent and heard: in the middle, with an
//                                             error of half of the round trip
// ```
//
// Of several round trips the shortest is used: the delay of longer ones may be in one direction only. Both
// clocks are monotonic and drift by up to some 50 µs a second, so they are compared again before each run.

/// A round trip of a time query.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub(super) sent: Instant,
    /// Time since the other clock's zero.
    pub(super) theirs: Duration,
    pub(super) heard: Instant,
}

/// The estimated offset of the other clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Our time when it was zero.
    zero: Instant,
    /// The error of our time for one of its times, in either direction.
    pub(super) error: Duration,
}

impl Clock {
    /// The estimate from the shortest of these trips. `None` without any, or if they contain an impossible
    /// time.
    pub(super) fn compared(trips: &[RoundTrip]) -> Option<Clock> {
        let best = trips.iter().min_by_key(|trip| trip.round())?;
        let error = best.round() / 2;
        let zero = (best.sent + error).checked_sub(best.theirs)?;
        Some(Clock { zero, error })
    }

    /// Its time at one of our times; zero if that was before its zero.
    pub(super) fn there(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.zero)
    }

    /// Our time for one of its times. `None` if it is out of range.
    pub(super) fn here(&self, at: Duration) -> Option<Instant> {
        self.zero.checked_add(at)
    }
}

impl RoundTrip {
    fn round(&self) -> Duration {
        self.heard.saturating_duration_since(self.sent)
    }
}

/// The listening address of an agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentName {
    host: String,
    port: u16,
}

impl AgentName {
    /// Its first address.
    fn address(&self) -> Result<SocketAddr, Failure> {
        let unreachable = |why: &dyn fmt::Display| {
            Failure::new(FailureKind::Unreachable, format_args!("cannot find agent {self}: {why}"))
        };
        let mut addresses =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| unreachable(&error))?;
        addresses.next().ok_or_else(|| unreachable(&"the name has no address"))
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(text: &str) -> Result<AgentName, String> {
        // An unbracketed address has no port.
        let bare = text.parse::<Ipv6Host>();
        let read = match bare {
            Ok(address) => Ok((address.to_string(), None)),
            Err(BadAddress::Form(_)) => reactor::host_and_port(text),
            Err(why) => Err(BadHost::Address(why)),
        };
        match read {
            Ok((host, port)) => Ok(AgentName { host, port: port.unwrap_or(PORT) }),
            Err(BadHost::Address(why)) => Err(why.to_string()),
            Err(_) => Err(format!("{text:?} is not HOST, HOST:PORT or [IPv6 ADDRESS]:PORT")),
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", reactor::bracketed(&self.host), self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn a_time_that_cannot_be_is_not_believed() {
        let now = Instant::now();
        let lie = RoundTrip { sent: now, theirs: Duration::MAX, heard: now + us(10) };
        assert_eq!(Clock::compared(&[lie]), None);
        assert_eq!(Clock::compared(&[]), None);
    }

    proptest! {
        /// Whatever the delays, the true offset lies within the reported error.
        #[test]
        fn the_error_is_not_larger_than_it_says(
            ways in prop::collection::vec((0u64..9000, 0u64..9000), 1..16)
        ) {
            let zero = Instant::now() + us(123_456_789);
            let trips = ways.iter().zip(1u64..).map(|(&(to, from), turn)| {
                let sent = zero + us(turn * 20_000);
                RoundTrip { sent, theirs: us(turn * 20_000 + to), heard: sent + us(to + from) }
            });
            let clock = Clock::compared(&trips.collect::<Vec<_>>()).expect("trips");
            let at = zero + us(1_000_000);
            prop_assert!(clock.there(at).abs_diff(us(1_000_000)) <= clock.error);
            let shortest = ways.iter().map(|(to, from)| us(to + from)).min().expect("trips");
            prop_assert_eq!(clock.error, shortest / 2);
            let back = clock.here(clock.there(at)).expect("a time");
            prop_assert_eq!(back, at);
        }
    }
}
