//! Clients in memory, in virtual time.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::{
    BlockDevice, BlockSize, Blocks, Durability, Extent, Geometry, LossCounter, Losses, Null,
    Pending, Profile, Slice,
};
use front_end_core::{ListenAddress, Portal, Server};
use nbd_server::{Config, Export, Limits, NBD, Nbd};
use reactor::{
    Alone, Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream,
    StreamOptions, Unpark, World, block_on, now, sleep, spawn,
};
use volume::{LossMark, PersistentState, Volume, VolumeOptions};

const PORTAL: ([u8; 4], u16) = ([127, 0, 0, 1], 10_809);
const HANDSHAKE_TIME: Duration = Duration::from_millis(1);
/// Maximum number of calls per turn: far more than a task may make to receive and send before other tasks
/// run.
const CALLS_MAX: u32 = 1000;

/// A simulated client, and a record of its calls.
struct Client {
    address: IpAddr,
    first: RefCell<Vec<u8>>,
    /// Sent repeatedly after these bytes, unless it is empty.
    again: Vec<u8>,
    sent: Cell<usize>,
    received: RefCell<Vec<u8>>,
    /// Calls in this turn of the server's thread.
    calls: Cell<u32>,
    has_come: Cell<bool>,
    has_broken: Cell<bool>,
    is_closed: Cell<bool>,
    reader: RefCell<Option<Waker>>,
}

impl Client {
    fn sending(first: Vec<u8>, again: Vec<u8>) -> Rc<Client> {
        Client::from([127, 0, 0, 1], first, again)
    }

    fn from(address: impl Into<IpAddr>, first: Vec<u8>, again: Vec<u8>) -> Rc<Client> {
        Rc::new(Client {
            address: address.into(),
            first: RefCell::new(first),
            again,
            sent: Cell::default(),
            received: RefCell::default(),
            calls: Cell::default(),
            has_come: Cell::default(),
            has_broken: Cell::default(),
            is_closed: Cell::default(),
            reader: RefCell::default(),
        })
    }

    fn has_more(&self) -> bool {
        !self.again.is_empty()
            || self.sent.get() < self.first.borrow().len()
            || self.has_broken.get()
    }

    fn count(&self, bytes: usize) -> io::Result<usize> {
        self.calls.set(self.calls.get() + 1);
        assert!(
            self.calls.get() < CALLS_MAX,
            "a client kept the core from its other tasks and its timers"
        );
        Ok(bytes)
    }

    fn send(&self, bytes: &[u8]) {
        self.first.borrow_mut().extend_from_slice(bytes);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Breaks the connection, and waits until the server has closed it.
    async fn breaks(&self) {
        self.has_broken.set(true);
        self.reader.take().into_iter().for_each(Waker::wake);
        self.until(|| self.is_closed.get()).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let begun = now();
        while !is_so() {
            assert!(now() < begun + Duration::from_secs(60), "it never happens");
            sleep(Duration::from_micros(10)).await;
        }
    }
}

struct Connection(Rc<Client>);

impl Stream for Connection {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let Client {
            first, again, sent, ..
        } = &*self.0;
        let first = first.borrow();
        let InSlice::Bytes(place) = &mut into[0] else {
            panic!("a handshake has a buffer")
        };
        let (length, mut left) = (place.len(), &mut **place);
        while !left.is_empty() && (!again.is_empty() || sent.get() < first.len()) {
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
            0 if self.0.has_broken.get() => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => self.0.count(count),
        }
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        for bytes in from {
            let OutSlice::Bytes(bytes) = bytes else {
                panic!("replies without data of a volume")
            };
            self.0.received.borrow_mut().extend_from_slice(bytes);
        }
        self.0.count(from.iter().map(OutSlice::len).sum())
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.has_more() {
            return Poll::Ready(Ok(()));
        }
        *self.0.reader.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> SocketAddr {
        (self.0.address, 1).into()
    }

    fn local(&self) -> SocketAddr {
        PORTAL.into()
    }

    fn shutdown(&self) {}

