//! The server side of the control socket. Each client has a thread. The number of clients is limited, and so
//! are the size and time of a request. A long request (a reload) does not delay other clients. Once a client
//! has subscribed to events, it counts as a subscriber.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use host::local_socket::{self, SocketFile};
use rustix::net::sockopt::socket_peercred;

use super::events::{Events, Subscriber};
use super::{ControlReply, ControlRequest, line_of, message_of};

/// Maximum size of a request. It is longer than any request of a Linerate client.
const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of clients, excluding subscribers. A further client waits for [`PATIENCE`] and is then
/// refused.
const CLIENTS_MAX: usize = 16;
/// Time limit for receiving a request, from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for receiving a reply or an event.
const RECEIVE_TIME: Duration = Duration::from_secs(10);
/// Interval at which the connection of a subscriber is checked while there are no events.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// A listening socket. Dropping this value removes the socket from the file system.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The reason why the socket cannot be created.
#[derive(Debug)]
pub enum BindError {
    /// Another server uses the socket.
    InUse(PathBuf),
    /// The path exists and is not a socket.
    NotASocket(PathBuf),
    /// An I/O error.
    Io(PathBuf, io::Error),
}

impl std::error::Error for BindError {}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = match self {
            BindError::InUse(path) => (
                path,
                "another server uses it; choose another path with --control",
            ),
            BindError::NotASocket(path) => (
                path,
                "the path exists and is not a socket; choose another path",
            ),
            BindError::Io(path, error) => {
                return write!(
                    f,
                    "cannot create the control socket {}: {error}",
                    path.display()
                );
            }
        };
        write!(
            f,
            "cannot create the control socket {}: {why}",
            path.display()
        )
    }
}

impl BindError {
    fn new(path: &Path, error: io::Error) -> BindError {
        match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(path.to_owned()),
            io::ErrorKind::AlreadyExists => BindError::NotASocket(path.to_owned()),
            _ => BindError::Io(path.to_owned(), error),
        }
    }
}

impl Socket {
    /// Creates the socket at `path`, accessible only by its owner. A stale socket of a terminated server is
    /// replaced.
    pub fn bind(path: &Path) -> Result<Socket, BindError> {
        let (listener, file) =
            local_socket::bind(path).map_err(|error| BindError::new(path, error))?;
        Ok(Socket { listener, file })
    }

    /// Checks that a socket can be created at `path`, without creating it.
    pub(crate) fn look(path: &Path) -> Result<(), BindError> {
        local_socket::look(path).map_err(|error| BindError::new(path, error))
    }

    /// Answers requests and sends `events` on separate threads, until the process ends or the returned value
    /// is dropped, which removes the path. [`ControlRequest::Events`] is handled here and not passed to
    /// `answer`. The second argument of `answer` names the requester, for the audit log.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn serve(
        self,
        events: Arc<Events>,
        answer: impl Fn(ControlRequest, &str) -> ControlReply + Send + Sync + 'static,
    ) -> io::Result<SocketFile> {
        let clients = Arc::new(Clients {
            answer: Box::new(answer),
            events,
            attended: Mutex::default(),
            has_gone: Condvar::default(),
        });
        let listener = self.listener;
        let work = move || {
            for client in listener.incoming() {
                if let Err(error) = client.and_then(|client| clients.admit(client)) {
                    tracing::warn!(%error, "rejected a client of the control socket");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        };
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(work)?;
        Ok(self.file)
    }
}

/// Answers a request; the text identifies the requester.
type Answer = dyn Fn(ControlRequest, &str) -> ControlReply + Send + Sync;

/// State shared by the threads of all clients.
struct Clients {
    answer: Box<Answer>,
    events: Arc<Events>,
    attended: Mutex<usize>,
    has_gone: Condvar,
}

/// Counts a client until it is dropped.
struct ClientSlot(Arc<Clients>);

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut attended = self
            .0
            .attended
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        debug_assert!(*attended > 0, "a client is counted until this is dropped");
        *attended -= 1;
        self.0.has_gone.notify_one();
    }
}

impl Clients {
    /// Starts a thread for a client, or refuses the client if there are too many.
    fn admit(self: &Arc<Self>, client: UnixStream) -> io::Result<()> {
        let Some(slot) = self.slot() else {
            let refused = ControlReply::Refused {
                reason: "the server has too many clients; try again".to_owned(),
            };
            // The client may have disconnected.
            let _ = send(&client, &line_of(&refused)?, Duration::from_millis(1));
            return Ok(());
        };
        let attend = move || {
            if let Err(error) = slot.0.attend(&client).and_then(|subscriber| {
                drop(slot);
                subscriber.map_or(Ok(()), |subscriber| feed(&client, &subscriber))
            }) {
                tracing::debug!(%error, "a client of the control socket disconnected");
            }
        };
        thread::Builder::new()
            .name("control client".to_owned())
            .spawn(attend)
            .map(drop)
    }

