//! The flight recorder, which keeps the last PDUs of every connection for the analysis of failures.
//!
//! The recorder is always enabled. Each connection writes to its own [`Tape`], in bounded memory. On request,
//! or when a connection fails, the tapes are written as a pcapng file that Wireshark and tshark decode as
//! iSCSI. The tapes of the last ended connections are kept, because they contain the failures.
//!
//! Reading order: [`FlightRecorder`], `tape` (the recorded data), and the conversion of PDUs to packets of a
//! pcapng file at the end of this module.
//!
//! A recording contains no secrets, but it contains CHAP responses, which are hashes of secrets, and the
//! first 64 bytes of the data of each PDU.

mod tape;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block::{Lock, LockGuard};

use crate::recorder::tape::Recorded;

pub(crate) use tape::{Direction, Ends, Tape};

/// Records the last PDUs of every connection that uses it, in both directions.
///
/// A recorder is part of [`Settings`](crate::Settings): sessions opened with the same settings, or with
/// clones of them, share one recorder. It can be read at any time and from any thread, whatever the sessions
/// are doing.
#[derive(Clone)]
pub struct FlightRecorder(Arc<Shared>);

struct Shared {
    /// Number of PDUs kept per connection.
    pdus: usize,
    /// Maps monotonic times to the wall clock. The first connection sets it.
    clock: OnceLock<Clock>,
    /// The directory for files that are written when a connection fails.
    folder: OnceLock<PathBuf>,
    tapes: Lock<Tapes>,
}

/// The tapes of running connections in the order of their start, and of ended connections in the order of
/// their end.
#[derive(Default)]
struct Tapes {
    running: Vec<Arc<Lock<Tape>>>,
    ended: VecDeque<Arc<Lock<Tape>>>,
}

/// Maximum number of tapes of ended connections: enough for a lost session with eight connections.
const ENDED_MAX: usize = 8;

/// Maximum number of files of one process in the directory. The next file replaces the oldest.
const FILES_MAX: usize = 16;

impl FlightRecorder {
    /// The default number of PDUs kept per connection: 100 KiB.
    pub const PDUS: usize = 512;
    /// The maximum number of PDUs kept per connection: 13 MiB.
    pub const PDUS_MAX: usize = 65_536;

    /// Creates a recorder that keeps `pdus` PDUs of each connection, up to [`FlightRecorder::PDUS_MAX`]. Zero
    /// disables recording.
    pub fn new(pdus: usize) -> FlightRecorder {
        FlightRecorder(Arc::new(Shared {
            pdus: pdus.min(FlightRecorder::PDUS_MAX),
            clock: OnceLock::new(),
            folder: OnceLock::new(),
            tapes: Lock::default(),
        }))
    }

    /// Sets the directory into which a file is written whenever a logged-in connection ends other than by a
    /// logout. The last 16 files of this process are kept, as `linerate-PID-N.pcapng`. Only the first call
    /// has an effect.
    pub fn write_endings_to(&self, folder: &Path) {
        self.0.folder.get_or_init(|| folder.to_owned());
    }

    /// Returns the number of PDUs kept per connection.
    pub fn pdus(&self) -> usize {
        self.0.pdus
    }

    /// Returns all recorded PDUs as a pcapng file (see [`pcapng`]).
    pub fn pcapng(&self) -> Vec<u8> {
        pcapng([self])
    }

    /// Starts recording a connection, with its login.
    pub(crate) fn begin(&self, now: Instant, ends: Ends) -> Recording {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.0.clock.get_or_init(|| Clock { instant: now, wall });
        let tape = Arc::new(Lock::new(Tape::new(ends, self.0.pdus)));
        if self.0.pdus > 0 {
            debug_assert!(self.0.pdus <= FlightRecorder::PDUS_MAX);
            self.lock_tapes().running.push(Arc::clone(&tape));
        }
        Recording {
            recorder: self.clone(),
            tape,
        }
    }

