mod fuse;

use super::*;
use crate::{Epoll, EpollOptions, IoEngine, OpenError};
use block::Allocation;
use fuse::FuseFile;
use reactor::block_on;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
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

/// Creates a directory, and options for a 1 MiB volume in it.
fn scratch() -> (tempfile::TempDir, FileOptions) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = FileOptions {
        bytes: Some(1 << 20),
        ..FileOptions::new(directory.path().join("volume"))
    };
    (directory, options)
}

fn filled(length: usize, byte: u8) -> Slice {
    let mut data = Buffer::zeroed(length);
    data.fill(byte);
    data.share()
}

async fn reads_as(device: &FileDevice, extent: Extent, byte: u8) -> bool {
    let length = device.geometry().length(extent) as usize;
    let read = device
        .read(extent, Buffer::zeroed(length))
        .await
        .expect("readable");
    read.iter().all(|&found| found == byte)
}

#[test]
fn a_missing_file_is_created_sparse_if_a_size_is_given() {
    let (_directory, options) = scratch();
    let without = FileOptions {
        bytes: None,
        ..options.clone()
    };
    assert!(matches!(
        FileDevice::open(without),
        Err(OpenError::NotFound { .. })
    ));
    let device = FileOptions {
        bytes: Some(1 << 20),
        ..FileOptions::new(std::path::Path::new("/dev/no-such-disk"))
    };
    assert!(matches!(
        FileDevice::open(device),
        Err(OpenError::NoDevice { .. })
    ));
    assert!(!std::path::Path::new("/dev/no-such-disk").exists());
    let device = FileDevice::open(options.clone()).expect("created");
    assert_eq!(device.geometry().bytes(), 1 << 20);
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(&options.path).expect("there").blocks(), 0);
    let elsewhere = FileOptions {
        path: options.path.with_file_name("no such folder").join("x.img"),
        ..options
    };
    let error = FileDevice::open(elsewhere)
        .err()
        .expect("there is no folder");
    assert!(
        matches!(error, OpenError::NotCreated { .. })
            && error.to_string().contains("cannot create"),
        "{error}"
    );
}

/// A failed start removes the file that it created. By then, another process may be waiting for the file, or
/// may have replaced it.
#[test]
fn a_file_that_was_made_is_removed_while_it_is_locked_and_nothing_else_is() {
    let (directory, options) = scratch();
    let device = FileDevice::open(options.clone()).expect("created");
    let created = device.created().expect("it was not there");
    drop(device);
    let waiting = {
        let options = options.clone();
        std::thread::spawn(move || FileDevice::open(options))
    };
    created.remove();
    let next = waiting.join().expect("no panic").expect("a separate file");
    assert!(options.path.exists(), "it is not the one that was removed");
    let created = next.created().expect("it was not there");
    std::fs::rename(&options.path, directory.path().join("elsewhere")).expect("renamed");
    std::fs::write(&options.path, "somebody's").expect("written");
    created.remove();
    assert_eq!(
        std::fs::read(&options.path).expect("still there"),
        b"somebody's"
    );
}

/// The reported values are those of `du` and `df`.
#[test]
fn a_file_tells_what_it_takes_and_what_its_file_system_has() {
    with_both_engines(|| async {
        let (directory, options) = scratch();
        let device = FileDevice::open(options.clone()).expect("created");
        assert_eq!(device.space().await.expect("known").used_bytes, 0);
        device
            .write(Extent::new(8, 64), filled(64 * 512, 1), Durability::Stable)
            .await
            .expect("written");
        let space = device.space().await.expect("known");
        let said = |program, arguments: &[&str]| {
            let text = run_tool(program, arguments).expect("a tool of every system");
            text.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .next_back()
                .unwrap_or(0)
        };
        let volume = path_text(&options.path);
        let taken: u64 = said("stat", &["--format=%b", volume]);
        assert_eq!(space.used_bytes, 512 * taken);
        assert!(space.used_bytes >= 64 * 512);
        let folder = path_text(directory.path());
        let free: u64 = said("df", &["--output=avail", "-B1", folder]);
        let available = space.available_bytes.expect("known");
        assert!(
            available.abs_diff(free) < 1 << 30,
            "{available} and {free}, with others at work"
        );
    });
}

