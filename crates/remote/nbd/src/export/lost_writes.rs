//! Tests of the replies that report lost writes. A server in memory reports the loss of another host's write
//! only once, in the reply to the next request that syncs: a flush, or a write with FUA.

use std::cell::Cell;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use nbd::{ReplyForm, Request};
use reactor::{Alone, Detached, InSlice, OutSlice, block_on, sleep, spawn, timeout};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LOST: Result<(), DeviceError> = Err(DeviceError::WritesLost);
const FLAGS: u16 = transmission::HAS_FLAGS | transmission::SEND_FLUSH;
const WITH_FUA: u16 = FLAGS | transmission::SEND_FUA;

/// A server that answers each request as soon as it arrives.
#[derive(Default)]
struct Server {
    /// The error of the next sync.
    sync_error: Cell<Option<Errno>>,
    /// Whether requests that sync get no reply.
    is_slow: Cell<bool>,
    unanswered: RefCell<Vec<Request>>,
    received: RefCell<Vec<u8>>,
    replies: RefCell<VecDeque<u8>>,
    reader: RefCell<Option<Waker>>,
}

impl Server {
    fn answer(&self, request: &Request) {
        let is_sync = request.kind == Command::Flush as u16 || request.flags & command::FUA != 0;
        if is_sync && self.is_slow.get() {
            return self.unanswered.borrow_mut().push(*request);
        }
        let error = if is_sync {
            self.sync_error.take()
        } else {
            None
        };
        let mut replies = self.replies.borrow_mut();
        replies.extend(0x6744_6698_u32.to_be_bytes());
        replies.extend(error.map_or(0, |error| error as u32).to_be_bytes());
        replies.extend(request.cookie.to_be_bytes());
        if request.kind == Command::Read as u16 {
            replies.extend(std::iter::repeat_n(0, request.length as usize));
        }
        drop(replies);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Replies to the requests that are waiting for a sync.
    fn catch_up(&self) {
        self.is_slow.set(false);
        self.unanswered
            .take()
            .iter()
            .for_each(|request| self.answer(request));
    }
}

struct Connection(Rc<Server>);

impl Stream for Connection {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let (mut replies, mut count) = (self.0.replies.borrow_mut(), 0);
        for place in into {
            let InSlice::Bytes(place) = place else {
                continue;
            };
            let taken = place.len().min(replies.len());
            place
                .iter_mut()
                .zip(replies.drain(..taken))
                .for_each(|(place, byte)| *place = byte);
            count += taken;
        }
        if count == 0 {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(count)
        }
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        let mut received = self.0.received.borrow_mut();
        let before = received.len();
        for bytes in from {
            let OutSlice::Bytes(bytes) = bytes else {
                panic!("the data has a buffer")
            };
            received.extend_from_slice(bytes);
        }
        let count = received.len() - before;
        while let Ok(Some(request)) = Request::parse(ReplyForm::Simple, &received) {
            let payload = request.payload_bytes(ReplyForm::Simple) as usize;
            let end = Request::header_bytes(ReplyForm::Simple) + payload;
            if received.len() < end {
                break;
            }
            received.drain(..end);
            self.0.answer(&request);
        }
        Ok(count)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.reader.replace(Some(cx.waker().clone()));
        if self.0.replies.borrow().is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn local(&self) -> SocketAddr {
        ([127, 0, 0, 1], 2).into()
    }

    fn shutdown(&self) {}

