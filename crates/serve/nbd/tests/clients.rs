//! Clients in memory, in virtual time.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use block::{
    BlockDevice, BlockSize, Blocks, Durability, Extent, Geometry, LossCounter, Losses, Null, Pending,
    Profile, Slice,
};
use front_end_core::{ListenAddress, Portal, Server};
use nbd_server::{Config, Export, Limits, NBD, Nbd};
use reactor::{
    Alone, Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream, StreamOptions,
    Unpark, World, block_on, now, sleep, spawn,
};
use volume::{LossMark, PersistentState, Volume, VolumeOptions};

const PORTAL: ([u8; 4], u16) = ([127, 0, 0, 1], 10_809);
const HANDSHAKE_TIME: Duration = Duration::from_millis(1);
/// Maximum number of calls per turn: far more than a task may make to receive and send before other tasks
/// run.
const CALLS_MAX: u32 = 1000;

/// A simulated client, and a record of its calls.
#[derive(Default)]
struct Client {
    first: Vec<u8>,
    /// Sent repeatedly after these bytes, unless it is empty.
    again: Vec<u8>,
    sent: Cell<usize>,
    received: RefCell<Vec<u8>>,
    /// Calls in this turn of the server's thread.
    calls: Cell<u32>,
    has_come: Cell<bool>,
    is_closed: Cell<bool>,
}

impl Client {
    fn has_more(&self) -> bool {
        !self.again.is_empty() || self.sent.get() < self.first.len()
    }

    fn count(&self, bytes: usize) -> io::Result<usize> {
        self.calls.set(self.calls.get() + 1);
        assert!(self.calls.get() < CALLS_MAX, "a client kept the core from its other tasks and its timers");
        Ok(bytes)
    }
}

struct Connection(Rc<Client>);

impl Stream for Connection {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let Client { first, again, sent, .. } = &*self.0;
        let InSlice::Bytes(place) = &mut into[0] else { panic!("a handshake has a buffer") };
        let (length, mut left) = (place.len(), &mut **place);
        while !left.is_empty() && self.0.has_more() {
            let rest = match sent.get().checked_sub(first.len()) {
                None => &first[sent.get()..],
                Some(at) => &again[at % again.len()..],
            };
            let count = rest.len().min(left.len());
            left[..count].copy_from_slice(&rest[..count]);
            left = &mut left[count..];
            sent.set(sent.get() + count);
        }
        match length - left.len() {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => self.0.count(count),
        }
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        for bytes in from {
            let OutSlice::Bytes(bytes) = bytes else { panic!("replies without data of a volume") };
            self.0.received.borrow_mut().extend_from_slice(bytes);
        }
        self.0.count(from.iter().map(OutSlice::len).sum())
    }

    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.has_more() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn local(&self) -> SocketAddr {
        PORTAL.into()
    }

    fn shutdown(&self) {}

    fn detach(self: Box<Self>) -> Detached {
        Box::new(()) // there is only one address
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.is_closed.set(true);
    }
}

struct Door(Rc<Client>);

impl Listener for Door {
    fn try_accept(&self) -> io::Result<Box<dyn Stream>> {
        match self.0.has_come.replace(true) {
            false => Ok(Box::new(Connection(Rc::clone(&self.0)))),
            true => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_acceptable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.has_come.get() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn local(&self) -> SocketAddr {
        PORTAL.into()
    }
}

/// The server's runtime environment.
struct Flooded {
    alone: SharedWorld,
    client: Rc<Client>,
}

impl World for Flooded {
    fn now(&self) -> Instant {
        self.alone.now()
    }

    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(Door(Rc::clone(&self.client))))
    }

    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        self.alone.connect(to, options)
    }

    fn adopt(&self, _: Detached) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(Connection(Rc::clone(&self.client))))
    }

    fn turn(&self, park: Park) {
        self.client.calls.set(0);
        self.alone.turn(park);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        self.alone.unpark()
    }
}

/// Creates the header of an option that is followed by this number of bytes of data.
fn option(number: u32, bytes: u32) -> Vec<u8> {
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &bytes.to_be_bytes()].concat()
}