#[test]
fn a_second_opener_is_told_who_is_in_the_way() {
    let (_directory, options) = scratch();
    let first = FileDevice::open(options.clone()).expect("created");
    let refused = FileDevice::open(options.clone()).err().expect("locked");
    assert!(matches!(refused, OpenError::AlreadyInUse { .. }));
    assert!(
        refused
            .to_string()
            .contains("volume is in use by another server")
    );
    let reader = FileOptions {
        read_only: true,
        ..options.clone()
    };
    assert!(matches!(
        FileDevice::open(reader.clone()),
        Err(OpenError::AlreadyInUse { .. })
    ));
    drop(first);
    let _one = FileDevice::open(reader.clone()).expect("readable");
    let _two = FileDevice::open(reader).expect("readers do not exclude each other");
    assert!(matches!(
        FileDevice::open(options),
        Err(OpenError::AlreadyInUse { .. })
    ));
}

#[test]
fn files_of_the_wrong_size_are_refused_with_the_remedy() {
    let (_directory, options) = scratch();
    std::fs::write(&options.path, [0; 1000]).expect("written");
    let open = |bytes| {
        FileDevice::open(FileOptions {
            bytes,
            ..options.clone()
        })
        .err()
    };
    assert!(matches!(
        open(Some(1 << 20)),
        Some(OpenError::TooShort { found: 1000, .. })
    ));
    assert!(matches!(
        open(Some(100)),
        Some(OpenError::NotWholeBlocks { .. })
    ));
    assert!(matches!(
        open(None),
        Some(OpenError::Ragged { bytes: 1000, .. })
    ));
    std::fs::write(&options.path, []).expect("written");
    assert!(matches!(open(None), Some(OpenError::Empty { .. })));
}

#[test]
fn a_directory_is_no_volume() {
    let (directory, options) = scratch();
    let refused = FileDevice::open(FileOptions {
        path: directory.path().into(),
        ..options
    })
    .err();
    assert!(matches!(refused, Some(OpenError::NotAFile { .. })));
}

#[test]
fn what_was_written_is_read_both_ways_and_with_both_engines() {
    with_both_engines(|| async {
        for direct in [false, true] {
            let (_directory, options) = scratch();
            let options = FileOptions {
                direct,
                block_size: BlockSize::B4096,
                ..options
            };
            let device = match FileDevice::open(options) {
                Err(error @ OpenError::NoDirect { .. }) => return eprintln!("skipped: {error}"),
                device => device.expect("opened"),
            };
            let extent = Extent::new(3, 100);
            device
                .write(extent, filled(409_600, 7), Durability::Stable)
                .await
                .expect("written");
            device.flush().await.expect("flushed");
            assert!(reads_as(&device, extent, 7).await);
            assert!(reads_as(&device, Extent::new(0, 3), 0).await);
            // Part of a buffer at an unaligned address. Direct I/O does not accept it without a copy.
            let odd = filled(8192, 9).part(1..4097).expect("inside");
            device
                .write(Extent::new(0, 1), odd, Durability::Cached)
                .await
                .expect("written");
            assert!(reads_as(&device, Extent::new(0, 1), 9).await);
        }
    });
}

