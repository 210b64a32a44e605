//! Byte streams: receiving, sending, and the transport's information about the path to the peer.

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
    /// The length in bytes.
    pub fn len(&self) -> usize {
        match self {
            OutSlice::Bytes(bytes) => bytes.len(),
            OutSlice::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether the slice is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A connected byte stream that never blocks.
pub trait Stream {
    /// Receives available bytes into the slices, in order. `Ok(0)` means that the peer has ended the stream;
    /// `WouldBlock` means that nothing is available yet.
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize>;
    /// A lower bound of the bytes that the next [`Stream::try_read`] returns if it has enough space. 0 for
    /// streams without this information.
    fn readable_bytes(&self) -> usize {
        0
    }
    /// Sends the slices in order, up to the available buffer space. `WouldBlock` means that no space is
    /// available.
    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize>;
    /// Ready when `try_read` may find data. Keeps only the last caller's waker.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when `try_write` may find space. Keeps only the last caller's waker.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Makes `poll_readable` wait until this many bytes, or the end of the stream, have arrived
    /// (SO_RCVLOWAT). For readers that cannot use fewer bytes. The default is 1. No effect on streams without
    /// such an option.
    fn gather(&self, _bytes: usize) {}
    /// The peer's address.
    fn peer(&self) -> SocketAddr;
    /// The local address.
    fn local(&self) -> SocketAddr;
    /// Closes both directions. Later reads and writes fail.
    fn shutdown(&self);
    /// Like `shutdown`, but also discards unsent data if the transport supports that: on a lost TCP
    /// connection the kernel might otherwise deliver the rest minutes later.
    fn reset(&self) {
        self.shutdown();
    }
    /// The state of the path to the peer, as reported by the transport; `None` if unknown.
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
    /// Number of bytes stored at their destination.
    pub placed: usize,
    /// Number of bytes that followed, stored in the buffer `rest`.
    pub rest: usize,
    /// Whether all buffers were filled, so that more data may be available.
    pub is_full: bool,
}

impl dyn Stream + '_ {
    /// Reads the next bytes to their destination, first `bytes` in private memory and then `blocks` in a
    /// volume's memory. Bytes that follow them are stored in `rest`. At the end of the stream, nothing is
    /// filled.
    pub fn receive(
        &self,
        bytes: &mut [u8],
        blocks: &[AtomicU8],
        rest: &mut [u8],
    ) -> io::Result<Received> {
        let direct = bytes.len() + blocks.len();
        let room = direct + rest.len();
        let mut places = [
            InSlice::Bytes(bytes),
            InSlice::Shared(blocks),
            InSlice::Bytes(rest),
        ];
        let read = match direct {
            0 => self.try_read(&mut places[2..])?,
            _ => self.try_read(&mut places)?,
        };
        let placed = read.min(direct);
        Ok(Received {
            placed,
            rest: read - placed,
            is_full: read == room,
        })
    }
}

/// A stream or endpoint in transit to another thread.
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
    /// TCP_MAXSEG: the longest segment in either direction, in bytes, for paths that silently drop longer
    /// ones. Used only when connecting. `None` uses the path's limit.
    pub segment_bytes: Option<u16>,
    /// The source address. Used only when connecting.
    pub source: Option<SocketAddr>,
}

/// TCP's current information about the path to a peer (Linux `struct tcp_info`). Sums and counts start with
/// the stream. Values that the running kernel does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathInfo {
    /// The congestion control in use, e.g. `cubic`.
    pub congestion: String,

    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// The mean deviation of the round-trip time.
    pub round_trip_deviation: Duration,
    /// The shortest recent round-trip time.
    pub round_trip_min: Option<Duration>,
    /// The round-trip time as estimated from received data: the only estimate on a stream that only receives.
    /// `None` until it is available.
    pub receive_round_trip: Option<Duration>,

    /// The largest segment sent, in bytes.
    pub segment_bytes: u32,
    /// The largest known packet size of the path, in bytes.
    pub path_mtu_bytes: u32,
    /// The congestion window in segments.
    pub congestion_window_segments: u32,
    /// The window that the peer offers us, in bytes.
    pub peer_window_bytes: Option<u32>,
    /// Bytes that the peer can send per round trip, according to the autotuning of the receive buffer.
    pub receive_space_bytes: u32,
    /// Bytes written that the kernel has not sent yet.
    pub unsent_bytes: Option<u32>,

    /// The receive window that we offer the peer, in bytes (Linux 6.2 and later).
    pub own_window_bytes: Option<u32>,

    /// Segments received with data.
    pub data_segments_in: Option<u32>,
    /// Segments sent with data, including retransmissions.
    pub data_segments_out: Option<u32>,
    /// Segments received out of order, because of loss or reordering.
    pub out_of_order_segments: Option<u32>,

    /// Segments retransmitted.
    pub retransmissions: u32,
    /// Bytes sent, including retransmissions.
    pub sent_bytes: Option<u64>,
    /// Bytes retransmitted.
    pub retransmitted_bytes: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// Number of times that segments arrived out of order at the peer.
    pub reorderings: Option<u32>,
    /// Segments that the peer received twice, because of spurious retransmissions.
    pub duplicates: Option<u32>,

    /// The latest rate at which the peer acknowledged data, in bytes per second.
    pub delivery_bytes_per_second: Option<u64>,
    /// Whether the delivery rate was limited by a lack of data to send, so that the path may be faster.
    pub delivery_limited_by_sender: Option<bool>,

    /// Time during which there was unsent or unacknowledged data. Apart from the time in the next two fields,
    /// the congestion window or this program limited sending.
    pub busy: Option<Duration>,
    /// Time during which the peer's receive window limited sending.
    pub limited_by_receiver: Option<Duration>,
    /// Time during which this end's send buffer limited sending.
    pub limited_by_send_buffer: Option<Duration>,
}
