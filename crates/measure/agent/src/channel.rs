//! A connection between a coordinator and an agent: frames over a stream of the reactor, which are encrypted
//! once the shared secret has authenticated both sides. Every wait has a timeout: [`HANDSHAKE`] for the
//! handshake, and [`message::PATIENCE`] for an idle peer. Each side therefore sends keepalives.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use derive_more::Display;
use reactor::{JoinHandle, Listener, Receiver, Sender, Stream, StreamOptions, mailbox};

use crate::wire::handshake::{Greeted, Greeting, Keys, Refusal};
use crate::wire::message::{self, BREATH, Notification};
use crate::wire::{
    FRAME_BYTES_MAX, Forged, Frames, STRANGER_BYTES_MAX, Seal, Secret, TooLong, framed,
};

/// The timeout of the connection attempt and of the handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);

/// The reason why a connection failed, or has ended.
#[derive(Debug, Display)]
pub enum Broken {
    /// The peer closed the connection.
    #[display("it closed the connection")]
    Closed,
    /// The peer sent nothing within the timeout.
    #[display("it does not respond")]
    Silent,
    /// A network error.
    Io(io::Error),
    /// A message was too long.
    TooLong(TooLong),
    /// A message failed authentication.
    Forged(Forged),
    /// A message could not be parsed.
    #[display("it sent an invalid message ({})", foreign::printable(&_0.to_string()))]
    Unintelligible(message::Unintelligible),
    /// A message arrived out of order.
    #[display("it sent an unexpected message")]
    OutOfTurn,
    /// The handshake failed.
    Refused(Refusal),
}

/// A connection to an authenticated peer.
pub struct Channel {
    /// The receiving direction.
    pub receiver: MessageReceiver,
    /// The sending direction.
    pub sender: MessageSender,
}

/// The receiving direction.
pub struct MessageReceiver {
    frames: Incoming,
    seal: Seal,
}

/// The sending direction: a task sends messages in order, with keepalives in between. Dropping this ends the
/// connection.
pub struct MessageSender {
    messages: Sender<Vec<u8>>,
    task: JoinHandle<()>,
    stream: Rc<dyn Stream>,
}

impl Channel {
    /// Connects to an agent, and authenticates it. `alive` is the keepalive message.
    ///
    /// # Errors
    /// Returns the reason if there is no connection.
    pub async fn connect(
        to: SocketAddr,
        secret: &Secret,
        alive: Vec<u8>,
    ) -> Result<Channel, Broken> {
        let known = reactor::timeout(HANDSHAKE, async {
            let stream = connect(to).await.map_err(Broken::Io)?;
            let mut frames = Incoming::new(Rc::clone(&stream));
            let keys = greet(&mut frames, secret).await?;
            Ok(Channel::new(frames, keys, alive))
        });
        known.await.unwrap_or(Err(Broken::Silent))
    }

    /// Authenticates a coordinator that has connected.
    ///
    /// # Errors
    /// Returns the reason if there is no connection.
    pub async fn accept(
        stream: Box<dyn Stream>,
        secret: &Secret,
        alive: Vec<u8>,
    ) -> Result<Channel, Broken> {
        let mut frames = Incoming::new(stream.into());
        let known = reactor::timeout(HANDSHAKE, async {
            let keys = welcome(&mut frames, secret).await?;
            Ok(Channel::new(frames, keys, alive))
        });
        known.await.unwrap_or(Err(Broken::Silent))
    }

    fn new(mut frames: Incoming, keys: Keys, alive: Vec<u8>) -> Channel {
        frames.frames.set_limit(FRAME_BYTES_MAX);
        let (messages, said) = mailbox();
        let stream = Rc::clone(&frames.stream);
        let task = reactor::spawn(speak(Rc::clone(&stream), said, keys.ours, alive));
        Channel {
            receiver: MessageReceiver {
                frames,
                seal: keys.theirs,
            },
            sender: MessageSender {
                messages,
                task,
                stream,
            },
        }
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.sender.stream.peer()
    }
}

impl MessageReceiver {
    /// Receives the next message.
    ///
    /// # Errors
    /// Returns the reason if no further message can arrive.
    pub async fn receive(&mut self) -> Result<Vec<u8>, Broken> {
        let frame = reactor::timeout(message::PATIENCE, self.frames.next()).await;
        let frame = frame.unwrap_or(Err(Broken::Silent))?;
        self.seal.open(&frame).map_err(Broken::Forged)
    }
}

impl MessageSender {
    /// Queues a message. If the message cannot be sent, the receiving direction reports this.
    pub fn send(&self, message: Vec<u8>) {
        // The task ends early only if the connection has ended.
        let _ = self.messages.send(message);
    }

    /// Sends the queued messages, and closes the connection.
    pub async fn close(self) {
        let MessageSender {
            messages,
            task,
            stream,
        } = self;
        drop(messages);
        let _ = reactor::timeout(HANDSHAKE, task).await;
        stream.shutdown();
    }
}

/// The received frames of a stream.
struct Incoming {
    stream: Rc<dyn Stream>,
    frames: Frames,
}

impl Incoming {
    fn new(stream: Rc<dyn Stream>) -> Incoming {
        Incoming {
            stream,
            frames: Frames::new(STRANGER_BYTES_MAX),
        }
    }

