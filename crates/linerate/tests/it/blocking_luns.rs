//! Tests of the crate `blocking` with a server: requests from other runtimes, and a LUN as a tokio file.

use std::future::Future;
use std::io::{ErrorKind, SeekFrom};

use block::{Buffer, DeviceError, Extent};
use blocking::{Ended, Lun, TokioLun};
use iscsi_client::Url;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::program::until;
use crate::server::Server;
use crate::sessions::sessions;

const SIZE: u64 = 16 << 20;

fn served() -> Server {
    Server::serving(&["disk=ram:16MiB"])
}

fn url(server: &Server, keys: &str) -> Url {
    Url::parse(&format!("{}{keys}", server.url("disk"))).expect("a URL")
}

fn opened(server: &Server, keys: &str) -> Lun {
    Lun::open(&url(server, keys)).wait().expect("a login")
}

/// Runs a future on two tokio threads, without a driver for I/O or time, because futures of `blocking` need
/// neither.
fn in_tokio<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build();
    runtime.expect("threads").block_on(work)
}

#[test]
fn a_lun_is_a_file_of_tokio_at_any_byte() {
    let server = served();
    in_tokio(async {
        let lun = Lun::open(&url(&server, "")).await.expect("a login");
        let mut disk = TokioLun::new(lun.clone());
        let content: Vec<u8> = (0..2_500_000u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(
            disk.seek(SeekFrom::Start(700)).await.expect("a position"),
            700
        );
        disk.write_all(&content).await.expect("room");
        // Written data is read without a flush: a read waits for the write before it.
        disk.seek(SeekFrom::Current(-1_000_000))
            .await
            .expect("a position");
        let mut back = vec![0; 1_000_000];
        disk.read_exact(&mut back).await.expect("the end of it");
        assert!(back == content[1_500_000..]);
        disk.flush().await.expect("memory");
        // The surrounding bytes are unchanged.
        let around = lun.read_bytes(0..2_500_800).await.expect("within the LUN");
        assert!(
            around[..700]
                .iter()
                .chain(&around[2_500_700..])
                .all(|&byte| byte == 0)
        );
        assert!(around[700..2_500_700] == content);
        lun.close().await.expect("an open session");
    });
}

#[test]
fn reads_end_with_the_lun_and_writes_beyond_it_fail() {
    let server = served();
    in_tokio(async {
        let mut disk = TokioLun::new(Lun::open(&url(&server, "")).await.expect("a login"));
        assert_eq!(
            disk.seek(SeekFrom::End(-100)).await.expect("a position"),
            SIZE - 100
        );
        disk.write_all(&[7; 100]).await.expect("room");
        let error = disk.write_all(&[7]).await.expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        disk.seek(SeekFrom::End(-200)).await.expect("a position");
        let mut rest = Vec::new();
        assert_eq!(disk.read_to_end(&mut rest).await.expect("readable"), 200);
        assert_eq!(rest, [[0; 100], [7; 100]].concat());
        let error = disk
            .seek(SeekFrom::Current(-(SIZE as i64) - 1))
            .await
            .expect_err("before the start");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn threads_and_tasks_share_a_lun() {
    let server = served();
    let lun = opened(&server, "");
    std::thread::scope(|threads| {
        for number in 0..4u8 {
            let lun = &lun;
            threads.spawn(move || {
                for turn in 0..20 {
                    let at = (u64::from(number) * 20 + turn) * 333;
                    let data = Buffer::from(&[number + 1; 333][..]).share();
                    lun.write_bytes(at, data).wait().expect("within the LUN");
                }
            });
        }
    });
    // Writes to parts of one block have not undone each other.
    let all = in_tokio(lun.read_bytes(0..80 * 333)).expect("within the LUN");
    for number in 0..4usize {
        assert!(
            all[number * 20 * 333..(number + 1) * 20 * 333]
                .iter()
                .all(|&byte| usize::from(byte) == number + 1)
        );
    }
}

#[test]
fn a_closed_lun_fails_its_requests() {
    let server = served();
    let lun = opened(&server, "");
    let other = lun.clone();
    assert_eq!(lun.close().wait(), Ok(()));
    assert_eq!(sessions(&server).len(), 0, "it has logged out");
    assert_eq!(other.flush().wait(), Err(DeviceError::NotReady));
    assert_eq!(other.close().wait(), Err(Ended));
}

#[test]
fn the_session_ends_with_its_last_lun() {
    let server = served();
    let lun = opened(&server, "");
    let request = lun.read(Extent::new(0, 1), Buffer::zeroed(512));
    drop(lun);
    assert!(request.wait().is_ok(), "a request keeps its session");
    until("the session logs out", || sessions(&server).is_empty());
}

#[test]
fn a_target_that_is_lost_for_good_ends_requests() {
    let mut server = served();
    let lun = opened(&server, "?reconnect-time=0");
    server.kill();
    let read = lun.read(Extent::new(0, 1), Buffer::zeroed(512));
    assert_eq!(read.wait().map(drop), Err(DeviceError::NotReady));
    let error = in_tokio(async {
        TokioLun::new(lun)
            .read_u8()
            .await
            .expect_err("a lost session")
    });
    assert_eq!(error.kind(), ErrorKind::NotConnected);
}

#[test]
fn who_is_not_there_is_told() {
    let mut server = served();
    let url = url(&server, "");
    server.kill();
    let Err(error) = Lun::open(&url).wait() else {
        panic!("there is no server")
    };
    assert!(
        error.to_string().starts_with("cannot connect to 127.0.0.1"),
        "{error}"
    );
}
