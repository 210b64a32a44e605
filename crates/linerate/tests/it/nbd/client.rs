//! A test client that only implements the standard's message layouts, and can send arbitrary messages.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::program::PATIENCE;

pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const FLUSH: u16 = 3;
pub(super) const TRIM: u16 = 4;
pub(super) const CACHE: u16 = 5;
pub(super) const WRITE_ZEROES: u16 = 6;
pub(super) const BLOCK_STATUS: u16 = 7;

pub(super) const EPERM: u32 = 1;
pub(super) const EIO: u32 = 5;

pub(super) const OPT_LIST: u32 = 3;
pub(super) const OPT_STARTTLS: u32 = 5;
pub(super) const OPT_GO: u32 = 7;
pub(super) const OPT_SET_META_CONTEXT: u32 = 10;
pub(super) const OPT_EXTENDED_HEADERS: u32 = 11;

/// A connection.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    extended: bool,
    cookie: u64,
}

/// A reply of the server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) error: u32,
    pub(super) cookie: u64,
    pub(super) data: Vec<u8>,
}

impl Client {
    /// Connects, and exchanges the greeting and the client's flags.
    pub(super) fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a server that listens");
        stream.set_nodelay(true).expect("a socket");
        Client::greeted(stream)
    }

    /// Opens an export through a Unix socket, which is used like a TCP socket.
    pub(super) fn local(socket: &Path, export: &str) -> Client {
        let stream = UnixStream::connect(socket).expect("a server that listens");
        Client::greeted(OwnedFd::from(stream).into()).go(export)
    }

    fn greeted(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut client = Client {
            stream,
            extended: false,
            cookie: 0,
        };
        assert_eq!(
            client.hear(18).expect("a greeting"),
            b"NBDMAGICIHAVEOPT\0\x03"
        );
        client.say(&3_u32.to_be_bytes());
        client
    }

    /// Opens an export, with simple replies.
    pub(super) fn attach(port: u16, export: &str) -> Client {
        Client::connect(port).go(export)
    }

    /// Opens an export, with extended headers and `base:allocation`.
    pub(super) fn extended(port: u16, export: &str) -> Client {
        let mut client = Client::connect(port);
        assert_eq!(client.option(OPT_EXTENDED_HEADERS, &[]), 1);
        let context = [
            &string(export)[..],
            &1_u32.to_be_bytes(),
            &string("base:allocation"),
        ]
        .concat();
        assert_eq!(client.option(OPT_SET_META_CONTEXT, &context), 1);
        client.extended = true;
        client.go(export)
    }

    fn go(mut self, export: &str) -> Client {
        assert_eq!(
            self.option(OPT_GO, &[&string(export)[..], &[0, 0]].concat()),
            1,
            "GO {export}"
        );
        self
    }

    /// Sends an option, and returns the last reply to it. Earlier replies are skipped.
    pub(super) fn option(&mut self, option: u32, data: &[u8]) -> u32 {
        self.say(&an_option(option, data));
        loop {
            let header = self.hear(20).expect("a reply");
            let code = four(&header, 12);
            self.hear(four(&header, 16) as usize)
                .expect("a reply's data");
            if code == 1 || code >> 31 == 1 {
                return code;
            }
        }
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .expect("a connection that is open");
    }

    /// The same connection, to read its replies while another thread sends.
    pub(super) fn listener(&self) -> Client {
        let stream = self.stream.try_clone().expect("a socket");
        Client {
            stream,
            extended: self.extended,
            cookie: self.cookie,
        }
    }

    pub(super) fn hear(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether the server has closed the connection, after any pending replies.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    /// The header of a request, and its cookie.
    pub(super) fn header(&mut self, kind: u16, offset: u64, length: u64) -> Vec<u8> {
        self.cookie += 1;
        let announced = self.extended && kind == WRITE;
        let flags: u16 = if announced { 1 << 5 } else { 0 };
        let magic: u32 = if self.extended {
            0x21e4_1c71
        } else {
            0x2560_9513
        };
        let length = length.to_be_bytes();
        let length = if self.extended {
            &length[..]
        } else {
            &length[4..]
        };
        let fixed = [
            &magic.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &kind.to_be_bytes(),
        ]
        .concat();
        [
            &fixed[..],
            &self.cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            length,
        ]
        .concat()
    }

    /// Sends a request without waiting for its reply.
    pub(super) fn begin(&mut self, kind: u16, offset: u64, length: u64, data: &[u8]) {
        let header = self.header(kind, offset, length);
        self.say(&header);
        self.say(data);
    }

    /// Receives the next reply. The reply to a read has this number of bytes, unless it is an error.
    pub(super) fn answer(&mut self, read: usize) -> Result<Answer> {
        if !self.extended {
            let header = self.hear(16)?;
            assert_eq!(four(&header, 0), 0x6744_6698);
            let error = four(&header, 4);
            let data = if error == 0 {
                self.hear(read)?
            } else {
                Vec::new()
            };
            return Ok(Answer {
                error,
                cookie: eight(&header, 8),
                data,
            });
        }
        let header = self.hear(32)?;
        assert_eq!(
            (four(&header, 0), two(&header, 4)),
            (0x6e8a_278c, 1),
            "one chunk"
        );
        let payload = self.hear(eight(&header, 24) as usize)?;
        let (error, data) = match two(&header, 6) {
            0 => (0, Vec::new()),
            1 => (0, payload[8..].to_vec()),
            6 => (0, payload),
            0x8001 => (four(&payload, 0), Vec::new()),
            other => panic!("a chunk of type {other}"),
        };
        Ok(Answer {
            error,
            cookie: eight(&header, 8),
            data,
        })
    }

    /// Sends a request, and returns the data or the error in its reply.
    pub(super) fn ask(
        &mut self,
        kind: u16,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> std::result::Result<Vec<u8>, u32> {
        self.begin(kind, offset, length, data);
        let answer = self
            .answer(if kind == READ { length as usize } else { 0 })
            .expect("an answer");
        assert_eq!(answer.cookie, self.cookie);
        if answer.error == 0 {
            Ok(answer.data)
        } else {
            Err(answer.error)
        }
    }

    pub(super) fn read(&mut self, offset: u64, length: usize) -> std::result::Result<Vec<u8>, u32> {
        self.ask(READ, offset, length as u64, &[])
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> std::result::Result<(), u32> {
        self.ask(WRITE, offset, data.len() as u64, data).map(drop)
    }
}

pub(super) fn an_option(option: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    [
        b"IHAVEOPT",
        &option.to_be_bytes()[..],
        &length.to_be_bytes(),
        data,
    ]
    .concat()
}

pub(super) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn two(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
