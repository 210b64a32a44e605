//! The flight recorder: the last PDUs of every connection, for the analysis of failures.
//!
//! It is always on. Each connection writes to a [`Tape`] of its own, in bounded memory; on request, or when a
//! connection fails, the tapes are written as a pcapng file that Wireshark and tshark decode as iSCSI. The
//! tapes of the last ended connections are kept, since failures are on those.
//!
//! Reading order: [`FlightRecorder`], `tape` (what is recorded, and `whole` and `byte_ring` under it),
//! `conversation` (PDUs become packets), `pcapng`.
//!
//! Nothing secret is recorded: CHAP's answers are hashes of secrets. The first 64 bytes of the blocks that
//! were read and written are.

mod byte_ring;
mod conversation;
mod pcapng;
mod tape;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use block::{Lock, LockGuard};
use conversation::Clock;
use pcapng::{Packet, Writer};
pub(crate) use tape::{Direction, Ends, Tape};

/// Remembers the last PDUs of every connection that is made with it, in both directions.
///
/// It is a part of [`Settings`](crate::Settings): sessions that are opened with the same settings, or with
/// clones of them, share one recorder. It can be read at any time and from any thread, whatever the sessions
/// are doing.
#[derive(Clone)]
pub struct FlightRecorder(Arc<Shared>);

struct Shared {
    /// PDUs that are kept of each connection.
    pdus: usize,
    /// Set by the first connection: times before do not matter.
    clock: OnceLock<Clock>,
    /// Where files are written when a connection ends as it should not.
    folder: OnceLock<PathBuf>,
    tapes: Lock<Tapes>,
}

/// The tapes of running connections in the order of their start, and of ended ones in the order of their end.
#[derive(Default)]
struct Tapes {
    running: Vec<Arc<Lock<Tape>>>,
    ended: VecDeque<Arc<Lock<Tape>>>,
}

/// Tapes of ended connections: the eight of a session whose target was lost.
const ENDED_MAX: usize = 8;

/// Files of one process in a folder for them; the next takes the oldest's place.
const FILES_MAX: usize = 16;

impl FlightRecorder {
    /// The default number of PDUs kept per connection: 100 KiB.
    pub const PDUS: usize = 512;
    /// The largest number: 13 MiB per connection.
    pub const PDUS_MAX: usize = 65_536;

    /// Keeps so many PDUs of each connection, at most [`FlightRecorder::PDUS_MAX`]; none if that is zero.
    pub fn new(pdus: usize) -> FlightRecorder {
        FlightRecorder(Arc::new(Shared {
            pdus: pdus.min(FlightRecorder::PDUS_MAX),
            clock: OnceLock::new(),
            folder: OnceLock::new(),
            tapes: Lock::default(),
        }))
    }

    /// Writes a file into this folder whenever a connection that had logged in ends otherwise than by a
    /// logout: the last 16 of this process are there, as `linerate-PID-N.pcapng`. Only the first call counts.
    pub fn write_endings_to(&self, folder: &Path) {
        self.0.folder.get_or_init(|| folder.to_owned());
    }

    /// How many PDUs of each connection are kept.
    pub fn pdus(&self) -> usize {
        self.0.pdus
    }

    /// What has been recorded, as a pcapng file: see [`pcapng`].
    pub fn pcapng(&self) -> Vec<u8> {
        pcapng([self])
    }

    /// A connection begins, with its login.
    pub(crate) fn begin(&self, now: Instant, ends: Ends) -> Recording {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.clock.get_or_init(|| Clock { instant: now, wall });
        let tape = Arc::new(Lock::new(Tape::new(ends, self.0.pdus)));
        if self.0.pdus > 0 {
            self.lock_tapes().running.push(Arc::clone(&tape));
        }
        Recording { recorder: self.clone(), tape }
    }

    fn lock_tapes(&self) -> LockGuard<'_, Tapes> {
        self.0.tapes.lock()
    }

    /// A copy of every tape, so that no connection waits while they are read.
    fn tapes(&self) -> Vec<(Tape, Clock)> {
        let Some(clock) = self.0.clock.get() else { return Vec::new() };
        let tapes = self.lock_tapes();
        tapes.ended.iter().chain(&tapes.running).map(|tape| (tape.lock().clone(), *clock)).collect()
    }

    /// Writes the tape of a connection that ended as it should not, if there is a folder for that.
    fn write_ending(&self, tape: &Tape) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (Some(folder), Some(clock)) = (self.0.folder.get(), self.0.clock.get()) else { return };
        let number = NEXT.fetch_add(1, Relaxed) % FILES_MAX;
        let path = folder.join(format!("linerate-{}-{number}.pcapng", std::process::id()));
        match write_anew(&path, &file(&[(tape.clone(), *clock)])) {
            Ok(()) => tracing::warn!(path = %path.display(), "the connection's last PDUs are recorded"),
            Err(error) => tracing::warn!(path = %path.display(), "no recording: {error}"),
        }
    }
}

