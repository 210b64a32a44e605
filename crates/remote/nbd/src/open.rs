//! Opening an export: paths, connections, handshakes.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use block::BlockSize;
use derive_more::Display;
use failover::{Channels, Connected, JournalFileError, Name, Settings, Transport};
use nbd::flags::transmission;
use nbd::{
    BlockSizes, ChannelName, ClientHandshake, ClientStep, Command, PAYLOAD_BYTES_MAX, Refused, Session,
};
use reactor::{Stream, StreamOptions};

use crate::export::RemoteExport;
use crate::link::Link;
use crate::request::Asked;
use crate::url::Url;

/// Fills a slice with fresh random bytes, which must not be predictable.
pub type Random = fn(&mut [u8]);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// By TCP.
    Tcp(SocketAddr),
    /// On a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Why an export could not be opened.
#[derive(Debug, Display)]
pub enum OpenError {
    /// The name of the host has no address.
    #[display("{_0}: {_1}")]
    Resolve(String, io::Error),
    /// No connection, or it was lost.
    #[display("{_0}: {_1}")]
    Connection(Address, io::Error),
    /// No connection, or no answer, in time.
    #[display("{_0}: no answer in time")]
    TimedOut(Address),
    /// The server has no session for this client.
    #[display("{_0}: {_1}")]
    Refused(Address, Refused),
    /// It is not the export that it was: a part of it is gone, or what can be asked of it differs.
    #[display("{_0}: the export is another one than before: {_1}")]
    Changed(Address, String),
    /// The connection is not encrypted, or one end does not believe the other.
    #[display("{_0}: {_1}")]
    Tls(Address, tls::Failure),
    /// The journal file cannot be used.
    #[display("{_0}")]
    JournalFile(JournalFileError),
    /// The export has no byte.
    #[display("the export has {_0} bytes")]
    Empty(u64),
    /// The export ends within a block, and would be used in whole blocks.
    #[display(
        "the export has {bytes} bytes, which is no multiple of its blocks of {block_bytes}: what counts in blocks would cut its end off. \
         copy, read, write and attach use it to the byte"
    )]
    Ragged {
        /// Its length.
        bytes: u64,
        /// The length of a block.
        block_bytes: u32,
    },
    /// The export ends within a block of which the server lets nobody read a part.
    #[display(
        "the export has {bytes} bytes, and its server accepts only requests of multiples of {minimum}: its last {} bytes cannot be reached",
        bytes % u64::from(*minimum)
    )]
    Unreachable {
        /// Its length.
        bytes: u64,
        /// The minimum block size that the server tells.
        minimum: u32,
    },
}

impl std::error::Error for OpenError {}

enum Failure {
    Socket(io::Error),
    Refused(Refused),
    Tls(tls::Failure),
}

impl From<io::Error> for Failure {
    /// A server says after the handshake of TLS that it refuses the client.
    fn from(error: io::Error) -> Failure {
        match error.downcast::<tls::Failure>() {
            Ok(failure) => Failure::Tls(failure),
            Err(error) => Failure::Socket(error),
        }
    }
}

/// A way to the server.
struct Path {
    name: String,
    /// The addresses of its host, or a socket: the first that answers is used.
    addresses: Vec<Address>,
    options: StreamOptions,
    credentials: Option<tls::Client>,
}

/// How connections to an export are made.
pub(crate) struct Export {
    url: Url,
    paths: Vec<Path>,
    session: Arc<Session>,
}

