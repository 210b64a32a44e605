//! Recovery of lost connections, and of the session.
//!
//! A session that has lost some of its connections continues with the others; the lost ones log in again with
//! their CIDs. A session that has lost all of them is *reinstated*: a login with the same ISID, which makes
//! the target end every task of the old session first (RFC 7143 section 6.3.5). Requests only see a pause.
//! The states are drawn in `session_state`; this task performs the transitions to `Up`.
//!
//! A login that ends in another portal group (a redirection, another address of the host, a target that has
//! moved) creates a session with another target port, and ends nothing: the commands of the old session may
//! be executed at any time. The session continues there. Lost commands that change something wait until a
//! login at the old portal has reinstated that nexus too, or they fail.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{self, Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use iscsi::pdu::Cid;
use scsi::LunAddress;

use crate::error::OpenError;
use crate::inner::{Outage, Restart};
use crate::login::Random;
use crate::open::{Connector, LeadingLogin};
use crate::session::Session;
use crate::session_state::Fault;

/// Recovers a session until it is over.
pub(crate) async fn run(session: Rc<Session>, connector: Connector, leading: LeadingLogin) {
    let attempts = Attempts::new(connector.random);
    let further = FurtherLogins { random: connector.random, attempts: BTreeMap::new() };
    let mut recovery = Recovery { session, connector, leading, left: Vec::new(), attempts, further };
    while let Some(lost) = recovery.until_lost().await {
        recovery.restart(lost).await;
    }
}

/// The session has lost its last connection. Wait for `time2wait` before the next login.
struct Lost {
    time2wait: Duration,
}

struct Recovery {
    session: Rc<Session>,
    connector: Connector,
    leading: LeadingLogin,
    left: Vec<AbandonedNexus>,
    /// Leading logins.
    attempts: Attempts,
    further: FurtherLogins,
}

/// Logins of further connections, each with pauses of its own: neither the success of another one nor its failure makes it wait.
struct FurtherLogins {
    random: Random,
    attempts: BTreeMap<u16, Attempts>,
}

impl FurtherLogins {
    fn of(&mut self, cid: Cid) -> &mut Attempts {
        self.attempts.entry(cid.0).or_insert_with(|| Attempts::new(self.random))
    }
}

/// A nexus that the session left for another portal group with outstanding commands.
struct AbandonedNexus {
    leading: LeadingLogin,
    /// The session that was lost in it, by number of reinstatements.
    epoch: u64,
    /// Deadline for ending it: as long as requests wait for a lost session. After that only a session that
    /// returns to it does.
    until: Option<Instant>,
}

/// Maximum number of abandoned nexuses. A target with more portal groups than this is faulty or hostile, and
/// the session ends.
const LEFT_MAX: usize = 16;

impl Recovery {
    /// Ends when the session is lost, or with `None` when it is over. Until then connections that it lacks
    /// are brought back, and beside that nexuses that were left are ended: neither waits for the other, which
    /// may never come about.
    async fn until_lost(&mut self) -> Option<Lost> {
        let Recovery { session, connector, leading, left, further, .. } = self;
        let lost = restore_connections(session, connector, leading, further);
        let ended = end_left(session, connector, leading, left);
        let (mut lost, mut ended) = (pin!(lost), pin!(ended));
        poll_fn(|cx| match lost.as_mut().poll(cx) {
            // A login that ends a nexus must not reinstate our own session there, which is about to be
            // restarted.
            Poll::Ready(lost) => Poll::Ready(lost),
            Poll::Pending => ended.as_mut().poll(cx).map(|never| match never {}),
        })
        .await
    }

