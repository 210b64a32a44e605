//! The channels of an NBD export on real sockets: nbdkit is killed and started again, empty.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use host::{Epoll, EpollOptions};

struct Nbdkit(Child);

impl Nbdkit {
    fn start(port: u16) -> Nbdkit {
        let port_text = port.to_string();
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-p", &port_text, "-i", "127.0.0.1", "memory", "8M"]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("nbdkit");
        let nbdkit = Nbdkit(child);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        nbdkit
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill(); // fails if the process has exited
        let _ = self.0.wait();
    }
}

#[test]
fn a_restarted_server_gets_back_what_it_has_acknowledged() {
    if Command::new("nbdkit")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("skipped: nbdkit is not installed");
        return;
    }
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let port = free.expect("a free port").port();
    let lost = Err(DeviceError::WritesLost);
    // nbdkit reports nothing about its cache. Therefore only a client that is the only writer treats
    // differences as lost writes.
    for (connections, options, flushed) in [
        (1, "writers=one", Ok(())),
        (4, "writers=one", Ok(())),
        (2, "journal=64MiB", lost),
        (2, "journal=0", lost),
    ] {
        let mut server = Nbdkit::start(port);
        let world = Epoll::shared(EpollOptions::default()).expect("an epoll instance");
        reactor::block_on(world, async {
            let url =
                format!("nbd://127.0.0.1:{port}/?connections={connections}&timeout=600&{options}");
            let url = nbd_client::Url::parse(&url).expect("a URL");
            let export = nbd_client::open(&url, None, backends::peers::random)
                .await
                .expect("it is served");
            let status = export.status().await.expect("on this thread");
            assert!(
                status.channels.len() == connections
                    && status.channels.iter().all(|one| one.is_connected)
            );
            let blocks = 4096 >> export.geometry().block_size.shift();
            for page in 0..32 {
                let mut data = Buffer::zeroed(4096);
                data.fill(page as u8 + 1);
                let extent = Extent::new(page * blocks, blocks);
                export
                    .write(extent, data.share(), Durability::Cached)
                    .await
                    .expect("written");
            }
            drop(std::mem::replace(
                &mut server,
                Nbdkit(Command::new("true").spawn().expect("true")),
            ));
            server = Nbdkit::start(port);
            for page in 0..32 {
                let extent = Extent::new(page * blocks, blocks);
                let read = export
                    .read(extent, Buffer::zeroed(4096))
                    .await
                    .expect("read");
                let expected = if flushed.is_ok() { page as u8 + 1 } else { 0 };
                assert!(
                    read.iter().all(|byte| *byte == expected),
                    "page {page}: {}",
                    read[0]
                );
            }
            assert_eq!(export.flush().await, flushed);
            assert_eq!(export.flush().await, Ok(()), "a loss is reported once");
            let status = export.status().await.expect("on this thread");
            assert_eq!(
                (status.replays, status.fences),
                (u64::from(flushed.is_ok()), false),
                "{status:?}"
            );
        });
    }
}
