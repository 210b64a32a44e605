//! A small example of a front end: a line protocol with which a host reads and writes whole blocks of one
//! repeated byte. It shows the tasks of a front end, and that `front_end_core` does everything else.
//!
//! ```text
//!   use NAME         ok BLOCKS              the volume of this name, from now on
//!   read LBA         ok BYTE                in hexadecimal
//!   write LBA BYTE   ok
//!   flush            ok
//!                    error REASON           to any of them
//! ```

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{Buffer, Durability, Extent};
use front_end_core::{
    AbortOrder, Accepted, AddressBlock, ConnectionPermit, CoreFrontEnd, CoreHandle, CoreStatistics,
    CoreTally, Counted, FrontEnd, HostNames, Operation, Portal, Requests, SessionCounts,
    SessionInfo, SlowHolder, Span, Traffic, Unserved,
};
use reactor::{InSlice, OutSlice, Sender, Stream};
use volume::{AttachmentId, Denied, HostPath, HostPort, RequestKind, ServicePort, Volume};

/// The scheme of the front end's portals.
pub(crate) const ECHO: &str = "echo";

/// Time without a response after which a device is fenced.
const DEADLINE: Duration = Duration::from_secs(30);

/// The state shared by all cores: the exported volumes, each under its own name.
pub(crate) struct EchoDisk {
    exports: Mutex<Vec<String>>,
    names: HostNames,
}

/// The front end's part on one core.
pub(crate) struct CoreEchoes {
    front_end: Arc<EchoDisk>,
    handle: CoreHandle,
    sessions: RefCell<Vec<Rc<Session>>>,
    tally: CoreTally,
}

/// A connection.
struct Session {
    path: HostPath,
    /// The host's name in monitoring.
    counted_as: Arc<str>,
    stream: Box<dyn Stream>,
    _guest: ConnectionPermit,
    /// The name of the session's volume, and the requests to it.
    used: RefCell<Option<(String, Rc<Requests>)>>,
    /// Traffic since the session began to use this volume.
    traffic: Cell<Traffic>,
    cut: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl EchoDisk {
    pub(crate) fn new(exports: Vec<String>) -> Arc<EchoDisk> {
        Arc::new(EchoDisk {
            exports: Mutex::new(exports),
            names: HostNames::default(),
        })
    }

    /// The exported volumes, which can be replaced.
    pub(crate) fn exports(&self) -> MutexGuard<'_, Vec<String>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrontEnd for EchoDisk {
    fn name(&self) -> &'static str {
        ECHO
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreEchoes {
            front_end: self,
            handle,
            sessions: RefCell::default(),
            tally: CoreTally::default(),
        })
    }

    fn has_sessions(&self, _: AddressBlock) -> bool {
        false // there is no login to reject
    }

    fn volume_grew(&self, _: &Arc<Volume>) {} // hosts query the size
}

impl CoreFrontEnd for CoreEchoes {
    fn accept(
        self: Rc<Self>,
        Accepted {
            portal,
            stream,
            permit,
        }: Accepted,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        let path = path(&portal, &*stream);
        let session = Rc::new(Session {
            counted_as: self.front_end.names.label(&path.host.name),
            path,
            stream,
            _guest: permit,
            used: RefCell::default(),
            traffic: Cell::default(),
            cut: Cell::new(false),
            waker: RefCell::default(),
        });
        self.sessions.borrow_mut().push(Rc::clone(&session));
        drop(reactor::spawn(async move {
            let _ = session.serve(&self).await; // ends when the host disconnects or is disconnected
            self.leave(&session);
            self.sessions
                .borrow_mut()
                .retain(|other| !Rc::ptr_eq(other, &session));
        }));
        Box::pin(async {})
    }

    fn abort(self: Rc<Self>, order: &AbortOrder, _: &Sender<()>) {
        for session in self.sessions.borrow().iter() {
            let used = session.used.borrow();
            let meant = used.as_ref().filter(|(_, requests)| {
                Arc::ptr_eq(requests.volume(), &order.volume)
                    && order.is_about(requests.attachment())
            });
            if let Some((_, requests)) = meant {
                requests.abort();
            }
        }
    }

    fn adapt(self: Rc<Self>, _: &Sender<()>) {
        let volumes = self.handle.server.volumes();
        self.tally.keep_served(|target| {
            self.front_end
                .exports()
                .iter()
                .any(|export| export == target)
        });
        for session in self.sessions.borrow().iter() {
            let is_gone = |(name, requests): &(String, Rc<Requests>)| {
                !self.front_end.exports().contains(name) || !volumes.contains(requests.volume())
            };
            if session.used.borrow().as_ref().is_some_and(is_gone) {
                session.cut();
            }
        }
    }

