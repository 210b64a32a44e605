//! `[metrics] listen`: `/metrics` and `/healthz` over HTTP, on a separate thread.
//!
//! There is no access control, so the cost of clients is limited: connections in total, per address and per
//! second, the duration of each connection, requests per second, and the size of their headers. Cores are
//! queried for one page at a time and for a few pages a second ([`Pages`]), regardless of the number of
//! scrapes. Clients such as Prometheus may reuse a connection, which takes a fraction of the time of a new
//! connection.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use backends::Failure;
use front_end_core::{AddressBlock, Counts};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::timeout;

use super::Health;

const CONNECTIONS_MAX: usize = 64;
/// Maximum connections of one address or IPv6 network (/64), so that a host that opens connections and sends
/// nothing does not block other hosts.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 8;
/// Maximum connections per second, and the size of a burst. Further connections wait in the kernel's queue.
const CONNECTIONS_PER_SECOND: u32 = 1000;
const CONNECTIONS_BURST: u32 = 100;
/// Maximum pages per second for which cores are queried, and the size of a burst. Further scrapes receive the
/// latest page.
const PAGES_PER_SECOND: u32 = 5;
const PAGES_BURST: u32 = 10;
/// Maximum requests per second of all connections, and the size of a burst. Further requests wait.
const REQUESTS_PER_SECOND: u32 = 1000;
const REQUESTS_BURST: u32 = 100;
/// Time limit for the first request of a connection.
const FIRST_TIME: Duration = Duration::from_secs(5);
/// Time limit for the next request, from the previous reply. It is longer than Prometheus' scrape interval,
/// which is usually a minute or less.
const NEXT_TIME: Duration = Duration::from_secs(75);
/// After this time, a connection is closed at the end of the current reply.
const CONNECTION_TIME: Duration = Duration::from_secs(300);
/// Time limit for the client to read that last reply.
const LAST_TIME: Duration = Duration::from_secs(30);
/// Maximum size of a request's header, and of the data sent in one piece.
const BUFFER_BYTES: usize = 16 << 10;
/// Maximum number of header lines.
const HEADERS_MAX: usize = 64;
/// Number of threads that wait for cores: one for a page of metrics, one for health.
const WAITING_THREADS: usize = 2;
/// Pause after an error of accept(2), for example when no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server whose metrics and health are exposed.
pub(crate) trait Monitored: Send + Sync {
    /// Its page of metrics. May block for up to one second.
    fn metrics(&self) -> String;

    /// Its health. Does not block.
    fn health(&self) -> Health;
}

/// An address that is bound but not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: TcpListener,
}

/// A metrics server. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Bound {
    pub(crate) fn new(address: SocketAddr) -> Result<Bound, Failure> {
        let failed =
            |error: String| Failure::refused(format!("cannot listen for [metrics] on {error}"));
        let listener =
            TcpListener::bind(address).map_err(|error| failed(format!("{address}: {error}")))?;
        listener
            .set_nonblocking(true)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Bound { listener })
    }

    /// Serves the metrics of this server.
    pub(crate) fn serve(self, live: Weak<dyn Monitored>) -> io::Result<Endpoint> {
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
                // Nothing is ever sent: this resolves when the sender is dropped.
                let _ = stopped.await;
                serving.abort();
            });
            // Do not wait for threads that still wait for a core.
            runtime.shutdown_background();
        };
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(work)?;
        Ok(Endpoint {
            address,
            _stop: stop,
        })
    }
}