    /// Logs in until it succeeds, or the session is over.
    async fn restart(&mut self, Lost { time2wait }: Lost) {
        let Recovery { session, connector, attempts, .. } = self;
        let fault = Fault::SessionLost { time2wait };
        attempts.begin(time2wait);
        let (leading, machine, first) = loop {
            if session.unless_worse_fault(fault, attempts.pause()).await.is_none() {
                return;
            }
            match session.unless_worse_fault(fault, connector.lead()).await {
                None => return,
                Some(Ok(logged_in)) => break logged_in,
                Some(Err(error)) => attempts.failed(connector, &error),
            }
        };
        let how = if leading.is_same_port(&self.leading) { Restart::Reinstated } else { Restart::Moved };
        let epoch = session.shared().epoch();
        let outage = session.restart(*machine, connector.nexus(&leading), how);
        attempts.succeeded();
        let (away, commands) = (outage.away.as_secs_f64(), outage.commands);
        let back = format!("the session is back after {away:.1} s; {commands} commands were under way");
        tracing::warn!(target = %connector, "{back}");
        first.recording.tape().occasion(back);
        connector.join(session, Cid(0), first);
        (1..connector.connections(&leading)).for_each(|cid| session.inner().connection_missing(Cid(cid)));
        let before = std::mem::replace(&mut self.leading, leading);
        self.returned();
        if how == Restart::Moved {
            self.moved(before, epoch, &outage);
        }
        if self.left.len() > LEFT_MAX {
            tracing::error!(
                target = %self.connector,
                "the session has been moved from one portal group to another {LEFT_MAX} times, and their \
                 commands could not be ended: the session ends; check the target's redirections and portal \
                 group tags"
            );
            self.session.close().await;
        }
    }

    /// The session is in another portal group than before.
    fn moved(&mut self, before: LeadingLogin, epoch: u64, outage: &Outage) {
        let Recovery { session, connector, leading, left, .. } = self;
        let (from, to, unsettled) = (before.group(), leading.group(), outage.unsettled);
        tracing::warn!(
            target = %connector,
            "the session has moved from portal group {from} to {to}, which is another I_T nexus: \
             {unsettled} commands that change something wait until they have ended there"
        );
        for lun in &outage.orphaned {
            let lun = LunAddress::parse(lun.0);
            tracing::error!(
                target = %connector,
                %lun,
                "the reservation key was registered in portal group {from} and does not count in {to}: \
                 register it again"
            );
        }
        if unsettled > 0 {
            let until = reactor::now() + session.inner().timeouts.reconnect;
            left.push(AbandonedNexus { leading: before, epoch, until: Some(until) });
        }
    }

    /// The login has reinstated any abandoned nexus of its portal group.
    fn returned(&mut self) {
        let Recovery { session, leading, left, .. } = self;
        left.retain(|left| {
            let is_here = left.leading.is_same_port(leading);
            if is_here {
                session.nexus_ended(left.epoch);
            }
            !is_here
        });
    }
}

/// Ends abandoned nexuses, one after the other, or gives up at their deadlines.
async fn end_left(
    session: &Session,
    connector: &Connector,
    leading: &LeadingLogin,
    left: &mut Vec<AbandonedNexus>,
) -> Infallible {
    let next = |(place, left): (usize, &AbandonedNexus)| Some((place, left.until?));
    while let Some((place, until)) = left.iter().enumerate().find_map(next) {
        let nexus = &left[place];
        if end(connector, leading, &nexus.leading, until).await {
            session.nexus_ended(nexus.epoch);
            left.remove(place);
        } else {
            tracing::error!(
                target = %connector,
                "the commands in portal group {} could not be ended: the writes among them fail, and so do \
                 requests for their blocks, until the session has logged in to that group again",
                nexus.leading.group()
            );
            session.nexus_not_ended(nexus.epoch);
            left[place].until = None;
        }
    }
    future::pending().await
}

/// Restores missing connections until the session is lost; `None` when it is over.
async fn restore_connections(
    session: &Rc<Session>,
    connector: &Connector,
    leading: &LeadingLogin,
    further: &mut FurtherLogins,
) -> Option<Lost> {
    loop {
        let fault = session.fault().await;
        match fault {
            Fault::SessionOver => return None,
            Fault::SessionLost { time2wait } => return Some(Lost { time2wait }),
            Fault::ConnectionLost(cid) => {
                replace(session, connector, leading, (fault, cid), further.of(cid)).await;
            }
        }
    }
}

/// Tries to end the abandoned nexus `left` until its deadline; false if that is impossible.
async fn end(connector: &Connector, leading: &LeadingLogin, left: &LeadingLogin, until: Instant) -> bool {
    // A portal has one group. If it now has another, the old nexus is unreachable, and a login there would
    // end our present session.
    if leading.address == left.address {
        return false;
    }
    let mut attempts = Attempts::new(connector.random);
    let ended = async {
        loop {
            match connector.end_nexus(left).await {
                Ok(ended) => return ended,
                Err(error) => attempts.failed(connector, &error),
            }
            attempts.pause().await;
        }
    };
    reactor::timeout(until.saturating_duration_since(reactor::now()), ended).await.unwrap_or(false)
}