#[test]
fn requests_that_do_not_fit_are_out_of_range() {
    with_both_engines(|| async {
        let (_directory, options) = scratch();
        let device = FileDevice::open(options).expect("created");
        let beyond = Extent::new(2047, 2);
        let read = device.read(beyond, Buffer::zeroed(1024)).await;
        assert_eq!(read.err(), Some(DeviceError::OutOfRange));
        let written = device
            .write(Extent::new(0, 2), filled(512, 0), Durability::Cached)
            .await;
        assert_eq!(written, Err(DeviceError::OutOfRange));
        assert_eq!(
            device.unmap(Extent::new(u64::MAX, 2)).await,
            Err(DeviceError::OutOfRange)
        );
        assert_eq!(device.unmap(Extent::new(2048, 0)).await, Ok(()));
    });
}

#[test]
fn a_read_only_volume_changes_for_nobody() {
    with_both_engines(|| async {
        let (_directory, options) = scratch();
        drop(FileDevice::open(options.clone()).expect("created"));
        let device = FileDevice::open(FileOptions {
            read_only: true,
            ..options
        })
        .expect("opened");
        let extent = Extent::new(0, 1);
        let written = device
            .write(extent, filled(512, 1), Durability::Cached)
            .await;
        assert_eq!(written, Err(DeviceError::ReadOnly));
        assert_eq!(device.unmap(extent).await, Err(DeviceError::ReadOnly));
        assert_eq!(
            device.write_zeroes(extent, false).await,
            Err(DeviceError::ReadOnly)
        );
        assert!(reads_as(&device, extent, 0).await);
    });
}

#[test]
fn unmapped_blocks_are_holes_and_zeroed_ones_keep_their_space() {
    with_both_engines(|| async {
        let (_directory, options) = scratch();
        let device = FileDevice::open(options).expect("created");
        device
            .write(Extent::new(0, 2048), filled(1 << 20, 7), Durability::Cached)
            .await
            .expect("written");
        device.unmap(Extent::new(512, 512)).await.expect("unmapped");
        device
            .unmap(Extent::new(1501, 3))
            .await
            .expect("unmapped, less than a granule");
        device
            .write_zeroes(Extent::new(1024, 8), false)
            .await
            .expect("zeroed");
        assert!(reads_as(&device, Extent::new(512, 520), 0).await);
        assert!(reads_as(&device, Extent::new(1501, 3), 0).await);
        assert!(
            reads_as(&device, Extent::new(1504, 544), 7).await
                && reads_as(&device, Extent::new(0, 512), 7).await
        );
        if !device.profile().thin {
            return eprintln!("skipped: this file system has no holes");
        }
        let runs = device
            .allocation(Extent::new(0, 2048), 2)
            .await
            .expect("runs");
        let expected = [
            Run {
                extent: Extent::new(0, 512),
                allocation: Allocation::Mapped,
            },
            Run {
                extent: Extent::new(512, 512),
                allocation: Allocation::Deallocated,
            },
        ];
        assert_eq!(runs, expected);
    });
}

#[test]
fn a_file_that_grows_is_noticed_and_one_that_shrinks_fails_where_it_ends() {
    with_both_engines(|| async {
        let (_directory, options) = scratch();
        drop(FileDevice::open(options.clone()).expect("created"));
        let path = options.path.clone();
        let device = FileDevice::open(FileOptions {
            bytes: None,
            ..options
        })
        .expect("opened");
        let before = device.geometry().blocks;
        device.refresh().await.expect("looked at");
        assert_eq!(device.geometry().blocks, before);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("opened");
        file.set_len(2 << 20).expect("grown");
        device.refresh().await.expect("looked at");
        assert_eq!(device.geometry().blocks, Blocks(4096));
        file.set_len(512).expect("shrunk");
        device.refresh().await.expect("looked at");
        assert_eq!(device.geometry().blocks, Blocks(4096));
        let read = device.read(Extent::new(0, 4), Buffer::zeroed(2048)).await;
        assert_eq!(read.err(), Some(DeviceError::Unreadable(Lba(1))));
    });
}

