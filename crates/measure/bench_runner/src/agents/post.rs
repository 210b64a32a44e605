//! Messages between the coordinator and all agents. The coordinator sends orders to all agents without
//! waiting. For each agent, a task receives its notifications and records their time of arrival, so that the
//! time is correct even if the coordinator is busy.

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
    /// The reason why the connection was lost, if it was.
    lost: Option<Broken>,
}

/// A notification from an agent.
struct Received {
    agent: usize,
    at: Instant,
    news: Result<Notification, Broken>,
}

/// Timeout for an order such as opening the storage and logging in, as long as the agent sends keepalives. It
/// is longer than the login timeout of an initiator.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number of round trips per clock comparison. On a quiet network, one would be enough.
const ROUND_TRIPS: usize = 16;

impl Post {
    /// Connects to all agents, one after the other.
    pub(super) async fn connect(names: &[AgentName], secret: &Secret) -> Result<Post, Failure> {
        let (tell, heard) = mailbox();
        let mut agents = Vec::new();
        for name in names {
            let Channel { receiver, sender } = connect(name, secret).await?;
            let hearing = reactor::spawn(hear(agents.len(), receiver, tell.clone()));
            agents.push(Agent {
                name: name.clone(),
                sender,
                hearing,
                lost: None,
            });
        }
        Ok(Post { agents, heard })
    }

    pub(super) fn count(&self) -> usize {
        self.agents.len()
    }

    pub(super) fn name(&self, agent: usize) -> String {
        self.agents[agent].name.to_string()
    }

    pub(super) fn say(&self, agent: usize, order: &Order) {
        self.agents[agent].sender.send(order.text());
    }

    /// Returns the next notification from any agent, or `None` after this time.
    pub(super) async fn hear(
        &mut self,
        patience: Duration,
    ) -> Option<(usize, Result<Notification, Failure>)> {
        let Received { agent, news, .. } = self.next(patience).await?;
        Some((agent, self.judged(agent, news)))
    }

