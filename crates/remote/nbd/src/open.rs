//! Opening an export: addresses, connections, handshakes.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;

use derive_more::Display;
use nbd::flags::transmission;
use nbd::{ClientHandshake, ClientStep, Refused, Session};
use reactor::{Stream, StreamOptions};

use crate::export::RemoteExport;
use crate::link::Link;
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
    /// The export has less than a block.
    #[display("the export has {_0} bytes, less than a block")]
    Empty(u64),
}

impl std::error::Error for OpenError {}

enum Failure {
    Socket(io::Error),
    Refused(Refused),
}

/// Connects to an export. Its connections live on the reactor of this thread, which must run for as long as
/// the device is in use. Resolving the host's name blocks the thread; addresses do not.
///
/// # Errors
/// Why not, for the address that came furthest.
pub async fn open(url: &Url) -> Result<RemoteExport, OpenError> {
    let resolved = (url.host.as_str(), url.port).to_socket_addrs();
    let addresses = resolved.map_err(|error| OpenError::Resolve(url.host.clone(), error))?;
    let mut failure = None;
    for address in addresses {
        match connect(address, url).await {
            Ok((stream, session)) => return join(address, url, stream, session).await,
            Err(error) => failure = Some(error),
        }
    }
    let none = || OpenError::Resolve(url.host.clone(), io::ErrorKind::AddrNotAvailable.into());
    Err(failure.unwrap_or_else(none))
}

/// Adds the other connections to the first one.
async fn join(
    address: SocketAddr,
    url: &Url,
    stream: Box<dyn Stream>,
    session: Session,
) -> Result<RemoteExport, OpenError> {
    let session = Arc::new(session);
    let timeout = url.options.timeout;
    let mut links = vec![Link::begin(stream, Arc::clone(&session), timeout)];
    let may_be_many = session.export.flags & transmission::CAN_MULTI_CONN != 0;
    let count = if may_be_many { url.options.connections } else { 1 };
    if count < url.options.connections {
        tracing::warn!(export = %url, "the server does not say that several connections see one cache; one is used");
    }
    while links.len() < count {
        let (stream, session) = connect(address, url).await?;
        links.push(Link::begin(stream, Arc::new(session), timeout));
    }
    RemoteExport::new(links.into_iter().collect::<Vec<Rc<Link>>>(), &session)
}

async fn connect(address: SocketAddr, url: &Url) -> Result<(Box<dyn Stream>, Session), OpenError> {
    let connected = async {
        let options =
            StreamOptions { congestion: url.options.congestion.clone(), ..StreamOptions::default() };
        let stream = reactor::world().connect(address, &options).map_err(Failure::Socket)?;
        let session = shake_hands(&*stream, &url.export).await?;
        Ok((stream, session))
    };
    match reactor::timeout(url.options.timeout, connected).await {
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

async fn shake_hands(stream: &dyn Stream, export: &str) -> Result<Session, Failure> {
    let mut machine = ClientHandshake::new(export);
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