#[test]
fn a_full_file_system_is_no_space() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new(arguments[0])
            .args(&arguments[1..])
            .arg(directory.path())
            .status();
        status.is_ok_and(|status| status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=256k", "none"]) {
        return eprintln!("skipped: mounting a small tmpfs needs root");
    }
    let path = directory.path().join("volume");
    with_both_engines(|| async {
        let options = FileOptions {
            bytes: Some(1 << 20),
            ..FileOptions::new(&path)
        };
        let device = FileDevice::open(options).expect("created");
        let whole = Extent::new(0, 2048);
        let full = device
            .write(whole, filled(1 << 20, 1), Durability::Cached)
            .await;
        assert_eq!(full, Err(DeviceError::NoSpace));
        device.unmap(whole).await.expect("unmapped");
        device
            .write(Extent::new(0, 8), filled(4096, 1), Durability::Cached)
            .await
            .expect("room again");
    });
    assert!(mount(&["umount"]));
}

#[test]
fn a_block_device_is_a_volume_and_is_zeroed_by_unmapping() {
    let _alone = loop_devices();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let image = directory.path().join("image");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(1 << 20))
        .expect("made");
    let losetup = |arguments: &[&std::ffi::OsStr]| {
        let output = std::process::Command::new("losetup")
            .args(arguments)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(device) = losetup(&["--find".as_ref(), "--show".as_ref(), image.as_ref()]) else {
        return eprintln!("skipped: a loop device needs root and losetup");
    };
    with_both_engines(|| async {
        let volume = FileDevice::open(FileOptions::new(&device)).expect("opened");
        assert_eq!(volume.geometry().bytes(), 1 << 20);
        let whole = Extent::new(0, 2048);
        volume
            .write(whole, filled(1 << 20, 7), Durability::Stable)
            .await
            .expect("written");
        assert!(reads_as(&volume, whole, 7).await);
        volume.unmap(Extent::new(0, 1024)).await.expect("unmapped");
        volume
            .write_zeroes(Extent::new(1024, 512), false)
            .await
            .expect("zeroed");
        volume.flush().await.expect("flushed");
        assert!(reads_as(&volume, Extent::new(0, 1536), 0).await);
        assert!(reads_as(&volume, Extent::new(1536, 512), 7).await);
        let second = FileDevice::open(FileOptions::new(&device)).err();
        assert!(
            matches!(second, Some(OpenError::AlreadyInUse { .. })),
            "{second:?}"
        );
    });
    losetup(&["--detach".as_ref(), device.as_ref()]).expect("detached");
}

/// The kernel deallocates and zeroes only whole sectors of a device, and returns EINVAL for others. This must
/// not be reported as a medium error.
#[test]
fn single_blocks_of_longer_sectors_can_be_unmapped_and_zeroed() {
    let _alone = loop_devices();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let image = directory.path().join("image");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(1 << 20))
        .expect("made");
    let made = run_tool(
        "losetup",
        &[
            "--find",
            "--show",
            "--sector-size",
            "4096",
            path_text(&image),
        ],
    );
    let Some(device) = made else {
        return eprintln!("skipped: a loop device with long sectors needs root and losetup");
    };
    with_both_engines(|| async {
        let volume = FileDevice::open(FileOptions::new(&device)).expect("opened");
        let whole = Extent::new(0, 2048);
        for (first, blocks) in [
            (1, 3),
            (9, 1),
            (6, 2),
            (6, 4),
            (8, 8),
            (3, 29),
            (0, 13),
            (2041, 7),
            (7, 2041),
        ] {
            for unmaps in [false, true] {
                volume
                    .write(whole, filled(1 << 20, 7), Durability::Cached)
                    .await
                    .expect("written");
                let extent = Extent::new(first, blocks);
                let done = match unmaps {
                    true => volume.unmap(extent).await,
                    false => volume.write_zeroes(extent, false).await,
                };
                assert_eq!(done, Ok(()), "{extent}, unmapped: {unmaps}");
                assert!(
                    reads_as(&volume, extent, 0).await,
                    "{extent}, unmapped: {unmaps}"
                );
                let end = first + blocks;
                assert!(
                    reads_as(&volume, Extent::new(0, first), 7).await,
                    "before {extent}"
                );
                assert!(
                    reads_as(&volume, Extent::new(end, 2048 - end), 7).await,
                    "after {extent}"
                );
            }
        }
        volume.flush().await.expect("flushed");
    });
    run_tool("losetup", &["--detach", &device]).expect("detached");
}