    fn slot(self: &Arc<Self>) -> Option<ClientSlot> {
        let attended = self.attended.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |attended: &mut usize| *attended >= CLIENTS_MAX;
        let waited = self
            .has_gone
            .wait_timeout_while(attended, PATIENCE, is_full);
        let (mut attended, wait) = waited.unwrap_or_else(PoisonError::into_inner);
        (!wait.timed_out()).then(|| {
            *attended += 1;
            debug_assert!(*attended <= CLIENTS_MAX);
            ClientSlot(Arc::clone(self))
        })
    }

    /// Answers one client's requests until it is done, exceeds a limit, or subscribes to events.
    fn attend(&self, client: &UnixStream) -> io::Result<Option<Subscriber>> {
        let (mut reader, by) = (BufReader::new(client), who(client));
        loop {
            let line = read_line(&mut reader)?;
            if line.is_empty() {
                return Ok(None);
            }
            let mut subscriber = None;
            let reply = match message_of(&line) {
                Ok(ControlRequest::Events) => {
                    subscriber = self.events.subscribe();
                    let reason =
                        "the server has the maximum number of event subscribers".to_owned();
                    subscriber
                        .as_ref()
                        .map_or(ControlReply::Refused { reason }, |_| ControlReply::Done)
                }
                Ok(request) => (self.answer)(request, &by),
                Err(error) => ControlReply::Refused {
                    reason: format!("invalid request: {error}"),
                },
            };
            send(client, &line_of(&reply)?, RECEIVE_TIME)?;
            if subscriber.is_some() || line.last() != Some(&b'\n') {
                return Ok(subscriber);
            }
        }
    }
}

/// Returns the peer process, for the audit log.
fn who(client: &UnixStream) -> String {
    match socket_peercred(client) {
        Ok(peer) => format!(
            "user {}, process {}",
            peer.uid.as_raw(),
            peer.pid.as_raw_nonzero()
        ),
        Err(error) => format!("unknown ({error})"),
    }
}

/// Returns the next line. The line is incomplete if it is too long or the client stops sending, and empty at
/// the end of the stream.
fn read_line(reader: &mut BufReader<&UnixStream>) -> io::Result<Vec<u8>> {
    let (mut line, end) = (Vec::new(), Instant::now() + PATIENCE);
    while line.last() != Some(&b'\n') && line.len() < REQUEST_BYTES_MAX {
        reader.get_ref().set_read_timeout(Some(left_until(end)?))?;
        let new = reader.fill_buf()?;
        if new.is_empty() {
            break;
        }
        let bytes = new
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(new.len(), |at| at + 1);
        line.extend_from_slice(&new[..bytes]);
        reader.consume(bytes);
    }
    Ok(line)
}