/// Connects to an export, by TLS with `credentials`, which are those of the URL's files. Its connections live on the reactor of
/// this thread, which must run for as long as the device is in use. `random` gives the session the name by which alone a server
/// ends its connections, so others must not be able to guess it.
///
/// # Errors
/// Why not, for the address that came furthest.
pub async fn open(
    url: &Url,
    credentials: Option<&tls::Client>,
    random: Random,
) -> Result<RemoteExport, OpenError> {
    let paths = paths(url, credentials).await?;
    let (mut session, mut seed) = ([0; 16], [0; 8]);
    random(&mut session);
    random(&mut seed);
    let (seed, id) = (u64::from_le_bytes(seed), Name { session: u128::from_le_bytes(session), number: 0 });
    let machine = || ClientHandshake::new(&url.export).named(channel(id, &[]));
    match first_of(&paths, url, machine).await? {
        (path, _, Reached::Export(stream, session)) => {
            join(url, paths, path, stream, session, (id.session, seed)).await
        }
        (_, address, Reached::List(_)) => Err(OpenError::Refused(address, UNASKED)),
    }
}

/// The exports that the server of a URL tells of, names and descriptions.
///
/// # Errors
/// As [`open`].
pub async fn list(url: &Url, credentials: Option<&tls::Client>) -> Result<Vec<(String, String)>, OpenError> {
    match first_of(&paths(url, credentials).await?, url, ClientHandshake::lister).await? {
        (.., Reached::List(list)) => Ok(list),
        (_, address, Reached::Export(..)) => Err(OpenError::Refused(address, UNASKED)),
    }
}

/// A handshake ends as it was asked to.
const UNASKED: Refused = Refused::Violation("the handshake ended with something else");

/// What a handshake came to.
enum Reached {
    Export(Box<dyn Stream>, Session),
    List(Vec<(String, String)>),
}

/// Shakes hands by the first path on which somebody answers.
async fn first_of(
    paths: &[Path],
    url: &Url,
    machine: impl Fn() -> ClientHandshake,
) -> Result<(usize, Address, Reached), OpenError> {
    let mut failure = None;
    for (number, path) in paths.iter().enumerate() {
        match path.connect(&machine, url.options.timeout).await {
            Ok((address, reached)) => return Ok((number, address, reached)),
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
    (id, seed): (u128, u64),
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
        writers: options.writers,
        session: id,
        seed,
    };
    let session = Arc::new(session);
    let link = Link::begin(stream, Arc::clone(&session), options.stall());
    let (fences, not_ended) = (session.channel.is_some(), Vec::new());
    let first = Connected { link, fences, not_ended, start: start_of(&session) };
    let export = Export { url: url.clone(), paths, session: Arc::clone(&session) };
    let channels = Channels::new(export, settings, first, path);
    channels.tried().await;
    let export = RemoteExport::new(channels, &session, options)?;
    export.recover(url).await?;
    Ok(export)
}

fn channel(name: Name, ended: &[u64]) -> ChannelName {
    ChannelName { session: name.session, number: name.number, ended: ended.to_vec(), start: 0, volume: None }
}

/// The host of the URL, and its other addresses, each from its own address of this machine if they are named; or the Unix socket.
async fn paths(url: &Url, credentials: Option<&tls::Client>) -> Result<Vec<Path>, OpenError> {
    let options = &url.options;
    let path = |name, addresses, source: Option<&SocketAddr>| Path {
        name,
        addresses,
        options: StreamOptions {
            congestion: options.congestion.clone(),
            source: source.copied(),
            ..StreamOptions::default()
        },
        credentials: credentials.cloned(),
    };
    if let Some(socket) = &url.socket {
        return Ok(vec![path(socket.display().to_string(), vec![Address::Unix(socket.clone())], None)]);
    }
    let mut hosts = vec![(url.host.as_str(), url.port)];
    hosts.extend(options.addresses.iter().map(|(host, port)| (host.as_str(), *port)));
    let mut paths = Vec::new();
    for number in 0..hosts.len().max(options.sources.len()) {
        let (host, port) = hosts[number % hosts.len()];
        let resolved = reactor::resolve(host, port).await;
        let resolved = resolved.map_err(|error| OpenError::Resolve(host.to_owned(), error))?;
        let source = options.sources.get(number % options.sources.len().max(1));
        let from = source.map_or_else(String::new, |source| format!(" from {}", source.ip()));
        let addresses = resolved.into_iter().map(Address::Tcp).collect();
        paths.push(path(format!("{}:{port}{from}", reactor::bracketed(host)), addresses, source));
    }
    Ok(paths)
}

impl Path {
    async fn connect(
        &self,
        machine: impl Fn() -> ClientHandshake,
        timeout: Duration,
    ) -> Result<(Address, Reached), OpenError> {
        let mut failure = None;
        for address in &self.addresses {
            match self.connect_to(address, machine(), timeout).await {
                Ok(reached) => return Ok((address.clone(), reached)),
                Err(error) => failure = Some(error),
            }
        }
        let none = || OpenError::Resolve(self.name.clone(), io::ErrorKind::AddrNotAvailable.into());
        Err(failure.unwrap_or_else(none))
    }

    async fn connect_to(
        &self,
        address: &Address,
        machine: ClientHandshake,
        timeout: Duration,
    ) -> Result<Reached, OpenError> {
        let connected = async {
            let stream = match address {
                Address::Tcp(address) => reactor::world().connect(*address, &self.options),
                Address::Unix(path) => reactor::world().connect_local(path),
            };
            shake_hands(stream.map_err(Failure::Socket)?, machine, self.credentials.as_ref()).await
        };
        match reactor::timeout(timeout, connected).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(Failure::Socket(error))) => Err(OpenError::Connection(address.clone(), error)),
            Ok(Err(Failure::Refused(refused))) => Err(OpenError::Refused(address.clone(), refused)),
            Ok(Err(Failure::Tls(failure))) => Err(OpenError::Tls(address.clone(), failure)),
            Err(_) => Err(OpenError::TimedOut(address.clone())),
        }
    }
}