    fn detach(self: Box<Self>) -> Detached {
        let place = CLIENTS
            .with_borrow(|clients| clients.iter().position(|other| Rc::ptr_eq(other, &self.0)));
        Box::new(place.expect("a client that has come"))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.is_closed.set(true);
    }
}

thread_local! {
    /// The clients that have come to this thread's server.
    static CLIENTS: RefCell<Vec<Rc<Client>>> = const { RefCell::new(Vec::new()) };
    /// Waits for the next one.
    static DOOR: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// A client comes to the server, which accepts its connection.
async fn comes(client: &Rc<Client>) {
    CLIENTS.with_borrow_mut(|clients| clients.push(Rc::clone(client)));
    DOOR.take().into_iter().for_each(Waker::wake);
    client.until(|| client.has_come.get()).await;
}

fn waiting() -> Option<Rc<Client>> {
    CLIENTS.with_borrow(|clients| {
        clients
            .iter()
            .find(|client| !client.has_come.get())
            .map(Rc::clone)
    })
}

struct Door;

impl Listener for Door {
    fn try_accept(&self) -> io::Result<Box<dyn Stream>> {
        let client = waiting().ok_or(io::ErrorKind::WouldBlock)?;
        client.has_come.set(true);
        Ok(Box::new(Connection(client)))
    }

    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if waiting().is_some() {
            return Poll::Ready(Ok(()));
        }
        DOOR.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn local(&self) -> SocketAddr {
        PORTAL.into()
    }
}

/// The server's runtime environment.
struct Flooded(SharedWorld);

impl World for Flooded {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn listen(&self, _: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(Door))
    }

    fn connect(&self, to: SocketAddr, options: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        self.0.connect(to, options)
    }

    fn adopt(&self, detached: Detached) -> io::Result<Box<dyn Stream>> {
        let place = *detached.downcast::<usize>().expect("a detached connection");
        Ok(Box::new(Connection(
            CLIENTS.with_borrow(|clients| Rc::clone(&clients[place])),
        )))
    }

    fn turn(&self, park: Park) {
        CLIENTS.with_borrow(|clients| clients.iter().for_each(|client| client.calls.set(0)));
        self.0.turn(park);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        self.0.unpark()
    }
}

/// Creates the header of an option that is followed by this number of bytes of data.
fn option(number: u32, bytes: u32) -> Vec<u8> {
    [
        &b"IHAVEOPT"[..],
        &number.to_be_bytes(),
        &bytes.to_be_bytes(),
    ]
    .concat()
}

/// The client's flags, and NBD_OPT_EXPORT_NAME.
fn hello() -> Vec<u8> {
    [&3_u32.to_be_bytes()[..], &option(1, 4), b"disk"].concat()
}

fn export(volume: Arc<Volume>, deadline: Duration) -> Arc<Export> {
    Arc::new(Export {
        name: "disk".to_owned(),
        description: String::new(),
        volume,
        identity: None,
        read_only: false,
        networks: None,
        clients: None,
        deadline,
    })
}

/// Runs a scene with a server of these exports.
fn with_server(exports: Vec<Arc<Export>>, limits: Limits, scene: impl AsyncFnOnce()) {
    CLIENTS.take();
    block_on(Rc::new(Flooded(Alone::virtual_time())), async {
        let volumes = exports
            .iter()
            .map(|export| (export.name.clone(), Arc::clone(&export.volume)))
            .collect();
        let front_end = Nbd::new(
            Config {
                exports,
                limits,
                ..Config::default()
            },
            1,
        );
        let portal = Portal {
            front_end: NBD,
            listen: ListenAddress::Inet(PORTAL.into()),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        let limits = front_end_core::Limits::default();
        let config = front_end_core::Config {
            volumes,
            portals: vec![portal],
            limits,
        };
        let (server, cores) = Server::new(config, 1, vec![front_end as _]);
        for core in cores {
            drop(spawn(async move {
                let (bound, _heard) = mpsc::channel();
                core.run(bound).await;
            }));
        }
        server.open();
        scene().await;
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
        let client = Client::sending(first, again);
        let limits = Limits {
            handshake_time: HANDSHAKE_TIME,
            ..Limits::default()
        };
        with_server(Vec::new(), limits, async || {
            comes(&client).await;
            let begun = now();
            while !client.is_closed.get() {
                sleep(Duration::from_micros(10)).await;
            }
            let took = now() - begun;
            assert!(
                took >= HANDSHAKE_TIME / 2 && took < 2 * HANDSHAKE_TIME,
                "{took:?}"
            );
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
        Profile {
            volatile_cache: true,
            ..self.inner.profile()
        }
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
    let inner = Null::new(Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(8),
        physical_exponent: 0,
    });
    let options = VolumeOptions {
        persistent_state: Some(Arc::new(Hanging)),
        ..VolumeOptions::default()
    };
    let device = Arc::new(Losing {
        inner,
        losses: LossCounter::default(),
    });
    let export = export(Volume::new(device, options).expect("no state"), DEADLINE);
    // NBD_CMD_WRITE with NBD_CMD_FLAG_FUA.
    let write = [
        &0x2560_9513_u32.to_be_bytes()[..],
        &[0, 1, 0, 1],
        &[9; 8],
        &[0; 8],
        &512_u32.to_be_bytes(),
        &[1; 512],
    ];
    let first = [hello(), write.concat()].concat();
    with_server(vec![export], Limits::default(), async || {
        let client = Client::sending(first, Vec::new());
        comes(&client).await;
        sleep(DEADLINE + Duration::from_secs(2)).await;
        let received = client.received.borrow();
        // A simple reply: EIO.
        let reply = [
            &0x6744_6698_u32.to_be_bytes()[..],
            &5_u32.to_be_bytes(),
            &[9; 8],
        ]
        .concat();
        assert!(received.ends_with(&reply), "{received:?}");
    });
}

/// Runs a scene with a server of a disk that loses acknowledged writes when the counter is increased.
fn with_losses(scene: impl AsyncFnOnce(LossCounter)) {
    let losses = LossCounter::default();
    let inner = Null::new(Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(8),
        physical_exponent: 0,
    });
    let device = Arc::new(Losing {
        inner,
        losses: losses.clone(),
    });
    let volume = Volume::new(device, VolumeOptions::default()).expect("no state");
    let exports = vec![export(volume, Duration::from_secs(30))];
    with_server(exports, Limits::default(), async || scene(losses).await);
}

/// A client with this address connects to the disk.
async fn connected(address: impl Into<IpAddr>) -> Rc<Client> {
    let client = Client::from(address, hello(), Vec::new());
    comes(&client).await;
    client.until(|| client.received.borrow().len() == 28).await; // greeting, size and flags
    client
}

const FLUSH: u8 = 3;
const DISCONNECT: u8 = 2;

/// A request without data or range.
fn request(command: u8) -> Vec<u8> {
    [
        &0x2560_9513_u32.to_be_bytes()[..],
        &[0, 0, 0, command],
        &[0; 20],
    ]
    .concat()
}

/// Flushes, and returns the error in the reply: 0, or 5 for EIO.
async fn flush(client: &Client) -> u32 {
    let before = client.received.borrow().len();
    client.send(&request(FLUSH));
    client
        .until(|| client.received.borrow().len() == before + 16)
        .await;
    let received = client.received.borrow();
    u32::from_be_bytes(
        *received[before + 4..]
            .first_chunk()
            .expect("an error number"),
    )
}

const HERE: [u8; 4] = [192, 0, 2, 1];
const ELSEWHERE: [u8; 4] = [192, 0, 2, 2];
/// The time after which an unknown client is not one that returns to a restarted server.
const RETURN_TIME: Duration = Duration::from_secs(300);

/// QEMU with `reconnect-delay` reconnects, and repeats the flush that was outstanding.
#[test]
fn a_client_that_reconnects_is_told_of_the_losses_that_its_last_connection_was_not() {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Ends {
        BeforeTheLoss,
        /// The server has not noticed yet that the connection is broken.
        Unnoticed,
        /// The reply may not have arrived.
        RightAfterTheReport,
        LongAfterTheReport,
        ByDisconnecting,
    }
    for (ends, from, told) in [
        (Ends::BeforeTheLoss, HERE, [5, 0]),
        (Ends::BeforeTheLoss, ELSEWHERE, [0, 0]),
        (Ends::Unnoticed, HERE, [5, 0]),
        (Ends::RightAfterTheReport, HERE, [5, 0]),
        (Ends::LongAfterTheReport, HERE, [0, 0]),
        (Ends::ByDisconnecting, HERE, [0, 0]),
    ] {
        with_losses(async |losses| {
            let first = connected(HERE).await;
            assert_eq!(flush(&first).await, 0);
            sleep(RETURN_TIME).await;
            match ends {
                Ends::BeforeTheLoss => first.breaks().await,
                Ends::ByDisconnecting => {
                    first.send(&request(DISCONNECT));
                    first.until(|| first.is_closed.get()).await;
                }
                Ends::Unnoticed | Ends::RightAfterTheReport | Ends::LongAfterTheReport => {}
            }
            losses.count();
            if matches!(ends, Ends::RightAfterTheReport | Ends::LongAfterTheReport) {
                assert_eq!(flush(&first).await, 5);
                let later = if ends == Ends::LongAfterTheReport {
                    60
                } else {
                    0
                };
                sleep(Duration::from_secs(later)).await;
                first.breaks().await;
            }
            let second = connected(from).await;
            assert_eq!(
                [flush(&second).await, flush(&second).await],
                told,
                "{ends:?}, from {from:?}"
            );
        });
    }
}

/// Clients of one host cannot be distinguished: each report is for one of them, and a client that connects
/// and does not flush takes none.
#[test]
fn each_client_of_a_host_that_reconnects_is_told() {
    with_losses(async |losses| {
        let departed = [connected(HERE).await, connected(HERE).await];
        sleep(RETURN_TIME).await;
        for client in departed {
            client.breaks().await;
        }
        losses.count();
        let without_a_flush = connected(HERE).await;
        without_a_flush.send(&request(DISCONNECT));
        without_a_flush
            .until(|| without_a_flush.is_closed.get())
            .await;
        for told in [5, 5, 0] {
            let client = connected(HERE).await;
            assert_eq!([flush(&client).await, flush(&client).await], [told, 0]);
            client.send(&request(DISCONNECT));
            client.until(|| client.is_closed.get()).await;
        }
    });
}

/// All addresses of an IPv6 network may belong to one host, but also to several.
#[test]
fn a_host_does_not_take_the_report_for_another_host_of_its_network() {
    let host = |number| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number);
    with_losses(async |losses| {
        connected(host(1)).await.breaks().await;
        sleep(RETURN_TIME).await;
        losses.count();
        for (number, reports) in [(2, [5, 0]), (1, [5, 0]), (3, [0, 0])] {
            let client = connected(host(number)).await;
            let replies = [flush(&client).await, flush(&client).await];
            assert_eq!(replies, reports, "host {number}");
            client.send(&request(DISCONNECT));
            client.until(|| client.is_closed.get()).await;
        }
    });
}

/// Two clients may both be the one that has departed. The report to one of them removes its record.
#[test]
fn a_client_that_may_have_returned_is_recorded_again_if_another_got_the_report() {
    with_losses(async |losses| {
        connected(HERE).await.breaks().await;
        sleep(RETURN_TIME).await;
        losses.count();
        let [first, second] = [connected(HERE).await, connected(HERE).await];
        assert_eq!(flush(&first).await, 5);
        second.breaks().await;
        let again = connected(HERE).await;
        assert_eq!([flush(&again).await, flush(&again).await], [5, 0]);
    });
}

/// A server process does not know the clients of the last one. The kernel reports a failed write-back once,
/// so it reports it to the client that flushes first.
#[test]
fn a_client_that_returns_to_a_restarted_server_is_told_of_a_loss_found_for_another() {
    with_losses(async |losses| {
        let first = connected(HERE).await;
        losses.count();
        assert_eq!([flush(&first).await, flush(&first).await], [5, 0]);
        let second = connected(ELSEWHERE).await;
        assert_eq!([flush(&second).await, flush(&second).await], [5, 0]);
        sleep(RETURN_TIME).await;
        let new = connected([192, 0, 2, 3]).await;
        assert_eq!(flush(&new).await, 0);
    });
}

/// Each client is known by its address until it returns, and these records have a limit.
#[test]
fn hosts_whose_many_clients_have_broken_off_make_the_server_forget_no_other_host() {
    with_losses(async |losses| {
        let first = connected(HERE).await;
        first.breaks().await;
        sleep(RETURN_TIME).await;
        for host in 0..14 {
            let mut crowd = Vec::new();
            for _ in 0..300 {
                crowd.push(connected([198, 51, 100, host]).await);
            }
            for client in crowd {
                client.breaks().await;
            }
        }
        losses.count();
        let new = connected(ELSEWHERE).await;
        assert_eq!(flush(&new).await, 0);
        let again = connected(HERE).await;
        assert_eq!([flush(&again).await, flush(&again).await], [5, 0]);
    });
}