    async fn next(&mut self) -> Result<Vec<u8>, Broken> {
        let mut piece = vec![0; PIECE];
        loop {
            if let Some(frame) = self.frames.take().map_err(Broken::TooLong)? {
                return Ok(frame);
            }
            match self
                .stream
                .read_some(&mut piece)
                .await
                .map_err(Broken::Io)?
            {
                0 => return Err(Broken::Closed),
                bytes => self.frames.push(&piece[..bytes]),
            }
        }
    }
}

/// The maximum length of a read. An unauthenticated peer can make us store at most this number of bytes and
/// one frame.
const PIECE: usize = 16 * 1024;

async fn greet(frames: &mut Incoming, secret: &Secret) -> Result<Keys, Broken> {
    let greeting = Greeting::new(secret);
    send(&*frames.stream, greeting.message()).await?;
    let (confirmation, keys) = greeting
        .answered(&frames.next().await?)
        .map_err(Broken::Refused)?;
    frames
        .stream
        .write_all(&confirmation)
        .await
        .map_err(Broken::Io)?;
    Ok(keys)
}

/// Performs the handshake of an agent. An unauthenticated peer learns only that this is an agent, its
/// version, and whether the secret is right.
async fn welcome(frames: &mut Incoming, secret: &Secret) -> Result<Keys, Broken> {
    let (answer, greeted) = Greeted::by(&frames.next().await?, secret);
    if let Some(answer) = answer {
        send(&*frames.stream, &answer).await?;
    }
    let greeted = greeted.map_err(Broken::Refused)?;
    greeted
        .confirmed(&frames.next().await?)
        .map_err(Broken::Refused)
}

async fn speak(
    stream: Rc<dyn Stream>,
    mut messages: Receiver<Vec<u8>>,
    mut seal: Seal,
    alive: Vec<u8>,
) {
    loop {
        let message = match reactor::timeout(BREATH, messages.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(reactor::Elapsed) => alive.clone(),
        };
        let Ok(frame) = seal.close(&message) else {
            break;
        };
        let sent = reactor::timeout(message::PATIENCE, stream.write_all(&frame)).await;
        if !matches!(sent, Ok(Ok(()))) {
            break;
        }
    }
    // This wakes the receiver, which detects the end of the connection.
    stream.shutdown();
}

async fn connect(to: SocketAddr) -> io::Result<Rc<dyn Stream>> {
    let stream = reactor::world().connect(to, &StreamOptions::default())?;
    poll_fn(|cx| stream.poll_writable(cx)).await?;
    // A failed connection attempt also makes the stream writable. A first, empty write shows the failure.
    match stream.try_write(&[]) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(stream.into()),
    }
}

async fn send(stream: &dyn Stream, message: &[u8]) -> Result<(), Broken> {
    let frame = framed(message).map_err(Broken::TooLong)?;
    stream.write_all(&frame).await.map_err(Broken::Io)
}

impl std::error::Error for Broken {}

// Access control of an agent. It serves peers that prove that they have the secret, one at a time.
//
// Unauthenticated connections are limited in number, in time (a few seconds) and in bytes (one kilobyte). If
// there are too many, the oldest one is closed; a coordinator authenticates within milliseconds. A second
// coordinator receives the address of the coordinator for which the agent works, and has to retry later.

/// The maximum number of unauthenticated connections.
const STRANGERS_MAX: usize = 8;

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// The work for one coordinator, until it disconnects.
pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The state that all connections share.
struct Door {
    secret: Secret,
    work: Box<dyn Fn(Channel) -> Work>,
    coordinator: Cell<Option<SocketAddr>>,
}

/// Accepts authenticated coordinators, one at a time, and runs `work` for each. Never returns.
pub async fn keep(
    listener: &dyn Listener,
    secret: Secret,
    work: impl Fn(Channel) -> Work + 'static,
) -> Infallible {
    let door = Rc::new(Door {
        secret,
        work: Box::new(work),
        coordinator: Cell::new(None),
    });
    let mut strangers: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                // There may be no file descriptors or no memory, which may become available later.
                tracing::warn!(%error, "cannot accept a connection");
                reactor::sleep(PAUSE).await;
                continue;
            }
        };
        strangers.retain(|stranger| !stranger.is_finished());
        if strangers.len() >= STRANGERS_MAX {
            strangers
                .pop_front()
                .into_iter()
                .for_each(JoinHandle::abort);
        }
        strangers.push_back(reactor::spawn(open(Rc::clone(&door), stream)));
    }
}

async fn open(door: Rc<Door>, stream: Box<dyn Stream>) {
    let peer = stream.peer();
    match Channel::accept(stream, &door.secret, Notification::Alive.text()).await {
        Ok(channel) => drop(reactor::spawn(let_in(door, channel))),
        Err(why @ Broken::Refused(Refusal::WrongSecret)) => {
            tracing::warn!("{peer} was refused: {why}")
        }
        Err(why) => tracing::debug!("{peer} was refused: {why}"),
    }
}

/// Works for an authenticated coordinator, which no longer counts as an unauthenticated connection.
async fn let_in(door: Rc<Door>, channel: Channel) {
    let peer = channel.peer();
    if let Some(coordinator) = door.coordinator.get() {
        channel.sender.send(
            Notification::Busy {
                coordinator: coordinator.to_string(),
            }
            .text(),
        );
        return channel.sender.close().await;
    }
    door.coordinator.set(Some(peer));
    (door.work)(channel).await;
    door.coordinator.set(None);
}
