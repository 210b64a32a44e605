//! Opening an export: paths, connections, handshakes.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use channels::{Channels, Connected, Name, Settings, Transport};
use derive_more::Display;
use nbd::flags::transmission;
use nbd::{ChannelName, ClientHandshake, ClientStep, Command, Refused, Session};
use reactor::{Stream, StreamOptions};

use crate::export::RemoteExport;
use crate::link::Link;
use crate::request::Asked;
use crate::url::Url;

/// Why an export could not be opened.
#[derive(Debug, Display)]
pub enum OpenError {
    /// The name of the host has no address.
    #[display("{_0}: {_1}")]
    Resolve(String, io::Error),
    /// No connection, or it was lost.
    #[display("{_0}: {_1}")]
    Connection(SocketAddr, io::Error),
    /// No connection, or no answer, in time.
    #[display("{_0}: no answer in time")]
    TimedOut(SocketAddr),
    /// The server has no session for this client.
    #[display("{_0}: {_1}")]
    Refused(SocketAddr, Refused),
    /// It is not the export that it was: a part of it is gone, or what can be asked of it differs.
    #[display("{_0}: the export is another one than before: {_1}")]
    Changed(SocketAddr, String),
    /// The export has less than a block.
    #[display("the export has {_0} bytes, less than a block")]
    Empty(u64),
}

impl std::error::Error for OpenError {}

enum Failure {
    Socket(io::Error),
    Refused(Refused),
}

/// A way to the server.
struct Path {
    name: String,
    /// The addresses of its host: the first that answers is used.
    addresses: Vec<SocketAddr>,
    options: StreamOptions,
}

/// How connections to an export are made.
pub(crate) struct Export {
    url: Url,
    paths: Vec<Path>,
    session: Arc<Session>,
}

/// Connects to an export. Its connections live on the reactor of this thread, which must run for as long as
/// the device is in use. Resolving the host's name blocks the thread; addresses do not.
///
/// # Errors
/// Why not, for the address that came furthest.
pub async fn open(url: &Url) -> Result<RemoteExport, OpenError> {
    let paths = paths(url)?;
    let id = Name { session: u128::from(random()) << 64 | u128::from(random()), number: 0 };
    let mut failure = None;
    for (number, path) in paths.iter().enumerate() {
        match path.connect(&url.export, channel(id, &[]), url.options.timeout).await {
            Ok((stream, session)) => return join(url, paths, number, stream, session, id.session).await,
            Err(error) => failure = Some(error),
        }
    }
    let none = || OpenError::Resolve(url.host.clone(), io::ErrorKind::AddrNotAvailable.into());
    Err(failure.unwrap_or_else(none))
}

/// Adds the other connections to the first one.
async fn join(
    url: &Url,
    paths: Vec<Path>,
    path: usize,
    stream: Box<dyn Stream>,
    session: Session,
    id: u128,
) -> Result<RemoteExport, OpenError> {
    let (options, flags) = (&url.options, session.export.flags);
    let has = |flag| flags & flag != 0;
    let channels = if has(transmission::CAN_MULTI_CONN) { options.connections } else { 1 };
    if channels < options.connections {
        tracing::warn!(export = %url, "the server does not say that several connections see one cache; one is used");
    }
    let settings = Settings {
        channels,
        paths: paths.len(),
        timeout: options.timeout,
        quarantine: options.quarantine,
        journal_bytes: options.journal_bytes,
        is_volatile: has(transmission::SEND_FLUSH),
        is_coherent: has(transmission::CAN_MULTI_CONN),
        session: id,
        seed: random(),
    };
    let session = Arc::new(session);
    let fences = session.channel.is_some();
    let first = Connected { link: Link::begin(stream, Arc::clone(&session), options.stall()), fences };
    let export = Export { url: url.clone(), paths, session: Arc::clone(&session) };
    let channels = Channels::new(export, settings, first, path);
    channels.tried().await;
    RemoteExport::new(channels, &session)
}

/// Sixty-four bits that differ from run to run and that others cannot guess: the standard library's keys are the
/// system's random numbers.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn channel(name: Name, ended: &[u64]) -> ChannelName {
    ChannelName { session: name.session, number: name.number, ended: ended.to_vec() }
}

