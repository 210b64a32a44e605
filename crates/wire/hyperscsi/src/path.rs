//! One path of an epoch: numbers of frames in both directions, what is under way, and when it counts as lost.

use std::collections::VecDeque;
use std::iter;
use std::time::{Duration, Instant};

use crate::ack::{ACK_SPAN, Ack, Received};
use crate::congestion::{Congestion, RoundTrips};

/// A frame counts as lost when one that was sent so many frames later has arrived, at first.
const REORDERING_MIN: u64 = 3;
/// The most that this is raised to on a path that reorders.
const REORDERING_MAX: u64 = 64;
/// Timeouts in a row after which a path is down.
const TIMEOUTS_UNTIL_DOWN: u32 = 3;
/// A path that is down is tried so often.
const RETRY: Duration = Duration::from_secs(1);

/// A fragment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) message: u32,
    pub(crate) fragment: u16,
}

/// What a frame carries of messages: a fragment, or whole messages with consecutive numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) first: Piece,
    /// Whole messages behind it.
    pub(crate) more: u16,
}

impl Load {
    fn pieces(self) -> impl Iterator<Item = Piece> {
        let behind = (1..=u32::from(self.more)).map(move |distance| self.first.message + distance);
        iter::once(self.first).chain(behind.map(|message| Piece { message, fragment: 0 }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    UnderWay,
    Acknowledged,
    /// It counts as lost. Its acknowledgement may come yet.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    at: Instant,
    load: Option<Load>,
    fate: Fate,
}

/// What an acknowledgement or a timeout settled.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) acknowledged: Vec<Piece>,
    pub(crate) lost: Vec<Piece>,
    /// Frames that were acknowledged, with or without pieces.
    pub(crate) frames: u32,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) received: Received,
    trips: RoundTrips,
    congestion: Congestion,
    next_number: u64,
    /// Frames that want an acknowledgement, by their number.
    sent: VecDeque<Sent>,
    in_flight: u32,
    largest_acknowledged: Option<u64>,
    reordering: u64,
    /// When a frame that others overtook counts as lost.
    loss_at: Option<Instant>,
    last_sent: Option<Instant>,
    timeouts: u32,
    /// Frames that may be sent though the window is full: probes after a timeout.
    extra: u32,
    /// A frame of the peer has arrived: it is there.
    is_proven: bool,
    is_down: bool,
    /// When to ask for an acknowledgement.
    pub(crate) probe_at: Option<Instant>,
}

impl Path {
    pub(crate) fn new() -> Path {
        Path {
            received: Received::default(),
            trips: RoundTrips::default(),
            congestion: Congestion::new(),
            next_number: 0,
            sent: VecDeque::new(),
            in_flight: 0,
            largest_acknowledged: None,
            reordering: REORDERING_MIN,
            loss_at: None,
            last_sent: None,
            timeouts: 0,
            extra: 0,
            is_proven: false,
            is_down: false,
            probe_at: None,
        }
    }

    /// A genuine frame arrived.
    pub(crate) fn heard(&mut self) {
        self.is_proven = true;
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether fragments may travel by it.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_proven && !self.is_down
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.trips.smoothed()
    }

    pub(crate) fn window(&self) -> u32 {
        self.congestion.window()
    }

    /// Whether one more frame that wants an acknowledgement may be sent.
    pub(crate) fn has_room(&self) -> bool {
        let oldest = self.sent.iter().find(|sent| sent.fate == Fate::UnderWay);
        // An acknowledgement tells of so many numbers: all that are under way must be among them.
        let is_within_span = oldest.is_none_or(|sent| self.next_number - sent.number < ACK_SPAN);
        is_within_span && (self.in_flight < self.congestion.window() || self.extra > 0)
    }

    /// Whether the next frame fills the window.
    pub(crate) fn fills_up(&self) -> bool {
        self.extra > 0 || self.in_flight + 1 >= self.congestion.window()
    }

    /// How full it is, to compare paths: the time that a frame would wait, roughly.
    pub(crate) fn load(&self) -> u128 {
        let trip = self.trips.smoothed().unwrap_or(Duration::from_millis(1)).as_nanos();
        trip * u128::from(self.in_flight + 1) / u128::from(self.congestion.window())
    }

    /// The number of the next frame.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Takes a number, for a frame that wants no acknowledgement.
    pub(crate) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Takes a number for a frame that wants an acknowledgement.
    pub(crate) fn send(&mut self, now: Instant, load: Option<Load>) -> u64 {
        let number = self.take_number();
        self.extra = self.extra.saturating_sub(1);
        self.in_flight += 1;
        self.last_sent = Some(now);
        self.probe_at = None;
        self.sent.push_back(Sent { number, at: now, load, fate: Fate::UnderWay });
        number
    }

