//! A LUN and the thread that its session lives on.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Profile, RangeLocks, Slice, bytewise,
};
use host::{Epoll, EpollOptions};
use iscsi_client::{
    CommandError, CommandResult, Discovered, Portal, RemoteLun, Settings, Statistics, Transfer, Url, cdb::Cdb,
};
use reactor::{Receiver, Sender};

use crate::request::{Completer, Request, request};
use crate::{Ended, OpenError};

/// A logical unit of a target, usable from any thread and any async runtime.
///
/// All clones are the same LUN in the same session. When the last one is dropped and no request is outstanding, the
/// session logs out and its thread ends; [`Lun::close`] waits for that.
#[derive(Clone)]
pub struct Lun {
    orders: Sender<Order>,
    device: Arc<RemoteLun>,
    /// Held while a block is written in part.
    locks: Arc<RangeLocks>,
}

/// What is sent to the session's thread.
enum Order {
    Run(Box<dyn FnOnce() + Send>),
    Close(Completer<(), Ended>),
}

impl Lun {
    /// Starts a thread, logs in to the target of `url` on it, and attaches the LUN.
    pub fn open(url: &Url) -> Request<Lun, OpenError> {
        let url = url.clone();
        on_a_thread(move |completer| async move {
            let mut opened = None;
            let opening = async {
                let device = Arc::new(iscsi_client::open(&url, random).await?);
                let (orders, received) = reactor::mailbox();
                opened = Some((Arc::clone(&device), received));
                Ok(Lun { orders, device, locks: Arc::default() })
            };
            completer.carry_out(opening).await;
            if let Some((device, received)) = opened {
                serve(device, received).await;
            }
        })
    }

    /// Capacity and block size. The capacity may grow: see [`Lun::refresh`].
    pub fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    /// The LUN's properties.
    pub fn profile(&self) -> Profile {
        self.device.profile()
    }

    /// The LUN in its session, for what has no method here. Its futures make progress only on the session's thread:
    /// [`Lun::run`].
    pub fn remote(&self) -> &RemoteLun {
        &self.device
    }

    /// Fills `buffer`, whose length is that of the extent, and gives it back.
    pub fn read(&self, extent: Extent, buffer: Buffer) -> Request<Buffer, DeviceError> {
        self.run(move |device| async move { device.read(extent, buffer).await })
    }