impl Transport for Export {
    type Link = Link;

    async fn connect(&self, path: usize, name: Name, ended: &[u64]) -> Result<Connected<Link>, String> {
        let stall = self.url.options.stall();
        let machine = || ClientHandshake::new(&self.url.export).named(channel(name, ended));
        let connected = self.paths[path].connect(machine, stall).await.map_err(|error| error.to_string())?;
        let (address, Reached::Export(stream, session)) = connected else { return Err(UNASKED.to_string()) };
        if let Some(why) = difference(&self.session, &session) {
            return Err(OpenError::Changed(address, why).to_string());
        }
        let (fences, start) = (session.channel.is_some(), start_of(&session));
        let link = Link::begin(stream, Arc::new(session), stall);
        Ok(Connected { link, fences, not_ended: Vec::new(), start })
    }

    fn path_name(&self, path: usize) -> String {
        self.paths.get(path).map_or_else(String::new, |path| path.name.clone())
    }

    fn probe(&self) -> Asked {
        Asked::order(Command::Read, 0, (0, self.session.export.block_sizes.minimum.max(512).into()))
    }

    fn read(&self, range: Range<u64>) -> Asked {
        Asked::order(Command::Read, 0, (range.start, range.end - range.start))
    }

    fn read_bytes_max(&self) -> u64 {
        payload_bytes_max(&self.session.export.block_sizes).into()
    }

    fn flush(&self) -> Asked {
        Asked::order(Command::Flush, 0, (0, 0))
    }
}

/// A server advertises its minimum block size; disks have 512 bytes or more.
pub(crate) fn block_size(sizes: &BlockSizes) -> BlockSize {
    BlockSize::new(sizes.minimum).unwrap_or(BlockSize::B512)
}

/// The longest data of a request: whole blocks.
pub(crate) fn payload_bytes_max(sizes: &BlockSizes) -> u32 {
    let block = block_size(sizes).bytes();
    let longest = sizes.maximum.clamp(block, PAYLOAD_BYTES_MAX);
    longest - longest % block
}

/// The start of a server that tells of it.
fn start_of(session: &Session) -> Option<u128> {
    session.channel.as_ref().map(|channel| channel.start)
}

