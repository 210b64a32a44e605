//! What a protocol provides: connections, and requests that can be sent more than once; and what is known of channels.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::BlockDevice;
use derive_more::Display;

use crate::claims::Claim;
use crate::journal::Part;
use crate::journal_file::Content;
use crate::patience::Late;

/// A connection among those of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The client: random, so that no other client knows it.
    pub session: u128,
    /// Never used twice.
    pub number: u64,
}

/// What a request does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// It changes nothing.
    Read,
    /// It makes durable what was acknowledged before.
    Flush,
    /// It changes these bytes.
    Change {
        /// Which.
        range: Range<u64>,
        /// Durable when it is answered.
        is_durable: bool,
    },
}

/// A request that can be sent more than once.
pub trait Request: Clone + Part + 'static {
    /// What it does.
    fn kind(&self) -> RequestKind;
    /// The data that it moves, in bytes.
    fn bytes(&self) -> u64;
    /// What a change makes of its bytes, for a journal file.
    fn content(&self) -> Option<Content<&[u8]>> {
        None
    }
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed<E> {
    /// The server says so.
    Server(E),
    /// The connection was lost before the answer.
    Lost,
    /// It was not answered in time.
    TimedOut,
    /// Of a flush: changes that were acknowledged are lost.
    WritesLost,
    /// The journal file cannot be written.
    JournalFile,
}

/// How a connection was lost.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum Loss {
    /// It has ended.
    #[display("{_0}")]
    Ended(String),
    /// Nothing moves, although requests are outstanding. It may still be delivered.
    #[display("silent")]
    Silent,
}

/// A connection that can take requests.
pub trait Link: 'static {
    /// What is asked.
    type Request: Request;
    /// What is answered.
    type Reply: 'static;
    /// What is answered instead.
    type Error: 'static;

    /// Sends a request. The connection keeps the claim until the server has answered, even if the future is
    /// dropped. The deadline counts from the last progress ([`Patience`](crate::Patience)): after it the future ends with
    /// [`Failed::TimedOut`], or, with `late`, tells of it and waits for the answer.
    fn exchange(
        self: &Rc<Self>,
        request: &Self::Request,
        claim: Option<Claim>,
        deadline: Instant,
        late: Option<Late>,
    ) -> impl Future<Output = Result<Self::Reply, Failed<Self::Error>>> + 'static;

    /// Whether the answer to a [read](Transport::read) of the bytes of a change shows what the change has made of them.
    fn shows(change: &Self::Request, reply: &Self::Reply) -> bool;

    /// Whether it is lost.
    fn is_lost(&self) -> bool;

    /// How well the device is reached by it: requests go to those of the lowest rank. `None` if they cannot at present: `waker` is
    /// woken when that changes. [`Failed::Lost`] then means that the server has refused a request for this reason.
    fn rank(&self, waker: &Waker) -> Option<u8> {
        let _ = waker; // that does not change
        Some(0)
    }

    /// Waits for its loss, or its end as [`Link::leave`] wants it.
    fn lost(&self) -> impl Future<Output = Loss>;

    /// Ends when it has ended, or holds no claim.
    fn settled(&self) -> impl Future<Output = ()>;

    /// The claims of changes that were not answered.
    fn take_unanswered(&self) -> Vec<Claim>;

    /// Ends it at once: nothing that has not left this machine does so later.
    fn reset(&self);

    /// Ends it once all is answered.
    fn leave(&self);
}

/// A connection that was made.
pub struct Connected<L> {
    /// It.
    pub link: Rc<L>,
    /// The server has ended the connections that were named, and none of their requests can reach the medium any
    /// more.
    pub fences: bool,
    /// Those of them that it could not end by this path.
    pub not_ended: Vec<u64>,
    /// The generation of the server's cache, if it tells one: another one than before shows that it may have lost acknowledged writes,
    /// the same that it has lost none, whether it was restarted or not.
    pub start: Option<u128>,
}