impl Endpoint {
    /// The address that it listens on, with the actual port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

type Connections = Arc<Mutex<Counts>>;

/// Counts a connection until it is dropped.
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
        debug_assert!(
            counts.all() <= CONNECTIONS_MAX && counts.count_of(from) <= CONNECTIONS_OF_ADDRESS_MAX
        );
        Some(ConnectionSlot {
            connections: Arc::clone(connections),
            from,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = lock(&self.connections);
        debug_assert!(
            counts.count_of(self.from) > 0,
            "a connection is counted until this is dropped"
        );
        counts.remove(self.from);
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, Counts> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, live: Weak<dyn Monitored>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "metrics are not served"),
    };
    let (connections, pages) = (Connections::default(), Arc::new(Pages::new(live)));
    let mut bucket = Bucket::new(Instant::now(), CONNECTIONS_BURST, CONNECTIONS_PER_SECOND);
    loop {
        while let Err(wait) = bucket.take(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
        match listener.accept().await {
            Ok((stream, from)) => match ConnectionSlot::take(&connections, from) {
                Some(slot) => drop(tokio::spawn(attend(stream, Arc::clone(&pages), slot))),
                None => tracing::debug!(%from, "too many metrics connections"),
            },
            Err(error) => {
                tracing::debug!(%error, "cannot accept a metrics connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection's requests in sequence.
async fn attend(stream: TcpStream, pages: Arc<Pages>, slot: ConnectionSlot) {
    let has_asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        has_asked.store(true, Relaxed);
        answer(Arc::clone(&pages), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(NEXT_TIME)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut ended = timeout(FIRST_TIME, connection.as_mut()).await;
    if ended.is_err() && has_asked.load(Relaxed) {
        ended = timeout(CONNECTION_TIME, connection.as_mut()).await;
        if ended.is_err() {
            connection.as_mut().graceful_shutdown();
            ended = timeout(LAST_TIME, connection).await;
        }
    }
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a client of the metrics"),
        Err(_) => tracing::debug!("a metrics client timed out"),
    }
    drop(slot);
}

type Reply = Response<Full<Bytes>>;

/// The monitored server, and its latest page of metrics.
struct Pages {
    live: Weak<dyn Monitored>,
    latest: AsyncMutex<Latest>,
    requests: AsyncMutex<Bucket>,
}

struct Latest {
    page: Option<Bytes>,
    bucket: Bucket,
}

impl Pages {
    fn new(live: Weak<dyn Monitored>) -> Pages {
        let bucket = Bucket::new(Instant::now(), PAGES_BURST, PAGES_PER_SECOND);
        let requests = Bucket::new(Instant::now(), REQUESTS_BURST, REQUESTS_PER_SECOND);
        let latest = Latest { page: None, bucket };
        Pages {
            live,
            latest: AsyncMutex::new(latest),
            requests: AsyncMutex::new(requests),
        }
    }

    /// Returns a new page, or the latest one if the rate limit is reached; `None` if the server is shutting
    /// down.
    async fn metrics(&self) -> Option<Bytes> {
        let mut latest = self.latest.lock().await;
        if latest.bucket.take(Instant::now()).is_ok() || latest.page.is_none() {
            latest.page = self.ask(|live| live.metrics().into()).await;
        }
        latest.page.clone()
    }

    async fn ask<T: Send + 'static>(&self, question: fn(&dyn Monitored) -> T) -> Option<T> {
        let live = Weak::clone(&self.live);
        tokio::task::spawn_blocking(move || live.upgrade().map(|live| question(&*live)))
            .await
            .ok()
            .flatten()
    }
}

async fn answer(pages: Arc<Pages>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    // Wait for this request's turn, in order of arrival.
    let mut requests = pages.requests.lock().await;
    while let Err(wait) = requests.take(Instant::now()) {
        tokio::time::sleep(wait).await;
    }
    drop(requests);
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut reply = plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are supported\n",
        );
        reply
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(reply);
    }
    let answer = match request.uri().path() {
        "/metrics" => pages
            .metrics()
            .await
            .map(|page| reply(StatusCode::OK, PROMETHEUS, page)),
        "/healthz" => pages.ask(|live| live.health()).await.map(|health| {
            let status = if health.healthy {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            // This cannot fail, because strings and a flag are always valid in JSON.
            let text = serde_json::to_string(&health).unwrap_or_default();
            reply(status, "application/json", (text + "\n").into())
        }),
        _ => Some(plain(
            StatusCode::NOT_FOUND,
            "not found; use /metrics or /healthz\n",
        )),
    };
    Ok(answer.unwrap_or_else(|| {
        plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server is shutting down\n",
        )
    }))
}

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

fn plain(status: StatusCode, text: &'static str) -> Reply {
    reply(status, "text/plain; charset=utf-8", text.into())
}

fn reply(status: StatusCode, content_type: &'static str, text: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(text));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// A token bucket: requests take tokens, which are refilled over time.
#[derive(Debug)]
struct Bucket {
    most: f64,
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(now: Instant, most: u32, per_second: u32) -> Bucket {
        let most = f64::from(most);
        Bucket {
            most,
            per_second: f64::from(per_second),
            tokens: most,
            filled: now,
        }
    }

    /// Takes a token; the error is the time until one is available.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let time = now.saturating_duration_since(self.filled);
        self.tokens = (self.tokens + time.as_secs_f64() * self.per_second).min(self.most);
        self.filled = now;
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64(
                (1.0 - self.tokens) / self.per_second,
            ));
        }
        debug_assert!(
            (1.0..=self.most).contains(&self.tokens),
            "there is at least one, and at most a burst"
        );
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_many_a_second() {
        let mut now = Instant::now();
        let mut bucket = Bucket::new(now, 3, 10);
        assert_eq!((0..10).filter(|_| bucket.take(now).is_ok()).count(), 3);
        let mut taken = 0;
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            taken += u32::from(bucket.take(now).is_ok());
        }
        assert!((99..=100).contains(&taken), "{taken} in ten seconds");
        let wait = loop {
            if let Err(wait) = bucket.take(now) {
                break wait;
            }
        };
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        assert_eq!(bucket.take(now + wait + Duration::from_nanos(1)), Ok(()));
        now += Duration::from_secs(3600);
        assert_eq!(
            (0..10).filter(|_| bucket.take(now).is_ok()).count(),
            3,
            "an hour saves up no more"
        );
    }
}
