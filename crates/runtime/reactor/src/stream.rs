//! Streams: reception and transmission, and the transport's information on the path to a peer.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll};
use std::time::Duration;

/// A slice to receive into.
#[derive(Debug)]
pub enum InSlice<'a> {
    /// Private memory.
    Bytes(&'a mut [u8]),
    /// A volume's memory, which other cores may read concurrently.
    Shared(&'a [AtomicU8]),
}

/// A slice to send.
#[derive(Clone, Copy, Debug)]
pub enum OutSlice<'a> {
    /// Private memory.
    Bytes(&'a [u8]),
    /// A volume's memory, which other cores may write concurrently.
    Shared(&'a [AtomicU8]),
}

impl OutSlice<'_> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            OutSlice::Bytes(bytes) => bytes.len(),
            OutSlice::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A connected byte stream that never blocks.
pub trait Stream {
    /// Receives available bytes into the slices, in order. `Ok(0)` is the peer's end of stream; `WouldBlock`
    /// means that nothing is available yet.
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize>;
    /// A lower bound of the bytes available to the next [`Stream::try_read`], given enough space. 0 from a
    /// stream without this information.
    fn readable_bytes(&self) -> usize {
        0
    }
    /// Sends as much as fits, from the first slice on. `WouldBlock` means nothing fits now.
    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize>;
    /// Ready when `try_read` may find something. Keeps the waker of the last caller.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when `try_write` may find space. Keeps the waker of the last caller.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Makes `poll_readable` wait for this many bytes, or the end of the stream (SO_RCVLOWAT): for readers
    /// that expect more and need not be woken for less. The default is one. Streams without such an option
    /// are unchanged.
    fn gather(&self, _bytes: usize) {}
    /// The peer's address.
    fn peer(&self) -> SocketAddr;
    /// The local address.
    fn local(&self) -> SocketAddr;
    /// Ends both directions; later reads and writes fail.
    fn shutdown(&self);
    /// Like `shutdown`, but also discards unsent data if the transport supports that: on a lost TCP
    /// connection the kernel might otherwise deliver the rest minutes later.
    fn reset(&self) {
        self.shutdown();
    }
    /// State of the path to the peer, according to the transport; `None` if unknown.
    fn path(&self) -> Option<PathInfo> {
        None
    }
    /// Detaches the stream from this thread, so that another can [`World::adopt`](crate::World::adopt) it. No
    /// received data is lost.
    fn detach(self: Box<Self>) -> Detached;
}

/// The result of one read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes stored at their destination.
    pub placed: usize,
    /// Bytes after them, in the buffer for the rest.
    pub rest: usize,
    /// Everything was filled, so that there may be more.
    pub is_full: bool,
}

impl dyn Stream + '_ {
    /// Reads the next bytes to their destination, first private memory and then that of a volume, and the
    /// following ones to `rest`. At the end of the stream nothing is filled.
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

/// Options of a stream. NODELAY is always on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Congestion control by name, e.g. `cubic`; the system's default if `None`.
    pub congestion: Option<String>,
    /// SO_SNDBUF in bytes; the system's automatic size if `None`.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF in bytes; the system's automatic size if `None`.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_MAXSEG: the longest segment in either direction, in bytes, for a path that silently drops longer
    /// ones; for connecting only. `None`: the path's limit.
    pub segment_bytes: Option<u16>,
    /// The source address; for connecting only.
    pub source: Option<SocketAddr>,
}

/// TCP's current information on the path to a peer (Linux `struct tcp_info`). Sums and counts are since the
/// start of the stream. Values that the kernel is too old to report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathInfo {
    /// The congestion control in use, e.g. `cubic`.
    pub congestion: String,

    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// Its mean deviation.
    pub round_trip_deviation: Duration,
    /// The shortest recent round-trip time.
    pub round_trip_min: Option<Duration>,
    /// The round-trip time estimated by the receiving side: the only one if we only receive. `None` until it
    /// is available.
    pub receive_round_trip: Option<Duration>,

    /// The largest segment sent, in bytes.
    pub segment_bytes: u32,
    /// The largest known packet size of the path, in bytes.
    pub path_mtu_bytes: u32,
    /// The congestion window in segments.
    pub congestion_window_segments: u32,
    /// The window that the peer offers us, in bytes.
    pub peer_window_bytes: Option<u32>,
    /// Bytes that the peer may send in a round trip, according to the receive buffer's autotuning.
    pub receive_space_bytes: u32,
    /// Bytes written that the kernel has not sent yet.
    pub unsent_bytes: Option<u32>,

    /// The receive window that we offer the peer, in bytes (Linux 6.2 and later).
    pub own_window_bytes: Option<u32>,

    /// Segments received with data.
    pub data_segments_in: Option<u32>,
    /// Segments sent with data, including retransmissions.
    pub data_segments_out: Option<u32>,
    /// Segments received out of order, because of a loss or because they were overtaken.
    pub out_of_order_segments: Option<u32>,

    /// Segments retransmitted.
    pub retransmissions: u32,
    /// Bytes sent, including retransmissions.
    pub sent_bytes: Option<u64>,
    /// Bytes retransmitted.
    pub retransmitted_bytes: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// Times that segments arrived out of order at the peer.
    pub reorderings: Option<u32>,
    /// Segments received twice by the peer: spurious retransmissions.
    pub duplicates: Option<u32>,

    /// The peer's latest rate of acknowledgement, in bytes per second.
    pub delivery_bytes_per_second: Option<u64>,
    /// Whether that rate was limited by the data we had to send: the path may be faster.
    pub delivery_limited_by_sender: Option<bool>,

    /// Time with data to send or to be acknowledged. The part of it not in the two values below was limited
    /// by the congestion window, or by us.
    pub busy: Option<Duration>,
    /// Time for which sending was limited by the peer's receive window.
    pub limited_by_receiver: Option<Duration>,
    /// Time for which sending was limited by our own send buffer.
    pub limited_by_send_buffer: Option<Duration>,
}