    fn statistics(&self) -> CoreStatistics {
        let sessions = self.sessions.borrow();
        self.tally
            .statistics(sessions.iter().map(|session| SessionCounts {
                target: session.export(),
                host: Arc::clone(&session.counted_as),
                connections: 1,
                traffic: session.traffic.get(),
            }))
    }

    fn tick(&self, now: Instant) -> bool {
        let mut busy = false;
        for session in self.sessions.borrow().iter() {
            let Some((_, requests)) = &*session.used.borrow() else {
                continue;
            };
            if let Some(silent) = requests.expire(now, DEADLINE) {
                self.handle.server.fence(requests.volume(), silent);
            }
            busy |= requests.are_outstanding();
        }
        busy
    }

    fn slowest_holder(&self, _: Instant) -> Option<SlowHolder> {
        None
    }

    /// Closes all sessions, because the protocol has no message that asks a host to log out.
    fn ask_to_leave(&self, _: Duration) {
        self.close_all();
    }

    fn is_idle(&self) -> bool {
        self.sessions.borrow().is_empty()
    }

    fn close_all(&self) {
        self.sessions
            .borrow()
            .iter()
            .for_each(|session| session.cut());
    }
}

impl CoreEchoes {
    /// The connected hosts, the name of the volume that each uses, and the data that each has moved.
    pub(crate) fn users(&self) -> Vec<(SocketAddr, SocketAddr, Option<String>, Traffic)> {
        let user = |session: &Rc<Session>| {
            (
                session.stream.peer(),
                session.stream.local(),
                session.export(),
                session.traffic.get(),
            )
        };
        self.sessions.borrow().iter().map(user).collect()
    }

    /// Lets a session use a volume, like a login in other protocols.
    fn enter(&self, session: &Session, name: &str) -> Result<Arc<Volume>, &'static str> {
        let Some(volume) = self.volume(name) else {
            self.tally.note(Counted::Login, None, "no_such_volume");
            return Err("there is no such volume");
        };
        self.leave(session);
        self.tally.note(Counted::Login, Some(name), "accepted");
        let requests = Requests::new(
            Arc::clone(&volume),
            AttachmentId::next(),
            session.path.clone(),
        );
        *session.used.borrow_mut() = Some((name.to_owned(), Rc::new(requests)));
        let (info, peer) = (session.info(name), session.stream.peer());
        self.handle
            .server
            .tell(|observer| observer.session_began(info, peer.into()));
        Ok(volume)
    }

    /// Ends the use of a volume by a session.
    fn leave(&self, session: &Session) {
        let Some((name, _)) = session.used.take() else {
            return;
        };
        self.tally
            .session_ended(&name, &session.counted_as, session.traffic.take());
        self.tally.note(
            Counted::ConnectionClosed,
            Some(&name),
            if session.cut.get() { "cut" } else { "left" },
        );
        self.handle
            .server
            .tell(|observer| observer.session_ended(session.info(&name)));
    }

    /// Counts a request that has ended.
    fn count(
        &self,
        session: &Session,
        volume: &Arc<Volume>,
        request: &Request,
        result: &Result<String, String>,
    ) {
        let Request {
            operation,
            begin,
            bytes,
        } = request;
        let tally = self.tally.volume(volume);
        tally.record(*operation, Span::new(*begin, reactor::now()));
        let (mut traffic, moved) = (
            session.traffic.get(),
            if result.is_ok() { *bytes } else { 0 },
        );
        let (read, written) = if *operation == Operation::Read {
            (moved, 0)
        } else {
            (0, moved)
        };
        traffic = traffic.plus(Traffic {
            commands: 1,
            read_bytes: read,
            written_bytes: written,
            window_full: 0,
        });
        session.traffic.set(traffic);
        tally.moved(read, written);
        if result.is_err() {
            tally.failed(*operation, "error");
        }
    }

    /// The volume exported under this name.
    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        let is_exported = self.front_end.exports().iter().any(|export| export == name);
        is_exported.then(|| self.handle.server.volumes().get(name).cloned())?
    }
}

/// A request, for the counters.
struct Request {
    operation: Operation,
    begin: Instant,
    bytes: u64,
}

impl Session {
    /// The name of its volume.
    fn export(&self) -> Option<String> {
        self.used.borrow().as_ref().map(|(name, _)| name.clone())
    }

    fn info<'a>(&'a self, target: &'a str) -> SessionInfo<'a> {
        SessionInfo {
            front_end: ECHO,
            initiator: &self.path.host.name,
            user: None,
            target: Some(target),
            handle: None,
        }
    }