    fn lock_tapes(&self) -> LockGuard<'_, Tapes> {
        self.0.tapes.lock()
    }

    /// Copies every tape, so that no connection has to wait while the tapes are read.
    fn tapes(&self) -> Vec<(Tape, Clock)> {
        let Some(clock) = self.0.clock.get() else {
            return Vec::new();
        };
        let tapes = self.lock_tapes();
        tapes
            .ended
            .iter()
            .chain(&tapes.running)
            .map(|tape| (tape.lock().clone(), *clock))
            .collect()
    }

    /// Writes the tape of a failed connection, if there is a directory for it.
    fn write_ending(&self, tape: &Tape) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (Some(folder), Some(clock)) = (self.0.folder.get(), self.0.clock.get()) else {
            return;
        };
        let number = NEXT.fetch_add(1, Relaxed) % FILES_MAX;
        let path = folder.join(format!("linerate-{}-{number}.pcapng", std::process::id()));
        match write_anew(&path, &file(&[(tape.clone(), *clock)])) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), "the connection's last PDUs are recorded")
            }
            Err(error) => tracing::warn!(path = %path.display(), "no recording: {error}"),
        }
    }
}

/// Creates a file that only its owner can access, because it contains user data. Other users may have access
/// to the directory, and the name is predictable. Therefore an existing file is not written to, and a
/// symbolic link is not followed.
fn write_anew(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

impl Default for FlightRecorder {
    fn default() -> FlightRecorder {
        FlightRecorder::new(FlightRecorder::PDUS)
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder")
            .field("pdus", &self.0.pdus)
            .finish_non_exhaustive()
    }
}

/// Combines the data of several recorders into one pcapng file.
///
/// Each connection is an interface with one TCP conversation, which has the real addresses, ports and times.
/// Each PDU is a packet. Data that was not kept is missing from its packet, as if the capture had truncated
/// it. The comment of the last packet contains the reason why the connection ended. If the port of a portal
/// is not 3260, specify it: `tshark -r FILE -d tcp.port==PORT,iscsi`.
pub fn pcapng<'a>(recorders: impl IntoIterator<Item = &'a FlightRecorder>) -> Vec<u8> {
    let tapes: Vec<_> = recorders
        .into_iter()
        .flat_map(FlightRecorder::tapes)
        .collect();
    file(&tapes)
}

fn file(tapes: &[(Tape, Clock)]) -> Vec<u8> {
    let mut writer = Writer::new(concat!("linerate ", env!("CARGO_PKG_VERSION")), REMARK);
    let mut all: Vec<Packet> = Vec::new();
    for (interface, (tape, clock)) in (0..).zip(tapes) {
        let Ends {
            peer, cid, target, ..
        } = tape.ends();
        writer.interface(
            &format!("{peer}, CID {cid}"),
            target.as_deref().unwrap_or("discovery"),
        );
        all.extend(packets(tape, *clock, interface));
    }
    all.sort_by_key(|packet| packet.at_ns);
    all.iter().for_each(|packet| writer.packet(packet));
    writer.finish()
}

/// Information for readers of the file.
const REMARK: &str = "The last iSCSI PDUs of each connection, as the initiator sent and received them. The \
                      TCP/IP headers are synthetic; addresses, ports and times are real. Of the data of \
                      reads and writes, only the first 64 bytes are recorded. If the portal's port is not \
                      3260, use Decode As iSCSI, or tshark -d tcp.port==PORT,iscsi.";

/// A connection's handle to its tape.
pub(crate) struct Recording {
    recorder: FlightRecorder,
    tape: Arc<Lock<Tape>>,
}

impl Recording {
    /// Locks the tape, for one iteration of the connection.
    pub(crate) fn tape(&self) -> LockGuard<'_, Tape> {
        self.tape.lock()
    }

    /// Records a normal end of the connection.
    pub(crate) fn end(&self, now: Instant, why: &dyn fmt::Display) {
        self.tape().end(now, why.to_string());
    }

    /// Records a failure of the connection.
    pub(crate) fn end_badly(&self, now: Instant, why: &dyn fmt::Display) {
        self.end(now, why);
        self.recorder.write_ending(&self.tape());
    }
}

/// Moves the tape to the list of ended connections, however the connection ended.
impl Drop for Recording {
    fn drop(&mut self) {
        let mut tapes = self.recorder.lock_tapes();
        let ended = |tape: &Arc<Lock<Tape>>| Arc::ptr_eq(tape, &self.tape);
        let running = tapes.running.iter().position(ended);
        debug_assert_eq!(
            running.is_some(),
            self.recorder.0.pdus > 0,
            "a tape runs until its recording ends"
        );
        if let Some(at) = running {
            let tape = tapes.running.remove(at);
            tapes.ended.push_back(tape);
        }
        if tapes.ended.len() > ENDED_MAX {
            let least = least_telling(&tapes.ended);
            tapes.ended.remove(least);
        }
        debug_assert!(tapes.ended.len() <= ENDED_MAX);
    }
}

