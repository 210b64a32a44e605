use super::*;
use crate::{Epoll, EpollOptions};
use reactor::block_on;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Runs a scene once with each engine.
fn with_both_engines<F: Future>(scene: impl Fn() -> F) {
    for engine in [IoEngine::Uring, IoEngine::Threads] {
        match Epoll::with_engine(EpollOptions::default(), engine) {
            Ok(world) => drop(block_on(Rc::new(world), scene())),
            Err(error) => eprintln!("skipped: no {engine} here ({error})"),
        }
    }
}

fn scratch() -> AsyncFile {
    AsyncFile::new(tempfile::tempfile().expect("a temporary file")).expect("a second description")
}

fn filled(length: usize, byte: u8) -> Slice {
    let mut data = Buffer::zeroed(length);
    data.fill(byte);
    data.share()
}

/// A pipe whose read end behaves like a hung file until something is written to the other end.
fn hanging() -> (AsyncFile, File) {
    let (reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe().expect("a pipe");
    (
        AsyncFile::new(reader.into()).expect("a pipe"),
        writer.into(),
    )
}

/// Polls a future once.
async fn begin<F: Future>(future: std::pin::Pin<&mut F>) {
    let mut future = future;
    let waits = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    assert!(waits);
}

#[test]
fn what_was_written_is_read() {
    with_both_engines(|| async {
        let file = scratch();
        for (at, durability) in [(0, Durability::Cached), (1 << 20, Durability::Stable)] {
            let progress = file.write(filled(300_000, 7), at, durability).await;
            assert!(progress.result.is_ok() && progress.done == 300_000);
            let (buffer, progress) = file.read(Buffer::zeroed(300_000), at).await;
            assert!(progress.result.is_ok() && buffer.iter().all(|&byte| byte == 7));
        }
        file.sync_data().await.expect("synced");
    });
}

#[test]
fn a_read_beyond_the_end_tells_how_far_it_came() {
    with_both_engines(|| async {
        let file = scratch();
        file.write(filled(1000, 7), 0, Durability::Cached)
            .await
            .result
            .expect("written");
        let (_, progress) = file.read(Buffer::zeroed(4096), 0).await;
        assert_eq!(progress.done, 1000);
        assert_eq!(
            progress.result.expect_err("short").kind(),
            io::ErrorKind::UnexpectedEof
        );
    });
}

#[test]
fn errors_are_the_kernels() {
    with_both_engines(|| async {
        let file = AsyncFile::new(File::open("/dev/null").expect("there is /dev/null"))
            .expect("no second description");
        let error = file
            .write(filled(512, 0), 0, Durability::Cached)
            .await
            .result
            .expect_err("read-only");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn many_more_operations_than_the_ring_holds_all_end() {
    with_both_engines(|| async {
        let file = Rc::new(scratch());
        let tasks: Vec<_> = (0..2000u64)
            .map(|n| {
                let file = Rc::clone(&file);
                reactor::spawn(async move {
                    let data = filled(512, n as u8);
                    file.write(data, n * 512, Durability::Cached)
                        .await
                        .result
                        .expect("written");
                    let (buffer, progress) = file.read(Buffer::zeroed(512), n * 512).await;
                    progress.result.expect("read");
                    assert!(buffer.iter().all(|&byte| byte == n as u8));
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
}

#[test]
fn a_dropped_operation_that_hangs_is_an_orphan_until_it_ends() {
    // This test uses threads: io_uring can cancel a read of a pipe, as the next test shows.
    let world = Epoll::with_engine(EpollOptions::default(), IoEngine::Threads).expect("an epoll");
    block_on(Rc::new(world), async {
        let (file, writer) = hanging();
        let (begun, runs) = std::sync::mpsc::channel();
        {
            let mut read = pin!(file.blocking(move |file| {
                begun.send(()).expect("heard");
                rustix::io::read(file, &mut [0; 8])
            }));
            begin(read.as_mut()).await;
            runs.recv().expect("it begins");
        }
        assert_eq!(file.orphans(), 1);
        let mut quiet = pin!(file.quiesced());
        begin(quiet.as_mut()).await;
        rustix::io::write(&writer, b"at last").expect("written");
        quiet.await;
        assert_eq!(file.orphans(), 0);
    });
}

#[test]
fn an_operation_dropped_before_its_turn_never_reaches_the_file() {
    let Ok(world) = Epoll::with_engine(EpollOptions::default(), IoEngine::Uring) else {
        return eprintln!("skipped: no io_uring here");
    };
    block_on(Rc::new(world), async {
        // The first operation is submitted immediately. This one hangs, so the next one stays queued until
        // the end of the turn.
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let hanging = AsyncFile::new(reader.into()).expect("a pipe");
        let mut first = pin!(hanging.read(Buffer::zeroed(8), u64::MAX));
        begin(first.as_mut()).await;
        let file = scratch();
        {
            let mut write = pin!(file.write(filled(512, 9), 0, Durability::Cached));
            begin(write.as_mut()).await;
        }
        assert_eq!(file.orphans(), 0);
        file.sync_data().await.expect("synced");
        assert_eq!(file.file().metadata().expect("its size").len(), 0);
    });
}

#[test]
fn the_first_operation_does_not_wait_for_the_end_of_a_turn() {
    let Ok(world) = Epoll::with_engine(EpollOptions::default(), IoEngine::Uring) else {
        return eprintln!("skipped: no io_uring here");
    };
    block_on(Rc::new(world), async {
        let file = scratch();
        let mut write = pin!(file.write(filled(512, 9), 0, Durability::Cached));
        begin(write.as_mut()).await;
        let ring = super::ring::current().expect("of this thread");
        assert!(ring.is_busy());
        assert!(write.await.result.is_ok());
    });
}

#[test]
fn of_much_that_ends_at_once_the_first_is_answered_before_the_rest() {
    let Ok(world) = Epoll::with_engine(EpollOptions::default(), IoEngine::Uring) else {
        return eprintln!("skipped: no io_uring here");
    };
    block_on(Rc::new(world), async {
        let ring = super::ring::current().expect("of this thread");
        let (readers, writers): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| rustix::pipe::pipe().expect("a pipe"))
            .map(|(reader, writer)| (AsyncFile::new(reader.into()).expect("a pipe"), writer))
            .unzip();
        let mut reads: Vec<_> = readers
            .iter()
            .map(|file| Box::pin(file.read(Buffer::zeroed(4096), u64::MAX)))
            .collect();
        for read in &mut reads {
            begin(read.as_mut()).await;
        }
        assert!(!ring.turn());
        for writer in &writers {
            assert_eq!(
                rustix::io::write(writer, &[7; 4096]).expect("written"),
                4096
            );
        }
        assert!(ring.turn() && ring.has_news(), "one is taken");
        assert!(ring.turn() && !ring.has_news(), "then the other two");
        for read in reads {
            assert!(read.await.1.result.is_ok());
        }
    });
}

#[test]
fn a_dropped_operation_that_can_be_cancelled_is() {
    let Ok(world) = Epoll::with_engine(EpollOptions::default(), IoEngine::Uring) else {
        return eprintln!("skipped: no io_uring here");
    };
    block_on(Rc::new(world), async {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let file = AsyncFile::new(reader.into()).expect("a pipe");
        {
            // A pipe has no offsets, so use -1, the current position.
            let mut read = pin!(file.read(Buffer::zeroed(8), u64::MAX));
            begin(read.as_mut()).await;
            reactor::yield_now().await;
            reactor::yield_now().await;
        }
        file.quiesced().await;
    });
}

#[test]
fn a_file_that_hangs_with_all_its_depth_leaves_the_ring_to_others() {
    with_both_engines(|| async {
        let (hung, writer) = hanging();
        let hung = Rc::new(hung);
        let readers: Vec<_> = (0..300)
            .map(|_| {
                let hung = Rc::clone(&hung);
                reactor::spawn(async move { hung.read(Buffer::zeroed(8), u64::MAX).await.1.done })
            })
            .collect();
        reactor::yield_now().await;
        let healthy = scratch();
        healthy
            .write(filled(512, 7), 0, Durability::Stable)
            .await
            .result
            .expect("written");
        drop(writer); // ends the pipe for all of its readers
        for reader in readers {
            assert_eq!(reader.await, 0);
        }
    });
}

#[test]
fn a_thread_that_ends_with_an_operation_hanging_does_end() {
    let Ok(world) = Epoll::with_engine(EpollOptions::default(), IoEngine::Uring) else {
        return eprintln!("skipped: no io_uring here");
    };
    block_on(Rc::new(world), async {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let file = Rc::new(AsyncFile::new(reader.into()).expect("a pipe"));
        reactor::spawn(async move {
            let _writer = writer;
            file.read(Buffer::zeroed(8), u64::MAX).await;
        });
        reactor::yield_now().await;
        reactor::yield_now().await;
    });
}

#[test]
fn space_is_taken_and_given_back() {
    with_both_engines(|| async {
        let file = scratch();
        file.write(filled(1 << 20, 7), 0, Durability::Stable)
            .await
            .result
            .expect("written");
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        file.allocate(hole, 0, 1 << 19).await.expect("punched");
        let (buffer, _) = file.read(Buffer::zeroed(1 << 20), 0).await;
        assert!(
            buffer[..1 << 19].iter().all(|&byte| byte == 0)
                && buffer[1 << 19..].iter().all(|&byte| byte == 7)
        );
    });
}
