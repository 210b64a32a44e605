//! The interface that a protocol implements: connections, and requests that can be sent more than once. Also
//! contains the status of channels.

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
    /// Identifies the client. The number is random, so that no other client can guess it.
    pub session: u128,
    /// The number of the connection. A client never reuses a number.
    pub number: u64,
}

/// The effect of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The request changes nothing.
    Read,
    /// The request makes earlier acknowledged changes durable.
    Flush,
    /// The request changes these bytes.
    Change {
        /// The range.
        range: Range<u64>,
        /// Whether the change is durable once acknowledged.
        is_durable: bool,
    },
}

/// A request that can be sent more than once.
pub trait Request: Clone + Part + 'static {
    /// The request's effect.
    fn kind(&self) -> RequestKind;
    /// The amount of data that it transfers, in bytes.
    fn bytes(&self) -> u64;
    /// The content of the changed bytes after the request, for a journal file.
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
    /// The request timed out.
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
    /// The connection has ended, for this reason.
    #[display("{_0}")]
    Ended(String),
    /// The connection makes no progress although requests are outstanding. These may still be delivered.
    #[display("silent")]
    Silent,
}

/// A connection that accepts requests.
pub trait Link: 'static {
    /// The protocol's requests.
    type Request: Request;
    /// The replies to requests.
    type Reply: 'static;
    /// The errors that the server reports.
    type Error: 'static;

    /// Sends a request. The connection keeps the claim until the server has answered, even if the future is
    /// dropped. The time limit counts from the last progress ([`Patience`](crate::Patience)). After it, the
    /// future fails with [`Failed::TimedOut`] or, with `late`, reports that the request is late and continues
    /// to wait for the reply.
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

    /// Whether the device has no space left. Users wait for space and repeat the flush, so this error does
    /// not report the loss.
    fn is_no_space(error: &Self::Error) -> bool;

    /// Whether the connection is lost.
    fn is_lost(&self) -> bool;

    /// The rank of the connection: requests use the connections with the lowest rank. `None` if the
    /// connection is currently unusable; `waker` is woken when this changes. If a request fails with
    /// [`Failed::Lost`] on an unusable connection, the server has rejected the request for this reason.
    fn rank(&self, waker: &Waker) -> Option<u8> {
        let _ = waker; // the rank does not change
        Some(0)
    }

    /// Waits until the connection is lost, or has ended after [`Link::leave`].
    fn lost(&self) -> impl Future<Output = Loss>;

    /// Resolves when the connection has ended or holds no claim.
    fn settled(&self) -> impl Future<Output = ()>;

    /// Takes the claims of unanswered changes out of the connection.
    fn take_unanswered(&self) -> Vec<Claim>;

    /// Closes the connection immediately. Data that has not left this host is never sent.
    fn reset(&self);

    /// Closes the connection once all requests are answered.
    fn leave(&self);
}

/// A new connection.
pub struct Connected<L> {
    /// The connection.
    pub link: Rc<L>,
    /// Whether the server has ended the named connections, so that none of their requests can still reach the
    /// medium.
    pub fences: bool,
    /// Named connections that the server could not end over this path.
    pub not_ended: Vec<u64>,
    /// The generation of the server's cache, if the server reports it. A changed generation shows that
    /// acknowledged writes may have been lost. The same generation shows that none were lost, whether or not
    /// the server was restarted.
    pub start: Option<u128>,
}

/// Connects to a device.
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

    /// A request that reads these bytes, which a change has covered.
    fn read(&self, range: Range<u64>) -> <Self::Link as Link>::Request;

    /// The maximum length of a request by [`Transport::read`], in bytes.
    fn read_bytes_max(&self) -> u64;

    /// A request that flushes the device.
    fn flush(&self) -> <Self::Link as Link>::Request;

    /// The counter of losses of acknowledged changes. It must always be the same counter, which the
    /// [`Channels`](crate::Channels) also use. A link counts a loss here if the loss is reported other than
    /// by the answer to a flush. It does so immediately, because the requester may have been dropped. The
    /// next flush reports the loss.
    fn losses(&self) -> LossCounter;
}

// The status of channels, for users and reports.

/// A block device that is reached over channels.
pub trait Channelled: BlockDevice {
    /// The status of the device's channels; `None` if the thread of the channels has ended.
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
    /// Number of times that the journal was replayed because the server may have been restarted.
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
    /// Bytes of data transferred by these requests.
    pub bytes: u64,
    /// Total time from these requests to their replies.
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
    /// Returns the counts since `before`. All other values, including the longest times, are the current
    /// ones.
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

// Waits for a change of state that the tasks of a thread share.

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