    /// Sends an order to each of these agents, and waits for all responses. Progress notifications are passed
    /// to `each`, which may stop the orders.
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
                return Err(Failure::new(
                    FailureKind::Unreachable,
                    format_args!("agent {name} timed out"),
                ));
            };
            match news? {
                news if news.is_progress() => {
                    if each(&news) == Go::Stop {
                        self.say(agent, &Order::Stop);
                    }
                }
                news => {
                    let due = answers
                        .iter_mut()
                        .find(|(due, answer)| *due == agent && answer.is_none());
                    due.into_iter()
                        .for_each(|(_, answer)| *answer = Some(news.clone()));
                }
            }
        }
        Ok(answers
            .into_iter()
            .filter_map(|(_, answer)| answer)
            .collect())
    }

    /// Compares the clock of an agent with the local clock.
    pub(super) async fn compare_clocks(&mut self, agent: usize) -> Result<Clock, Failure> {
        self.check(agent)?;
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        while trips.len() < ROUND_TRIPS {
            let sent = Instant::now();
            self.say(agent, &Order::Time);
            let Some(Received {
                agent: who,
                at,
                news,
            }) = self.next(PATIENCE).await
            else {
                break;
            };
            match self.judged(who, news)? {
                Notification::Time { ns } if who == agent => {
                    trips.push(RoundTrip {
                        sent,
                        theirs: Duration::from_nanos(ns),
                        heard: at,
                    });
                }
                _ => return Err(self.astray(who)),
            }
        }
        Clock::compared(&trips).ok_or_else(|| self.astray(agent))
    }

    /// Fails if the agent has already been lost.
    fn check(&self, agent: usize) -> Result<(), Failure> {
        let agent = &self.agents[agent];
        agent
            .lost
            .as_ref()
            .map_or(Ok(()), |why| Err(lost(&agent.name, why)))
    }

    /// Returns the failure for an agent that sent an unexpected notification.
    pub(super) fn astray(&self, agent: usize) -> Failure {
        Failure::failed(format_args!(
            "agent {} sent an unexpected message",
            self.name(agent)
        ))
    }

    async fn next(&mut self, patience: Duration) -> Option<Received> {
        reactor::timeout(patience, self.heard.recv())
            .await
            .ok()
            .flatten()
    }

    /// Returns the notification, or a failure if the agent failed, is busy or was lost.
    fn judged(
        &mut self,
        agent: usize,
        news: Result<Notification, Broken>,
    ) -> Result<Notification, Failure> {
        let Agent {
            name,
            lost: is_lost,
            ..
        } = &mut self.agents[agent];
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

    /// Returns whether the connection to an agent was lost.
    pub(super) fn is_lost(&self, agent: usize) -> bool {
        self.agents[agent].lost.is_some()
    }

    /// Closes all connections.
    pub(super) async fn close(self) {
        for Agent {
            sender, hearing, ..
        } in self.agents
        {
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
    Failure::new(
        FailureKind::Unreachable,
        format_args!("the connection to agent {name} was lost: {why}"),
    )
}

/// Receives messages until the connection ends, or until the coordinator no longer receives them.
async fn hear(agent: usize, mut receiver: MessageReceiver, tell: Sender<Received>) {
    loop {
        let message = receiver.receive().await;
        let at = Instant::now();
        let news = message
            .and_then(|message| Notification::parse(&message).map_err(Broken::Unintelligible));
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
// Of several round trips, the shortest is used, because the delay of a longer one may be in one direction
// only. Both clocks are monotonic and may drift by up to 50 µs per second, so they are compared again before
// each run.

/// A round trip of a query for the other machine's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub(super) sent: Instant,
    /// The reply: time since the zero of the other clock.
    pub(super) theirs: Duration,
    pub(super) heard: Instant,
}

/// An estimate of the other clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// The local time at the zero of the other clock.
    zero: Instant,
    /// The error of a conversion between the clocks, in either direction.
    pub(super) error: Duration,
}

impl Clock {
    /// Returns the estimate from the shortest of these round trips. Returns `None` if there are none, or if
    /// they contain an impossible time.
    pub(super) fn compared(trips: &[RoundTrip]) -> Option<Clock> {
        let best = trips.iter().min_by_key(|trip| trip.round())?;
        let error = best.round() / 2;
        let zero = (best.sent + error).checked_sub(best.theirs)?;
        Some(Clock { zero, error })
    }

    /// Converts a local time to the other clock; zero if it is before the other clock's zero.
    pub(super) fn there(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.zero)
    }

    /// Converts a time of the other clock to local time. Returns `None` if it is out of range.
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
    /// Returns the first address of the host.
    fn address(&self) -> Result<SocketAddr, Failure> {
        let unreachable = |why: &dyn fmt::Display| {
            Failure::new(
                FailureKind::Unreachable,
                format_args!("cannot find agent {self}: {why}"),
            )
        };
        let mut addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| unreachable(&error))?;
        addresses
            .next()
            .ok_or_else(|| unreachable(&"the name has no address"))
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(text: &str) -> Result<AgentName, String> {
        // An IPv6 address without brackets has no port.
        let bare = text.parse::<Ipv6Host>();
        let read = match bare {
            Ok(address) => Ok((address.to_string(), None)),
            Err(BadAddress::Form(_)) => reactor::host_and_port(text),
            Err(why) => Err(BadHost::Address(why)),
        };
        match read {
            Ok((host, port)) => Ok(AgentName {
                host,
                port: port.unwrap_or(PORT),
            }),
            Err(BadHost::Address(why)) => Err(why.to_string()),
            Err(_) => Err(format!(
                "{text:?} is not HOST, HOST:PORT or [IPv6 ADDRESS]:PORT"
            )),
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
        let lie = RoundTrip {
            sent: now,
            theirs: Duration::MAX,
            heard: now + us(10),
        };
        assert_eq!(Clock::compared(&[lie]), None);
        assert_eq!(Clock::compared(&[]), None);
    }

    proptest! {
        /// For any delays, the true offset is within the reported error.
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
