//! `[metrics] listen`: `/metrics` and `/healthz` over HTTP, on a thread aside.
//!
//! There is no access control, so the cost of a client is bounded: connections in total and by address, the time of
//! each, one request per connection, the size of its header. The cores are sampled for one request at a time.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use server::{AddressBlock, Counts};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::live::Live;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Of one address or IPv6 network (/64): one host that opens connections and sends nothing leaves room for others.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 8;
/// For a request's header to arrive.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// For a connection, from its first byte to the last of the reply.
const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// A request's header, and what is sent at a time.
const BUFFER_BYTES: usize = 16 << 10;
/// Lines of a header.
const HEADERS_MAX: usize = 64;
/// Threads that wait for cores. One request is served at a time; another waits for its turn.
const WAITING_THREADS: usize = 2;
/// After an error of accept(2): out of descriptors, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address that is listened on, and not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: TcpListener,
}

/// A server of metrics, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Bound {
    /// Listens on this address.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Bound> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        let listener = TcpListener::bind(address).map_err(named)?;
        listener.set_nonblocking(true)?;
        Ok(Bound { listener })
    }

    /// Serves the metrics of this server.
    pub(crate) fn serve(self, live: Weak<Live>) -> io::Result<Endpoint> {
        let address = self.listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WAITING_THREADS)
            .thread_name("metrics wait")
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let work = move || {
            runtime.block_on(async {
                let serving = tokio::spawn(accept(self.listener, live));
                // Ends when the sender is dropped: nothing is ever sent.
                let _ = stopped.await;
                serving.abort();
            });
            // What waits for a core is left to itself.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("metrics".to_owned()).spawn(work)?;
        Ok(Endpoint { address, _stop: stop })
    }
}

impl Endpoint {
    /// Where it listens, with the port that was taken.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Open connections by address.
type Connections = Arc<Mutex<Counts>>;

/// A connection that is counted until this is dropped.
struct ConnectionSlot {
    connections: Connections,
    from: AddressBlock,
}

impl ConnectionSlot {
    fn take(connections: &Connections, from: SocketAddr) -> Option<ConnectionSlot> {
        let from = AddressBlock::containing(from.ip());
        let mut counts = lock(connections);
        if counts.all() == CONNECTIONS_MAX || counts.count_of(from) == CONNECTIONS_OF_ADDRESS_MAX {
            return None;
        }
        counts.add(from);
        Some(ConnectionSlot { connections: Arc::clone(connections), from })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.connections).remove(self.from);
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, Counts> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, live: Weak<Live>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "metrics are not served"),
    };
    let connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match ConnectionSlot::take(&connections, from) {
                Some(slot) => drop(tokio::spawn(attend(stream, live.clone(), slot))),
                None => tracing::debug!(%from, "too many connections for metrics"),
            },
            Err(error) => {
                tracing::debug!(%error, "no connection for metrics");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One request, and its reply.
async fn attend(stream: TcpStream, live: Weak<Live>, slot: ConnectionSlot) {
    let service = service_fn(move |request| answer(live.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a client of the metrics"),
        Err(_) => tracing::debug!("a client of the metrics took too long"),
    }
    drop(slot);
}

type Reply = Response<Full<Bytes>>;

async fn answer(live: Weak<Live>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(reply);
    }
    let ask: fn(&Live) -> Reply = match request.uri().path() {
        "/metrics" => |live| reply(StatusCode::OK, PROMETHEUS, live.metrics()),
        "/healthz" => |live| {
            let health = live.health();
            let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            // Strings and a flag always make JSON.
            let text = serde_json::to_string(&health).unwrap_or_default();
            reply(status, "application/json", text + "\n")
        },
        _ => return Ok(plain(StatusCode::NOT_FOUND, "there are /metrics and /healthz\n")),
    };
    let waiting = tokio::task::spawn_blocking(move || live.upgrade().map(|live| ask(&live)));
    let ended = || plain(StatusCode::SERVICE_UNAVAILABLE, "the server ends\n");
    Ok(waiting.await.ok().flatten().unwrap_or_else(ended))
}

/// The text format of Prometheus.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

fn plain(status: StatusCode, text: &str) -> Reply {
    reply(status, "text/plain; charset=utf-8", text.to_owned())
}

fn reply(status: StatusCode, content_type: &'static str, text: String) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