/// Logs a connection in again; returns if the session is lost meanwhile.
async fn replace(
    session: &Rc<Session>,
    connector: &Connector,
    leading: &LeadingLogin,
    (fault, cid): (Fault, Cid),
    attempts: &mut Attempts,
) {
    let is_brief = attempts.begin(Duration::ZERO);
    if is_brief && session.unless_worse_fault(fault, attempts.pause()).await.is_none() {
        return;
    }
    loop {
        let cmd_sn = session.inner().machine.cmd_sn();
        match session.unless_worse_fault(fault, connector.follow(leading, cid, cmd_sn)).await {
            None => return,
            Some(Ok(further)) => {
                tracing::info!(target = %connector, cid = cid.0, "the connection is there");
                attempts.succeeded();
                return connector.join(session, cid, further);
            }
            Some(Err(error)) => attempts.failed(connector, &error),
        }
        if session.unless_worse_fault(fault, attempts.pause()).await.is_none() {
            return;
        }
    }
}

/// Repeated logins, with increasing pauses. A login whose session or connection breaks soon is no success: otherwise a
/// target that takes every login and then breaks it would be asked as fast as it can answer.
struct Attempts {
    random: Random,
    pause: Duration,
    /// The last login that succeeded.
    succeeded_at: Option<Instant>,
    /// The last error, which is logged once.
    said: String,
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Short enough for a target that is back, long enough not to overload one that is not.
const PAUSE_LONGEST: Duration = Duration::from_secs(3);
/// What lived for so long was a success, and the pauses start at the shortest again.
const STEADY: Duration = Duration::from_secs(10);

impl Attempts {
    fn new(random: Random) -> Attempts {
        Attempts { random, pause: PAUSE_FIRST, succeeded_at: None, said: String::new() }
    }

    /// Something is lost, and the target wants no login sooner than after `at_least`. Whether the last login was brief.
    fn begin(&mut self, at_least: Duration) -> bool {
        let lived = self.succeeded_at.map(|at| reactor::now().saturating_duration_since(at));
        let is_brief = lived.is_some_and(|lived| lived < STEADY);
        if !is_brief {
            self.pause = PAUSE_FIRST;
        }
        self.pause = self.pause.max(at_least);
        self.said.clear();
        is_brief
    }

    fn succeeded(&mut self) {
        self.succeeded_at = Some(reactor::now());
    }

    /// The pause doubles each time, plus a random part, so that the many initiators of a target do not all
    /// log in at the same moment.
    async fn pause(&mut self) {
        let mut dice = [0];
        (self.random)(&mut dice);
        let more = self.pause.mul_f64(f64::from(dice[0]) / 512.0);
        reactor::sleep(self.pause + more).await;
        self.pause = (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_LONGEST);
    }

    fn failed(&mut self, connector: &Connector, error: &OpenError) {
        let said = error.to_string();
        if said != self.said {
            tracing::warn!(target = %connector, "cannot log in again yet: {said}");
            self.said = said;
        }
    }
}

#[cfg(test)]
mod tests {
    use reactor::{Alone, block_on};

    use super::*;

    /// Eight connections of a session that was begun again are restored without a pause. Only the one that is lost soon after its login
    /// waits, longer each time, and no longer once it has lived for a while.
    #[test]
    fn a_connection_waits_for_its_own_failures_only() {
        block_on(Alone::exact_virtual_time(), async {
            let mut further = FurtherLogins { random: |bytes| bytes.fill(0), attempts: BTreeMap::new() };
            for cid in (1..8).map(Cid) {
                assert!(!further.of(cid).begin(Duration::ZERO), "{cid:?}");
                further.of(cid).succeeded();
            }
            for pause in [50, 100, 200] {
                let broken = further.of(Cid(3));
                assert!(broken.begin(Duration::ZERO));
                let begun = reactor::now();
                broken.pause().await;
                assert_eq!(reactor::now() - begun, Duration::from_millis(pause));
                broken.succeeded();
            }
            reactor::sleep(STEADY).await;
            for cid in (1..8).map(Cid) {
                assert!(!further.of(cid).begin(Duration::ZERO), "{cid:?}");
                assert_eq!(further.of(cid).pause, PAUSE_FIRST);
            }
        });
    }
}