#[test]
fn a_volume_past_the_page_cache_can_be_used_through_it_too() {
    let (_directory, options) = scratch();
    with_both_engines(|| async {
        let device = match FileDevice::open(FileOptions {
            direct: true,
            ..options.clone()
        }) {
            Ok(device) => device,
            Err(OpenError::NoDirect { .. } | OpenError::DirectNeedsLargerBlocks { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let cached = device.through_page_cache().expect("the same file");
        let extent = Extent::new(8, 8);
        cached
            .write(extent, filled(4096, 7), Durability::Cached)
            .await
            .expect("writable");
        cached.flush().await.expect("flushed");
        cached.forget_cached().expect("forgotten");
        assert!(reads_as(&device, extent, 7).await && reads_as(&cached, extent, 7).await);
        let again = FileDevice::open(FileOptions {
            direct: true,
            ..options.clone()
        });
        assert!(
            matches!(again, Err(OpenError::AlreadyInUse { .. })),
            "the lock is held"
        );
    });
}

#[test]
fn what_is_in_the_page_cache_is_read_without_an_engine() {
    let (_directory, options) = scratch();
    let device = FileDevice::open(options.clone()).expect("created");
    let extent = Extent::new(8, 8);
    with_both_engines(|| async {
        device
            .write(extent, filled(4096, 7), Durability::Cached)
            .await
            .expect("writable");
    });
    let mut found = [0; 4096];
    assert!(device.read_nowait(extent, &mut found) && found == [7; 4096]);
    assert!(
        !device.read_nowait(extent, &mut found[..512]),
        "another length than the extent's"
    );
    assert!(
        !device.read_nowait(Extent::new(2048, 8), &mut found),
        "beyond the end"
    );
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&options.path)
        .expect("there");
    file.set_len(4096).expect("shortened by somebody else");
    assert!(!device.read_nowait(extent, &mut found));
}

#[test]
fn a_file_in_memory_is_written_without_an_engine() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no /dev/shm here");
    };
    let options = FileOptions {
        bytes: Some(1 << 20),
        ..FileOptions::new(directory.path().join("volume"))
    };
    let device = FileDevice::open(options.clone()).expect("created");
    let extent = Extent::new(8, 8);
    assert!(device.write_nowait(extent, &[7; 4096]));
    assert!(
        !device.write_nowait(Extent::new(2041, 8), &[7; 4096]),
        "beyond the end"
    );
    with_both_engines(|| async { assert!(reads_as(&device, extent, 7).await) });
    drop(device);
    let device = FileDevice::open(FileOptions {
        read_only: true,
        ..options
    })
    .expect("opened");
    assert!(!device.write_nowait(extent, &[8; 4096]));
}

#[test]
fn nothing_is_done_at_once_past_the_page_cache() {
    let (_directory, options) = scratch();
    match FileDevice::open(FileOptions {
        direct: true,
        ..options
    }) {
        Ok(device) => {
            let mut buffer = Buffer::zeroed(4096);
            let extent = Extent::new(8, 8);
            assert!(
                !device.read_nowait(extent, &mut buffer) && !device.write_nowait(extent, &buffer)
            );
        }
        Err(error) => {
            eprintln!("skipped: no direct I/O in the folder for temporary files ({error})")
        }
    }
}

