//! The datagrams of a machine: what arrives goes into it, and what it has to send goes out, by the endpoints of its paths.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::Context;
use std::time::Instant;

use hyperscsi::{FRAME_BYTES_MIN, Frame, Initiator, SESSION_AT};
use reactor::{DatagramAddress, DatagramBatch, OutDatagram, OutSlice, Sleep};

use crate::link::{BATCH, Link};

/// Batches that are sent in one turn. One is received: the target is told of it, and requesters go on, while more arrive.
const ROUNDS: usize = 16;

/// Frames that wait for an endpoint that takes none. More are dropped and count as lost, as at the server's interfaces.
const WAITING_MAX: usize = 1024;

/// The datagrams of a machine.
pub(crate) struct Driver {
    link: Link,
    batch: DatagramBatch,
    /// To be sent, by endpoint: one that takes nothing holds nothing of the others up.
    outgoing: Vec<Outgoing>,
    spare: Vec<Frame>,
    timer: Option<Sleep>,
    /// Endpoints whose failure was told.
    has_failed: Vec<bool>,
    /// The session whose frames they receive, beside those of no session; `None` before they were told.
    receives: Option<Option<u32>>,
}

/// Frames that an endpoint is to send.
#[derive(Default)]
struct Outgoing {
    frames: VecDeque<(DatagramAddress, Frame)>,
    /// The endpoint takes none in this turn.
    is_blocked: bool,
}

impl Driver {
    pub(crate) fn new(link: Link) -> Driver {
        let longest = link.sizes.iter().copied().max().unwrap_or(FRAME_BYTES_MIN as u16);
        Driver {
            batch: DatagramBatch::new(BATCH, usize::from(longest)),
            outgoing: link.endpoints.iter().map(|_| Outgoing::default()).collect(),
            spare: Vec::new(),
            timer: None,
            has_failed: vec![false; link.endpoints.len()],
            receives: None,
            link,
        }
    }

    /// Gives the machine what has arrived.
    pub(crate) fn receive(&mut self, machine: &mut Initiator, now: Instant, cx: &mut Context<'_>) {
        for endpoint in 0..self.link.endpoints.len() {
            if self.link.endpoints[endpoint].poll_receivable(cx).is_pending() {
                continue;
            }
            let routes = &self.link.routes;
            let mut take = |from: DatagramAddress, frame: &mut [u8]| {
                if routes.iter().any(|route| route.endpoint == endpoint && route.to == from) {
                    machine.handle_frame(now, frame);
                }
            };
            match self.link.endpoints[endpoint].receive_each(&mut self.batch, &mut take) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    self.note_failure(endpoint, &error);
                    cx.waker().wake_by_ref();
                }
                // What is left waits for the next turn.
                _ if self.link.endpoints[endpoint].poll_receivable(cx).is_ready() => cx.waker().wake_by_ref(),
                _ => {}
            }
        }
        self.choose(machine.session());
    }

    /// Leaves frames of other sessions to their own sockets: on an interface every socket is given all.
    fn choose(&mut self, session: Option<u32>) {
        if self.receives.replace(session) == Some(session) {
            return;
        }
        let words: Vec<u32> = session.into_iter().chain([0]).collect();
        for endpoint in &self.link.endpoints {
            if let Err(error) = endpoint.take_only(SESSION_AT, &words) {
                tracing::debug!(local = %endpoint.local(), %error, "frames of other sessions are received, too");
            }
        }
    }

    /// Sends what the machine has to send, as much as there is room for.
    pub(crate) fn transmit(&mut self, machine: &mut Initiator, now: Instant, cx: &mut Context<'_>) {
        self.outgoing.iter_mut().for_each(|outgoing| outgoing.is_blocked = false);
        for _ in 0..ROUNDS {
            self.fill(machine, now);
            let mut is_over = true;
            for endpoint in 0..self.outgoing.len() {
                let outgoing = &self.outgoing[endpoint];
                if !outgoing.is_blocked && !outgoing.frames.is_empty() {
                    self.send(endpoint, cx);
                    is_over = false;
                }
            }
            if is_over {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }

    /// Takes a batch of frames for endpoints that take some, and what comes before it for the others: all that there is, if none takes
    /// any, since the machine's deadlines pass when it has sent what is due.
    fn fill(&mut self, machine: &mut Initiator, now: Instant) {
        let ready = self.outgoing.iter().filter(|outgoing| !outgoing.is_blocked);
        let mut ready: usize = ready.map(|outgoing| outgoing.frames.len()).sum();
        while ready < BATCH {
            let mut frame = self.spare.pop().unwrap_or_default();
            let Some(path) = machine.poll_frame(now, &mut frame) else {
                return self.give_back(frame);
            };
            let route = self.link.routes.get(usize::from(path));
            match route.map(|route| (route.to, &mut self.outgoing[route.endpoint])) {
                Some((to, outgoing)) if outgoing.frames.len() < WAITING_MAX => {
                    outgoing.frames.push_back((to, frame));
                    ready += usize::from(!outgoing.is_blocked);
                }
                _ => self.give_back(frame),
            }
        }
    }

    fn give_back(&mut self, mut frame: Frame) {
        frame.clear(); // data of messages are not to outlive their messages
        if self.spare.len() < BATCH {
            self.spare.push(frame);
        }
    }

    /// Sends the first frames of an endpoint, or notes that it takes none for now.
    fn send(&mut self, endpoint: usize, cx: &mut Context<'_>) {
        let first = self.outgoing[endpoint].frames.iter().take(BATCH);
        let slices: Vec<OutSlice<'_>> =
            first.clone().flat_map(|(_, frame)| frame.pieces()).map(OutSlice::Bytes).collect();
        let mut rest = &slices[..];
        let datagrams: Vec<OutDatagram<'_>> = first
            .map(|(to, frame)| {
                let (payload, behind) = rest.split_at(frame.pieces().count());
                rest = behind;
                OutDatagram { to: *to, payload }
            })
            .collect();
        let gone = match self.link.endpoints[endpoint].try_send(&datagrams) {
            Ok(sent) => {
                self.has_failed[endpoint] = false;
                sent
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let is_ready = self.link.endpoints[endpoint].poll_sendable(cx).is_ready();
                self.outgoing[endpoint].is_blocked = !is_ready;
                return;
            }
            // They count as lost on their way, which is the machine's matter.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => 1,
            Err(error) => {
                let all = datagrams.len();
                self.note_failure(endpoint, &error);
                all
            }
        };
        for _ in 0..gone {
            let Some((_, frame)) = self.outgoing[endpoint].frames.pop_front() else { break };
            self.give_back(frame);
        }
    }

    fn note_failure(&mut self, endpoint: usize, error: &io::Error) {
        if !mem::replace(&mut self.has_failed[endpoint], true) {
            tracing::warn!(local = %self.link.endpoints[endpoint].local(), %error, "a path has failed");
        }
    }

    /// Has the task woken at this time, or somewhat before.
    pub(crate) fn wait_until(&mut self, at: Option<Instant>, cx: &mut Context<'_>) {
        let Some(at) = at else { return };
        let timer = match self.timer.take() {
            Some(timer) if timer.deadline() <= at => timer,
            _ => reactor::sleep_until(at),
        };
        if Pin::new(self.timer.insert(timer)).poll(cx).is_ready() {
            self.timer = None;
            cx.waker().wake_by_ref();
        }
    }
}
