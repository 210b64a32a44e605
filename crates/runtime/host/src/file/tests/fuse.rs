//! A file whose sync results the test controls: a FUSE file system (linux/fuse.h, protocol 7.31) with one
//! regular file.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::{ffi::CString, thread};

use rustix::mount::{MountFlags, UnmountFlags};

/// A 1 MiB file in a mounted file system. Dropping this unmounts the file system.
pub(super) struct FuseFile {
    directory: tempfile::TempDir,
    kernel: File,
    syncs: Arc<Syncs>,
    held: Receiver<u64>,
}

#[derive(Default)]
struct Syncs {
    /// The errno with which syncs fail; 0 is success.
    errno: AtomicI32,
    /// Whether the reply to the next sync is withheld.
    holds_next: AtomicBool,
}

const BYTES: usize = 1 << 20;
const IN_HEADER: usize = 40;

impl FuseFile {
    /// Mounts the file system. Returns `None` where FUSE file systems cannot be mounted.
    pub(super) fn mount() -> Option<FuseFile> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kernel = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .ok()?;
        let file = directory.path().join("volume");
        File::create(&file).expect("a file to mount over");
        let options = format!(
            "fd={},rootmode=100644,user_id=0,group_id=0",
            kernel.as_raw_fd()
        );
        let options = CString::new(options).expect("no zeros");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("linerate", &file, "fuse", flags, &*options).ok()?;
        let (hold, held) = mpsc::channel();
        let syncs = Arc::<Syncs>::default();
        let server = Server {
            kernel: kernel.try_clone().expect("a descriptor"),
            data: vec![0; BYTES],
            syncs: Arc::clone(&syncs),
            hold,
        };
        thread::spawn(move || server.serve());
        Some(FuseFile {
            directory,
            kernel,
            syncs,
            held,
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("volume")
    }

    /// Sets the errno with which later syncs fail; 0 is success.
    pub(super) fn answer_syncs(&self, errno: i32) {
        self.syncs.errno.store(errno, Ordering::SeqCst);
    }

    /// Withholds the reply to the next sync.
    pub(super) fn hold_next_sync(&self) {
        self.syncs.holds_next.store(true, Ordering::SeqCst);
    }

    /// Waits until a sync is held.
    pub(super) fn held(&self) -> Held<'_> {
        Held {
            unique: self.held.recv().expect("the server lives"),
            kernel: &self.kernel,
        }
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        // A forced unmount aborts every request and rejects later ones. Without it, a descriptor that a test
        // leaked would be closed only when this process exits. By then no thread serves the file system, and
        // the process would hang.
        let _ = rustix::mount::unmount(self.path(), UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

/// A sync whose reply is withheld until this is dropped.
pub(super) struct Held<'a> {
    unique: u64,
    kernel: &'a File,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        answer(self.kernel, self.unique, Ok(&[]));
    }
}

struct Server {
    kernel: File,
    data: Vec<u8>,
    syncs: Arc<Syncs>,
    hold: Sender<u64>,
}

impl Server {
    fn serve(mut self) {
        let mut request = vec![0; 2 * BYTES];
        // Reading fails with ENODEV once the file system is unmounted.
        while let Ok(length) = self.kernel.read(&mut request) {
            self.carry_out(&request[..length]);
        }
    }

    fn carry_out(&mut self, request: &[u8]) {
        let (opcode, unique, body) = (
            u32_at(request, 4),
            u64_at(request, 8),
            &request[IN_HEADER..],
        );
        // READ and WRITE have the file handle, the offset and the length. The data of a write follows a
        // structure of 40 bytes.
        let range =
            || u64_at(body, 8) as usize..u64_at(body, 8) as usize + u32_at(body, 16) as usize;
        match opcode {
            FORGET | INTERRUPT | BATCH_FORGET => {}
            INIT => answer(&self.kernel, unique, Ok(&init())),
            GETATTR | SETATTR => answer(&self.kernel, unique, Ok(&attributes())),
            OPEN => answer(&self.kernel, unique, Ok(&[0; 16])),
            READ => answer(&self.kernel, unique, Ok(&self.data[range()])),
            WRITE => {
                self.data[range()].copy_from_slice(&body[40..][..range().len()]);
                answer(
                    &self.kernel,
                    unique,
                    Ok(&(range().len() as u64).to_ne_bytes()),
                );
            }
            FSYNC if self.syncs.holds_next.swap(false, Ordering::SeqCst) => {
                let _ = self.hold.send(unique);
            }
            FSYNC => match self.syncs.errno.load(Ordering::SeqCst) {
                0 => answer(&self.kernel, unique, Ok(&[])),
                errno => answer(&self.kernel, unique, Err(errno)),
            },
            RELEASE | FLUSH => answer(&self.kernel, unique, Ok(&[])),
            _ => answer(&self.kernel, unique, Err(libc::ENOSYS)),
        }
    }
}

/// Sends a reply: its length, the error as a negative number, the request's number, and the payload.
fn answer(mut kernel: &File, unique: u64, outcome: Result<&[u8], i32>) {
    let body = outcome.unwrap_or(&[]);
    let mut message = Vec::new();
    message.extend((16 + body.len() as u32).to_ne_bytes());
    message.extend((-outcome.err().unwrap_or(0)).to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(body);
    // Replying fails with ENOENT if the request was interrupted.
    let _ = kernel.write(&message);
}

/// `fuse_init_out`: version 7.31, writes of up to 128 KiB, no features.
fn init() -> [u8; 64] {
    let mut out = [0; 64];
    for (at, value) in [(0, 7), (4, 31), (20, 128 << 10)] {
        out[at..at + 4].copy_from_slice(&u32::to_ne_bytes(value));
    }
    out
}

/// `fuse_attr_out`: valid for an hour, inode 1, a regular file of [`BYTES`] bytes with one link.
fn attributes() -> [u8; 104] {
    let mut out = [0; 104];
    for (at, value) in [(0, 3600), (16, 1), (24, BYTES as u64)] {
        out[at..at + 8].copy_from_slice(&u64::to_ne_bytes(value));
    }
    for (at, value) in [(76, 0o100_644), (80, 1), (96, 4096)] {
        out[at..at + 4].copy_from_slice(&u32::to_ne_bytes(value));
    }
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
