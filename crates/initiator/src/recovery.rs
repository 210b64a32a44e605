//! Brings lost connections back, and the session itself.
//!
//! A session that has lost some of its connections goes on with the others; those it lost log in again with their
//! CIDs. One that has lost all of them is *reinstated*: a login with the same ISID, which makes the target end every
//! task of the old session before it lets us in (RFC 7143 section 6.3.5). Requests know nothing of this but a pause.

use std::rc::Rc;
use std::time::Duration;

use iscsi::pdu::Cid;

use crate::error::OpenError;
use crate::login::Random;
use crate::open::{Asking, Leading};
use crate::parts::Stall;
use crate::session::Session;
use crate::standing::Trouble;

/// Looks after a session until it is over.
pub(crate) async fn keep(session: Rc<Session>, asking: Asking, mut leading: Leading) {
    loop {
        let trouble = session.trouble().await;
        match trouble {
            Trouble::Over => return,
            Trouble::SessionLost { time2wait } => {
                if let Some(again) = reinstate(&session, &asking, trouble, time2wait).await {
                    leading = again;
                }
            }
            Trouble::ConnectionLost(cid) => replace(&session, &asking, &leading, trouble, cid).await,
        }
    }
}

/// Logs in until the target lets us; `None` if nobody wants it to any more.
async fn reinstate(
    session: &Rc<Session>,
    asking: &Asking,
    trouble: Trouble,
    time2wait: Duration,
) -> Option<Leading> {
    let mut attempts = Attempts::new(asking.random, time2wait);
    loop {
        session.unless_worse(trouble, attempts.pause()).await?;
        match session.unless_worse(trouble, asking.lead()).await? {
            Ok((leading, machine, first)) => {
                let Stall { away, commands } = session.begin_again(*machine, asking.nexus(&leading));
                let away = away.as_secs_f64();
                let back =
                    format!("the session is back after {away:.1} s; {commands} commands were under way");
                tracing::warn!(target = %asking, "{back}");
                first.recording.tape().occasion(back);
                asking.join(session, Cid(0), first);
                (1..asking.connections(&leading)).for_each(|cid| session.parts().lacks(Cid(cid)));
                return Some(leading);
            }
            Err(error) => attempts.failed(asking, &error),
        }
    }
}

/// Logs a connection in again; gives up if the session is lost meanwhile.
async fn replace(session: &Rc<Session>, asking: &Asking, leading: &Leading, trouble: Trouble, cid: Cid) {
    let mut attempts = Attempts::new(asking.random, Duration::ZERO);
    loop {
        let cmd_sn = session.parts().machine.cmd_sn();
        match session.unless_worse(trouble, asking.follow(leading, cid, cmd_sn)).await {
            None => return,
            Some(Ok(further)) => {
                tracing::info!(target = %asking, cid = cid.0, "the connection is there");
                return asking.join(session, cid, further);
            }
            Some(Err(error)) => attempts.failed(asking, &error),
        }
        if session.unless_worse(trouble, attempts.pause()).await.is_none() {
            return;
        }
    }
}

/// How often, and how fast one after the other.
struct Attempts {
    random: Random,
    pause: Duration,
    /// What went wrong last: told once, not every time.
    said: String,
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// A target that is back is not to wait for long, and one that is away not to be run down by its initiators.
const PAUSE_LONGEST: Duration = Duration::from_secs(3);

impl Attempts {
    fn new(random: Random, at_least: Duration) -> Attempts {
        Attempts { random, pause: at_least.max(PAUSE_FIRST), said: String::new() }
    }

    /// Waits longer every time; by chance too, so that the many initiators of a target that was away do not all
    /// come at once.
    async fn pause(&mut self) {
        let mut dice = [0];
        (self.random)(&mut dice);
        let more = self.pause.mul_f64(f64::from(dice[0]) / 512.0);
        reactor::sleep(self.pause + more).await;
        self.pause = (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_LONGEST);
    }

    fn failed(&mut self, asking: &Asking, error: &OpenError) {
        let said = error.to_string();
        if said != self.said {
            tracing::warn!(target = %asking, "cannot log in again yet: {said}");
            self.said = said;
        }
    }
}