    /// An acknowledgement arrived. One of numbers that were never sent is ignored.
    pub(crate) fn acknowledge(&mut self, now: Instant, ack: &Ack, settled: &mut Settled) {
        if ack.largest >= self.next_number {
            return;
        }
        let in_flight = self.in_flight;
        let mut is_late = None;
        for sent in self.sent.iter_mut().filter(|sent| sent.fate != Fate::Acknowledged) {
            if !ack.covers(sent.number) {
                continue;
            }
            if sent.fate == Fate::Lost {
                is_late = Some(ack.largest - sent.number);
            } else {
                self.in_flight -= 1;
            }
            if sent.number == ack.largest {
                self.trips.sample(now.saturating_duration_since(sent.at), ack.delay);
            }
            sent.fate = Fate::Acknowledged;
            settled.frames += 1;
            settled.acknowledged.extend(sent.load.into_iter().flat_map(Load::pieces));
        }
        self.largest_acknowledged = self.largest_acknowledged.max(Some(ack.largest));
        if let Some(distance) = is_late {
            self.congestion.undo();
            self.reordering = self.reordering.max(distance + 1).min(REORDERING_MAX);
        }
        if settled.frames > 0 {
            (self.timeouts, self.extra, self.is_down) = (0, 0, false);
            self.congestion.on_ack(settled.frames, in_flight);
        }
        self.find_losses(now, settled);
        self.forget();
    }

    /// Frames that others overtook by too much.
    fn find_losses(&mut self, now: Instant, settled: &mut Settled) {
        let Some(largest) = self.largest_acknowledged else { return };
        let patience = self.trips.reordering();
        self.loss_at = None;
        let overtaken =
            self.sent.iter_mut().filter(|sent| sent.fate == Fate::UnderWay && sent.number < largest);
        for sent in overtaken {
            let due = sent.at + patience;
            if largest - sent.number >= self.reordering || due <= now {
                sent.fate = Fate::Lost;
                self.in_flight -= 1;
                settled.lost.extend(sent.load.into_iter().flat_map(Load::pieces));
                self.congestion.on_loss(sent.number, self.next_number);
            } else {
                self.loss_at = Some(self.loss_at.map_or(due, |before: Instant| before.min(due)));
            }
        }
    }

    /// What is settled, and will not be heard of again.
    fn forget(&mut self) {
        while let Some(first) = self.sent.front() {
            let is_old = self.next_number - first.number > ACK_SPAN;
            match first.fate {
                Fate::Acknowledged => {}
                Fate::Lost if is_old => {}
                Fate::Lost | Fate::UnderWay => return,
            }
            self.sent.pop_front();
        }
    }

    /// The deadline of the acknowledgement that is waited for.
    fn timeout_at(&self) -> Option<Instant> {
        let last = self.last_sent.filter(|_| self.in_flight > 0)?;
        Some(last + self.trips.backed_off(self.timeouts))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let due = if self.is_proven { self.received.due() } else { None };
        [self.loss_at, self.timeout_at(), self.probe_at, due].into_iter().flatten().min()
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant, settled: &mut Settled) {
        if self.loss_at.is_some_and(|at| at <= now) {
            self.find_losses(now, settled);
        }
        if self.timeout_at().is_some_and(|at| at <= now) {
            self.timeouts += 1;
            self.time_out(now, settled);
        }
        self.forget();
    }

    /// Nothing was acknowledged in time. At first one frame is sent again, since the last ones of a burst have no
    /// others behind them that could tell (RFC 9002 section 6.2); after the second time all are.
    fn time_out(&mut self, now: Instant, settled: &mut Settled) {
        let all = if self.timeouts == 1 { 1 } else { usize::MAX };
        for sent in self.sent.iter_mut().filter(|sent| sent.fate == Fate::UnderWay).take(all) {
            sent.fate = Fate::Lost;
            self.in_flight -= 1;
            settled.lost.extend(sent.load.into_iter().flat_map(Load::pieces));
            if all == 1 {
                self.congestion.on_loss(sent.number, self.next_number);
            }
        }
        if all != 1 {
            self.congestion.collapse(self.next_number);
        }
        self.extra = 1;
        if self.timeouts >= TIMEOUTS_UNTIL_DOWN {
            self.is_down = true;
        }
        let again = if self.is_down { now + self.trips.backed_off(self.timeouts).min(RETRY) } else { now };
        self.probe_at = Some(again);
    }
}
