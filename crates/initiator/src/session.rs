//! A session on its thread: the machine, the commands under way, and who waits for what.
//!
//! One [`Request`] is one command from beginning to end. It goes to the machine as soon as the target's command
//! window has room, on the connection with the fewest commands; the connection's task, woken once however many
//! commands a round brings, sends them all by one write. Answers find their requests by the machine's task index.
//! Nothing on this path allocates.

use std::cell::{RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use iscsi::initiator::Session as Machine;
use iscsi::pdu::{Lun, TaskManagementResult};

use crate::cdb::Cdb;
use crate::error::CommandError;
use crate::management::Management;
use crate::parts::{Parts, Submitted};
use crate::tasks::{Ended, Ticket, Transfer};

/// What a request asks for.
pub(crate) struct Order {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    pub(crate) transfer: Transfer,
}

/// A session, shared by its connections' tasks and by the requests on its thread.
pub(crate) struct Session {
    parts: RefCell<Parts>,
    command_time: Duration,
}

/// How long a target may take to agree to a logout.
const LOGOUT_TIME: Duration = Duration::from_secs(5);

impl Session {
    pub(crate) fn new(machine: Machine, command_time: Duration) -> Rc<Session> {
        Rc::new(Session { parts: RefCell::new(Parts::new(machine, reactor::now())), command_time })
    }

    /// What a connection's task works on. Held for one round, never across a wait.
    pub(crate) fn parts(&self) -> RefMut<'_, Parts> {
        self.parts.borrow_mut()
    }

    /// Sends a command and gives its end.
    pub(crate) fn request(self: &Rc<Session>, order: Order) -> Request {
        Request { session: Rc::clone(self), step: Step::Asked(order, None) }
    }

    /// Asks which targets there are, and gives the answer's text.
    pub(crate) async fn send_targets(&self, which: &str) -> Result<Vec<u8>, CommandError> {
        self.parts().ask_for_targets(which)?;
        let answer = poll_fn(|cx| self.parts().poll_text(cx.waker()));
        reactor::timeout(self.command_time, answer).await.unwrap_or(Err(CommandError::TimedOut))
    }

    /// Asks for a task management function, and gives the target's answer.
    pub(crate) async fn manage(&self, management: Management) -> Result<TaskManagementResult, CommandError> {
        let mut answer = self.parts().manage(management)?;
        let answered = reactor::timeout(self.command_time, answer.recv()).await;
        // Without an answer, the connection that was to bring it is lost.
        answered.map_err(|_| CommandError::TimedOut)?.ok_or(CommandError::ConnectionLost)
    }

    /// Ends when no request that was given up before this call can reach the target any more.
    pub(crate) async fn quiesced(&self) {
        let mark = self.parts().tasks.orphan_mark();
        poll_fn(|cx| match self.parts().tasks.poll_quiet(mark, cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Asks the target to end the session, and ends when it has: when it agreed, or when it had the time to.
    pub(crate) async fn close(&self) {
        self.parts().log_out();
        if reactor::timeout(LOGOUT_TIME, self.ended()).await.is_err() {
            self.parts().give_up();
            self.ended().await;
        }
    }

    /// Ends when the last connection has.
    async fn ended(&self) {
        poll_fn(|cx| self.parts().poll_ended(cx.waker())).await;
    }

    /// Lets the machine's and the commands' deadlines pass; to be called now and then.
    pub(crate) fn pass_time(&self, now: Instant) {
        self.parts().pass_time(now, self.command_time);
    }
}

/// One command, from when it is asked for to its end. Dropped early, it is given up: the target is asked to abort
/// it, and what it may still do goes on without us.
pub(crate) struct Request {
    session: Rc<Session>,
    step: Step,
}

enum Step {
    /// Not sent, and since when it waits for room in the target's window.
    Asked(Order, Option<Instant>),
    Sent(Ticket),
    Over,
}

impl Future for Request {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let this = &mut *self;
        let mut parts = this.session.parts.borrow_mut();
        match std::mem::replace(&mut this.step, Step::Over) {
            Step::Asked(order, since) => {
                let since = since.unwrap_or(parts.now);
                let overdue = parts.now.saturating_duration_since(since) >= this.session.command_time;
                if overdue {
                    return Poll::Ready(Ended::without(order.transfer, CommandError::TimedOut));
                }
                match parts.submit(order, cx.waker(), this.session.command_time) {
                    Submitted::As(ticket) => this.step = Step::Sent(ticket),
                    Submitted::NoRoom(order) => this.step = Step::Asked(order, Some(since)),
                    Submitted::Never(ended) => return Poll::Ready(ended),
                }
                Poll::Pending
            }
            Step::Sent(ticket) => match parts.tasks.poll(ticket, cx.waker()) {
                Some(ended) => Poll::Ready(ended),
                None => {
                    this.step = Step::Sent(ticket);
                    Poll::Pending
                }
            },
            // Polled again after its end, which nobody does.
            Step::Over => Poll::Pending,
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        match self.step {
            Step::Sent(ticket) => self.session.parts().abandon(ticket),
            // Its turn may have come, and nobody else been woken for it.
            Step::Asked(_, Some(_)) => self.session.parts().wake_waiting(),
            Step::Asked(_, None) | Step::Over => {}
        }
    }
}