    fn detach(self: Box<Self>) -> Detached {
        panic!("one thread is enough")
    }
}

/// Runs `work` with an export of the server.
fn with_export(
    flags: u16,
    is_linerate: bool,
    work: impl AsyncFnOnce(Rc<Server>, Rc<RemoteExport>),
) {
    block_on(Alone::exact_virtual_time(), async {
        let server = Rc::<Server>::default();
        let block_sizes = BlockSizes {
            minimum: 512,
            preferred: 4096,
            maximum: 32 << 20,
        };
        let (name, description) = ("disk".to_owned(), String::new());
        let export = nbd::Export {
            name,
            description,
            bytes: 1 << 20,
            flags,
            block_sizes,
        };
        let channel = ChannelName {
            session: 1,
            number: 0,
            ended: Vec::new(),
            start: 5,
            volume: None,
        };
        let channel = is_linerate.then_some(channel);
        let session = Session {
            export,
            form: ReplyForm::Simple,
            allocation: None,
            channel,
        };
        let url = Url::parse("nbd://127.0.0.1/disk?timeout=10").expect("a URL");
        let nowhere = Path {
            name: String::new(),
            addresses: Vec::new(),
            options: StreamOptions::default(),
            credentials: None,
        };
        let stream = Box::new(Connection(Rc::clone(&server)));
        let device = join(&url, vec![nowhere], 0, stream, session, (1, 2))
            .await
            .expect("it is served");
        work(server, Rc::new(device)).await;
    });
}

async fn write(device: &RemoteExport, durability: Durability) -> Result<(), DeviceError> {
    device
        .write(Extent::new(0, 8), Buffer::zeroed(4096).share(), durability)
        .await
}

/// The requester of the write has dropped it, or the write is late.
#[test]
fn the_error_of_a_write_with_fua_that_nobody_waits_for_fails_the_next_flush() {
    for is_late in [false, true] {
        with_export(WITH_FUA, false, async |server, device| {
            assert_eq!(write(&device, Durability::Cached).await, Ok(()));
            server.is_slow.set(true);
            server.sync_error.set(Some(Errno::Eio));
            let reader = Rc::clone(&device);
            let reads = spawn(async move {
                for _ in 0..20 {
                    sleep(SECOND).await; // the connection is not idle
                    reader
                        .read(Extent::new(0, 1), Buffer::zeroed(512))
                        .await
                        .expect("read");
                }
            });
            let stable = write(&device, Durability::Stable);
            match is_late {
                true => assert_eq!(stable.await, Err(DeviceError::NotReady)),
                false => assert!(timeout(SECOND, stable).await.is_err()),
            }
            reads.await;
            server.catch_up();
            sleep(SECOND).await;
            assert_eq!(device.losses(), Losses::counted(1), "late: {is_late}");
            assert_eq!(
                (device.flush().await, device.flush().await),
                (LOST, Ok(())),
                "late: {is_late}"
            );
        });
    }
}

#[test]
fn each_error_that_a_sync_can_have_counts_for_a_write_with_fua() {
    for (is_linerate, error, flushed) in [
        (false, Errno::Eio, LOST),
        (false, Errno::Enospc, LOST),
        (false, Errno::Einval, LOST),
        (false, Errno::Enomem, LOST),
        // The write was rejected before it was executed.
        (false, Errno::Eperm, Ok(())),
        // A Linerate server reports losses only to flushes.
        (true, Errno::Eio, Ok(())),
        (true, Errno::Enospc, Ok(())),
    ] {
        with_export(WITH_FUA, is_linerate, async |server, device| {
            assert_eq!(write(&device, Durability::Cached).await, Ok(()));
            server.sync_error.set(Some(error));
            write(&device, Durability::Stable)
                .await
                .expect_err("with FUA");
            assert_eq!(
                device.losses(),
                Losses::counted(u64::from(flushed.is_err())),
                "{error:?}"
            );
            let both = (device.flush().await, device.flush().await);
            assert_eq!(
                both,
                (flushed, Ok(())),
                "{error:?}, Linerate: {is_linerate}"
            );
        });
    }
}

/// The client sends a flush after each stable write.
#[test]
fn without_fua_a_stable_write_fails_only_for_losses_since_it_began() {
    with_export(FLAGS, false, async |server, device| {
        for is_own in [false, true] {
            assert_eq!(write(&device, Durability::Cached).await, Ok(()));
            let before = device.losses().count();
            match is_own {
                true => {
                    server.sync_error.set(Some(Errno::Eio));
                    assert_eq!(write(&device, Durability::Stable).await, LOST);
                }
                false => device.losses.count(), // as at a reconnect
            }
            for _ in 0..3 {
                assert_eq!(
                    write(&device, Durability::Stable).await,
                    Ok(()),
                    "its own: {is_own}"
                );
            }
            assert_eq!(device.losses().count(), before + 1, "its own: {is_own}");
            assert_eq!(
                (device.flush().await, device.flush().await),
                (LOST, Ok(())),
                "its own: {is_own}"
            );
        }
    });
}

/// There was an earlier loss as well. A rejected flush neither detects nor reports a loss.
#[test]
fn no_error_of_a_flush_hides_a_loss() {
    for (is_linerate, error, flushed, next) in [
        (false, Errno::Eio, DeviceError::WritesLost, Ok(())),
        (false, Errno::Einval, DeviceError::WritesLost, Ok(())),
        (false, Errno::Enomem, DeviceError::WritesLost, Ok(())),
        (false, Errno::Enospc, DeviceError::NoSpace, LOST),
        (false, Errno::Eperm, DeviceError::ReadOnly, LOST),
        (true, Errno::Eperm, DeviceError::Reserved, LOST),
    ] {
        with_export(WITH_FUA, is_linerate, async |server, device| {
            assert_eq!(write(&device, Durability::Cached).await, Ok(()));
            device.losses.count();
            server.sync_error.set(Some(error));
            assert_eq!(
                (device.flush().await, device.flush().await),
                (Err(flushed), next),
                "{error:?}"
            );
            assert_eq!(
                device.losses(),
                Losses::counted(1 + u64::from(flushed.is_loss())),
                "{error:?}"
            );
            assert_eq!(device.flush().await, Ok(()), "{error:?}");
        });
    }
}
