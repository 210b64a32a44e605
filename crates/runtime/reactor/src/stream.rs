//! Streams: what a thread receives and sends, and what the transport knows of the path to a peer.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll};
use std::time::Duration;

/// A slice to receive into.
#[derive(Debug)]
pub enum InSlice<'a> {
    /// Memory of our own.
    Bytes(&'a mut [u8]),
    /// A volume's own memory, which other cores may read at the same time.
    Shared(&'a [AtomicU8]),
}

/// A slice to send.
#[derive(Clone, Copy, Debug)]
pub enum OutSlice<'a> {
    /// Memory of our own.
    Bytes(&'a [u8]),
    /// A volume's own memory, which other cores may write at the same time.
    Shared(&'a [AtomicU8]),
}

impl OutSlice<'_> {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        match self {
            OutSlice::Bytes(bytes) => bytes.len(),
            OutSlice::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A connected byte stream that never blocks.
pub trait Stream {
    /// Receives what is there into the slices, in order. `Ok(0)` is the peer's end of stream;
    /// `WouldBlock` means nothing is there yet.
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize>;
    /// A lower bound of the bytes that the next [`Stream::try_read`] finds, if it has room for them. 0 from a
    /// stream that cannot tell.
    fn readable_bytes(&self) -> usize {
        0
    }
    /// Sends as much as fits, from the first slice on. `WouldBlock` means nothing fits now.
    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize>;
    /// Ready when `try_read` may find something. Keeps the waker of the last caller.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when `try_write` may find room. Keeps the waker of the last caller.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Makes `poll_readable` wait for this many bytes, or the end of the stream (SO_RCVLOWAT): for readers
    /// that know that more is coming and need not be woken for less. One is the default. Streams without such
    /// an option are unchanged.
    fn gather(&self, _bytes: usize) {}
    /// The other end.
    fn peer(&self) -> SocketAddr;
    /// This end.
    fn local(&self) -> SocketAddr;
    /// Ends both directions; later reads and writes fail.
    fn shutdown(&self);
    /// The same, and what was written and has not been sent never will be, where the transport can do that: of a TCP
    /// connection that is lost, the kernel would deliver the rest minutes later.
    fn reset(&self) {
        self.shutdown();
    }
    /// State of the path to the peer, as the transport knows it; `None` if unknown.
    fn path(&self) -> Option<PathInfo> {
        None
    }
    /// Detaches the stream from this thread, so that another can [`World::adopt`](crate::World::adopt) it. Nothing received is
    /// lost.
    fn detach(self: Box<Self>) -> Detached;
}

/// What one read has filled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes at the place that they were meant for.
    pub placed: usize,
    /// Bytes behind them, in the buffer for the rest.
    pub rest: usize,
    /// Everything was filled, so that there may be more.
    pub is_full: bool,
}

impl dyn Stream + '_ {
    /// One read to where the next bytes belong, memory of our own and then of a volume, and of what follows them to
    /// `rest`. An end of the stream fills nothing.
    pub fn receive(&self, bytes: &mut [u8], blocks: &[AtomicU8], rest: &mut [u8]) -> io::Result<Received> {
        let direct = bytes.len() + blocks.len();
        let room = direct + rest.len();
        let mut places = [InSlice::Bytes(bytes), InSlice::Shared(blocks), InSlice::Bytes(rest)];
        let read = match direct {
            0 => self.try_read(&mut places[2..])?,
            _ => self.try_read(&mut places)?,
        };
        let placed = read.min(direct);
        Ok(Received { placed, rest: read - placed, is_full: read == room })
    }
}

/// A stream on its way to another thread.
pub type Detached = Box<dyn Any + Send>;

/// How a stream is set up. NODELAY is always on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Congestion control by name, e.g. `cubic`; the system's default if `None`.
    pub congestion: Option<String>,
    /// SO_SNDBUF in bytes; the system's automatic size if `None`.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF in bytes; the system's automatic size if `None`.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_MAXSEG: the longest segment in either direction, in bytes, for a path that silently drops longer
    /// ones; for connecting only. `None`: what the path allows.
    pub segment_bytes: Option<u16>,
    /// The address to come from; for connecting only.
    pub source: Option<SocketAddr>,
}

/// What TCP knows of the path to a peer at this moment (Linux `struct tcp_info`). Sums and counts are since
/// the stream began. What a kernel of this age does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathInfo {
    /// The congestion control in use, e.g. `cubic`.
    pub congestion: String,

    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// Its mean deviation.
    pub round_trip_deviation: Duration,
    /// The shortest round-trip time seen of late.
    pub round_trip_min: Option<Duration>,
    /// The round-trip time as the receiving side estimates it: the only one where we only receive. `None`
    /// until it has.
    pub receive_round_trip: Option<Duration>,

    /// The largest segment sent, in bytes.
    pub segment_bytes: u32,
    /// The largest packet that the path carries, in bytes, as far as is known.
    pub path_mtu_bytes: u32,
    /// The congestion window in segments.
    pub congestion_window_segments: u32,
    /// The window that the peer offers us, in bytes.
    pub peer_window_bytes: Option<u32>,
    /// What the peer may send in a round trip, in bytes, as the receive buffer's tuning has it.
    pub receive_space_bytes: u32,
    /// Bytes that were written and that the kernel has not sent yet.
    pub unsent_bytes: Option<u32>,

    /// What we let the peer have on the way to us, in bytes (Linux 6.2 and later).
    pub own_window_bytes: Option<u32>,

    /// Segments that came with data.
    pub data_segments_in: Option<u32>,
    /// Segments that were sent with data, those sent again included.
    pub data_segments_out: Option<u32>,
    /// Segments that came out of order: behind a gap that a loss on the way here left, or overtaken.
    pub out_of_order_segments: Option<u32>,

    /// Segments sent again.
    pub retransmissions: u32,
    /// Bytes sent, with those sent again.
    pub sent_bytes: Option<u64>,
    /// Bytes sent again.
    pub retransmitted_bytes: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// Times that segments arrived out of order at the peer.
    pub reorderings: Option<u32>,
    /// Segments received twice by the peer: spurious retransmissions.
    pub duplicates: Option<u32>,

    /// How fast the peer last acknowledged, in bytes per second.
    pub delivery_bytes_per_second: Option<u64>,
    /// Whether that was all we had to send then: the path may be faster.
    pub delivery_limited_by_sender: Option<bool>,

    /// How long there was anything to send or to be acknowledged. What is left of it after the two below was
    /// limited by the congestion window, or by us.
    pub busy: Option<Duration>,
    /// How long sending was held up by the peer's receive window.
    pub limited_by_receiver: Option<Duration>,
    /// How long sending was held up by our own send buffer.
    pub limited_by_send_buffer: Option<Duration>,
}
