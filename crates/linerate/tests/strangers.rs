//! Tests of the cost of unauthenticated peers. The allocator counts the server's memory for each connection
//! that has not logged in, and for each discovery session, which is open to all by default.
//!
//! The server runs in this process. The peers take no other memory in the process, because they are only open
//! sockets.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use front_end_core::{Core, Portal, Server};
use host::{Epoll, EpollOptions};
use iscsi::chap::{Algorithm, Credentials, Secret};
use iscsi::login::LOGIN_DATA_BYTES_MAX;
use iscsi::pdu::{BHS_BYTES, Bhs, Cid, Isid, Itt, LoginRequest, Lun, NopOut, Sn, Stage, Tsih};
use iscsi_server::{
    Authentication, Config, DISCOVERY_MEMORY_BYTES_MAX, ISCSI, Iscsi, LOGIN_MEMORY_BYTES_MAX,
    Limits, Target,
};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// A lock that allows one scene at a time, because the allocator counts the memory of all threads.
static ALONE: Mutex<()> = Mutex::new(());

const NAME: &str = "iqn.2026-01.io.linerate:disk";
const NAMES: &str =
    "InitiatorName=iqn.2026-01.com.example:stranger\0TargetName=iqn.2026-01.io.linerate:disk\0";
const PATIENCE: Duration = Duration::from_secs(240);
const STRANGERS: usize = 100;

/// A server with a target that requires CHAP, for a thousand users. Discovery does not require CHAP.
fn server() -> (Arc<Server>, Arc<Iscsi>, SocketAddr, Vec<JoinHandle<()>>) {
    let user = |number: usize| Credentials {
        name: format!("user {number}"),
        secret: Secret::new(format!("the secret of {number}").as_bytes()),
    };
    let authentication = Authentication {
        accounts: (0..1000).map(user).collect(),
        initiators: Default::default(),
        mutual: None,
        algorithms: Algorithm::ALL.to_vec(),
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let portal = Portal {
        front_end: ISCSI,
        listen,
        tag: 1,
        advertise: None,
        stream: Default::default(),
    };
    let served = front_end_core::Config {
        volumes: Vec::new(),
        portals: vec![portal],
        limits: front_end_core::Limits::default(),
    };
    let config = Config {
        targets: vec![Arc::new(Target {
            authentication: Some(authentication),
            ..Target::open(NAME, Vec::new())
        })],
        discovery_authentication: None,
        limits: Limits {
            login_time: 4 * PATIENCE,
            discovery_time: 4 * PATIENCE,
            discovery_sessions: 2 * STRANGERS,
            ..Limits::default()
        },
        random: |bytes| bytes.fill(7),
    };
    let iscsi = Iscsi::new(config, 1);
    let (server, cores) = Server::new(served, 1, vec![iscsi.clone()]);
    let (report, bound) = mpsc::channel();
    let begin = |core: Core| {
        let report = report.clone();
        thread::spawn(move || {
            let world = Epoll::shared(EpollOptions::default()).expect("a world");
            reactor::block_on(world, core.run(report));
        })
    };
    let threads = cores.into_iter().map(begin).collect();
    let addresses = bound.recv().expect("a core").expect("a free port");
    server.open();
    (
        server,
        iscsi,
        addresses[0].inet().expect("an address"),
        threads,
    )
}

/// The server responds to a peer's first messages, but not to its last ones.
struct Scene {
    name: &'static str,
    first: fn(&mut TcpStream),
    then: Then,
    last: Vec<u8>,
    /// Bytes of them that the server must store, because they are not a complete PDU.
    kept_bytes: usize,
}

/// The peer's state on the server after its first messages.
enum Then {
    Connection,
    Session,
    /// The server may have closed the connection.
    Anything,
}

/// Measures the memory that each of several peers with this behaviour takes.
fn cost(scene: &Scene) -> usize {
    let (server, iscsi, address, threads) = server();
    let mut strangers: Vec<TcpStream> = Vec::with_capacity(STRANGERS);
    let sockets_before = sockets();
    let mut come = |count: usize| {
        for _ in 0..count {
            let mut stream = TcpStream::connect(address).expect("a server that listens");
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("a socket option");
            (scene.first)(&mut stream);
            stream
                .write_all(&scene.last)
                .expect("a connection that is open");
            strangers.push(stream);
        }
        let ends = 2 * strangers.len(); // at the peers and at the server
        let logged_in = match scene.then {
            Then::Connection => 0,
            Then::Session => strangers.len(),
            Then::Anything => return,
        };
        until("all are let in", || sockets() >= sockets_before + ends);
        until("all are logged in", || {
            iscsi.sessions(&server).len() == logged_in
        });
    };
    let count = STRANGERS / 2;
    let kept = count * scene.kept_bytes * 9 / 10;
    let begin = dhat::HeapStats::get().curr_bytes;
    come(count);
    let before = settled(&iscsi, &server, begin + kept); // includes one-time allocations
    come(count);
    let grown = settled(&iscsi, &server, before + kept).saturating_sub(before);
    println!("{}: {} bytes for each", scene.name, grown / count);
    drop(strangers);
    server.shutdown(Duration::ZERO);
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("a core that ends"));
    grown / count
}

