//! A TCP proxy that simulates a bad network. Its connections can be individually cut, delayed and slowed
//! down, and their data can be dropped.
//!
//! For every connection to the proxy, there is one connection to the target. Data from either side is read
//! immediately, and kept until it may be forwarded. Data that a sender considers sent therefore arrives
//! later, even if the sender has ended.
//!
//! ```text
//!   initiator ──► reader ──► queue ──► gate ──► writer ──► target
//!             ◄── writer ◄── gate ◄── queue ◄── reader ◄──
//! ```

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A proxy to a target. When this is dropped, all its connections are cut.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    /// Connections that were refused.
    turned_away: AtomicU64,
    door: Mutex<Door>,
    links: Mutex<Vec<Arc<Link>>>,
}

/// The treatment of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    /// The first one is accepted, and later ones are reset.
    OpenOnce,
    /// New connections are reset immediately.
    Closed,
    /// The proxy is being dropped. It connects to its own listener to end it.
    Gone,
}

/// One connection, from end to end.
#[derive(Debug)]
struct Link {
    initiator: TcpStream,
    target: TcpStream,
    towards_target: Queue,
    towards_initiator: Queue,
    gate: Mutex<Gate>,
    changed: Condvar,
}

/// Bytes received from one side.
#[derive(Debug, Default)]
struct Queue {
    received: AtomicU64,
    /// The bytes that were not forwarded yet.
    waiting: AtomicU64,
}

/// The treatment of data in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Data is kept.
    Held,
    /// Data to the target is held. Data from the target is forwarded.
    HeldTowardsTarget,
    /// Data is dropped silently.
    Swallowing,
    /// After this number of bytes to the target, the connection is cut.
    CutAfter(usize),
    /// A pause after each piece of this length.
    Slow {
        bytes: usize,
        pause: Duration,
    },
    Cut,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Towards {
    Target,
    Initiator,
}

impl Proxy {
    /// Listens in front of this loopback port.
    pub(crate) fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(target),
            turned_away: AtomicU64::new(0),
            door: Mutex::new(Door::Open),
            links: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Proxy { port, shared }
    }

    /// The proxy's port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The bytes received from both sides, on all connections.
    pub(crate) fn bytes(&self) -> u64 {
        let both = [Towards::Target, Towards::Initiator];
        self.shared
            .links()
            .iter()
            .flat_map(|link| both.map(|towards| link.received(towards)))
            .sum()
    }

    /// The bytes received on a connection for this direction.
    pub(crate) fn bytes_of(&self, number: usize, towards: Towards) -> u64 {
        self.link(number).received(towards)
    }

    /// The number of connections so far. They are numbered from 0, in the order of arrival.
    pub(crate) fn connections(&self) -> usize {
        self.shared.links().len()
    }

    /// The bytes received on a connection for this direction that were not forwarded.
    pub(crate) fn held(&self, number: usize, towards: Towards) -> u64 {
        self.link(number).queue(towards).waiting.load(Relaxed)
    }

    /// Whether a connection has been reset by [`Proxy::cut_after`] or another cut.
    pub(crate) fn is_cut(&self, number: usize) -> bool {
        *self
            .link(number)
            .gate
            .lock()
            .expect("no panic while locked")
            == Gate::Cut
    }

    /// The number of connections refused while the door was closed.
    pub(crate) fn turned_away(&self) -> u64 {
        self.shared.turned_away.load(Relaxed)
    }

    /// Resets a connection in both directions, with all data in transit.
    pub(crate) fn cut(&self, number: usize) {
        self.link(number).cut();
    }

    /// Resets a connection after this number of further bytes to the target, so that it ends at an arbitrary
    /// position within a PDU.
    pub(crate) fn cut_after(&self, number: usize, bytes: usize) {
        self.link(number).set(Gate::CutAfter(bytes));
    }

    /// Resets all existing connections.
    pub(crate) fn cut_all(&self) {
        self.shared.links().iter().for_each(|link| link.cut());
    }

    /// Holds data in transit on a connection, from now on.
    pub(crate) fn hold(&self, number: usize) {
        self.link(number).set(Gate::Held);
    }

    /// Holds data to the target on a connection, from now on.
    pub(crate) fn hold_towards_target(&self, number: usize) {
        self.link(number).set(Gate::HeldTowardsTarget);
    }

    /// Delivers held data, and all that follows.
    pub(crate) fn release(&self, number: usize) {
        self.link(number).set(Gate::Open);
    }

    /// Silently drops everything on a connection from now on.
    pub(crate) fn swallow(&self, number: usize) {
        self.link(number).set(Gate::Swallowing);
    }

    /// Lets a piece of this length pass, and pauses before the next.
    pub(crate) fn slow(&self, number: usize, bytes: usize, pause: Duration) {
        self.link(number).set(Gate::Slow { bytes, pause });
    }

    /// Forwards new connections to another port.
    pub(crate) fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Relaxed);
    }

    /// Resets new connections.
    pub(crate) fn close(&self) {
        *self.shared.door() = Door::Closed;
    }

    /// Accepts new connections again.
    pub(crate) fn open(&self) {
        *self.shared.door() = Door::Open;
    }

    /// Accepts one connection, and resets later ones.
    pub(crate) fn open_once(&self) {
        *self.shared.door() = Door::OpenOnce;
    }

    fn link(&self, number: usize) -> Arc<Link> {
        Arc::clone(&self.shared.links()[number])
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut_all();
        *self.shared.door() = Door::Gone;
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // the listener checks the door
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().expect("no panic while locked")
    }

    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().expect("no panic while locked")
    }

    /// The door's state for a new connection.
    fn next_at_door(&self) -> Door {
        let mut door = self.door();
        let now = *door;
        if now == Door::OpenOnce {
            *door = Door::Closed;
        }
        now
    }

    fn accept(&self, listener: &TcpListener) {
        for initiator in listener.incoming().map_while(Result::ok) {
            let door = self.next_at_door();
            match door {
                Door::Gone => return,
                Door::Closed => {
                    self.turned_away.fetch_add(1, Relaxed);
                    reset(&initiator);
                }
                Door::Open | Door::OpenOnce => {
                    match TcpStream::connect((Ipv4Addr::LOCALHOST, self.target.load(Relaxed))) {
                        Ok(target) => self.links().push(Link::begin(initiator, target)),
                        Err(_) => reset(&initiator), // as the target's host would
                    }
                }
            }
        }
    }
}