/// Returns the index of the tape to drop: the oldest tape with a failed login, because there are many of
/// these while a target is unavailable. The newest tape is never dropped.
fn least_telling(ended: &VecDeque<Arc<Lock<Tape>>>) -> usize {
    let older = ended.iter().take(ended.len().saturating_sub(1));
    older
        .map(|tape| tape.lock().has_logged_in())
        .position(|logged_in| !logged_in)
        .unwrap_or(0)
}

// Converts a tape to packets: a synthetic TCP connection with the recorded PDUs.
//
// The original segments are not recorded. Each PDU becomes one packet, or several if it exceeds the maximum
// packet length. Addresses, ports and times are the original ones. Sequence numbers count the bytes in the
// file. PDUs that are no longer on the tape leave no gap in them, because readers would report lost segments.
// Windows have the maximum size. TCP checksums are zero, as in captures on a host whose hardware computes
// them. Data that was not kept is marked as truncated by the snapshot length. Readers recognise this, and do
// not check the digests of such data.

/// The wall-clock time of one instant of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) instant: Instant,
    /// Time since 1970.
    pub(crate) wall: Duration,
}

impl Clock {
    /// Returns the wall-clock time in nanoseconds since 1970.
    fn ns(self, at: Instant) -> u64 {
        let wall = match at.checked_duration_since(self.instant) {
            Some(later) => self.wall.saturating_add(later),
            None => self.wall.saturating_sub(self.instant - at),
        };
        u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the packets of a tape, in order.
pub(crate) fn packets(tape: &Tape, clock: Clock, interface: u32) -> Vec<Packet> {
    let mut recorded = tape.recorded().peekable();
    let ending = tape.ending();
    let Some(begin) = recorded
        .peek()
        .map(|first| first.at)
        .or(ending.map(|(at, _)| at))
    else {
        return Vec::new();
    };
    let mut conversation = Conversation::new(tape.ends(), clock, interface);
    conversation.open(begin);
    recorded.for_each(|pdu| conversation.pdu(&pdu));
    if let Some((at, why)) = ending {
        conversation.close(at, why);
    }
    conversation.packets
}

struct Conversation {
    clock: Clock,
    interface: u32,
    /// The local address and the peer's address, both of one family.
    addresses: [SocketAddr; 2],
    /// The next sequence number of each side.
    sequence: [u32; 2],
    /// Time of the last packet. It is kept because packet times must not decrease.
    now_ns: u64,
    packets: Vec<Packet>,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// TCP options of a SYN: MSS 65495, as on the loopback; no operation; and window scale 14, the largest (RFC
/// 7323 section 2.3).
const SYN_OPTIONS: &[u8] = &[2, 4, 0xff, 0xd7, 1, 3, 3, 14];
const WINDOW: u16 = u16::MAX;
/// Maximum length of a segment. It leaves space for the headers in an IPv4 packet of 65535 bytes.
const SEGMENT_BYTES_MAX: usize = 65_000;
/// Length of a TCP header without options.
const TCP_BYTES: usize = 20;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP: u8 = 6;
const HOPS: u8 = 64;

/// The content of a packet.
#[derive(Clone, Copy, Default)]
struct Segment<'a> {
    flags: u8,
    options: &'a [u8],
    kept: &'a [u8],
    bytes: usize,
    remark: Option<&'a str>,
}

impl Conversation {
    fn new(ends: &Ends, clock: Clock, interface: u32) -> Conversation {
        // Conversations start with different sequence numbers, so that readers distinguish two conversations
        // between the same ports.
        let sequence = [interface << 16; 2];
        let addresses = of_one_family(ends);
        Conversation {
            clock,
            interface,
            addresses,
            sequence,
            now_ns: 0,
            packets: Vec::new(),
        }
    }

    fn open(&mut self, at: Instant) {
        let syn = Segment {
            flags: SYN,
            options: SYN_OPTIONS,
            ..Segment::default()
        };
        self.segment(at, Direction::Sent, syn);
        self.segment(
            at,
            Direction::Received,
            Segment {
                flags: SYN | ACK,
                ..syn
            },
        );
        self.segment(
            at,
            Direction::Sent,
            Segment {
                flags: ACK,
                ..Segment::default()
            },
        );
    }

    /// Adds the packets of a PDU. All recorded bytes of a PDU fit into its first packet.
    fn pdu(&mut self, pdu: &Recorded) {
        let first = pdu.wire_bytes.min(SEGMENT_BYTES_MAX);
        let kept = &pdu.kept[..pdu.kept.len().min(first)];
        let flags = PSH | ACK;
        let segment = Segment {
            flags,
            kept,
            bytes: first,
            remark: pdu.remark.as_deref(),
            options: &[],
        };
        self.segment(pdu.at, pdu.direction, segment);
        let mut left = pdu.wire_bytes - first;
        while left > 0 {
            let bytes = left.min(SEGMENT_BYTES_MAX);
            self.segment(
                pdu.at,
                pdu.direction,
                Segment {
                    flags,
                    bytes,
                    ..Segment::default()
                },
            );
            left -= bytes;
        }
    }

    fn close(&mut self, at: Instant, why: &str) {
        let fin = Segment {
            flags: FIN | ACK,
            remark: Some(why),
            ..Segment::default()
        };
        self.segment(at, Direction::Sent, fin);
    }

    fn segment(&mut self, at: Instant, direction: Direction, segment: Segment<'_>) {
        let (from, to) = match direction {
            Direction::Sent => (0, 1),
            Direction::Received => (1, 0),
        };
        debug_assert!(segment.kept.len() <= segment.bytes && segment.bytes <= SEGMENT_BYTES_MAX);
        let tcp = self.tcp(from, to, &segment);
        let mut captured = ip(
            self.addresses[from],
            self.addresses[to],
            tcp.len() + segment.bytes,
        );
        captured.extend_from_slice(&tcp);
        let original = captured.len() + segment.bytes;
        captured.extend_from_slice(segment.kept);
        self.now_ns = self.now_ns.max(self.clock.ns(at));
        self.packets.push(Packet {
            at_ns: self.now_ns,
            interface: self.interface,
            captured,
            original_bytes: original as u32, // a segment is short
            comment: segment.remark.map(str::to_owned),
        });
        let takes_a_number = u32::from(segment.flags & (SYN | FIN) != 0);
        let next = &mut self.sequence[from];
        *next = next
            .wrapping_add(segment.bytes as u32)
            .wrapping_add(takes_a_number);
    }

    /// Returns the TCP header of a segment (RFC 9293 section 3.1).
    fn tcp(&self, from: usize, to: usize, segment: &Segment<'_>) -> Vec<u8> {
        let acknowledged = if segment.flags & ACK != 0 {
            self.sequence[to]
        } else {
            0
        };
        debug_assert!(
            segment.options.len().is_multiple_of(4),
            "a TCP header is whole words"
        );
        let words = (TCP_BYTES + segment.options.len()) / 4;
        let mut header = self.addresses[from].port().to_be_bytes().to_vec();
        header.extend_from_slice(&self.addresses[to].port().to_be_bytes());
        header.extend_from_slice(&self.sequence[from].to_be_bytes());
        header.extend_from_slice(&acknowledged.to_be_bytes());
        header.extend_from_slice(&[(words as u8) << 4, segment.flags]);
        header.extend_from_slice(&WINDOW.to_be_bytes());
        header.extend_from_slice(&[0; 4]); // checksum, urgent pointer
        header.extend_from_slice(segment.options);
        header
    }
}

/// Returns the addresses of both ends. If only one of them is an IPv6 address, which does not occur on a real
/// connection, the other is converted to an IPv4-mapped address.
fn of_one_family(ends: &Ends) -> [SocketAddr; 2] {
    let (local, peer) = (ends.local, ends.peer);
    if local.is_ipv4() == peer.is_ipv4() {
        return [local, peer];
    }
    [local, peer].map(|end| SocketAddr::new(IpAddr::V6(mapped(end.ip())), end.port()))
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Returns the IP header for a payload of `bytes` bytes.
fn ip(from: SocketAddr, to: SocketAddr, bytes: usize) -> Vec<u8> {
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, bytes).to_vec(),
        (from, to) => ipv6(mapped(from), mapped(to), bytes),
    }
}

/// Returns the IPv4 header (RFC 791 section 3.1), without options, and with the flag "don't fragment".
fn ipv4(from: Ipv4Addr, to: Ipv4Addr, bytes: usize) -> [u8; IPV4_BYTES] {
    let [high, low] = ((IPV4_BYTES + bytes) as u16).to_be_bytes();
    let ([a, b, c, d], [e, f, g, h]) = (from.octets(), to.octets());
    let mut header = [
        0x45, 0, high, low, 0, 0, 0x40, 0, HOPS, TCP, 0, 0, a, b, c, d, e, f, g, h,
    ];
    let checksum = internet_checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&checksum);
    header
}

