//! Datagrams of UDP that the kernel hands over joined: several from one sender, of one length, as one piece (UDP_GRO, udp(7)). One that
//! arrives so, or was sent so on this machine, costs the kernel's whole way once for all of them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use libc::c_int;
use reactor::DatagramAddress;

use super::calls::Calls;
use super::{set_option, udp};

/// The longest piece, and how many are asked for at most.
const PIECE_BYTES: usize = 1 << 16;
const PIECES: usize = 8;

/// What was received, and how far it has been handed out.
pub(super) struct Joined {
    memory: Box<[u8]>,
    calls: Calls,
    pieces: Vec<Piece>,
    /// The piece that is being handed out, and from where.
    piece: usize,
    start: usize,
    /// For how many pieces the next call asks.
    asking: usize,
}

struct Piece {
    place: usize,
    from: DatagramAddress,
    bytes: usize,
    /// Bytes of each datagram but the last.
    segment: usize,
}

/// What a call has found.
pub(super) struct Found {
    /// Datagrams that were handed out.
    pub(super) taken: usize,
    /// Nothing more is there.
    pub(super) is_drained: bool,
}

impl Joined {
    /// Asks the kernel to join what this socket receives. `None` where it cannot.
    pub(super) fn open(socket: &OwnedFd) -> Option<Joined> {
        set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &(1 as c_int)).ok()?;
        let memory = vec![0; PIECES * PIECE_BYTES].into_boxed_slice();
        let calls = Calls::new(PIECES);
        Some(Joined { memory, calls, pieces: Vec::new(), piece: 0, start: 0, asking: 2 })
    }

    /// Whether something was received and not handed out.
    pub(super) fn has_any(&self) -> bool {
        self.piece < self.pieces.len()
    }

    /// Hands what is there to `take`, at most so many datagrams.
    pub(super) fn receive(
        &mut self,
        socket: i32,
        most: usize,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> io::Result<Found> {
        let mut is_drained = false;
        if !self.has_any() {
            is_drained = self.fill(socket)?;
        }
        let mut taken = 0;
        while let Some(piece) = self.pieces.get(self.piece).filter(|_| taken < most) {
            let end = piece.bytes.min(self.start + piece.segment);
            let base = piece.place * PIECE_BYTES;
            take(piece.from, &mut self.memory[base + self.start..base + end]);
            taken += 1;
            self.start = end;
            if end == piece.bytes {
                (self.piece, self.start) = (self.piece + 1, 0);
            }
        }
        Ok(Found { taken, is_drained: is_drained && !self.has_any() })
    }

    /// Receives pieces; whether no more are there.
    fn fill(&mut self, socket: i32) -> io::Result<bool> {
        self.pieces.clear();
        (self.piece, self.start) = (0, 0);
        let asked = self.asking.min(PIECES);
        let places = self.memory.chunks_exact_mut(PIECE_BYTES).take(asked);
        let received = self.calls.receive(socket, places)?;
        self.asking = (2 * received).max(2);
        for place in 0..received {
            let message = self.calls.received(place);
            let Some(from) = udp::sender(message.from) else { continue };
            let segment = message.segment.filter(|segment| *segment > 0).unwrap_or(PIECE_BYTES);
            self.pieces.push(Piece { place, from, bytes: message.bytes, segment });
        }
        Ok(received < asked)
    }
}
