//! What a protocol provides: connections, and requests that can be sent more than once.

use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

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
pub enum Kind {
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
    fn kind(&self) -> Kind;
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
    ///
    /// # Errors
    /// Why not, for people.
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
