//! The interface of a protocol: connections, and requests that can be sent more than once. Also the status of
//! channels.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{BlockDevice, LossCounter};
use derive_more::Display;

use crate::claims::Claim;
use crate::journal::Part;
use crate::journal_file::Content;
use crate::patience::Late;

/// Identifies a connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The client: random, so that no other client can guess it.
    pub session: u128,
    /// Never reused.
    pub number: u64,
}

/// The effect of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// It changes nothing.
    Read,
    /// It makes earlier acknowledged changes durable.
    Flush,
    /// It changes these bytes.
    Change {
        /// The range.
        range: Range<u64>,
        /// Whether it is durable once acknowledged.
        is_durable: bool,
    },
}

/// A request that can be sent more than once.
pub trait Request: Clone + Part + 'static {
    /// Its effect.
    fn kind(&self) -> RequestKind;
    /// The amount of data that it transfers, in bytes.
    fn bytes(&self) -> u64;
    /// The content of its bytes after a change, for a journal file.
    fn content(&self) -> Option<Content<&[u8]>> {
        None
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed<E> {
    /// The server reported an error.
    Server(E),
    /// The connection was lost before the reply.
    Lost,
    /// It timed out.
    TimedOut,
    /// For a flush: acknowledged changes were lost.
    WritesLost,
    /// The journal file cannot be written.
    JournalFile,
}

impl<E> Failed<E> {
    /// Whether a flush over a link `L` that fails like this may have lost acknowledged changes.
    pub(crate) fn may_lose_changes<L: Link<Error = E>>(&self) -> bool {
        match self {
            Failed::Server(error) => !L::is_rejection(error),
            Failed::WritesLost => true,
            Failed::Lost | Failed::TimedOut | Failed::JournalFile => false,
        }
    }
}

/// How a connection was lost.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum Loss {
    /// It has ended.
    #[display("{_0}")]
    Ended(String),
    /// Nothing moves although requests are outstanding. They may still be delivered.
    #[display("silent")]
    Silent,
}

/// A connection that accepts requests.
pub trait Link: 'static {
    /// Its requests.
    type Request: Request;
    /// Their replies.
    type Reply: 'static;
    /// Its errors.
    type Error: 'static;

    /// Sends a request. The connection keeps the claim until the server has answered, even if the future is
    /// dropped. The deadline counts from the last progress ([`Patience`](crate::Patience)). After it the
    /// future fails with [`Failed::TimedOut`] or, with `late`, reports this and waits for the reply.
    fn exchange(
        self: &Rc<Self>,
        request: &Self::Request,
        claim: Option<Claim>,
        deadline: Instant,
        late: Option<Late>,
    ) -> impl Future<Output = Result<Self::Reply, Failed<Self::Error>>> + 'static;

    /// Whether the reply to a [read](Transport::read) of a change's bytes shows the result of the change.
    fn shows(change: &Self::Request, reply: &Self::Reply) -> bool;

    /// Whether a server that replies with this error has not executed the request. With any other error, a
    /// flush may have lost acknowledged changes.
    fn is_rejection(error: &Self::Error) -> bool;

    /// Whether it is lost.
    fn is_lost(&self) -> bool;

    /// The rank of the connection: requests use those with the lowest rank. `None` if it is currently
    /// unusable; `waker` is woken when that changes. [`Failed::Lost`] then means that the server rejected a
    /// request for this reason.
    fn rank(&self, waker: &Waker) -> Option<u8> {
        let _ = waker; // the rank does not change
        Some(0)
    }

    /// Waits for its loss, or for its end after [`Link::leave`].
    fn lost(&self) -> impl Future<Output = Loss>;

    /// Resolves when it has ended, or holds no claim.
    fn settled(&self) -> impl Future<Output = ()>;

    /// The claims of unanswered changes.
    fn take_unanswered(&self) -> Vec<Claim>;

    /// Closes it immediately: data that has not left this host is never sent.
    fn reset(&self);

    /// Closes it once all requests are answered.
    fn leave(&self);
}

