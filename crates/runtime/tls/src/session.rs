//! The TLS state machine of one connection, with buffers for incoming and outgoing ciphertext.

use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use reactor::{InSlice, OutSlice, Stream};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CipherSuite, Error, InvalidMessage};

use crate::failure::Failure;

/// Limit on buffered ciphertext from the peer: enough for three records of maximum length, or for the longest
/// handshake message that rustls accepts.
const INCOMING_BYTES: usize = 80 << 10;
/// Maximum amount of plaintext that one call encrypts: four records of maximum length (RFC 8446 5.1).
const CHUNK_BYTES: usize = 64 << 10;
/// Limit on the ciphertext that one read processes. A read that exceeds it returns the plaintext so far, or
/// fails if there is none: otherwise, a peer could block the thread with endless empty records and key
/// updates.
const READ_BYTES_MAX: usize = 4 * INCOMING_BYTES;
/// Space for the overhead of encryption: at most 22 bytes per record (RFC 8446 5.2), a key update (4.6.3) and an
/// alert.
const OVERHEAD_BYTES: usize = 1024;

thread_local! {
    /// A spare receive buffer for the next connection that reads, so that idle connections need no buffer.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static CHUNK: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

pub(crate) enum Machine {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// One end of a connection.
pub(crate) struct Session {
    machine: Machine,
    incoming: Incoming,
    /// Plaintext for the caller to read, and the length of the part that the caller has read.
    plain: Vec<u8>,
    plain_taken: usize,
    /// Ciphertext to send, and the length of the part that has been sent.
    outgoing: Vec<u8>,
    outgoing_sent: usize,
    /// Length of the plaintext that is already encrypted in `outgoing`, but not yet reported to the caller as
    /// sent.
    unreported: usize,
    /// The peer has closed its direction.
    has_ended: bool,
    /// The error that the state machine returned. It must not be called again after an error.
    failure: Option<Error>,
    /// The last read did not end with `WouldBlock`.
    may_have_more: bool,
    pause: Pause,
}

/// A pause in reading after [`READ_BYTES_MAX`], during which other tasks run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    No,
    /// The next read returns `WouldBlock`.
    Due,
    /// A waiting reader is woken immediately, but scheduled after other tasks.
    Taken,
}

#[derive(Default)]
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// The result of a step of the state machine.
enum Step {
    /// The state machine has decrypted data, or has data to send, and must be called again.
    Again,
    /// The handshake needs more data from the peer.
    Blocked,
    /// The handshake is complete, and all received data is processed.
    Open,
    PeerClosed,
}

pub(crate) enum Progress {
    /// This many bytes were received, and the state machine must be called again.
    Received(usize),
    /// The state machine needs more data from the peer.
    Blocked,
    /// The handshake is complete.
    Over,
}

/// What to write after the handshake.
#[derive(Clone, Copy)]
enum Order<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Close,
}

/// The slices that a read fills.
struct Sink<'a, 's> {
    slices: &'a mut [InSlice<'s>],
    /// The index of the slice being filled, and the length of its filled part.
    index: usize,
    at: usize,
    filled: usize,
}

impl Session {
    pub(crate) fn new(machine: Machine) -> Session {
        Session {
            machine,
            incoming: Incoming::default(),
            plain: Vec::new(),
            plain_taken: 0,
            outgoing: Vec::new(),
            outgoing_sent: 0,
            unreported: 0,
            has_ended: false,
            failure: None,
            may_have_more: false,
            pause: Pause::No,
        }
    }