    fn cut(&self) {
        self.cut.set(true);
        if let Some((_, requests)) = &*self.used.borrow() {
            requests.abort();
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    async fn serve(&self, core: &CoreEchoes) -> io::Result<()> {
        loop {
            let line = self.line().await?;
            let answer = match self.carry_out(core, &line).await {
                Ok(what) => format!("ok{what}\n"),
                Err(reason) => format!("error {reason}\n"),
            };
            self.stream
                .try_write(&[OutSlice::Bytes(answer.as_bytes())])?;
        }
    }

    async fn line(&self) -> io::Result<String> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') && line.len() < 256 {
            poll_fn(|cx| {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
                match self.cut.get() {
                    true => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                    false => self.stream.poll_readable(cx),
                }
            })
            .await?;
            let mut byte = [0];
            match self.stream.try_read(&mut [InSlice::Bytes(&mut byte)]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
    }

    async fn carry_out(&self, core: &CoreEchoes, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["use", name] = words[..] {
            let volume = core.enter(self, name)?;
            return Ok(format!(" {}", volume.device().geometry().blocks.0));
        }
        let requests = self
            .used
            .borrow()
            .as_ref()
            .map(|(_, requests)| Rc::clone(requests));
        let requests = requests.ok_or("use a volume first")?;
        let volume = requests.volume();
        let operation = match words[0] {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "flush" => Operation::Flush,
            _ => Operation::Other,
        };
        let bytes = if words[0] == "flush" {
            0
        } else {
            u64::from(volume.device().geometry().block_size.bytes())
        };
        let request = Request {
            operation,
            begin: reactor::now(),
            bytes,
        };
        let result = served(&requests, &words).await;
        let waited = reactor::now().duration_since(request.begin);
        core.tally.volume(volume).record_device(operation, waited);
        core.count(self, volume, &request, &result);
        result
    }
}

async fn served(requests: &Requests, words: &[&str]) -> Result<String, String> {
    let lba = |word: &str| Ok::<_, String>(Extent::new(word.parse().map_err(|_| "no LBA")?, 1));
    match words[..] {
        ["read", block] => read(requests, lba(block)?)
            .await
            .map(|byte| format!(" {byte:02x}")),
        ["write", block, byte] => {
            let byte = u8::from_str_radix(byte, 16).map_err(|_| "no byte")?;
            write(requests, lba(block)?, byte)
                .await
                .map(|()| String::new())
        }
        ["flush"] => {
            let flush = || requests.volume().flush();
            let flushed = requests
                .ask(requests.accept(), RequestKind::Flush, None, flush)
                .await;
            flushed.map(|()| String::new()).map_err(reason)
        }
        _ => Err("unknown".to_owned()),
    }
}

async fn read(requests: &Requests, extent: Extent) -> Result<u8, String> {
    let (volume, ticket) = (requests.volume(), requests.accept());
    let length = volume.device().geometry().length(extent) as usize;
    let _turn = volume.range_locks().share(extent).await;
    let read = || volume.device().read(extent, Buffer::zeroed(length));
    let buffer = requests
        .ask(ticket, RequestKind::Read, None, read)
        .await
        .map_err(reason)?;
    Ok(buffer[0])
}

async fn write(requests: &Requests, extent: Extent, byte: u8) -> Result<(), String> {
    let (volume, ticket) = (requests.volume(), requests.accept());
    let mut data = Buffer::zeroed(volume.device().geometry().length(extent) as usize);
    data.fill(byte);
    let _turn = volume.range_locks().exclude(extent).await;
    let write = || {
        volume
            .device()
            .write(extent, data.share(), Durability::Cached)
    };
    requests
        .ask(ticket, RequestKind::Change, Some(extent), write)
        .await
        .map_err(reason)
}

fn reason(unserved: Unserved) -> String {
    match unserved {
        Unserved::Denied(Denied::Reserved) => "reserved".to_owned(),
        Unserved::Denied(Denied::Fenced) => "not ready".to_owned(),
        Unserved::Denied(Denied::WriteProtected) => "write-protected".to_owned(),
        Unserved::Aborted => "aborted".to_owned(),
        Unserved::Failed(error) => error.to_string(),
    }
}

/// The path of a host. The host's name is its address.
fn path(portal: &Portal, stream: &dyn Stream) -> HostPath {
    let host = HostPort {
        name: stream.peer().ip().to_string(),
        qualifier: [0; 6],
    };
    let service = ServicePort {
        name: ECHO.to_owned(),
        group: portal.tag,
        relative_port: portal.tag,
    };
    HostPath { host, service }
}
