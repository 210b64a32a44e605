//! The ceiling on this machine: the bytes of a storage protocol over TCP without a protocol and without storage.
//!
//! A request is a header of 48 bytes (iSCSI's length), with the data behind it if it writes. The server looks at eight
//! bytes of it, and answers 48 bytes with the data behind them if it reads: status and data in one, as an iSCSI target
//! may (RFC 7143 section 11.7.3). It keeps no session, checks nothing, and counts bytes instead of requests on their way
//! out. What it does on a socket is what any target has to do there, so that no target can be faster.
//!
//! Both halves run over a [`reactor::Stream`], on whatever world the threads have: one that sleeps when there is nothing
//! to do, or one that spins.

mod client;
mod question;
mod server;

use std::io;

pub use client::{Answered, Question, ask, ask_while};
pub use server::{SILENCE_MAX, serve};

/// Of a request and of an answer.
const HEADER_BYTES: usize = 48;
/// More than this is no request: the longest of any suite is 8 MiB.
const DATA_BYTES_MAX: u32 = 64 << 20;

/// Which way the data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Behind the answer.
    Read,
    /// Behind the request.
    Write,
}

impl Direction {
    /// The first byte of a header.
    fn code(self) -> u8 {
        match self {
            Direction::Read => 1,
            Direction::Write => 2,
        }
    }
}

/// The header of a request for so many bytes.
fn header(direction: Direction, data_bytes: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = direction.code();
    header[4..8].copy_from_slice(&data_bytes.to_be_bytes());
    header
}

/// What a header asks for.
fn parse(header: &[u8; HEADER_BYTES]) -> io::Result<(Direction, u32)> {
    let data_bytes = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let direction = [Direction::Read, Direction::Write].into_iter().find(|known| known.code() == header[0]);
    match direction {
        Some(direction) if data_bytes <= DATA_BYTES_MAX => Ok((direction, data_bytes)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "this is no request of the raw protocol")),
    }
}

/// `None` where the socket has to be waited for.
fn unless_blocked(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
