//! A bad network: a TCP proxy whose connections can be cut, held up, swallowed and slowed down, one by one.
//!
//! Every connection to it is one connection to the target. What comes from either side is read at once and kept until
//! it may go on: what a sender believes to be under way arrives, however late, and even if the sender has gone away.
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

/// A way to a target. When the value is dropped, all that went by it is cut.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    /// Those who found the door closed.
    turned_away: AtomicU64,
    door: Mutex<Door>,
    links: Mutex<Vec<Arc<Link>>>,
}

/// Who comes from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    /// The first one comes through, and those behind it are reset.
    OpenOnce,
    /// Is reset at once.
    Closed,
    /// Is the proxy itself, to tell its listener that it is gone.
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

/// What has come from one side, in bytes.
#[derive(Debug, Default)]
struct Queue {
    received: AtomicU64,
    /// Those that have not gone on.
    waiting: AtomicU64,
}

/// What becomes of what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// It is kept.
    Held,
    /// It is kept, if it goes towards the target. What the target says goes on.
    HeldTowardsTarget,
    /// It vanishes, and nobody is told.
    Swallowing,
    /// So many bytes towards the target go on, and then the connection is cut.
    CutAfter(usize),
    /// A pause behind every so many bytes.
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
    /// Stands in front of what listens on this port of the loopback.
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

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many bytes have come, from either side, on all connections.
    pub(crate) fn bytes(&self) -> u64 {
        let both = [Towards::Target, Towards::Initiator];
        self.shared.links().iter().flat_map(|link| both.map(|towards| link.received(towards))).sum()
    }

    /// How many bytes have come on a connection that are to go this way.
    pub(crate) fn bytes_of(&self, number: usize, towards: Towards) -> u64 {
        self.link(number).received(towards)
    }

    /// How many connections there have been. They are numbered from 0, as they came.
    pub(crate) fn connections(&self) -> usize {
        self.shared.links().len()
    }

    /// How many bytes that came on a connection and are to go this way have not gone on.
    pub(crate) fn held(&self, number: usize, towards: Towards) -> u64 {
        self.link(number).queue(towards).waiting.load(Relaxed)
    }

    /// Whether a connection has been reset by [`Proxy::cut_after`] or another cut.
    pub(crate) fn is_cut(&self, number: usize) -> bool {
        *self.link(number).gate.lock().expect("nobody panics with it") == Gate::Cut
    }

    /// How many have come while the door was closed.
    pub(crate) fn turned_away(&self) -> u64 {
        self.shared.turned_away.load(Relaxed)
    }

    /// Resets a connection in both directions, with all that is under way.
    pub(crate) fn cut(&self, number: usize) {
        self.link(number).cut();
    }

    /// The same, once so many bytes more have reached the target: in the middle of a PDU, wherever that may be.
    pub(crate) fn cut_after(&self, number: usize, bytes: usize) {
        self.link(number).set(Gate::CutAfter(bytes));
    }

    /// Resets all connections that there are.
    pub(crate) fn cut_all(&self) {
        self.shared.links().iter().for_each(|link| link.cut());
    }

    /// Keeps what is under way on a connection, from now on.
    pub(crate) fn hold(&self, number: usize) {
        self.link(number).set(Gate::Held);
    }

    /// Keeps what goes towards the target on a connection, from now on.
    pub(crate) fn hold_towards_target(&self, number: usize) {
        self.link(number).set(Gate::HeldTowardsTarget);
    }

    /// Delivers what was kept, and whatever follows.
    pub(crate) fn release(&self, number: usize) {
        self.link(number).set(Gate::Open);
    }

    /// Loses everything on a connection from now on, without a word to anybody.
    pub(crate) fn swallow(&self, number: usize) {
        self.link(number).set(Gate::Swallowing);
    }

    /// Lets a piece of so many bytes pass, and pauses before the next.
    pub(crate) fn slow(&self, number: usize, bytes: usize, pause: Duration) {
        self.link(number).set(Gate::Slow { bytes, pause });
    }

    /// Takes whoever comes from now on to what listens on another port.
    pub(crate) fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Relaxed);
    }

    /// Resets whoever comes from now on.
    pub(crate) fn close(&self) {
        *self.shared.door() = Door::Closed;
    }

    /// Lets whoever comes through again.
    pub(crate) fn open(&self) {
        *self.shared.door() = Door::Open;
    }

    /// Lets one connection through, and resets those behind it.
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
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // the listener looks at the door
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().expect("nobody panics with it")
    }

    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().expect("nobody panics with it")
    }

    /// The state of the door for one who comes.
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
                        Err(_) => reset(&initiator), // as its own host would
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
            // A target that takes nothing any more must not keep a thread of ours for ever.
            stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a socket option");
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

    /// Reads whatever comes, whether it may go on or not.
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

    /// Lets go on what may, and at the end the end.
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
                    Gate::Open | Gate::Held | Gate::HeldTowardsTarget => (rest.len(), Duration::ZERO),
                };
                if to.write_all(&rest[..passed]).is_err() {
                    return self.cut();
                }
                rest = &rest[passed..];
                thread::sleep(pause); // which is what a slow line is
            }
            self.queue(towards).waiting.fetch_sub(length, Relaxed);
        }
        match self.when_open(towards, 0) {
            Gate::Cut | Gate::Swallowing => {}
            _ => drop(to.shutdown(Shutdown::Write)),
        }
    }

    /// Waits as long as the gate is held, and says how it stands then. What passes is counted.
    fn when_open(&self, towards: Towards, bytes: usize) -> Gate {
        let gate = self.gate.lock().expect("nobody panics with it");
        let is_held = |gate: &mut Gate| match gate {
            Gate::Held => true,
            Gate::HeldTowardsTarget => towards == Towards::Target,
            _ => false,
        };
        let mut gate = self.changed.wait_while(gate, is_held).expect("nobody panics with it");
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

    /// A connection that is cut stays so.
    fn set(&self, gate: Gate) {
        let mut now = self.gate.lock().expect("nobody panics with it");
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

/// Ends a connection by RST, as a crash or a router does: what connecting to nowhere does to a socket, also for those
/// who are waiting at it. Linux 6.4 and 6.5 refuse that while somebody is; there it ends in an orderly way.
fn reset(stream: &TcpStream) {
    if rustix::net::connect_unspec(stream).is_err() {
        let _ = stream.shutdown(Shutdown::Both); // it may be gone already
    }
}