/// Sends all bytes. `time` limits the whole call, even if the client reads the bytes in small pieces.
fn send(mut client: &UnixStream, mut bytes: &[u8], time: Duration) -> io::Result<()> {
    let end = Instant::now() + time;
    while !bytes.is_empty() {
        client.set_write_timeout(Some(left_until(end)?))?;
        match client.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left_until(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

/// Sends events as they happen, until the client closes the connection or reads too slowly.
fn feed(client: &UnixStream, subscriber: &Subscriber) -> io::Result<()> {
    loop {
        match subscriber.next(LOOK) {
            Some(line) => send(client, &line, RECEIVE_TIME)?,
            None if has_gone(client)? => return Ok(()),
            None => {}
        }
    }
}

/// Whether the client has closed its side of the connection. Data from the client is ignored.
fn has_gone(mut client: &UnixStream) -> io::Result<bool> {
    client.set_read_timeout(Some(Duration::from_millis(1)))?;
    match client.read(&mut [0; 512]) {
        Ok(bytes) => Ok(bytes == 0),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
                Ok(false)
            }
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::client::AskError;
    use super::super::{Event, ask, subscribe};
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("control.sock");
        (directory, path)
    }

    fn serve_with(path: &Path, events: Arc<Events>) -> SocketFile {
        let socket = Socket::bind(path).expect("a free place");
        let answer = |request, _: &str| ControlReply::Refused {
            reason: format!("{request:?}"),
        };
        socket.serve(events, answer).expect("a thread")
    }

    fn serve(path: &Path) -> SocketFile {
        serve_with(path, Arc::default())
    }

    #[test]
    fn requests_are_answered_and_nobody_else_may_ask() {
        let (_directory, path) = place();
        let _server = serve(&path);
        let mode = fs::metadata(&path)
            .expect("the socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let reply = ask(&path, &ControlRequest::Sessions).expect("an answer");
        assert_eq!(
            reply,
            ControlReply::Refused {
                reason: "Sessions".to_owned()
            }
        );
        ask(&path, &ControlRequest::Sessions).expect("another");
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_next_client_served() {
        let (_directory, path) = place();
        let _server = serve(&path);
        for bad in [
            &b"rubbish\n"[..],
            b"{\"request\":\"reboot\"}\n",
            &[b'x'; 200_000],
        ] {
            let mut client = UnixStream::connect(&path).expect("a server");
            // The server may close the connection before the long request has been sent completely.
            let _ = client.write_all(bad);
            let _ = client.shutdown(std::net::Shutdown::Write);
            let mut answer = String::new();
            let _ = BufReader::new(client).read_line(&mut answer);
            assert!(
                answer.is_empty() || answer.contains("invalid request"),
                "{answer}"
            );
        }
        ask(&path, &ControlRequest::Sessions).expect("an answer");
    }

    #[test]
    fn a_dead_servers_socket_is_replaced_and_a_live_ones_is_not() {
        let (_directory, path) = place();
        drop(UnixListener::bind(&path).expect("a socket to leave behind"));
        let server = serve(&path);
        assert!(matches!(Socket::bind(&path), Err(BindError::InUse(_))));
        drop(server);
        assert!(!path.exists());
        fs::write(&path, "notes").expect("a file");
        assert!(matches!(Socket::bind(&path), Err(BindError::NotASocket(_))));
    }

    #[test]
    fn without_a_server_the_question_says_where_it_was_put() {
        let (_directory, path) = place();
        let error = ask(&path, &ControlRequest::Sessions).expect_err("there is no target");
        assert!(matches!(error, AskError::NoServer(_)));
        assert!(error.to_string().contains("control.sock"));
    }

    #[test]
    fn a_subscriber_is_told_of_events_while_others_ask() {
        let (_directory, path) = place();
        let events = Arc::new(Events::default());
        let _server = serve_with(&path, Arc::clone(&events));
        let mut first = subscribe(&path).expect("room");
        let second = subscribe(&path).expect("room");
        let event = Event::VolumeAdded {
            volume: "vm1".to_owned(),
        };
        events.publish(event.clone());
        assert_eq!(
            first.next_event().expect("a line").map(|told| told.event),
            Some(event)
        );
        ask(&path, &ControlRequest::Sessions).expect("an answer");
        drop(second);
    }

    /// Each subscriber is either refused or served, and none blocks other clients.
    #[test]
    fn a_crowd_of_subscribers_keeps_nobody_out() {
        let (_directory, path) = place();
        let events = Arc::new(Events::default());
        let _server = serve_with(&path, Arc::clone(&events));
        let subscribed: Vec<_> = (0..200).filter_map(|_| subscribe(&path).ok()).collect();
        assert!(
            !subscribed.is_empty() && subscribed.len() <= 16,
            "{}",
            subscribed.len()
        );
        ask(&path, &ControlRequest::Sessions).expect("an answer");
        drop(subscribed);
        // A closed connection is detected at the next event, or within a second.
        while subscribe(&path).is_err() {
            events.publish(Event::Missed { events: 0 });
        }
    }

    #[test]
    fn a_subscriber_that_takes_nothing_holds_up_neither_events_nor_others() {
        let (_directory, path) = place();
        let events = Arc::new(Events::default());
        let _server = serve_with(&path, Arc::clone(&events));
        let mut slow = subscribe(&path).expect("room");
        let name = "x".repeat(4096);
        for _ in 0..2000 {
            events.publish(Event::VolumeAdded {
                volume: name.clone(),
            });
        }
        ask(&path, &ControlRequest::Sessions).expect("an answer");
        let mut told = 0;
        let missed = loop {
            match slow
                .next_event()
                .expect("the connection is open")
                .expect("a line")
                .event
            {
                Event::Missed { events } => break events,
                _ => told += 1,
            }
        };
        assert_eq!(told + missed, 2000);
    }

    /// Three clients send an incomplete line, an endless line, and a line that arrives byte by byte. The
    /// server closes each of these connections, and answers other clients in the meantime.
    #[test]
    fn clients_that_do_not_finish_their_lines_keep_nobody_waiting() {
        let (_directory, path) = place();
        let _server = serve(&path);
        let connect = || UnixStream::connect(&path).expect("a server");
        let mut halves: Vec<UnixStream> = (0..CLIENTS_MAX - 1).map(|_| connect()).collect();
        for half in &mut halves {
            half.write_all(b"{\"request\":").expect("sent");
        }
        ask(&path, &ControlRequest::Sessions).expect("the last place");
        let dripping = halves.pop().expect("a client");
        let drip = thread::spawn(move || {
            let mut dripping = dripping;
            while dripping.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        drip.join()
            .expect("it is hung up on, though it never stops");
        for mut half in halves {
            assert_eq!(
                half.read(&mut [0; 64]).expect("the end"),
                0,
                "it is hung up on"
            );
        }
        let mut endless = connect();
        while endless.write_all(&[b'x'; 65_536]).is_ok() {}
        ask(&path, &ControlRequest::Sessions).expect("an answer");
    }

    #[test]
    fn another_version_is_refused_with_the_one_that_is_known() {
        let (_directory, path) = place();
        let _server = serve(&path);
        let mut client = UnixStream::connect(&path).expect("a server");
        client
            .write_all(b"{\"version\":2,\"request\":\"sessions\"}\n")
            .expect("sent");
        let mut answer = String::new();
        BufReader::new(client)
            .read_line(&mut answer)
            .expect("an answer");
        assert!(
            answer.starts_with("{\"version\":1,\"reply\":\"refused\""),
            "{answer}"
        );
        assert!(answer.contains("version 2"), "{answer}");
    }
}