/// Why an export cannot be the one that was opened. It may have grown.
fn difference(before: &Session, now: &Session) -> Option<String> {
    let volume = |session: &Session| session.channel.as_ref().and_then(|channel| channel.volume);
    // A server that does not tell it may be an older one, after an update or before.
    if let (Some(old), Some(new)) = (volume(before), volume(now))
        && old != new
    {
        return Some("it is another volume".to_owned());
    }
    let (old, new) = (&before.export, &now.export);
    if new.bytes < old.bytes {
        return Some(format!("it has {} bytes instead of {}", new.bytes, old.bytes));
    }
    if new.flags & !transmission::SEND_DF != old.flags & !transmission::SEND_DF {
        return Some(format!("its flags are 0x{:x} instead of 0x{:x}", new.flags, old.flags));
    }
    // The preferred size is a hint.
    let limits = |sizes: &BlockSizes| (sizes.minimum, sizes.maximum);
    if limits(&new.block_sizes) != limits(&old.block_sizes) {
        return Some("its block sizes differ".to_owned());
    }
    (before.allocation.is_some() && now.allocation.is_none()).then(|| "it tells no holes any more".to_owned())
}

/// A server of another protocol waits for the client's first bytes or closes, and so does one that does not let this host in.
fn explained(error: io::Error, is_encrypted: bool) -> io::Error {
    if error.kind() != io::ErrorKind::UnexpectedEof {
        return error;
    }
    let why = match is_encrypted {
        false => "it is no NBD server, or does not accept this host",
        true => "it may want a certificate of the client, or another one",
    };
    io::Error::new(error.kind(), format!("the server closed the connection during the handshake: {why}"))
}

async fn shake_hands(
    mut stream: Box<dyn Stream>,
    machine: ClientHandshake,
    credentials: Option<&tls::Client>,
) -> Result<Reached, Failure> {
    let mut machine = if credentials.is_some() { machine.over_tls() } else { machine };
    let (mut received, mut sent, mut is_encrypted) = (Vec::new(), Vec::new(), false);
    loop {
        received.resize(machine.wanted(), 0);
        stream.read_exact(&mut received).await.map_err(|error| explained(error, is_encrypted))?;
        match machine.take(&received, &mut sent).map_err(Failure::Refused)? {
            ClientStep::Continue => {}
            ClientStep::StartTls => {
                // Only a machine that was made for it asks for it.
                let Some(credentials) = credentials else {
                    return Err(Failure::Refused(Refused::TlsRequired));
                };
                stream = Box::new(tls::connect(stream, credentials).await.map_err(Failure::Tls)?);
                is_encrypted = true;
                machine.encrypted(&mut sent);
            }
            ClientStep::Transmission(session) => return Ok(Reached::Export(stream, session)),
            ClientStep::Listed(list) => {
                let _ = stream.write_all(&sent).await; // it may have closed already
                return Ok(Reached::List(list));
            }
        }
        stream.write_all(&sent).await?;
        sent.clear();
    }
}

#[cfg(test)]
mod tests {
    use nbd::ReplyForm;

    use super::*;

    #[test]
    fn another_volume_of_the_same_size_is_refused() {
        let session = |volume| Session {
            export: nbd::Export {
                name: "disk".to_owned(),
                description: String::new(),
                bytes: 1 << 20,
                flags: transmission::HAS_FLAGS,
                block_sizes: BlockSizes { minimum: 1, preferred: 4096, maximum: 32 << 20 },
            },
            form: ReplyForm::Extended,
            allocation: None,
            channel: Some(ChannelName { session: 1, number: 0, ended: Vec::new(), start: 5, volume }),
        };
        assert!(difference(&session(Some(1)), &session(Some(2))).is_some());
        for (before, now) in [(Some(1), Some(1)), (None, Some(2)), (Some(1), None)] {
            assert_eq!(difference(&session(before), &session(now)), None, "{before:?} {now:?}");
        }
    }
}
