//! A front end small enough to be read at once: a protocol of lines, with which a host reads and writes whole blocks of one
//! byte. It shows what a front end has to do, and that `server` has all the rest.
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
use reactor::{InSlice, OutSlice, Sender, Stream};
use server::{
    AbortOrder, Accepted, AddressBlock, ConnectionPermit, CoreFrontEnd, CoreHandle, FrontEnd, Portal,
    Requests, SlowHolder, Unserved,
};
use volume::{AttachmentId, Denied, HostPath, HostPort, RequestKind, ServicePort, Volume};

/// What its portals are marked with.
pub(crate) const ECHO: &str = "echo";

/// A device that has not answered for so long is fenced.
const DEADLINE: Duration = Duration::from_secs(30);

/// What all cores share of it: which volumes it exports, each under its own name.
pub(crate) struct EchoDisk {
    exports: Mutex<Vec<String>>,
}

/// Its part of one core.
pub(crate) struct CoreEchoes {
    front_end: Arc<EchoDisk>,
    handle: CoreHandle,
    sessions: RefCell<Vec<Rc<Session>>>,
}

/// A connection.
struct Session {
    path: HostPath,
    stream: Box<dyn Stream>,
    _guest: ConnectionPermit,
    /// The name of its volume, and its requests there.
    used: RefCell<Option<(String, Rc<Requests>)>>,
    cut: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl EchoDisk {
    pub(crate) fn new(exports: Vec<String>) -> Arc<EchoDisk> {
        Arc::new(EchoDisk { exports: Mutex::new(exports) })
    }

    /// The volumes that it exports; others can be put in their place.
    pub(crate) fn exports(&self) -> MutexGuard<'_, Vec<String>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrontEnd for EchoDisk {
    fn name(&self) -> &'static str {
        ECHO
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreEchoes { front_end: self, handle, sessions: RefCell::default() })
    }

    fn has_sessions(&self, _: AddressBlock) -> bool {
        false // there is no login to be kept from
    }

    fn volume_grew(&self, _: &Arc<Volume>) {} // hosts ask
}

impl CoreFrontEnd for CoreEchoes {
    fn accept(
        self: Rc<Self>,
        Accepted { portal, stream, permit }: Accepted,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        let session = Rc::new(Session {
            path: path(&portal, &*stream),
            stream,
            _guest: permit,
            used: RefCell::default(),
            cut: Cell::new(false),
            waker: RefCell::default(),
        });
        self.sessions.borrow_mut().push(Rc::clone(&session));
        drop(reactor::spawn(async move {
            let _ = session.serve(&self).await; // the host is gone, or to go
            self.sessions.borrow_mut().retain(|other| !Rc::ptr_eq(other, &session));
        }));
        Box::pin(async {})
    }

    fn abort(self: Rc<Self>, order: &AbortOrder, _: &Sender<()>) {
        for session in self.sessions.borrow().iter() {
            let used = session.used.borrow();
            let meant = used.as_ref().filter(|(_, requests)| {
                Arc::ptr_eq(requests.volume(), &order.volume) && order.is_about(requests.attachment())
            });
            if let Some((_, requests)) = meant {
                requests.abort();
            }
        }
    }

    fn adapt(self: Rc<Self>, _: &Sender<()>) {
        let volumes = self.handle.server.volumes();
        for session in self.sessions.borrow().iter() {
            let is_gone = |(name, requests): &(String, Rc<Requests>)| {
                !self.front_end.exports().contains(name) || !volumes.contains(requests.volume())
            };
            if session.used.borrow().as_ref().is_some_and(is_gone) {
                session.cut();
            }
        }
    }

    fn tick(&self, now: Instant) -> bool {
        let mut busy = false;
        for session in self.sessions.borrow().iter() {
            let Some((_, requests)) = &*session.used.borrow() else { continue };
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

    /// There is nothing by which a host could be asked to leave.
    fn ask_to_leave(&self, _: Duration) {
        self.close_all();
    }

    fn is_idle(&self) -> bool {
        self.sessions.borrow().is_empty()
    }

    fn close_all(&self) {
        self.sessions.borrow().iter().for_each(|session| session.cut());
    }
}

impl CoreEchoes {
    /// Who is connected, and the name of the volume that each uses.
    pub(crate) fn users(&self) -> Vec<(SocketAddr, SocketAddr, Option<String>)> {
        let user = |session: &Rc<Session>| {
            let used = session.used.borrow();
            let name = used.as_ref().map(|(name, _)| name.clone());
            (session.stream.peer(), session.stream.local(), name)
        };
        self.sessions.borrow().iter().map(user).collect()
    }

    /// The volume that is exported under this name.
    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        let is_exported = self.front_end.exports().iter().any(|export| export == name);
        is_exported.then(|| self.handle.server.volumes().get(name).cloned())?
    }
}

impl Session {
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
            self.stream.try_write(&[OutSlice::Bytes(answer.as_bytes())])?;
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
            let volume = core.volume(name).ok_or("there is no such volume")?;
            let blocks = volume.device().geometry().blocks.0;
            let requests = Requests::new(volume, AttachmentId::next(), self.path.clone());
            *self.used.borrow_mut() = Some((name.to_owned(), Rc::new(requests)));
            return Ok(format!(" {blocks}"));
        }
        let requests = self.used.borrow().as_ref().map(|(_, requests)| Rc::clone(requests));
        let requests = requests.ok_or("use a volume first")?;
        let lba = |word: &str| Ok::<_, String>(Extent::new(word.parse().map_err(|_| "no LBA")?, 1));
        match words[..] {
            ["read", block] => read(&requests, lba(block)?).await.map(|byte| format!(" {byte:02x}")),
            ["write", block, byte] => {
                let byte = u8::from_str_radix(byte, 16).map_err(|_| "no byte")?;
                write(&requests, lba(block)?, byte).await.map(|()| String::new())
            }
            ["flush"] => {
                let flush = || requests.volume().flush();
                let flushed = requests.ask(requests.accept(), RequestKind::Flush, None, flush).await;
                flushed.map(|()| String::new()).map_err(reason)
            }
            _ => Err("unknown".to_owned()),
        }
    }
}

async fn read(requests: &Requests, extent: Extent) -> Result<u8, String> {
    let (volume, ticket) = (requests.volume(), requests.accept());
    let length = volume.device().geometry().length(extent) as usize;
    let _turn = volume.range_locks().share(extent).await;
    let read = || volume.device().read(extent, Buffer::zeroed(length));
    let buffer = requests.ask(ticket, RequestKind::Read, None, read).await.map_err(reason)?;
    Ok(buffer[0])
}

async fn write(requests: &Requests, extent: Extent, byte: u8) -> Result<(), String> {
    let (volume, ticket) = (requests.volume(), requests.accept());
    let mut data = Buffer::zeroed(volume.device().geometry().length(extent) as usize);
    data.fill(byte);
    let _turn = volume.range_locks().exclude(extent).await;
    let write = || volume.device().write(extent, data.share(), Durability::Cached);
    requests.ask(ticket, RequestKind::Change, Some(extent), write).await.map_err(reason)
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

/// A host has no name here but its address.
fn path(portal: &Portal, stream: &dyn Stream) -> HostPath {
    let host = HostPort { name: stream.peer().ip().to_string(), qualifier: [0; 6] };
    let service = ServicePort { name: ECHO.to_owned(), group: portal.tag, relative_port: portal.tag };
    HostPath { host, service }
}
