//! A lab with a client and a server for tests, and traffic between them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Conditions, Direction, Host, Lab, LabError, Plan};

/// Builds a pair of hosts with these conditions. Returns `None` if no lab can be built.
pub(crate) fn pair(conditions: Conditions) -> Option<Lab> {
    build(&Plan::pair(conditions))
}

pub(crate) fn build(plan: &Plan) -> Option<Lab> {
    match Lab::build(plan) {
        Ok(lab) => Some(lab),
        Err(LabError::Missing(what)) => {
            eprintln!("skipped: {what}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn host<'a>(lab: &'a Lab, name: &str) -> &'a Host {
    lab.host(name).expect("the plan has it")
}

/// Returns both ends of a connection through the lab. A socket stays in the namespace in which it was
/// created.
pub(crate) fn connection(lab: &Lab) -> (TcpStream, TcpStream) {
    let server = host(lab, "server");
    let listener = server
        .run(|| TcpListener::bind((server.address(), 0)).expect("binds"))
        .expect("enters");
    let address = listener.local_addr().expect("bound");
    let client = host(lab, "client")
        .run(|| TcpStream::connect(address).expect("connects"))
        .expect("enters");
    let (accepted, _) = listener.accept().expect("accepts");
    for stream in [&client, &accepted] {
        stream.set_nodelay(true).expect("a TCP socket");
    }
    (client, accepted)
}

/// Sends this number of bytes in one direction. Returns the time until the last byte arrived.
pub(crate) fn send(from: &TcpStream, to: &TcpStream, bytes: usize) -> Duration {
    let (mut from, mut to) = (from, to);
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            let chunk = vec![0xa5; 1 << 20];
            let mut left = bytes;
            while left > 0 {
                let now = left.min(chunk.len());
                from.write_all(&chunk[..now]).expect("connected");
                left -= now;
            }
        });
        let mut buffer = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            left -= to.read(&mut buffer).expect("connected").min(left);
        }
    });
    begun.elapsed()
}

/// Returns the shortest of several round trips of one byte.
pub(crate) fn round_trip(client: &TcpStream, server: &TcpStream, times: usize) -> Duration {
    let (mut client, mut server) = (client, server);
    let mut byte = [0];
    let mut once = || {
        let begun = Instant::now();
        client.write_all(&[1]).expect("connected");
        server.read_exact(&mut byte).expect("connected");
        server.write_all(&[2]).expect("connected");
        client.read_exact(&mut byte).expect("connected");
        begun.elapsed()
    };
    (0..times).map(|_| once()).min().expect("at least one")
}

/// Creates a UDP socket in a host.
pub(crate) fn udp(at: &Host) -> (UdpSocket, SocketAddr) {
    let address: IpAddr = at.address();
    let socket = at
        .run(|| UdpSocket::bind((address, 0)).expect("binds"))
        .expect("enters");
    let address = socket.local_addr().expect("bound");
    (socket, address)
}

/// Sends datagrams one by one, until the link has transferred `count` frames. Returns the number of lost
/// frames for each number of frames.
pub(crate) fn losses(lab: &Lab, count: u64) -> BTreeMap<u64, u64> {
    let (from, _) = udp(host(lab, "client"));
    let (_to, address) = udp(host(lab, "server"));
    let link = lab.link("wire").expect("there");
    let mut seen = BTreeMap::new();
    let mut frames = 0;
    while frames < count {
        from.send_to(&[0; 64], address).expect("sends");
        // The first datagram waits in the kernel for address resolution, and the link may lose that request.
        let before = frames;
        while frames == before {
            thread::yield_now();
            let counts = link.counts_of(Direction::Forward);
            frames = counts.frames + counts.lost;
            seen.insert(frames, counts.lost);
        }
    }
    seen
}