/// Returns the Internet checksum (RFC 1071) over an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    debug_assert!(bytes.len().is_multiple_of(2));
    let words = bytes
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// Returns the IPv6 header (RFC 8200 section 3).
fn ipv6(from: Ipv6Addr, to: Ipv6Addr, bytes: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(IPV6_BYTES);
    header.extend_from_slice(&[0x60, 0, 0, 0]);
    header.extend_from_slice(&(bytes as u16).to_be_bytes());
    header.extend_from_slice(&[TCP, HOPS]);
    header.extend_from_slice(&from.octets());
    header.extend_from_slice(&to.octets());
    header
}

// Writes pcapng files (draft-ietf-opsawg-pcapng), which consist of a section header, interfaces, and packets.
//
// A recording needs only three kinds of block and five options; `docs/dependencies.md` explains why no crate
// is used for them.

/// A file under construction. Interfaces precede the packets, which refer to them by number.
pub(crate) struct Writer {
    file: Vec<u8>,
}

/// A packet of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The time of the packet in nanoseconds since 1970.
    pub(crate) at_ns: u64,
    /// The number of the packet's interface, from 0.
    pub(crate) interface: u32,
    /// The part of the packet that was kept, from the IP header on.
    pub(crate) captured: Vec<u8>,
    /// The packet's original length in bytes, which is at least the length of the kept part.
    pub(crate) original_bytes: u32,
    /// A human-readable comment.
    pub(crate) comment: Option<String>,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// A magic number by which readers recognise the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Packets start with an IPv4 or IPv6 header (LINKTYPE_RAW).
