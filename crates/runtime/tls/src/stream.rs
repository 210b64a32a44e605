//! An encrypted stream, and the handshakes that establish it.

use std::cell::{RefCell, RefMut};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use reactor::{Detached, InSlice, OutSlice, PathInfo, Stream};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

use crate::credentials::{Client, Server, names_of};
use crate::failure::Failure;
use crate::session::{Machine, Progress, Session};

/// Time for a rejected peer to read the alert. Closing a connection before the peer's data has been read
/// would reset it, and the peer might not receive the alert.
const ALERT_TIME: Duration = Duration::from_secs(1);

/// A stream after a successful handshake. Dropping it sends a close_notify alert.
pub struct TlsStream {
    /// `None` only during `detach`.
    parts: Option<Parts>,
}

struct Parts {
    inner: Box<dyn Stream>,
    session: RefCell<Session>,
}

/// An encrypted stream in transit between two threads.
struct DetachedTls {
    inner: Detached,
    session: Session,
}

/// Performs the server's side of a handshake on a stream from which nothing has been read.
///
/// # Errors
/// The handshake failed; the client has received an alert.
pub async fn accept(stream: Box<dyn Stream>, server: &Server) -> Result<TlsStream, Failure> {
    let machine = UnbufferedServerConnection::new(Arc::clone(&server.config))?;
    shake_hands(stream, Machine::Server(machine)).await
}

/// Performs the client's side of a handshake on a stream from which nothing has been read. If the server
/// rejects the client's certificate, the handshake succeeds, and one of the first reads fails.
///
/// # Errors
/// The handshake failed; the server has received an alert.
pub async fn connect(stream: Box<dyn Stream>, client: &Client) -> Result<TlsStream, Failure> {
    let machine = UnbufferedClientConnection::new(Arc::clone(&client.config), client.name.clone())?;
    shake_hands(stream, Machine::Client(machine)).await
}

/// Attaches a stream that another thread has detached, whether encrypted or not, to this thread.
///
/// # Errors
/// The same as for [`reactor::World::adopt`].
pub fn adopt(stream: Detached) -> io::Result<Box<dyn Stream>> {
    match stream.downcast::<DetachedTls>() {
        Ok(detached) => {
            let DetachedTls { inner, session } = *detached;
            Ok(Box::new(TlsStream::new(
                reactor::world().adopt(inner)?,
                session,
            )))
        }
        Err(plain) => reactor::world().adopt(plain),
    }
}

async fn shake_hands(stream: Box<dyn Stream>, machine: Machine) -> Result<TlsStream, Failure> {
    let mut session = Session::new(machine);
    loop {
        let is_over = match session.shake_hands(&*stream) {
            Ok(Progress::Received(bytes)) => {
                reactor::consume_budget(bytes).await; // a peer may send endlessly
                continue;
            }
            Ok(Progress::Blocked) => false,
            Ok(Progress::Over) => true,
            Err(failure) => {
                session.send_alert(&*stream);
                let _ = reactor::timeout(ALERT_TIME, drain(&*stream)).await;
                return Err(failure);
            }
        };
        let is_sent = session.flush(&*stream)?;
        if is_over && is_sent {
            return Ok(TlsStream::new(stream, session));
        }
        // Also wait for received data: if both ends have data to send and each waits only for buffer space,
        // neither reads.
        poll_fn(|cx| match is_sent {
            false if stream.poll_writable(cx)?.is_ready() => Poll::Ready(Ok(())),
            _ if is_over => Poll::Pending,
            _ => stream.poll_readable(cx),
        })
        .await?;
    }
}

/// Reads until the peer closes or a timeout expires.
async fn drain(stream: &dyn Stream) {
    let mut scrap = [0; 1024];
    for _ in 0..64 {
        if stream.read_exact(&mut scrap).await.is_err() {
            return;
        }
    }
}

impl TlsStream {
    fn new(inner: Box<dyn Stream>, session: Session) -> TlsStream {
        TlsStream {
            parts: Some(Parts {
                inner,
                session: RefCell::new(session),
            }),
        }
    }

    fn parts(&self) -> &Parts {
        // Only `detach` removes the parts, and it consumes the stream.
        self.parts.as_ref().expect("a stream that is not detached")
    }

    fn inner(&self) -> &dyn Stream {
        &*self.parts().inner
    }

    fn session(&self) -> RefMut<'_, Session> {
        self.parts().session.borrow_mut()
    }

    /// The names in the peer's certificate: its subject's common names, then its DNS names. Empty if the peer
    /// has presented no certificate.
    pub fn peer_names(&self) -> Vec<String> {
        self.session()
            .peer_certificate()
            .map(names_of)
            .unwrap_or_default()
    }

    /// The cipher suite in use, for example `TLS13_AES_256_GCM_SHA384`.
    pub fn cipher(&self) -> String {
        self.session()
            .cipher()
            .map_or_else(String::new, |suite| format!("{suite:?}"))
    }
}

impl Stream for TlsStream {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        self.session().read(self.inner(), into)
    }

    fn readable_bytes(&self) -> usize {
        self.session().readable_bytes()
    }

    /// After `WouldBlock` the caller must pass the same bytes again, because they are already encrypted; more
    /// bytes may follow them.
    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        self.session().write(self.inner(), from)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session().take_pause() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.session().may_have_more() {
            true => Poll::Ready(Ok(())),
            false => self.inner().poll_readable(cx),
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_writable(cx)
    }

    fn peer(&self) -> SocketAddr {
        self.inner().peer()
    }

    fn local(&self) -> SocketAddr {
        self.inner().local()
    }

    fn shutdown(&self) {
        self.session().close(self.inner());
        self.inner().shutdown();
    }

    fn reset(&self) {
        self.inner().reset(); // no close_notify: unsent data must be discarded
    }

    fn path(&self) -> Option<PathInfo> {
        self.inner().path()
    }

    fn detach(mut self: Box<Self>) -> Detached {
        let Parts { inner, session } = self.parts.take().expect("a stream that is not detached");
        Box::new(DetachedTls {
            inner: inner.detach(),
            session: session.into_inner(),
        })
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if let Some(Parts { inner, session }) = &self.parts {
            session.borrow_mut().close(&**inner);
        }
    }
}