    /// Continues the handshake until a read from the stream returns data or would block. On return, outgoing
    /// data may still be pending.
    pub(crate) fn shake_hands(&mut self, stream: &dyn Stream) -> Result<Progress, Failure> {
        loop {
            match self.step(&mut Sink::new(&mut []), Order::Nothing)? {
                Step::Again => {}
                Step::Open => return Ok(Progress::Over),
                Step::PeerClosed => {
                    return Err(Failure::Socket(io::ErrorKind::UnexpectedEof.into()));
                }
                Step::Blocked => {
                    self.flush(stream)?;
                    match self.incoming.receive(stream) {
                        Ok(0) => return Err(Failure::Socket(io::ErrorKind::UnexpectedEof.into())),
                        Ok(bytes) => return Ok(Progress::Received(bytes)),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            return Ok(Progress::Blocked);
                        }
                        Err(error) => return Err(Failure::Socket(error)),
                    }
                }
            }
        }
    }

    /// The certificate that the peer has presented.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        let certificates = match &self.machine {
            Machine::Client(connection) => connection.peer_certificates(),
            Machine::Server(connection) => connection.peer_certificates(),
        };
        certificates?.first()
    }

    pub(crate) fn cipher(&self) -> Option<CipherSuite> {
        let suite = match &self.machine {
            Machine::Client(connection) => connection.negotiated_cipher_suite(),
            Machine::Server(connection) => connection.negotiated_cipher_suite(),
        };
        suite.map(|suite| suite.suite())
    }

    /// Length of the plaintext that can be read without reading from the stream.
    pub(crate) fn readable_bytes(&self) -> usize {
        self.plain.len() - self.plain_taken
    }

    pub(crate) fn may_have_more(&self) -> bool {
        self.may_have_more || self.readable_bytes() > 0
    }

    /// Whether other tasks must run before the next read. Calling this ends the pause.
    pub(crate) fn take_pause(&mut self) -> bool {
        std::mem::replace(&mut self.pause, Pause::No) == Pause::Taken
    }

    /// Reads plaintext, as specified for [`Stream::try_read`].
    pub(crate) fn read(
        &mut self,
        stream: &dyn Stream,
        into: &mut [InSlice<'_>],
    ) -> io::Result<usize> {
        if std::mem::replace(&mut self.pause, Pause::No) == Pause::Due {
            self.pause = Pause::Taken;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (mut sink, mut received) = (Sink::new(into), 0);
        self.plain_taken += sink.take(&self.plain[self.plain_taken..]);
        if self.plain_taken == self.plain.len() {
            (self.plain, self.plain_taken) = (Vec::new(), 0);
        }
        let ended = loop {
            if self.has_ended || !sink.has_room() {
                break Ok(());
            }
            let is_first_failure = self.failure.is_none();
            match self.step(&mut sink, Order::Nothing) {
                Ok(Step::Again) => {}
                Ok(Step::PeerClosed) => self.has_ended = true,
                Ok(Step::Open | Step::Blocked) => match self.incoming.receive(stream) {
                    // Accepts an end without close_notify: messages of the protocols above contain their
                    // lengths, so truncation is detected there.
                    Ok(0) => self.has_ended = true,
                    Ok(count) => {
                        received += count;
                        if received > READ_BYTES_MAX && sink.filled > 0 {
                            self.pause = Pause::Due;
                            break Ok(());
                        }
                        if received > READ_BYTES_MAX {
                            let failure =
                                Error::General("too many records without data".to_owned());
                            self.failure = Some(failure.clone());
                            break Err(Failure::Tls(failure).into());
                        }
                    }
                    Err(error) => break Err(error),
                },
                Err(error) => {
                    if is_first_failure {
                        self.send_alert(stream);
                    }
                    break Err(Failure::Tls(error).into());
                }
            }
        };
        // After any result except `WouldBlock`, another read may return data, the end of the stream, or an
        // error.
        self.may_have_more = !ended
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        self.incoming.release();
        self.flush(stream)?; // such as the response to a key update
        match ended {
            Err(error) if sink.filled == 0 => Err(error),
            _ => Ok(sink.filled),
        }
    }

    /// Writes plaintext, as specified for [`Stream::try_write`], with an additional rule: after `WouldBlock`,
    /// the caller must pass the same bytes again, because they are already encrypted.
    pub(crate) fn write(
        &mut self,
        stream: &dyn Stream,
        from: &[OutSlice<'_>],
    ) -> io::Result<usize> {
        let offered: usize = from.iter().map(length).sum();
        if self.unreported == 0 {
            if !self.flush(stream)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.unreported = self.encrypt(from)?;
        }
        match self.flush(stream)? {
            true => {
                let reported = self.unreported.min(offered);
                self.unreported -= reported;
                Ok(reported)
            }
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends outgoing ciphertext. Returns true when all of it is sent.
    pub(crate) fn flush(&mut self, stream: &dyn Stream) -> io::Result<bool> {
        while self.outgoing_sent < self.outgoing.len() {
            match stream.try_write(&[OutSlice::Bytes(&self.outgoing[self.outgoing_sent..])]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.outgoing_sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        (self.outgoing, self.outgoing_sent) = (Vec::new(), 0);
        Ok(true)
    }

    /// After an error, sends the peer an alert, as far as the stream accepts it without blocking.
    pub(crate) fn send_alert(&mut self, stream: &dyn Stream) {
        // After an error, the next call of the state machine returns the alert, before it processes remaining
        // input. It must not be called again after that.
        let _ = self.advance(&mut Sink::new(&mut []), Order::Nothing);
        let _ = self.flush(stream); // the peer may be gone
    }

    /// Sends a close_notify, as far as the stream accepts it without blocking.
    pub(crate) fn close(&mut self, stream: &dyn Stream) {
        if self.unreported == 0 && self.carry_out(Order::Close).is_ok() {
            let _ = self.flush(stream); // the peer may be gone
        }
    }

    /// Encrypts up to [`CHUNK_BYTES`] from the beginning of the slices, and returns the number of bytes
    /// encrypted.
    fn encrypt(&mut self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        let mut chunk = CHUNK.take();
        chunk.clear();
        for slice in from {
            let room = CHUNK_BYTES - chunk.len();
            match slice {
                OutSlice::Bytes(bytes) => chunk.extend_from_slice(&bytes[..bytes.len().min(room)]),
                OutSlice::Shared(bytes) => {
                    chunk.extend(bytes.iter().take(room).map(|byte| byte.load(Relaxed)))
                }
            }
        }
        let (bytes, encrypted) = (chunk.len(), self.carry_out(Order::Encrypt(&chunk)));
        CHUNK.set(chunk);
        encrypted
            .map(|()| bytes)
            .map_err(|error| Failure::Tls(error).into())
    }

    /// Processes received ciphertext, and then appends the requested data or alert to the outgoing
    /// ciphertext.
    fn carry_out(&mut self, order: Order<'_>) -> Result<(), Error> {
        loop {
            match self.step(&mut Sink::new(&mut []), order)? {
                Step::Again => {}
                Step::Open => return Ok(()),
                Step::PeerClosed => self.has_ended = true,
                Step::Blocked => return Err(Error::HandshakeNotComplete),
            }
        }
    }

    /// Runs one step of the state machine. Plaintext is written to the sink; plaintext that does not fit is
    /// buffered.
    fn step(&mut self, sink: &mut Sink<'_, '_>, order: Order<'_>) -> Result<Step, Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let step = self.advance(sink, order);
        self.failure = step.as_ref().err().cloned();
        step
    }

    fn advance(&mut self, sink: &mut Sink<'_, '_>, order: Order<'_>) -> Result<Step, Error> {
        let (plain, outgoing) = (&mut self.plain, &mut self.outgoing);
        let received = self.incoming.received();
        let (discard, step) = match &mut self.machine {
            Machine::Client(connection) => handled(
                connection.process_tls_records(received),
                sink,
                plain,
                outgoing,
                order,
            ),
            Machine::Server(connection) => handled(
                connection.process_tls_records(received),
                sink,
                plain,
                outgoing,
                order,
            ),
        };
        self.incoming.start += discard;
        step
    }
}

/// Handles one state of the state machine. Also returns the number of received bytes consumed.
fn handled<Data>(
    UnbufferedStatus { mut discard, state }: UnbufferedStatus<'_, '_, Data>,
    sink: &mut Sink<'_, '_>,
    plain: &mut Vec<u8>,
    outgoing: &mut Vec<u8>,
    order: Order<'_>,
) -> (usize, Result<Step, Error>) {
    let step = state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                let taken = sink.take(record.payload);
                plain.extend_from_slice(&record.payload[taken..]);
            }
            Ok(Step::Again)
        }
        ConnectionState::EncodeTlsData(mut message) => {
            let at = outgoing.len();
            // The call with an empty buffer only returns the required size.
            if let Err(EncodeError::InsufficientSize(room)) = message.encode(&mut []) {
                outgoing.resize(at + room.required_size, 0);
                message
                    .encode(&mut outgoing[at..])
                    .map_err(|error| Error::General(error.to_string()))?;
            }
            Ok(Step::Again)
        }
        // Already handled: the message is in `outgoing`, and is sent in order with all other data.
        ConnectionState::TransmitTlsData(message) => {
            message.done();
            Ok(Step::Again)
        }
        ConnectionState::BlockedHandshake => Ok(Step::Blocked),
        ConnectionState::WriteTraffic(mut traffic) => {
            let at = outgoing.len();
            let written = match order {
                Order::Nothing => Ok(0),
                Order::Encrypt(chunk) => {
                    outgoing.resize(at + chunk.len() + OVERHEAD_BYTES, 0);
                    traffic.encrypt(chunk, &mut outgoing[at..])
                }
                Order::Close => {
                    outgoing.resize(at + OVERHEAD_BYTES, 0);
                    traffic.queue_close_notify(&mut outgoing[at..])
                }
            };
            outgoing.truncate(at + *written.as_ref().unwrap_or(&0));
            match written {
                Ok(_) => Ok(Step::Open),
                Err(EncryptError::EncryptExhausted) => Err(Error::EncryptError),
                Err(error) => Err(Error::General(error.to_string())),
            }
        }
        ConnectionState::PeerClosed => Ok(Step::PeerClosed),
        ConnectionState::Closed => Err(Error::General("the connection is closed".to_owned())),
        state => Err(Error::General(format!("{state:?}"))),
    });
    (discard, step)
}

impl Incoming {
    fn received(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Receives more bytes into the buffer. Returns an error if the buffer is full and still contains no
    /// complete message.
    fn receive(&mut self, stream: &dyn Stream) -> io::Result<usize> {
        if self.buffer.is_empty() {
            self.buffer = SPARE.take();
            self.buffer.resize(INCOMING_BYTES, 0);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            return Err(Failure::Tls(InvalidMessage::HandshakePayloadTooLarge.into()).into());
        }
        let received = stream.try_read(&mut [InSlice::Bytes(&mut self.buffer[self.end..])])?;
        self.end += received;
        Ok(received)
    }

    /// If the buffer is empty, releases it for the next connection.
    fn release(&mut self) {
        if self.start == self.end && !self.buffer.is_empty() {
            SPARE.set(std::mem::take(&mut self.buffer));
            (self.start, self.end) = (0, 0);
        }
    }
}

impl<'a, 's> Sink<'a, 's> {
    fn new(slices: &'a mut [InSlice<'s>]) -> Sink<'a, 's> {
        Sink {
            slices,
            index: 0,
            at: 0,
            filled: 0,
        }
    }

    fn has_room(&self) -> bool {
        let rest = self.slices[self.index..].iter().map(room).sum::<usize>();
        rest > self.at
    }

    /// Copies as many bytes as fit, and returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some(slice) = self.slices.get_mut(self.index) {
            let length = room(slice);
            let (taken, after) = rest.split_at(rest.len().min(length - self.at));
            let place = self.at..self.at + taken.len();
            match slice {
                InSlice::Bytes(bytes) => bytes[place].copy_from_slice(taken),
                InSlice::Shared(bytes) => {
                    bytes[place]
                        .iter()
                        .zip(taken)
                        .for_each(|(to, from)| to.store(*from, Relaxed));
                }
            }
            rest = after;
            self.at += taken.len();
            if self.at < length {
                break;
            }
            (self.index, self.at) = (self.index + 1, 0);
        }
        self.filled += bytes.len() - rest.len();
        bytes.len() - rest.len()
    }
}

fn room(slice: &InSlice<'_>) -> usize {
    match slice {
        InSlice::Bytes(bytes) => bytes.len(),
        InSlice::Shared(bytes) => bytes.len(),
    }
}

fn length(slice: &OutSlice<'_>) -> usize {
    match slice {
        OutSlice::Bytes(bytes) => bytes.len(),
        OutSlice::Shared(bytes) => bytes.len(),
    }
}