/// How connections are made.
pub trait Transport: 'static {
    /// A connection.
    type Link: Link;

    /// Connects by a path, and checks that the device is the one it was. `ended` are numbers of lost connections of
    /// this session, to be fenced.
    fn connect(
        &self,
        path: usize,
        name: Name,
        ended: &[u64],
    ) -> impl Future<Output = Result<Connected<Self::Link>, String>>;

    /// The name of a path, for people.
    fn path_name(&self, path: usize) -> String;

    /// A short request that changes nothing.
    fn probe(&self) -> <Self::Link as Link>::Request;

    /// A read of these bytes, which a change has had.
    fn read(&self, range: Range<u64>) -> <Self::Link as Link>::Request;

    /// The longest of these reads that the server accepts, in bytes.
    fn read_bytes_max(&self) -> u64;

    /// A flush.
    fn flush(&self) -> <Self::Link as Link>::Request;
}

// What is known of channels, for people and reports.

/// A block device that is reached by channels.
pub trait Channelled: BlockDevice {
    /// What is known of them; `None` if their thread has ended.
    fn status(&self) -> Pin<Box<dyn Future<Output = Option<Status>> + '_>>;

    /// What the server tells of its volume that distinguishes it from others; `None` if it tells nothing of that kind. Where the protocol
    /// has a number for it (NBD), also from the same volume after a loss of flushed data. A LUN has none: one in its target's memory
    /// has the same identity after a restart, and is empty.
    fn identity(&self) -> Option<String>;
}

/// All channels of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Each of them.
    pub channels: Vec<ChannelStatus>,
    /// Requests that were sent again.
    pub resends: u64,
    /// The longest time to the answer of a request that was sent again.
    pub longest_stall: Duration,
    /// How often the journal was replayed, since the server may have been restarted.
    pub replays: u64,
    /// Bytes of acknowledged changes that no flush has covered, as the journal has them.
    pub journal_bytes: usize,
    /// The server ends connections that the client names: fencing does not rely on time.
    pub fences: bool,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelStatus {
    /// Its path, as the protocol names it.
    pub path: String,
    /// It has a connection.
    pub is_connected: bool,
    /// Why it lost the last one, or why there is none yet.
    pub last_error: Option<String>,
    /// Requests that were answered.
    pub requests: u64,
    /// Their data in bytes.
    pub bytes: u64,
    /// The time to their answers, all together.
    pub service: Duration,
    /// Requests outstanding, in bytes of their data and their overhead.
    pub outstanding_bytes: u64,
    /// Bytes a second when it has enough to do; `None` while that is unknown.
    pub rate: Option<f64>,
    /// The shortest time to an answer lately.
    pub latency: Duration,
    /// How often it has connected again.
    pub reconnects: u64,
    /// The longest time without a connection.
    pub longest_outage: Duration,
}

impl Status {
    /// What has been counted since `before`. What is no count is as it is now; so are the longest times.
    pub fn since(mut self, before: &Status) -> Status {
        for (channel, before) in self.channels.iter_mut().zip(&before.channels) {
            channel.requests -= before.requests.min(channel.requests);
            channel.bytes -= before.bytes.min(channel.bytes);
            channel.service = channel.service.saturating_sub(before.service);
            channel.reconnects -= before.reconnects.min(channel.reconnects);
        }
        self.resends -= before.resends.min(self.resends);
        self.replays -= before.replays.min(self.replays);
        self
    }
}

// Waiting for a state that is shared by the tasks of a thread.

/// Waits until `ready` finds in a state what is waited for. Who changes the state wakes those in its list, `watching`.
pub async fn watch<S, R>(
    state: &RefCell<S>,
    watching: impl Fn(&mut S) -> &mut Vec<Waker>,
    ready: impl Fn(&S) -> Option<R>,
) -> R {
    poll_fn(|cx| {
        let mut state = state.borrow_mut();
        match ready(&state) {
            Some(ready) => Poll::Ready(ready),
            None => {
                watching(&mut state).push(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