impl Link {
    fn begin(initiator: TcpStream, target: TcpStream) -> Arc<Link> {
        for stream in [&initiator, &target] {
            stream.set_nodelay(true).expect("a socket option");
            // A target that has stopped reading must not block a thread of the proxy forever.
            stream
                .set_write_timeout(Some(Duration::from_secs(60)))
                .expect("a socket option");
        }
        let link = Arc::new(Link {
            initiator,
            target,
            towards_target: Queue::default(),
            towards_initiator: Queue::default(),
            gate: Mutex::new(Gate::Open),
            changed: Condvar::new(),
        });
        for towards in [Towards::Target, Towards::Initiator] {
            let (queue, queued) = mpsc::channel();
            let (reading, writing) = (Arc::clone(&link), Arc::clone(&link));
            thread::spawn(move || reading.read(towards, &queue));
            thread::spawn(move || writing.write(towards, &queued));
        }
        link
    }

    fn ends(&self, towards: Towards) -> (&TcpStream, &TcpStream) {
        match towards {
            Towards::Target => (&self.initiator, &self.target),
            Towards::Initiator => (&self.target, &self.initiator),
        }
    }

    fn queue(&self, towards: Towards) -> &Queue {
        match towards {
            Towards::Target => &self.towards_target,
            Towards::Initiator => &self.towards_initiator,
        }
    }

    fn received(&self, towards: Towards) -> u64 {
        self.queue(towards).received.load(Relaxed)
    }

    /// Reads all data, whether it may be forwarded or not.
    fn read(&self, towards: Towards, queue: &Sender<Vec<u8>>) {
        let (mut from, _) = self.ends(towards);
        let mut piece = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let Queue { received, waiting } = self.queue(towards);
            received.fetch_add(length as u64, Relaxed);
            waiting.fetch_add(length as u64, Relaxed);
            if queue.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    }

    /// Forwards data as permitted, and finally the end of the stream.
    fn write(&self, towards: Towards, queue: &Receiver<Vec<u8>>) {
        let (_, mut to) = self.ends(towards);
        for piece in queue {
            let mut rest = &piece[..];
            let length = rest.len() as u64;
            while !rest.is_empty() {
                let (passed, pause) = match self.when_open(towards, rest.len()) {
                    Gate::Cut => return,
                    Gate::Swallowing => break,
                    Gate::Slow { bytes, pause } => (rest.len().min(bytes), pause),
                    Gate::CutAfter(bytes) => (rest.len().min(bytes), Duration::ZERO),
                    Gate::Open | Gate::Held | Gate::HeldTowardsTarget => {
                        (rest.len(), Duration::ZERO)
                    }
                };
                if to.write_all(&rest[..passed]).is_err() {
                    return self.cut();
                }
                rest = &rest[passed..];
                thread::sleep(pause); // simulates a slow link
            }
            self.queue(towards).waiting.fetch_sub(length, Relaxed);
        }
        match self.when_open(towards, 0) {
            Gate::Cut | Gate::Swallowing => {}
            _ => drop(to.shutdown(Shutdown::Write)),
        }
    }

    /// Waits as long as the gate is held, and returns its state. Forwarded bytes are counted.
    fn when_open(&self, towards: Towards, bytes: usize) -> Gate {
        let gate = self.gate.lock().expect("no panic while locked");
        let is_held = |gate: &mut Gate| match gate {
            Gate::Held => true,
            Gate::HeldTowardsTarget => towards == Towards::Target,
            _ => false,
        };
        let mut gate = self
            .changed
            .wait_while(gate, is_held)
            .expect("no panic while locked");
        let now = *gate;
        if let (Gate::CutAfter(left), Towards::Target) = (now, towards) {
            *gate = Gate::CutAfter(left.saturating_sub(bytes));
            if left == 0 && bytes > 0 {
                drop(gate);
                self.cut();
                return Gate::Cut;
            }
        }
        match (now, towards) {
            (Gate::CutAfter(_), Towards::Initiator) => Gate::Open,
            _ => now,
        }
    }

    /// Sets the gate of a connection. A cut connection remains cut.
    fn set(&self, gate: Gate) {
        let mut now = self.gate.lock().expect("no panic while locked");
        if *now != Gate::Cut {
            *now = gate;
        }
        self.changed.notify_all();
    }

    fn cut(&self) {
        self.set(Gate::Cut);
        reset(&self.initiator);
        reset(&self.target);
    }
}

/// Ends a connection with RST, as after a crash. Connecting a socket to an unspecified address has this
/// effect, even for threads that wait on the socket. Linux 6.4 and 6.5 reject this while a thread waits, so
/// the connection then ends normally.
fn reset(stream: &TcpStream) {
    if rustix::net::connect_unspec(stream).is_err() {
        let _ = stream.shutdown(Shutdown::Both); // it may be gone already
    }
}