    /// Writes `data`, whose length is that of the extent.
    pub fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let _with_others = locks.share(extent).await;
            device.write(extent, data, durability).await
        })
    }

    /// The bytes of `range`, wherever blocks begin.
    pub fn read_bytes(&self, range: Range<u64>) -> Request<Slice, DeviceError> {
        self.run(move |device| async move { bytewise::read(&*device, range).await })
    }

    /// Writes `data` from the byte `offset` on. Blocks that are written in part are read first; writes of other parts of
    /// the same block by this session wait meanwhile, those of other initiators do not.
    pub fn write_bytes(&self, offset: u64, data: Slice) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let end = offset.checked_add(data.len() as u64).ok_or(DeviceError::OutOfRange)?;
            let extent = bytewise::covering(&*device, &(offset..end))?;
            if device.geometry().length(extent) == data.len() as u64 {
                let _with_others = locks.share(extent).await;
                return bytewise::write(&*device, offset, data).await;
            }
            let _alone = locks.exclude(extent).await;
            bytewise::write(&*device, offset, data).await
        })
    }

    /// Brings all writes that were acknowledged before to stable storage.
    pub fn flush(&self) -> Request<(), DeviceError> {
        self.run(|device| async move { device.flush().await })
    }

    /// Deallocates the blocks, which read as zeros afterwards.
    pub fn unmap(&self, extent: Extent) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let _with_others = locks.share(extent).await;
            device.unmap(extent).await
        })
    }

    /// Makes the blocks read as zeros, by deallocating them where possible if `may_unmap`.
    pub fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let _with_others = locks.share(extent).await;
            device.write_zeroes(extent, may_unmap).await
        })
    }

    /// Asks the target whether the LUN has grown; [`Lun::geometry`] knows afterwards.
    pub fn refresh(&self) -> Request<(), DeviceError> {
        self.run(|device| async move { device.refresh().await })
    }

    /// Sends a command as it is and gives the target's response, whatever its status. Nothing is tried again.
    pub fn command(&self, cdb: Cdb, transfer: Transfer) -> Request<CommandResult, CommandError> {
        self.run(move |device| async move { device.command(cdb, transfer).await })
    }

    /// What the session has done so far. `None` if it is lost for good.
    pub fn statistics(&self) -> Request<Option<Statistics>, Ended> {
        self.run(|device| async move { Ok(device.target().statistics().await) })
    }

    /// Runs a future of your own on the session's thread, where everything of [`RemoteLun`] may be awaited. It must not
    /// block: all requests of the session wait meanwhile.
    pub fn run<T, E, F>(&self, work: impl FnOnce(Arc<RemoteLun>) -> F + Send + 'static) -> Request<T, E>
    where
        T: Send + 'static,
        E: From<Ended> + Send + 'static,
        F: Future<Output = Result<T, E>> + 'static,
    {
        let (request, completer) = request();
        let lun = self.clone(); // which keeps the session until the request has ended
        let order = Order::Run(Box::new(move || {
            let device = Arc::clone(&lun.device);
            reactor::spawn(async move {
                completer.carry_out(work(device)).await;
                drop(lun);
            });
        }));
        // If the thread has ended, the order is dropped, and the request fails.
        let _ = self.orders.send(order);
        request
    }

    /// Ends outstanding requests with [`Ended`], logs out, and waits for the target's confirmation or the timeout.
    pub fn close(&self) -> Request<(), Ended> {
        let (request, completer) = request();
        let _ = self.orders.send(Order::Close(completer)); // closed already: the request fails
        request
    }
}

/// Lists the targets of a portal, on a thread that ends afterwards.
pub fn discover(portal: &Portal, settings: &Settings) -> Request<Vec<Discovered>, OpenError> {
    let (portal, settings) = (portal.clone(), settings.clone());
    run(async move || Ok(iscsi_client::discover(&portal, &settings, random).await?))
}

/// Runs a future of your own in a world on a new thread, which ends with it.
pub fn run<T, E, F>(work: impl FnOnce() -> F + Send + 'static) -> Request<T, E>
where
    T: Send + 'static,
    E: From<Ended> + From<io::Error> + Send + 'static,
    F: Future<Output = Result<T, E>>,
{
    on_a_thread(move |completer| completer.carry_out(work()))
}

fn on_a_thread<T, E, F>(work: impl FnOnce(Completer<T, E>) -> F + Send + 'static) -> Request<T, E>
where
    T: Send + 'static,
    E: From<Ended> + From<io::Error> + Send + 'static,
    F: Future<Output = ()>,
{
    let (started, completer) = request();
    let body = move || match Epoll::shared(EpollOptions::default()) {
        Ok(world) => reactor::block_on(world, work(completer)),
        Err(error) => completer.complete(Err(error.into())),
    };
    match thread::Builder::new().name("linerate-session".to_owned()).spawn(body) {
        Ok(_) => started,
        Err(error) => {
            let (failed, completer) = request();
            completer.complete(Err(error.into()));
            failed
        }
    }
}

/// Carries out orders until the last [`Lun`] is gone, or one is closed.
async fn serve(device: Arc<RemoteLun>, mut orders: Receiver<Order>) {
    let closed = loop {
        match orders.recv().await {
            Some(Order::Run(start)) => start(),
            Some(Order::Close(completer)) => break Some(completer),
            None => break None,
        }
    };
    drop(orders); // what is ordered from here on fails
    device.target().close().await;
    if let Some(completer) = closed {
        completer.complete(Ok(()));
    }
}

/// For session identifiers and CHAP challenges.
fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers once it has started");
}