/// Writes a file for its owner alone: blocks are in it. The folder may be everybody's, and the name is no
/// secret, so that nothing that is there already is written to, nor followed.
fn write_anew(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

impl Default for FlightRecorder {
    fn default() -> FlightRecorder {
        FlightRecorder::new(FlightRecorder::PDUS)
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder").field("pdus", &self.0.pdus).finish_non_exhaustive()
    }
}

/// What several recorders have recorded, as one pcapng file.
///
/// Each connection is an interface with a TCP conversation of true addresses, ports and times; a PDU is a
/// packet of it. Data that were not kept are missing from the packets as if the capture had cut them; the
/// reason a connection ended is the comment of its last packet. For a portal at another port than 3260, tell
/// the reader: `tshark -r FILE -d tcp.port==PORT,iscsi`.
pub fn pcapng<'a>(recorders: impl IntoIterator<Item = &'a FlightRecorder>) -> Vec<u8> {
    let tapes: Vec<_> = recorders.into_iter().flat_map(FlightRecorder::tapes).collect();
    file(&tapes)
}

fn file(tapes: &[(Tape, Clock)]) -> Vec<u8> {
    let mut writer = Writer::new(concat!("linerate ", env!("CARGO_PKG_VERSION")), REMARK);
    let mut packets: Vec<Packet> = Vec::new();
    for (interface, (tape, clock)) in (0..).zip(tapes) {
        let Ends { peer, cid, target, .. } = tape.ends();
        writer.interface(&format!("{peer}, CID {cid}"), target.as_deref().unwrap_or("discovery"));
        packets.extend(conversation::packets(tape, *clock, interface));
    }
    packets.sort_by_key(|packet| packet.at_ns);
    packets.iter().for_each(|packet| writer.packet(packet));
    writer.finish()
}

/// What a reader of the file should know.
const REMARK: &str = "The last iSCSI PDUs of each connection, as the initiator sent and received them. The \
    TCP/IP headers are made up around them, with true addresses, ports and times. Of what was read from and \
    written to the medium only the first 64 bytes are kept. For a portal at another port than 3260: Decode \
    As iSCSI, or tshark -d tcp.port==PORT,iscsi.";

/// A connection's hold on its tape.
pub(crate) struct Recording {
    recorder: FlightRecorder,
    tape: Arc<Lock<Tape>>,
}

impl Recording {
    /// The tape, for one round.
    pub(crate) fn tape(&self) -> LockGuard<'_, Tape> {
        self.tape.lock()
    }

    /// The connection has ended as it was meant to.
    pub(crate) fn end(&self, now: Instant, why: &dyn fmt::Display) {
        self.tape().end(now, why.to_string());
    }

    /// The connection has ended otherwise.
    pub(crate) fn end_badly(&self, now: Instant, why: &dyn fmt::Display) {
        self.end(now, why);
        self.recorder.write_ending(&self.tape());
    }
}

/// In any case the tape is not written any more.
impl Drop for Recording {
    fn drop(&mut self) {
        let mut tapes = self.recorder.lock_tapes();
        let ended = |tape: &Arc<Lock<Tape>>| Arc::ptr_eq(tape, &self.tape);
        if let Some(at) = tapes.running.iter().position(ended) {
            let tape = tapes.running.remove(at);
            tapes.ended.push_back(tape);
        }
        if tapes.ended.len() > ENDED_MAX {
            let least = least_telling(&tapes.ended);
            tapes.ended.remove(least);
        }
    }
}

/// Which tape to forget: the oldest of a login that failed, since those come in great numbers while a target
/// is away; but never the newest tape of all.
fn least_telling(ended: &VecDeque<Arc<Lock<Tape>>>) -> usize {
    let older = ended.iter().take(ended.len().saturating_sub(1));
    older.map(|tape| tape.lock().has_logged_in()).position(|logged_in| !logged_in).unwrap_or(0)
}