/// The host of the URL, and its other addresses; each from its own address of this machine, if they are named.
fn paths(url: &Url) -> Result<Vec<Path>, OpenError> {
    let options = &url.options;
    let mut hosts = vec![(url.host.as_str(), url.port)];
    hosts.extend(options.addresses.iter().map(|(host, port)| (host.as_str(), *port)));
    let path = |number: usize| {
        let (host, port) = hosts[number % hosts.len()];
        let resolved = (host, port).to_socket_addrs();
        let addresses = resolved.map_err(|error| OpenError::Resolve(host.to_owned(), error))?.collect();
        let source = options.sources.get(number % options.sources.len().max(1));
        let from = source.map_or_else(String::new, |source| format!(" from {source}"));
        Ok(Path {
            name: format!("{host}:{port}{from}"),
            addresses,
            options: StreamOptions {
                congestion: options.congestion.clone(),
                source: source.map(|source| SocketAddr::new(*source, 0)),
                ..StreamOptions::default()
            },
        })
    };
    (0..hosts.len().max(options.sources.len())).map(path).collect()
}

impl Path {
    async fn connect(
        &self,
        export: &str,
        channel: ChannelName,
        timeout: Duration,
    ) -> Result<(Box<dyn Stream>, Session), OpenError> {
        let mut failure = None;
        for address in &self.addresses {
            match connect(*address, &self.options, export, channel.clone(), timeout).await {
                Ok(connected) => return Ok(connected),
                Err(error) => failure = Some(error),
            }
        }
        let none = || OpenError::Resolve(self.name.clone(), io::ErrorKind::AddrNotAvailable.into());
        Err(failure.unwrap_or_else(none))
    }
}

impl Transport for Export {
    type Link = Link;

    async fn connect(&self, path: usize, name: Name, ended: &[u64]) -> Result<Connected<Link>, String> {
        let stall = self.url.options.stall();
        let connected = self.paths[path].connect(&self.url.export, channel(name, ended), stall).await;
        let (stream, session) = connected.map_err(|error| error.to_string())?;
        if let Some(why) = difference(&self.session, &session) {
            return Err(OpenError::Changed(stream.peer(), why).to_string());
        }
        let fences = session.channel.is_some();
        Ok(Connected { link: Link::begin(stream, Arc::new(session), stall), fences })
    }

    fn path_name(&self, path: usize) -> String {
        self.paths.get(path).map_or_else(String::new, |path| path.name.clone())
    }

    fn probe(&self) -> Asked {
        Asked::order(Command::Read, 0, (0, self.session.export.block_sizes.minimum.max(512).into()))
    }

    fn flush(&self) -> Asked {
        Asked::order(Command::Flush, 0, (0, 0))
    }
}

/// Why an export cannot be the one that was opened. It may have grown.
fn difference(before: &Session, now: &Session) -> Option<String> {
    let (old, new) = (&before.export, &now.export);
    if new.bytes < old.bytes {
        return Some(format!("it has {} bytes instead of {}", new.bytes, old.bytes));
    }
    if new.flags & !transmission::SEND_DF != old.flags & !transmission::SEND_DF {
        return Some(format!("its flags are 0x{:x} instead of 0x{:x}", new.flags, old.flags));
    }
    if new.block_sizes != old.block_sizes {
        return Some("its block sizes differ".to_owned());
    }
    (before.allocation.is_some() && now.allocation.is_none()).then(|| "it tells no holes any more".to_owned())
}

async fn connect(
    address: SocketAddr,
    options: &StreamOptions,
    export: &str,
    channel: ChannelName,
    timeout: Duration,
) -> Result<(Box<dyn Stream>, Session), OpenError> {
    let connected = async {
        let stream = reactor::world().connect(address, options).map_err(Failure::Socket)?;
        let session = shake_hands(&*stream, export, channel).await?;
        Ok((stream, session))
    };
    match reactor::timeout(timeout, connected).await {
        Ok(Ok(connected)) => Ok(connected),
        Ok(Err(Failure::Socket(error))) => Err(OpenError::Connection(address, error)),
        Ok(Err(Failure::Refused(refused))) => Err(OpenError::Refused(address, refused)),
        Err(_) => Err(OpenError::TimedOut(address)),
    }
}

/// A server of another protocol waits for the client's first bytes or closes, and so does one that does not let this host in.
fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "the server closed the connection during the handshake: it is no NBD server, or does not accept this host",
        ),
        _ => error,
    }
}

async fn shake_hands(stream: &dyn Stream, export: &str, channel: ChannelName) -> Result<Session, Failure> {
    let mut machine = ClientHandshake::new(export).named(channel);
    let (mut received, mut sent) = (Vec::new(), Vec::new());
    loop {
        received.resize(machine.wanted(), 0);
        stream.read_exact(&mut received).await.map_err(|error| Failure::Socket(explained(error)))?;
        match machine.take(&received, &mut sent).map_err(Failure::Refused)? {
            ClientStep::Continue => stream.write_all(&sent).await.map_err(Failure::Socket)?,
            ClientStep::Transmission(session) => return Ok(session),
        }
        sent.clear();
    }
}
