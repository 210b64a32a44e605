//! One path of an epoch: frame numbers in both directions, outstanding frames, and loss detection.
//!
//! Acknowledgements list the frames of a path that arrived; the receive window also serves as the replay
//! window. Round trips are measured according to Jacobson and Karels (RFC 6298). The window, in frames, is
//! controlled by additive increase and multiplicative decrease (RFC 5681).

use std::collections::VecDeque;
use std::iter;
use std::time::{Duration, Instant};

/// Initial reordering threshold: a frame counts as lost when a frame that was sent this many frames later has
/// arrived.
const REORDERING_MIN: u64 = 3;
/// Maximum threshold on a path that reorders frames.
const REORDERING_MAX: u64 = 64;
/// Consecutive timeouts after which a path is down.
const TIMEOUTS_UNTIL_DOWN: u32 = 3;
/// Interval at which a path that is down is probed.
const RETRY: Duration = Duration::from_secs(1);

/// A fragment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) message: u32,
    pub(crate) fragment: u16,
}

/// The message content of a frame: a fragment, or whole messages with consecutive numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) first: Piece,
    /// Number of whole messages that follow it.
    pub(crate) more: u16,
}

impl Load {
    fn pieces(self) -> impl Iterator<Item = Piece> {
        let behind = (1..=u32::from(self.more)).map(move |distance| self.first.message + distance);
        iter::once(self.first).chain(behind.map(|message| Piece {
            message,
            fragment: 0,
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    UnderWay,
    Acknowledged,
    /// It counts as lost. Its acknowledgement may still arrive.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    at: Instant,
    load: Option<Load>,
    fate: Fate,
}

/// The results of an acknowledgement or a timeout.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) acknowledged: Vec<Piece>,
    pub(crate) lost: Vec<Piece>,
    /// Number of acknowledged frames, with or without pieces.
    pub(crate) frames: u32,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) received: Received,
    trips: RoundTrips,
    congestion: Congestion,
    next_number: u64,
    /// Frames that require an acknowledgement, by number.
    sent: VecDeque<Sent>,
    in_flight: u32,
    largest_acknowledged: Option<u64>,
    reordering: u64,
    /// Time at which an overtaken frame counts as lost.
    loss_at: Option<Instant>,
    last_sent: Option<Instant>,
    timeouts: u32,
    /// Number of frames that may be sent beyond a full window: probes after a timeout.
    extra: u32,
    /// A frame of the peer has arrived on this path.
    is_proven: bool,
    is_down: bool,
    /// Time at which to request an acknowledgement.
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

    /// Notes that an authentic frame arrived.
    pub(crate) fn heard(&mut self) {
        self.is_proven = true;
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether fragments may use this path.
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

    /// Whether one more frame that requires an acknowledgement may be sent.
    pub(crate) fn has_room(&self) -> bool {
        let oldest = self.sent.iter().find(|sent| sent.fate == Fate::UnderWay);
        // An acknowledgement covers [`ACK_SPAN`] numbers, which must include all outstanding frames.
        let is_within_span = oldest.is_none_or(|sent| self.next_number - sent.number < ACK_SPAN);
        is_within_span && (self.in_flight < self.congestion.window() || self.extra > 0)
    }

    /// Whether the next frame fills the window.
    pub(crate) fn fills_up(&self) -> bool {
        self.extra > 0 || self.in_flight + 1 >= self.congestion.window()
    }

    /// Load of the path, for comparison: roughly the time that a frame would wait.
    pub(crate) fn load(&self) -> u128 {
        let trip = self
            .trips
            .smoothed()
            .unwrap_or(Duration::from_millis(1))
            .as_nanos();
        trip * u128::from(self.in_flight + 1) / u128::from(self.congestion.window())
    }

    /// The number of the next frame.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Takes a number for a frame that requires no acknowledgement.
    pub(crate) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Takes a number for a frame that requires an acknowledgement.
    pub(crate) fn send(&mut self, now: Instant, load: Option<Load>) -> u64 {
        let number = self.take_number();
        self.extra = self.extra.saturating_sub(1);
        self.in_flight += 1;
        self.last_sent = Some(now);
        self.probe_at = None;
        self.sent.push_back(Sent {
            number,
            at: now,
            load,
            fate: Fate::UnderWay,
        });
        debug_assert!(
            self.in_flight as usize <= self.sent.len(),
            "each outstanding frame is kept"
        );
        number
    }

    /// Handles an acknowledgement. An acknowledgement of numbers that were never sent is ignored.
    pub(crate) fn acknowledge(&mut self, now: Instant, ack: &Ack, settled: &mut Settled) {
        if ack.largest >= self.next_number {
            return;
        }
        let in_flight = self.in_flight;
        let mut is_late = None;
        for sent in self
            .sent
            .iter_mut()
            .filter(|sent| sent.fate != Fate::Acknowledged)
        {
            if !ack.covers(sent.number) {
                continue;
            }
            if sent.fate == Fate::Lost {
                is_late = Some(ack.largest - sent.number);
            } else {
                self.in_flight -= 1;
            }
            if sent.number == ack.largest {
                self.trips
                    .sample(now.saturating_duration_since(sent.at), ack.delay);
            }
            sent.fate = Fate::Acknowledged;
            settled.frames += 1;
            settled
                .acknowledged
                .extend(sent.load.into_iter().flat_map(Load::pieces));
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

    /// Finds frames overtaken by more than the threshold.
    fn find_losses(&mut self, now: Instant, settled: &mut Settled) {
        let Some(largest) = self.largest_acknowledged else {
            return;
        };
        let patience = self.trips.reordering();
        self.loss_at = None;
        let overtaken = self
            .sent
            .iter_mut()
            .filter(|sent| sent.fate == Fate::UnderWay && sent.number < largest);
        for sent in overtaken {
            let due = sent.at + patience;
            if largest - sent.number >= self.reordering || due <= now {
                sent.fate = Fate::Lost;
                self.in_flight -= 1;
                settled
                    .lost
                    .extend(sent.load.into_iter().flat_map(Load::pieces));
                self.congestion.on_loss(sent.number, self.next_number);
            } else {
                self.loss_at = Some(self.loss_at.map_or(due, |before: Instant| before.min(due)));
            }
        }
    }

    /// Drops settled frames for which no acknowledgement can follow.
    fn forget(&mut self) {
        let is_under_way = |sent: &&Sent| sent.fate == Fate::UnderWay;
        debug_assert_eq!(
            self.sent.iter().filter(is_under_way).count(),
            self.in_flight as usize
        );
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

    /// The deadline of the outstanding acknowledgement.
    fn timeout_at(&self) -> Option<Instant> {
        let last = self.last_sent.filter(|_| self.in_flight > 0)?;
        Some(last + self.trips.backed_off(self.timeouts))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let due = if self.is_proven {
            self.received.due()
        } else {
            None
        };
        [self.loss_at, self.timeout_at(), self.probe_at, due]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles expired deadlines.
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

    /// Handles a missing acknowledgement. After the first timeout, one frame is retransmitted: if the last
    /// frames of a burst are lost, no later frames reveal the loss (RFC 9002 section 6.2). From the second
    /// timeout on, all outstanding frames are retransmitted.
    fn time_out(&mut self, now: Instant, settled: &mut Settled) {
        let all = if self.timeouts == 1 { 1 } else { usize::MAX };
        for sent in self
            .sent
            .iter_mut()
            .filter(|sent| sent.fate == Fate::UnderWay)
            .take(all)
        {
            sent.fate = Fate::Lost;
            self.in_flight -= 1;
            settled
                .lost
                .extend(sent.load.into_iter().flat_map(Load::pieces));
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
        let again = if self.is_down {
            now + self.trips.backed_off(self.timeouts).min(RETRY)
        } else {
            now
        };
        self.probe_at = Some(again);
    }
}

/// Bytes of an acknowledgement on the wire.
pub(crate) const ACK_BYTES: usize = 48;
/// Span of numbers below the largest one that an acknowledgement covers.
pub(crate) const ACK_SPAN: u64 = 256;
/// Span of numbers below the largest one that a receiver tracks. Older frames are dropped: they may be duplicates.
const REPLAY_SPAN: u64 = 1024;
/// Time for which an acknowledgement waits for a frame to carry it, and for more frames to acknowledge.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(1);
/// Number of unacknowledged frames at which an acknowledgement is sent immediately.
const ACK_FRAMES: u32 = 32;

/// An acknowledgement.
///
/// ```text
///  0 largest number u48 │ 6 its delay in µs u32 │ 10 credit u48 │ 16 bitmap, 256 bits
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The largest number that arrived on this path.
    pub(crate) largest: u64,
    /// Time since its arrival.
    pub(crate) delay: Duration,
    /// Bytes of messages that may be started in this epoch, counted from its start.
    pub(crate) granted: u64,
    /// Bit `i`, from the highest of the first byte: `largest - 1 - i` arrived.
    pub(crate) bitmap: [u8; 32],
}

impl Ack {
    pub(crate) fn parse(body: &[u8]) -> Option<Ack> {
        let bytes: &[u8; ACK_BYTES] = body.first_chunk()?;
        let u48 = |at: usize| {
            bytes[at..at + 6]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let delay = bytes[6..10]
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let mut bitmap = [0; 32];
        bitmap.copy_from_slice(&bytes[16..]);
        Some(Ack {
            largest: u48(0),
            delay: Duration::from_micros(delay),
            granted: u48(10),
            bitmap,
        })
    }

    pub(crate) fn bytes(&self) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        let delay = u32::try_from(self.delay.as_micros()).unwrap_or(u32::MAX);
        bytes[..6].copy_from_slice(&self.largest.to_be_bytes()[2..]);
        bytes[6..10].copy_from_slice(&delay.to_be_bytes());
        bytes[10..16].copy_from_slice(&self.granted.to_be_bytes()[2..]);
        bytes[16..].copy_from_slice(&self.bitmap);
        bytes
    }

    /// Whether it acknowledges this number.
    pub(crate) fn covers(&self, number: u64) -> bool {
        match self.largest.checked_sub(number) {
            None => false,
            Some(0) => true,
            Some(below @ 1..=ACK_SPAN) => {
                let bit = (below - 1) as usize;
                self.bitmap[bit / 8] & 0x80 >> (bit % 8) != 0
            }
            Some(_) => false,
        }
    }
}

/// The frames that arrived on a path.
#[derive(Debug, Default)]
pub(crate) struct Received {
    largest: Option<u64>,
    largest_at: Option<Instant>,
    /// Whether a number within [`REPLAY_SPAN`] of the largest arrived: its bit is its remainder.
    bits: [u64; (REPLAY_SPAN / 64) as usize],
    /// Number of frames yet to be acknowledged.
    pending: u32,
    due: Option<Instant>,
}

impl Received {
    fn bit(&self, number: u64) -> bool {
        let at = number % REPLAY_SPAN;
        self.bits[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, is_set: bool) {
        let at = number % REPLAY_SPAN;
        let (word, mask) = (&mut self.bits[(at / 64) as usize], 1 << (at % 64));
        *word = if is_set { *word | mask } else { *word & !mask };
    }

    /// A bit for this number and each of the 63 below it, the highest number first: whether it arrived.
    /// Numbers below 0 have not.
    fn down_from(&self, number: u64) -> u64 {
        let words = self.bits.len() as u64;
        let (word, shift) = (number / 64, number % 64);
        let below = if shift == 63 {
            0
        } else {
            self.bits[((word + words - 1) % words) as usize] >> (shift + 1)
        };
        self.bits[(word % words) as usize] << (63 - shift) | below
    }

    /// Whether a frame with this number may be accepted: it is neither a duplicate nor too old to decide.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        match self.largest {
            Some(largest) if number <= largest => {
                largest - number < REPLAY_SPAN && !self.bit(number)
            }
            _ => true,
        }
    }

    /// Notes a frame. `wanting` means that it requires an acknowledgement, and `at_once` that its sender
    /// waits for the acknowledgement.
    pub(crate) fn record(&mut self, now: Instant, number: u64, wanting: bool, at_once: bool) {
        debug_assert!(self.is_new(number), "frame {number} is taken twice");
        let expected = self.largest.map_or(0, |largest| largest + 1);
        if number >= expected {
            let from = expected.max(number.saturating_sub(REPLAY_SPAN - 1));
            (from..number).for_each(|between| self.set(between, false));
            (self.largest, self.largest_at) = (Some(number), Some(now));
        }
        self.set(number, true);
        if wanting {
            self.pending += 1;
            let at_once = at_once || number != expected || self.pending >= ACK_FRAMES;
            let due = if at_once { now } else { now + ACK_DELAY };
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
    }

    /// Time at which the next acknowledgement is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a frame waits for its acknowledgement.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Builds the acknowledgement to send now. `None` if nothing arrived yet.
    pub(crate) fn ack(&mut self, now: Instant, granted: u64) -> Option<Ack> {
        let (largest, at) = (self.largest?, self.largest_at?);
        (self.pending, self.due) = (0, None);
        let mut bitmap = [0; 32];
        for (eight, down) in bitmap.chunks_exact_mut(8).zip((1..).step_by(64)) {
            if let Some(number) = largest.checked_sub(down) {
                eight.copy_from_slice(&self.down_from(number).to_be_bytes());
            }
        }
        Some(Ack {
            largest,
            delay: now.saturating_duration_since(at),
            granted,
            bitmap,
        })
    }
}

// Capacity of a path: round trips (Jacobson and Karels, as in RFC 6298) and a window controlled by additive
// increase and multiplicative decrease (RFC 5681), in frames.

/// Timeout before the first round trip is known (OpenAoE's driver uses the same value).
const RTO_INITIAL: Duration = Duration::from_millis(250);
/// Minimum timeout. A busy host responds some milliseconds late, so an earlier retransmission costs more than
/// it gains.
const RTO_MIN: Duration = Duration::from_millis(5);
const RTO_MAX: Duration = Duration::from_secs(2);

/// Initial window in frames (RFC 6928).
const WINDOW_INITIAL: u32 = 10;
const WINDOW_MIN: u32 = 2;
/// Maximum window: the number of frames that an acknowledgement covers.
pub(crate) const WINDOW_MAX: u32 = ACK_SPAN as u32;

/// Round trips of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrips {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
}

impl RoundTrips {
    /// Adds a measurement. Every transmission has a unique number, so measurements are unambiguous.
    pub(crate) fn sample(&mut self, trip: Duration, ack_delay: Duration) {
        let trip = trip
            .saturating_sub(ack_delay.min(ACK_DELAY))
            .max(Duration::from_micros(1));
        self.latest = trip;
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(trip), trip / 2),
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(trip)) / 4;
                self.smoothed = Some((smoothed * 7 + trip) / 8);
            }
        }
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Timeout of an acknowledgement.
    pub(crate) fn timeout(&self) -> Duration {
        self.smoothed.map_or(RTO_INITIAL, |smoothed| {
            (smoothed + (self.variation * 4).max(ACK_DELAY) + ACK_DELAY).clamp(RTO_MIN, RTO_MAX)
        })
    }

    /// The timeout after this many consecutive timeouts.
    pub(crate) fn backed_off(&self, times: u32) -> Duration {
        (self.timeout() * (1 << times.min(10))).min(RTO_MAX)
    }

    /// Time threshold: a frame counts as lost when a frame that was sent this much later has arrived (RFC
    /// 9002 section 6.1.2).
    pub(crate) fn reordering(&self) -> Duration {
        let longest = self.smoothed.unwrap_or(RTO_INITIAL).max(self.latest);
        (longest * 9 / 8).max(Duration::from_millis(1))
    }
}

/// The window of a path.
#[derive(Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    /// Frames acknowledged since the last growth of the window, in congestion avoidance.
    acknowledged: u32,
    /// Losses of frames below this number belong to congestion already reacted to.
    answered_below: u64,
    /// Window and threshold before the last decrease.
    before: Option<(u32, u32)>,
}

impl Congestion {
    pub(crate) fn new() -> Congestion {
        Congestion {
            window: WINDOW_INITIAL,
            threshold: WINDOW_MAX,
            acknowledged: 0,
            answered_below: 0,
            before: None,
        }
    }

    pub(crate) fn window(&self) -> u32 {
        debug_assert!(
            (WINDOW_MIN..=WINDOW_MAX).contains(&self.window),
            "a window of {} frames",
            self.window
        );
        self.window
    }

    /// Handles `frames` acknowledged frames while `in_flight` were outstanding.
    pub(crate) fn on_ack(&mut self, frames: u32, in_flight: u32) {
        // An unused window gives no information about the path.
        if in_flight * 2 < self.window {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + frames).min(self.threshold);
        } else {
            self.acknowledged += frames;
            while self.acknowledged >= self.window {
                self.acknowledged -= self.window;
                self.window = (self.window + 1).min(WINDOW_MAX);
            }
        }
    }

    /// Handles a lost frame; `next` is the number of the next one. The window decreases at most once per
    /// round trip.
    pub(crate) fn on_loss(&mut self, number: u64, next: u64) {
        if number < self.answered_below {
            return;
        }
        self.before = Some((self.window, self.threshold));
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        debug_assert!(number < next, "a frame that was never sent is lost");
        (self.window, self.acknowledged, self.answered_below) = (self.threshold, 0, next);
    }

    /// Reduces the window to its minimum after a timeout.
    pub(crate) fn collapse(&mut self, next: u64) {
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        (
            self.window,
            self.acknowledged,
            self.answered_below,
            self.before,
        ) = (WINDOW_MIN, 0, next, None);
    }

    /// Undoes the last decrease, because frames counted as lost were only late.
    pub(crate) fn undo(&mut self) {
        if let Some((window, threshold)) = self.before.take() {
            (self.window, self.threshold) =
                (self.window.max(window), self.threshold.max(threshold));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_number_is_new_once_and_told_of(numbers in proptest::collection::vec(0u64..3000, 1..60)) {
            let now = Instant::now();
            let (mut received, mut model) = (Received::default(), BTreeSet::new());
            for number in numbers {
                let largest = model.last().copied().unwrap_or(0);
                let is_old = number + REPLAY_SPAN <= largest;
                prop_assert_eq!(received.is_new(number), !is_old && !model.contains(&number));
                if received.is_new(number) {
                    received.record(now, number, true, false);
                    model.insert(number);
                }
                let ack = received.ack(now, 77).unwrap();
                prop_assert_eq!(Ack::parse(&ack.bytes()), Some(ack));
                for number in 0..3010 {
                    let is_near = ack.largest.saturating_sub(number) <= ACK_SPAN;
                    prop_assert_eq!(ack.covers(number), is_near && model.contains(&number));
                }
            }
        }
    }

    #[test]
    fn a_window_grows_by_one_a_round_trip_and_is_halved_once_a_round_trip() {
        let mut congestion = Congestion::new();
        congestion.on_ack(10, 10);
        assert_eq!(congestion.window(), 20, "slow start doubles");
        congestion.on_loss(3, 30);
        congestion.on_loss(29, 30);
        assert_eq!(
            congestion.window(),
            10,
            "the second loss is of the same round trip"
        );
        congestion.on_ack(10, 10);
        assert_eq!(congestion.window(), 11);
        congestion.on_ack(11, 2);
        assert_eq!(congestion.window(), 11, "the window was not used");
        congestion.undo();
        assert_eq!(congestion.window(), 20, "the frame was late, not lost");
        congestion.collapse(50);
        assert_eq!(congestion.window(), WINDOW_MIN);
    }

    #[test]
    fn a_timeout_follows_the_round_trips_and_doubles() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.timeout(), RTO_INITIAL);
        (0..100).for_each(|_| trips.sample(Duration::from_millis(40), Duration::ZERO));
        assert!(
            trips.timeout() < Duration::from_millis(50),
            "{:?}",
            trips.timeout()
        );
        assert!(trips.backed_off(3) > Duration::from_millis(300));
        assert_eq!(trips.backed_off(60), RTO_MAX);
        trips.sample(Duration::from_micros(50), Duration::from_secs(9));
        assert!(
            trips.timeout() >= RTO_MIN,
            "an impossible delay of the peer changes little"
        );
    }
}