/// A disk that accepts writes into the page cache, but has space for only a quarter of them: a loop device
/// over a sparse file in a small file system.
struct FullDisk {
    directory: tempfile::TempDir,
    device: String,
    _alone: MutexGuard<'static, ()>,
}

/// `losetup --find` briefly claims each device that it tries, even one just taken by another process, and a
/// claimed device cannot be opened (EBUSY). So only one test at a time uses loop devices.
fn loop_devices() -> MutexGuard<'static, ()> {
    static LOOP_DEVICES: Mutex<()> = Mutex::new(());
    LOOP_DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FullDisk {
    fn make() -> Option<FullDisk> {
        let alone = loop_devices();
        let directory = tempfile::tempdir().expect("a temporary directory");
        run_tool(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                "size=256k",
                "none",
                path_text(directory.path()),
            ],
        )?;
        let image = directory.path().join("image");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(1 << 20))
            .expect("made");
        let device = run_tool("losetup", &["--find", "--show", path_text(&image)]);
        if device.is_none() {
            run_tool("umount", &[path_text(directory.path())]);
        }
        Some(FullDisk {
            device: device?,
            directory,
            _alone: alone,
        })
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(FileOptions::new(&self.device)).expect("opened")
    }

    /// Writes back dirty data, as the kernel does after a while. An error is reported to this file
    /// description, not to the volume's file description.
    fn write_back(&self) -> std::io::Result<()> {
        std::fs::File::open(&self.device)?.sync_data()
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        run_tool("losetup", &["--detach", &self.device]);
        run_tool("umount", &["--lazy", path_text(self.directory.path())]);
    }
}

fn path_text(path: &std::path::Path) -> &str {
    path.to_str().expect("a temporary path is text")
}