const LINKTYPE_RAW: u16 = 101;

const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
/// The resolution of timestamps: 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

impl Writer {
    /// Starts a file with the name of the program and a comment for readers.
    pub(crate) fn new(application: &str, comment: &str) -> Writer {
        let mut writer = Writer { file: Vec::new() };
        let mut body = BYTE_ORDER.to_le_bytes().to_vec();
        body.extend_from_slice(&1u16.to_le_bytes()); // version 1.0
        body.extend_from_slice(&0u16.to_le_bytes());
        body.extend_from_slice(&u64::MAX.to_le_bytes()); // the section's length: unspecified
        option(&mut body, OPT_COMMENT, comment.as_bytes());
        option(&mut body, SHB_USERAPPL, application.as_bytes());
        end_of_options(&mut body);
        writer.block(SECTION_HEADER, &body);
        writer
    }

    /// Adds an interface.
    pub(crate) fn interface(&mut self, name: &str, description: &str) {
        let mut body = LINKTYPE_RAW.to_le_bytes().to_vec();
        body.extend_from_slice(&[0; 6]); // reserved; no limit on packet length
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_DESCRIPTION, description.as_bytes());
        option(&mut body, IF_TSRESOL, &[NANOSECONDS]);
        end_of_options(&mut body);
        self.block(INTERFACE_DESCRIPTION, &body);
    }

    /// Adds a packet.
    pub(crate) fn packet(&mut self, packet: &Packet) {
        let mut body = packet.interface.to_le_bytes().to_vec();
        body.extend_from_slice(&((packet.at_ns >> 32) as u32).to_le_bytes());
        body.extend_from_slice(&(packet.at_ns as u32).to_le_bytes());
        body.extend_from_slice(&(packet.captured.len() as u32).to_le_bytes());
        body.extend_from_slice(&packet.original_bytes.to_le_bytes());
        padded(&mut body, &packet.captured);
        if let Some(comment) = &packet.comment {
            option(&mut body, OPT_COMMENT, comment.as_bytes());
            end_of_options(&mut body);
        }
        self.block(ENHANCED_PACKET, &body);
    }

    /// Returns the file.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.file
    }

    /// Writes a block: its kind, its length, the body, and its length again.
    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = (body.len() as u32 + 12).to_le_bytes();
        self.file.extend_from_slice(&kind.to_le_bytes());
        self.file.extend_from_slice(&length);
        self.file.extend_from_slice(body);
        self.file.extend_from_slice(&length);
    }
}

/// Writes an option. A value that is too long is truncated to the maximum length.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&length.to_le_bytes());
    padded(body, &value[..usize::from(length)]);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend_from_slice(&[0; 4]);
}

/// Appends bytes with padding, because all items in a file are aligned to four bytes.
fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
}