/// A new connection.
pub struct Connected<L> {
    /// The connection.
    pub link: Rc<L>,
    /// The server has ended the named connections, and none of their requests can still reach the medium.
    pub fences: bool,
    /// Named connections that it could not end over this path.
    pub not_ended: Vec<u64>,
    /// The generation of the server's cache, if the server reports it. A changed generation shows that
    /// acknowledged writes may have been lost. The same generation shows that none were lost, whether or not
    /// the server was restarted.
    pub start: Option<u128>,
}

/// Makes connections.
pub trait Transport: 'static {
    /// A connection.
    type Link: Link;

    /// Connects over a path, and checks that the device is the same as before. `ended` contains the numbers
    /// of lost connections of this session that must be fenced.
    fn connect(
        &self,
        path: usize,
        name: Name,
        ended: &[u64],
    ) -> impl Future<Output = Result<Connected<Self::Link>, String>>;

    /// The display name of a path.
    fn path_name(&self, path: usize) -> String;

    /// A short request that changes nothing.
    fn probe(&self) -> <Self::Link as Link>::Request;

    /// A read of these bytes, which a change has covered.
    fn read(&self, range: Range<u64>) -> <Self::Link as Link>::Request;

    /// The maximum length of such a read, in bytes.
    fn read_bytes_max(&self) -> u64;

    /// A flush.
    fn flush(&self) -> <Self::Link as Link>::Request;

    /// The losses of acknowledged changes: always the same counter, which the [`Channels`](crate::Channels)
    /// use. A link also counts here each loss that is not reported by the answer to a flush. It does so
    /// immediately, because the requester may have been dropped. The next flush reports it.
    fn losses(&self) -> LossCounter;
}

// The status of channels, for users and reports.

/// A block device that is reached over channels.
pub trait Channelled: BlockDevice {
    /// The status of its channels; `None` if their thread has ended.
    fn status(&self) -> Pin<Box<dyn Future<Output = Option<Status>> + '_>>;

    /// An identity that the server reports for its volume; `None` if it reports none. If the protocol has a
    /// number for this (NBD), the number also changes when the same volume has lost flushed data. A LUN has
    /// no such number: a RAM LUN has the same identity after a restart of its target, and is empty.
    fn identity(&self) -> Option<String>;
}

/// All channels of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The status of each channel.
    pub channels: Vec<ChannelStatus>,
    /// Number of requests that were resent.
    pub resends: u64,
    /// The longest time from a request to its reply, among requests that were resent.
    pub longest_stall: Duration,
    /// How often the journal was replayed because the server may have been restarted.
    pub replays: u64,
    /// Bytes in the journal: acknowledged changes that no flush has covered.
    pub journal_bytes: usize,
    /// Whether the server ends connections that the client names, so that fencing does not depend on time.
    pub fences: bool,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelStatus {
    /// The name of its path in the protocol.
    pub path: String,
    /// Whether it is connected.
    pub is_connected: bool,
    /// Why it lost its last connection, or why it has had none yet.
    pub last_error: Option<String>,
    /// Requests answered.
    pub requests: u64,
    /// Bytes of data transferred by them.
    pub bytes: u64,
    /// Total time to their replies.
    pub service: Duration,
    /// Bytes of outstanding requests, including overhead.
    pub outstanding_bytes: u64,
    /// Bytes per second when saturated; `None` while unknown.
    pub rate: Option<f64>,
    /// The shortest recent reply time.
    pub latency: Duration,
    /// Number of reconnects.
    pub reconnects: u64,
    /// The longest time without a connection.
    pub longest_outage: Duration,
}

impl Status {
    /// The counts since `before`. Other values are the current ones, and so are the longest times.
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

// Waiting for state that is shared by the tasks of a thread.

/// Waits until `ready` returns a value for the state. Code that changes the state must wake the wakers in its
/// `watching` list.
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