fn run_tool(program: &str, arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Linux reports a failed write-back once per open file description, to a flush or to a write with RWF_DSYNC.
/// Once, such a write received the report, and the next flush then returned GOOD although writes were lost.
#[test]
fn a_stable_write_that_fails_does_not_hide_lost_writes_from_the_next_flush() {
    with_both_engines(|| async {
        let Some(disk) = FullDisk::make() else {
            return eprintln!("skipped: a full disk needs root, mount and losetup");
        };
        let volume = disk.open();
        volume
            .write(Extent::new(0, 2048), filled(1 << 20, 7), Durability::Cached)
            .await
            .expect("taken");
        disk.write_back().expect_err("there is no room");
        let stable = volume
            .write(Extent::new(0, 8), filled(4096, 8), Durability::Stable)
            .await;
        stable.expect_err("the failed write-back is reported");
        assert_eq!(
            volume.flush().await,
            Err(DeviceError::WritesLost),
            "what was written before is lost"
        );
        assert!(volume.losses().count() > 0);
    });
}

/// Of two concurrent fdatasync calls, only one returns the error, but both flushes must fail.
#[test]
fn flushes_at_the_same_time_all_fail() {
    with_both_engines(|| async {
        let Some(disk) = FullDisk::make() else {
            return eprintln!("skipped: a full disk needs root, mount and losetup");
        };
        let volume = disk.open();
        volume
            .write(Extent::new(0, 2048), filled(1 << 20, 7), Durability::Cached)
            .await
            .expect("taken");
        // All flushes are requested before the first starts.
        let mut flushes: Vec<_> = (0..8).map(|_| volume.flush()).collect();
        let mut ended = Vec::new();
        poll_fn(|cx| {
            flushes.retain_mut(|flush| match flush.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    ended.push(result);
                    false
                }
                Poll::Pending => true,
            });
            if flushes.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        assert_eq!(ended, [Err(DeviceError::WritesLost); 8]);
        let losses = volume.losses().count();
        volume.flush().await.expect("the volume goes on");
        assert_eq!(volume.losses().count(), losses);
    });
}

/// A failed write-back is reported once per open file description: to the description for writes, and to the
/// description for syncs. A stable write after a flush used to fail because of a loss that the flush had
/// already reported.
#[test]
fn a_loss_that_a_flush_has_reported_fails_no_stable_write_after_it() {
    with_both_engines(|| async {
        let Some(disk) = FullDisk::make() else {
            return eprintln!("skipped: a full disk needs root, mount and losetup");
        };
        let volume = disk.open();
        volume
            .write(Extent::new(0, 8), filled(4096, 7), Durability::Stable)
            .await
            .expect("there is room for it");
        volume
            .write(
                Extent::new(8, 2040),
                filled(2040 * 512, 7),
                Durability::Cached,
            )
            .await
            .expect("taken");
        assert_eq!(volume.flush().await, Err(DeviceError::WritesLost));
        let losses = volume.losses().count();
        let overwritten = volume
            .write(Extent::new(0, 8), filled(4096, 8), Durability::Stable)
            .await;
        assert_eq!((overwritten, volume.losses().count()), (Ok(()), losses));
    });
}

/// If a sync fails, the kernel returns the errno of the file system's server or of the device. It drops the
/// data, whatever the errno.
#[test]
fn a_failed_sync_is_a_loss_whatever_its_error() {
    with_both_engines(|| async {
        let Some(file) = FuseFile::mount() else {
            return eprintln!("skipped: a FUSE file system needs root and /dev/fuse");
        };
        let volume = FileDevice::open(FileOptions::new(file.path())).expect("opened");
        let extent = Extent::new(0, 8);
        let errors = [
            libc::EIO,
            libc::EAGAIN,
            libc::EINVAL,
            libc::EOPNOTSUPP,
            libc::EBADF,
            libc::EFBIG,
            libc::ENOSPC,
        ];
        for errno in errors {
            volume
                .write(extent, filled(4096, 7), Durability::Cached)
                .await
                .expect("taken");
            file.answer_syncs(errno);
            let before = volume.losses().count();
            assert_eq!(
                volume.flush().await,
                Err(DeviceError::WritesLost),
                "{errno}"
            );
            let flushed = volume.losses().count();
            assert!(flushed > before, "{errno}");
            volume
                .write(extent, filled(4096, 8), Durability::Stable)
                .await
                .expect_err("not stable");
            assert!(
                volume.losses().count() > flushed,
                "{errno}: the sync of a stable write"
            );
            file.answer_syncs(0);
            assert_eq!(volume.flush().await, Ok(()), "{errno}");
            volume
                .write(extent, filled(4096, 9), Durability::Stable)
                .await
                .expect("stable");
        }
    });
}

/// Several threads may use one file. A thread used to exit while its flush hung, and the flushes of all other
/// threads then waited for this flush.
#[test]
fn a_sync_that_hangs_at_the_end_of_its_thread_leaves_the_file_to_others_and_may_be_a_loss() {
    if Epoll::with_engine(EpollOptions::default(), IoEngine::Uring).is_err() {
        return eprintln!("skipped: no io_uring here");
    }
    let Some(file) = FuseFile::mount() else {
        return eprintln!("skipped: a FUSE file system needs root and /dev/fuse");
    };
    let volume = FileDevice::open(FileOptions::new(file.path())).expect("opened");
    let volume = std::sync::Arc::new(volume);
    file.hold_next_sync();
    let (asked, has_asked) = mpsc::channel();
    let (end, is_to_end) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    let first = std::thread::spawn({
        let volume = std::sync::Arc::clone(&volume);
        move || {
            let world =
                Epoll::with_engine(EpollOptions::default(), IoEngine::Uring).expect("as before");
            block_on(Rc::new(world), async {
                let mut flush = pin!(volume.flush());
                assert!(poll_fn(|cx| Poll::Ready(flush.as_mut().poll(cx).is_pending())).await);
                asked.send(()).expect("waited for");
                is_to_end.recv().expect("told");
            });
            ended.send(()).expect("waited for");
        }
    });
    has_asked.recv().expect("asked");
    let held = file.held();
    let world = Epoll::with_engine(EpollOptions::default(), IoEngine::Threads).expect("an epoll");
    block_on(Rc::new(world), async {
        let mut second = pin!(volume.flush());
        assert!(poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await);
        end.send(()).expect("the first thread waits");
        has_ended.recv().expect("its world ends");
        // The kernel runs one sync of a FUSE file at a time.
        drop(held);
        assert_eq!(
            second.await,
            Err(DeviceError::WritesLost),
            "what became of the first is not known"
        );
        assert_eq!(volume.flush().await, Ok(()));
    });
    first.join().expect("it ends");
}

#[test]
fn a_volume_whose_failed_writes_could_go_unnoticed_is_not_opened() {
    let (_directory, options) = scratch();
    drop(FileDevice::open(options.clone()).expect("created"));
    let without_proc = crate::namespace::on_a_thread(|| {
        // SAFETY: no CLONE_FILES; and this thread ends here.
        #[expect(unsafe_code, reason = "the unsafe part of unshare(2) is CLONE_FILES")]
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
        let private = rustix::mount::MountPropagationFlags::PRIVATE
            | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private)?;
        rustix::mount::unmount(c"/proc", rustix::mount::UnmountFlags::DETACH)?;
        let reader = FileDevice::open(FileOptions {
            read_only: true,
            ..options.clone()
        });
        Ok::<_, std::io::Error>((reader.err(), FileDevice::open(options.clone()).err()))
    });
    match without_proc.expect("a thread") {
        Err(error) => eprintln!("skipped: /proc cannot be unmounted here ({error})"),
        Ok((reader, writer)) => {
            assert!(reader.is_none(), "{reader:?}");
            let writer = writer.expect("not opened").to_string();
            assert!(writer.contains("/proc/self/fd"), "{writer}");
        }
    }
}

