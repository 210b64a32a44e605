//! A TCP connection to a server, which sends any bytes and receives whole PDUs, without checks or
//! restrictions. [`crate::peer`] implements a well-behaved initiator.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use iscsi::framing::Framing;
use iscsi::login::{Attached, InitiatorConfig, InitiatorEvent, InitiatorLogin};
use iscsi::pdu::{BHS_BYTES, Bhs};

/// The time limit for a server's response.
pub(crate) use crate::program::PATIENCE;

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    framing: Framing,
    received: Vec<u8>,
    /// Held-back bytes, if sending is held.
    held: Option<Vec<u8>>,
}

/// The result of a receive.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A PDU: its header, and its data without padding.
    Pdu(Box<Bhs>, Vec<u8>),
    /// The end of the connection, orderly or not.
    Closed,
    /// Nothing was received in time.
    Nothing,
}

/// The result of a login that did not reach full feature phase.
#[derive(Debug)]
pub(crate) enum NoLogin {
    /// The target has reported a failure.
    Told(Box<InitiatorEvent>),
    /// The target has closed the connection.
    Closed,
}

impl Wire {
    /// Connects to `host:port`.
    pub(crate) fn connect(portal: &str) -> Wire {
        let stream = TcpStream::connect(portal).expect("a server that listens");
        stream.set_nodelay(true).expect("a socket option");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a socket option");
        Wire {
            stream,
            framing: Framing::default(),
            received: Vec::new(),
            held: None,
        }
    }

    /// Logs in; digests begin with the end of the login.
    pub(crate) fn log_in(&mut self, config: InitiatorConfig) -> Result<Box<Attached>, NoLogin> {
        let mut login = InitiatorLogin::new(config);
        loop {
            while let Some(pdu) = login.poll_transmit() {
                self.send(&pdu.bhs, &pdu.data)
                    .map_err(|_| NoLogin::Closed)?;
            }
            match login.poll_event() {
                Some(InitiatorEvent::LoggedIn(attached)) => {
                    self.framing = Framing::new(&attached.parameters);
                    return Ok(attached);
                }
                Some(event) => return Err(NoLogin::Told(Box::new(event))),
                None => {}
            }
            match self.hear(PATIENCE) {
                Heard::Pdu(bhs, data) => login.handle_pdu(&bhs, &data),
                Heard::Closed => return Err(NoLogin::Closed),
                Heard::Nothing => panic!("no login response within {PATIENCE:?}"),
            }
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.held {
            Some(held) => held.extend_from_slice(bytes),
            None => self.stream.write_all(bytes)?,
        }
        Ok(())
    }

    /// Sets the timeout of a send.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.stream
            .set_write_timeout(Some(patience))
            .expect("a socket option");
    }

    /// Holds back everything sent from now on, like a slow path.
    pub(crate) fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Sends the held bytes.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        let held = self.held.take().unwrap_or_default();
        self.send_bytes(&held)
    }

    /// Sends the first of the held bytes, and keeps the others; returns whether there were enough.
    pub(crate) fn release_some(&mut self, bytes: usize) -> bool {
        let Some(held) = self.held.as_mut().filter(|held| held.len() >= bytes) else {
            return false;
        };
        let first: Vec<u8> = held.drain(..bytes).collect();
        self.stream.write_all(&first).is_ok()
    }

    /// Sends a PDU with its padding and digests.
    pub(crate) fn send(&mut self, bhs: &Bhs, data: &[u8]) -> io::Result<()> {
        self.send_with(bhs, &[], data)
    }

    /// Like [`Wire::send`], with additional header segments.
    pub(crate) fn send_with(&mut self, bhs: &Bhs, ahs: &[u8], data: &[u8]) -> io::Result<()> {
        let bytes = self.framed(bhs, ahs, data);
        self.send_bytes(&bytes)
    }

    /// A PDU in its wire format.
    pub(crate) fn framed(&self, bhs: &Bhs, ahs: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = bhs.0.to_vec();
        bytes.extend_from_slice(ahs);
        self.framing.end_header(&mut bytes, 0);
        bytes.extend_from_slice(data);
        self.framing.end_data(&mut bytes, data);
        bytes
    }

    /// Receives the next PDU, if it arrives in time. Its digests must match.
    pub(crate) fn hear(&mut self, within: Duration) -> Heard {
        let until = Instant::now() + within;
        match self.pdu(until) {
            Ok(Some((bhs, data))) => Heard::Pdu(Box::new(bhs), data),
            Ok(None) => Heard::Nothing,
            Err(_) => Heard::Closed,
        }
    }

    /// Receives all PDUs until the connection ends, and returns their number. Fails if the connection does
    /// not end.
    pub(crate) fn hear_the_end(&mut self) -> usize {
        let until = Instant::now() + PATIENCE;
        let mut count = 0;
        loop {
            match self.hear(until.saturating_duration_since(Instant::now())) {
                Heard::Pdu(..) => count += 1,
                Heard::Closed => return count,
                Heard::Nothing => panic!("still open after {PATIENCE:?} and {count} PDUs"),
            }
        }
    }

    /// Whether the connection has ended; received PDUs are skipped.
    pub(crate) fn is_closed(&mut self) -> bool {
        loop {
            match self.hear(Duration::from_millis(1)) {
                Heard::Pdu(..) => {}
                Heard::Closed => return true,
                Heard::Nothing => return false,
            }
        }
    }

    fn pdu(&mut self, until: Instant) -> io::Result<Option<(Bhs, Vec<u8>)>> {
        if !self.fill(BHS_BYTES, until)? {
            return Ok(None);
        }
        let bhs = Bhs(std::array::from_fn(|at| self.received[at]));
        let (header, segment) = (
            self.framing.header_bytes(&bhs),
            self.framing.segment_bytes(&bhs),
        );
        if !self.fill(header + segment, until)? {
            return Ok(None);
        }
        let length = bhs.data_segment_length() as usize;
        let (head, rest) = self.received.split_at(header);
        let (data, trailer) = rest[..segment].split_at(length);
        assert!(
            self.framing.header_intact(head),
            "a header digest that does not match"
        );
        assert!(
            self.framing.data_intact(data, trailer),
            "a data digest that does not match"
        );
        let data = data.to_vec();
        self.received.drain(..header + segment);
        Ok(Some((bhs, data)))
    }

    /// Receives until there are `bytes` bytes; `false` on a timeout.
    fn fill(&mut self, bytes: usize, until: Instant) -> io::Result<bool> {
        let mut piece = [0; 65_536];
        while self.received.len() < bytes {
            let left = until
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.received.extend_from_slice(&piece[..read]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