/// The memory in use when the server has processed all sent bytes: at least `least`, and stable for some
/// time.
fn settled(iscsi: &Iscsi, server: &Server, least: usize) -> usize {
    let mut bytes = None;
    until("memory for all that was sent, and no more", || {
        thread::sleep(Duration::from_millis(300)); // there is no event to wait for
        iscsi.sessions(server); // the core has run in the meantime
        let now = dhat::HeapStats::get().curr_bytes;
        now >= least && bytes.replace(now) == Some(now)
    });
    bytes.expect("a size")
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The sockets of this process, in which the server runs.
fn sockets() -> usize {
    let descriptors = fs::read_dir("/proc/self/fd")
        .expect("procfs")
        .map_while(Result::ok);
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

fn login(continues: bool, stage: Stage, transit_to: Option<Stage>, text: &[u8]) -> Vec<u8> {
    let request = LoginRequest {
        continues,
        stage,
        transit_to,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: Itt::new(1).expect("a tag"),
        cid: Cid(0),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(0),
        data_segment_length: text.len() as u32,
    };
    framed(&request.emit(), text)
}

fn framed(bhs: &Bhs, data: &[u8]) -> Vec<u8> {
    let mut bytes = bhs.0.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends bytes, and receives one PDU.
fn say(stream: &mut TcpStream, bytes: &[u8]) -> Bhs {
    stream.write_all(bytes).expect("a connection that is open");
    let mut bhs = Bhs([0; BHS_BYTES]);
    stream.read_exact(&mut bhs.0).expect("an answer");
    let mut data = [0; LOGIN_DATA_BYTES_MAX];
    let length = (bhs.data_segment_length() as usize).next_multiple_of(4);
    stream.read_exact(&mut data[..length]).expect("its text");
    bhs
}

/// A PDU without its last byte.
fn unfinished(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.pop();
    bytes
}

/// The length of a PDU's data without its last byte.
const LONG: usize = LOGIN_DATA_BYTES_MAX - 1;

fn long_text() -> Vec<u8> {
    unfinished(login(
        true,
        Stage::SecurityNegotiation,
        None,
        &[b'x'; LOGIN_DATA_BYTES_MAX],
    ))
}

#[test]
fn a_connection_that_has_not_logged_in_takes_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _profiler = dhat::Profiler::builder().testing().build();
    let scenes = [
        Scene {
            name: "says nothing",
            first: |_| {},
            then: Then::Connection,
            last: Vec::new(),
            kept_bytes: 0,
        },
        Scene {
            name: "does not end its first request",
            first: |_| {},
            then: Then::Connection,
            last: long_text(),
            kept_bytes: LONG,
        },
        Scene {
            name: "does not end its text",
            first: |stream| {
                // The maximum length of texts, minus one PDU.
                let names = [NAMES.as_bytes(), b"CHAP_A=5\0X-key="].concat();
                say(
                    stream,
                    &login(true, Stage::SecurityNegotiation, None, &names),
                );
                let mut left =
                    iscsi::login::LOGIN_TEXT_BYTES_MAX - LOGIN_DATA_BYTES_MAX - names.len();
                while left > 0 {
                    let piece = left.min(LOGIN_DATA_BYTES_MAX);
                    say(
                        stream,
                        &login(true, Stage::SecurityNegotiation, None, &vec![b'x'; piece]),
                    );
                    left -= piece;
                }
            },
            then: Then::Connection,
            last: long_text(),
            kept_bytes: LONG,
        },
        Scene {
            name: "does not fetch a long answer",
            first: |stream| {
                let mut text = [NAMES.as_bytes(), b"AuthMethod=CHAP\0"].concat();
                (0..1000)
                    .for_each(|number| text.extend_from_slice(format!("X-{number}=\0").as_bytes()));
                for piece in text.chunks(LOGIN_DATA_BYTES_MAX) {
                    let is_last = piece.len() < LOGIN_DATA_BYTES_MAX;
                    say(
                        stream,
                        &login(!is_last, Stage::SecurityNegotiation, None, piece),
                    );
                }
            },
            then: Then::Connection,
            last: long_text(),
            kept_bytes: LONG,
        },
        Scene {
            name: "is asked for its secret",
            first: |stream| {
                let text = [NAMES.as_bytes(), b"AuthMethod=CHAP\0"].concat();
                say(
                    stream,
                    &login(false, Stage::SecurityNegotiation, None, &text),
                );
                say(
                    stream,
                    &login(false, Stage::SecurityNegotiation, None, b"CHAP_A=5,6,7,8\0"),
                );
            },
            then: Then::Connection,
            last: long_text(),
            kept_bytes: LONG,
        },
    ];
    for scene in &scenes {
        let bytes = cost(scene);
        assert!(
            bytes <= LOGIN_MEMORY_BYTES_MAX,
            "{}: {bytes} bytes",
            scene.name
        );
    }
}

/// A NOP-Out with the longest data that a discovery session accepts.
fn ping(immediate: bool, cmd_sn: u32) -> Vec<u8> {
    let data = [7; LOGIN_DATA_BYTES_MAX];
    let nop = NopOut {
        immediate,
        lun: Lun(0),
        itt: Itt::new(cmd_sn),
        ttt: None,
        cmd_sn: Sn(cmd_sn),
        exp_stat_sn: Sn(0),
        data_segment_length: data.len() as u32,
    };
    framed(&nop.emit(), &data)
}

fn log_in(stream: &mut TcpStream) {
    let text = "InitiatorName=iqn.2026-01.com.example:stranger\0SessionType=Discovery\0";
    say(
        stream,
        &login(
            false,
            Stage::OperationalNegotiation,
            Some(Stage::FullFeature),
            text.as_bytes(),
        ),
    );
}

/// Sends pings until the server stops reading.
fn flood(stream: &mut TcpStream) {
    log_in(stream);
    let pings = ping(true, 1).repeat(32);
    stream
        .set_write_timeout(Some(Duration::from_millis(50)))
        .expect("a socket option");
    while stream.write_all(&pings).is_ok() {}
}

#[test]
fn a_discovery_session_takes_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _profiler = dhat::Profiler::builder().testing().build();
    let early: Vec<u8> = (2..9).flat_map(|cmd_sn| ping(false, cmd_sn)).collect();
    let scenes = [
        Scene {
            name: "asks nothing",
            first: log_in,
            then: Then::Session,
            last: Vec::new(),
            kept_bytes: 0,
        },
        Scene {
            name: "does not end a ping",
            first: log_in,
            then: Then::Session,
            last: unfinished(ping(true, 1)),
            kept_bytes: LONG,
        },
        Scene {
            name: "sends pings before their turn",
            first: log_in,
            then: Then::Session,
            last: early,
            kept_bytes: 0,
        },
        Scene {
            name: "does not hear the answers to its pings",
            first: flood,
            then: Then::Anything,
            last: Vec::new(),
            kept_bytes: 0,
        },
    ];
    for scene in &scenes {
        let bytes = cost(scene);
        assert!(
            bytes <= DISCOVERY_MEMORY_BYTES_MAX,
            "{}: {bytes} bytes",
            scene.name
        );
    }
}