#[test]
fn a_file_with_a_size_of_its_own_grows_when_it_is_told_to() {
    with_both_engines(|| async {
        let (_directory, options) = scratch();
        let device = FileDevice::open(options.clone()).expect("created");
        let before = device.geometry().blocks;
        assert_eq!(
            device.grow(1000).await,
            Err(DeviceError::OutOfRange),
            "no whole blocks"
        );
        device.grow(512).await.expect("it is longer already");
        assert_eq!(device.geometry().blocks, before, "nothing shrinks");
        device.grow(4 << 20).await.expect("room");
        assert_eq!(device.geometry().blocks, Blocks(8192));
        assert_eq!(
            std::fs::metadata(&options.path).expect("the file").len(),
            4 << 20
        );
        drop(device);
        let device = FileDevice::open(FileOptions {
            read_only: true,
            ..options
        })
        .expect("opened");
        assert_eq!(device.grow(8 << 20).await, Err(DeviceError::ReadOnly));
    });
}

#[test]
fn each_cause_has_its_name() {
    let device_error =
        |errno, verb| device_error(&io::Error::from_raw_os_error(errno), verb, Lba(7));
    assert_eq!(
        device_error(libc::ENOSPC, Verb::Write),
        DeviceError::NoSpace
    );
    assert_eq!(
        device_error(libc::EIO, Verb::Write),
        DeviceError::Unwritable(Lba(7))
    );
    assert_eq!(
        device_error(libc::EIO, Verb::Read),
        DeviceError::Unreadable(Lba(7))
    );
    assert_eq!(
        device_error(libc::EROFS, Verb::Write),
        DeviceError::ReadOnly
    );
    assert_eq!(
        device_error(libc::ENODEV, Verb::Read),
        DeviceError::NotReady
    );
    assert_eq!(
        device_error(libc::ETIMEDOUT, Verb::Read),
        DeviceError::TimedOut
    );
    assert_eq!(
        device_error(libc::EOPNOTSUPP, Verb::Write),
        DeviceError::Unsupported
    );
}