/// Runs a scene with a server of these exports, and a client that is connected.
fn with_client(
    client: Client,
    exports: Vec<Arc<Export>>,
    limits: Limits,
    scene: impl AsyncFnOnce(Rc<Client>),
) {
    let client = Rc::new(client);
    let world = Rc::new(Flooded { alone: Alone::virtual_time(), client: Rc::clone(&client) });
    block_on(world, async {
        let volumes =
            exports.iter().map(|export| (export.name.clone(), Arc::clone(&export.volume))).collect();
        let front_end = Nbd::new(Config { exports, limits, ..Config::default() }, 1);
        let portal = Portal {
            front_end: NBD,
            listen: ListenAddress::Inet(PORTAL.into()),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        let limits = front_end_core::Limits::default();
        let config = front_end_core::Config { volumes, portals: vec![portal], limits };
        let (server, cores) = Server::new(config, 1, vec![front_end as _]);
        for core in cores {
            drop(spawn(async move {
                let (bound, _heard) = mpsc::channel();
                core.run(bound).await;
            }));
        }
        server.open();
        while !client.has_come.get() {
            sleep(Duration::from_micros(1)).await;
        }
        scene(client).await;
    });
}

/// Regression: such a client kept a core from running any other task, and no deadline ended its connection.
#[test]
fn a_client_that_never_stops_sending_leaves_others_their_turns_and_is_ended_in_time() {
    let flags = 3_u32.to_be_bytes();
    for (first, again) in [
        // The data of this option is read and dropped.
        ([&flags[..], &option(77, u32::MAX)].concat(), vec![0; 4096]),
        // Each of these options is answered.
        (flags.to_vec(), [option(77, 4096), vec![0; 4096]].concat()),
    ] {
        let client = Client { first, again, ..Client::default() };
        let limits = Limits { handshake_time: HANDSHAKE_TIME, ..Limits::default() };
        with_client(client, Vec::new(), limits, async |client| {
            let begun = now();
            while !client.is_closed.get() {
                sleep(Duration::from_micros(10)).await;
            }
            let took = now() - begun;
            assert!(took >= HANDSHAKE_TIME / 2 && took < 2 * HANDSHAKE_TIME, "{took:?}");
        });
    }
}

/// A disk that loses earlier writes at each write.
struct Losing {
    inner: Null,
    losses: LossCounter,
}

impl BlockDevice for Losing {
    block::forward!(self => self.inner; geometry, read, flush, unmap, write_zeroes, allocation, quiesced);

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.losses.count();
        self.inner.write(extent, data, durability)
    }

    fn profile(&self) -> Profile {
        Profile { volatile_cache: true, ..self.inner.profile() }
    }

    fn losses(&self) -> Losses {
        self.losses.get()
    }
}

/// A state directory on a disk that hangs.
struct Hanging;

impl PersistentState for Hanging {
    fn save<'a>(&'a self, _: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(std::future::pending())
    }

    fn load(&self) -> Option<Vec<u8>> {
        None
    }

    fn loss_mark(&self) -> LossMark {
        LossMark::default()
    }

    fn new_loss_mark(&self) -> LossMark {
        [7; 16]
    }

    fn record_loss(&self, _: LossMark) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Regression: the wait for the record of a loss had no deadline, so neither the write nor its connection
/// ended.
#[test]
fn a_stable_write_does_not_wait_forever_for_a_state_directory_that_hangs() {
    const DEADLINE: Duration = Duration::from_secs(3);
    let inner = Null::new(Geometry { block_size: BlockSize::B512, blocks: Blocks(8), physical_exponent: 0 });
    let options = VolumeOptions { persistent_state: Some(Arc::new(Hanging)), ..VolumeOptions::default() };
    let device = Arc::new(Losing { inner, losses: LossCounter::default() });
    let export = Export {
        name: "disk".to_owned(),
        description: String::new(),
        volume: Volume::new(device, options).expect("no state"),
        identity: None,
        read_only: false,
        networks: None,
        clients: None,
        deadline: DEADLINE,
    };
    // NBD_CMD_WRITE with NBD_CMD_FLAG_FUA.
    let write = [
        &0x2560_9513_u32.to_be_bytes()[..],
        &[0, 1, 0, 1],
        &[9; 8],
        &[0; 8],
        &512_u32.to_be_bytes(),
        &[1; 512],
    ];
    let export_name = [&option(1, 4)[..], b"disk"].concat();
    let first = [&3_u32.to_be_bytes()[..], &export_name, &write.concat()].concat();
    with_client(
        Client { first, ..Client::default() },
        vec![Arc::new(export)],
        Limits::default(),
        async |client| {
            sleep(DEADLINE + Duration::from_secs(2)).await;
            let received = client.received.borrow();
            // A simple reply: EIO.
            let reply = [&0x6744_6698_u32.to_be_bytes()[..], &5_u32.to_be_bytes(), &[9; 8]].concat();
            assert!(received.ends_with(&reply), "{received:?}");
        },
    );
}
