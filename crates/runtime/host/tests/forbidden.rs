//! Tests files where io_uring is forbidden, as by the seccomp profiles of containers.

#![allow(unsafe_code)]

use std::io;

use block::{BlockDevice as _, Buffer, Durability, Extent};
use host::{Epoll, EpollOptions, FileDevice, FileOptions, IoEngine};
use reactor::block_on;

/// Makes `io_uring_setup` fail with EPERM on this thread and on threads that it creates, as Docker's profile
/// does.
fn forbid_io_uring() -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // seccomp_data.nr
        libc::sock_filter {
            jf: 1,
            ..statement(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                libc::SYS_io_uring_setup as u32,
            )
        },
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: neither call writes to our memory, and the kernel copies the program, which outlives them.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// This must be the only test in its process, because the choice of an engine is final.
#[test]
fn files_go_by_threads_where_io_uring_is_forbidden() {
    if let Err(error) = forbid_io_uring() {
        return eprintln!("skipped: no seccomp filter here ({error})");
    }
    let demanded = IoEngine::Uring.choose();
    assert_eq!(
        demanded.map_err(|error| error.kind()),
        Err(io::ErrorKind::PermissionDenied)
    );
    assert_eq!(
        IoEngine::Auto.choose().expect("threads are always there"),
        IoEngine::Threads
    );

    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("volume");
    let device = FileDevice::open(FileOptions {
        bytes: Some(1 << 20),
        ..FileOptions::new(path)
    });
    let device = device.expect("a volume");
    block_on(
        Epoll::shared(EpollOptions::default()).expect("an epoll"),
        async {
            let mut data = Buffer::zeroed(4096);
            data.fill(0x5a);
            device
                .write(Extent::new(8, 8), data.share(), Durability::Stable)
                .await
                .expect("written");
            let read = device
                .read(Extent::new(8, 8), Buffer::zeroed(4096))
                .await
                .expect("read");
            assert!(read.iter().all(|&byte| byte == 0x5a));
        },
    );
}
