//! `linerate lab peer`: the peer of plain TCP.

use std::future::poll_fn;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bench::raw::{Direction, Question, ask};
use reactor::StreamOptions;

use crate::program::{LINERATE, until};
use crate::remote::in_a_world;

/// A running peer, on a loopback port.
struct Peer {
    child: Child,
    address: SocketAddr,
}

impl Peer {
    fn start() -> Peer {
        let mut command = Command::new(LINERATE);
        command
            .args(["lab", "peer", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("a peer");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        let address = lines.into_iter().find_map(|line| {
            let rest = line.strip_prefix("listens on ")?;
            rest.split(';').next()?.parse().ok()
        });
        Peer {
            child,
            address: address.expect("it says where it listens"),
        }
    }

    fn asked(&self, question: Question) -> io::Result<u64> {
        in_a_world(async {
            let stream = reactor::world().connect(self.address, &StreamOptions::default())?;
            poll_fn(|cx| stream.poll_writable(cx)).await?;
            let answered = ask(&*stream, question, 64 << 10, Duration::from_millis(500)).await?;
            Ok(answered.requests)
        })
    }

    /// Sends these bytes, and returns whether the peer closes the connection.
    fn ends_after(&self, said: &[u8]) -> io::Result<bool> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(said)?;
        Ok(stream
            .read(&mut [0; 64])
            .map_or_else(|e| e.kind() == io::ErrorKind::ConnectionReset, |n| n == 0))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

#[test]
fn strangers_neither_stop_a_peer_nor_take_more_than_their_places() {
    let peer = Peer::start();
    assert!(
        peer.ends_after(&[0xff; 48]).expect("a connection"),
        "garbage is no request"
    );
    let guests: Vec<_> = (0..64)
        .map(|_| TcpStream::connect(peer.address).expect("a place"))
        .collect();
    assert!(
        peer.ends_after(&[]).expect("a connection"),
        "the house is full"
    );
    drop(guests);
    let question = Question {
        direction: Direction::Read,
        block_bytes: 4096,
        depth: 4,
    };
    // The peer detects the end of 64 connections with some delay.
    until("a free place", || {
        peer.asked(question).is_ok_and(|requests| requests > 0)
    });
}

#[test]
fn both_directions_are_answered() {
    let peer = Peer::start();
    for direction in [Direction::Read, Direction::Write] {
        let asked = peer.asked(Question {
            direction,
            block_bytes: 16 << 10,
            depth: 32,
        });
        assert!(asked.is_ok_and(|requests| requests > 0), "{direction:?}");
    }
}
