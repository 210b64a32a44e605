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

use block::{Buffer, DeviceError, Durability, Extent};
use reactor::{InSlice, OutSlice, Sender, Stream};
use server::{
    AbortOrder, Accepted, AddressBlock, ConnectionPermit, CoreFrontEnd, CoreHandle, FrontEnd, Portal,
    SlowHolder,
};
use volume::{Access, AttachmentId, Denied, HostPath, HostPort, RequestKind, Requester, ServicePort, Volume};

/// What its portals are marked with.
pub(crate) const ECHO: &str = "echo";

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
    attachment: AttachmentId,
    path: HostPath,
    stream: Box<dyn Stream>,
    _guest: ConnectionPermit,
    volume: RefCell<Option<(String, Arc<Volume>)>>,
    /// How many times its request was aborted.
    aborts: Cell<u64>,
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
            attachment: AttachmentId::next(),
            path: path(&portal, &*stream),
            stream,
            _guest: permit,
            volume: RefCell::default(),
            aborts: Cell::new(0),
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
            let uses =
                session.volume.borrow().as_ref().is_some_and(|(_, own)| Arc::ptr_eq(own, &order.volume));
            if uses && order.is_about(session.attachment) {
                session.aborts.set(session.aborts.get() + 1);
                session.wake();
            }
        }
    }

    fn adapt(self: Rc<Self>, _: &Sender<()>) {
        let volumes = self.handle.server.volumes();
        for session in self.sessions.borrow().iter() {
            let is_gone = |(name, volume): &(String, Arc<Volume>)| {
                !self.front_end.exports().contains(name) || !volumes.contains(volume)
            };
            if session.volume.borrow().as_ref().is_some_and(is_gone) {
                session.cut();
            }
        }
    }

    fn tick(&self, _: Instant) -> bool {
        false
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
            let volume = session.volume.borrow();
            let name = volume.as_ref().map(|(name, _)| name.clone());
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
        self.aborts.set(self.aborts.get() + 1);
        self.wake();
    }

    fn wake(&self) {
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
            *self.volume.borrow_mut() = Some((name.to_owned(), volume));
            return Ok(format!(" {blocks}"));
        }
        let volume = self.volume.borrow().as_ref().map(|(_, volume)| Arc::clone(volume));
        let volume = volume.ok_or("use a volume first")?;
        let lba = |word: &str| Ok::<_, String>(Extent::new(word.parse().map_err(|_| "no LBA")?, 1));
        match words[..] {
            ["read", block] => self.read(&volume, lba(block)?).await.map(|byte| format!(" {byte:02x}")),
            ["write", block, byte] => {
                let byte = u8::from_str_radix(byte, 16).map_err(|_| "no byte")?;
                self.write(&volume, lba(block)?, byte).await.map(|()| String::new())
            }
            ["flush"] => {
                self.ask(&volume, RequestKind::Flush, None, volume.flush()).await.map(|()| String::new())
            }
            _ => Err("unknown".to_owned()),
        }
    }

    async fn read(&self, volume: &Arc<Volume>, extent: Extent) -> Result<u8, String> {
        let length = volume.device().geometry().length(extent) as usize;
        let _turn = volume.range_locks().share(extent).await;
        let read = volume.device().read(extent, Buffer::zeroed(length));
        self.ask(volume, RequestKind::Read, None, read).await.map(|buffer| buffer[0])
    }

    async fn write(&self, volume: &Arc<Volume>, extent: Extent, byte: u8) -> Result<(), String> {
        let mut data = Buffer::zeroed(volume.device().geometry().length(extent) as usize);
        data.fill(byte);
        let turn = volume.range_locks().exclude(extent).await;
        let write = volume.device().write(extent, data.share(), Durability::Cached);
        let written = self.ask(volume, RequestKind::Change, Some(extent), write).await;
        drop(turn);
        written
    }

    /// Waits for a request that is permitted, until it ends or is aborted. The blocks of a change that was aborted stay locked
    /// until the device cannot carry it out any more.
    async fn ask<T>(
        &self,
        volume: &Arc<Volume>,
        kind: RequestKind,
        changes: Option<Extent>,
        request: impl Future<Output = Result<T, DeviceError>>,
    ) -> Result<T, String> {
        self.permits(volume, kind)?;
        let (before, mut request) = (self.aborts.get(), Box::pin(request));
        let ended = poll_fn(|cx| {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            match request.as_mut().poll(cx) {
                Poll::Pending if self.aborts.get() == before => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
                Poll::Ready(result) => Poll::Ready(Some(result)),
            }
        })
        .await;
        let Some(result) = ended else {
            if let Some(extent) = changes {
                volume.lock_until_quiesced(extent);
            }
            return Err("aborted".to_owned());
        };
        volume.record_end(kind, &result);
        result.map_err(|error| error.to_string())
    }

    /// Whether the volume may be used so now.
    fn permits(&self, volume: &Volume, kind: RequestKind) -> Result<(), &'static str> {
        let access = match kind {
            RequestKind::Change => Access::Write,
            RequestKind::Read | RequestKind::Flush | RequestKind::Inspect => Access::Read,
        };
        let requester = Requester { attachment: self.attachment, path: &self.path };
        volume.permits(&requester, access).map_err(|denied| match denied {
            Denied::Reserved => "reserved",
            Denied::Fenced => "not ready",
            Denied::WriteProtected => "write-protected",
        })
    }
}

/// A host has no name here but its address.
fn path(portal: &Portal, stream: &dyn Stream) -> HostPath {
    let host = HostPort { name: stream.peer().ip().to_string(), qualifier: [0; 6] };
    let service = ServicePort { name: ECHO.to_owned(), group: portal.tag, relative_port: portal.tag };
    HostPath { host, service }
}
