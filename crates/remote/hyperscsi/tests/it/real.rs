//! Tests over UDP on loopback, and with raw Ethernet frames over a pair of interfaces in a network namespace.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use block::{BlockDevice as _, Buffer, Durability, Extent};
use host::namespace::Namespace;
use host::rtnetlink::{InterfaceSettings, Rtnetlink};
use host::{Epoll, EpollOptions};
use hyperscsi::ETHERTYPE;
use hyperscsi_client::{Opened, Place, Url, closed, discover, open, open_target};
use iscsi_client::RemoteLun;
use reactor::{DatagramAddress, DatagramEndpoint, Datagrams, block_on, sleep, spawn, timeout};

use crate::load::{BLOCKS, work};
use crate::server::{self, Rules, TARGET, fast_disk, unit};

fn random(bytes: &mut [u8]) {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    for byte in bytes {
        *byte = RandomState::new().build_hasher().finish() as u8;
    }
}

fn run<F: Future>(future: F) -> F::Output {
    block_on(
        Epoll::shared(EpollOptions::default()).expect("an epoll"),
        async {
            timeout(Duration::from_secs(100), future)
                .await
                .expect("in time")
        },
    )
}

fn udp(address: SocketAddr) -> (Box<dyn Datagrams>, SocketAddr) {
    let endpoint = server::open(DatagramEndpoint::Udp(address));
    match endpoint.local() {
        DatagramAddress::Udp(local) => (endpoint, local),
        DatagramAddress::Ethernet(_) => panic!("it is UDP"),
    }
}

async fn opened(url: &str) -> RemoteLun {
    open(&Url::parse(url).expect("a URL"), random)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

async fn refused(url: &str) -> String {
    let error = open(&Url::parse(url).expect("a URL"), random).await.err();
    error.expect("it cannot be opened").to_string()
}

#[test]
fn udp_carries_it_and_a_restart_is_survived() {
    run(async {
        let disk = fast_disk(BLOCKS);
        let (endpoint, address) = udp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let running = server::on(vec![endpoint], unit(&disk, 1), Rules::default());
        let text = format!("hyperscsi+udp://{address}/{TARGET}/0");
        let url = Url::parse(&text).expect("a URL");
        let Opened { target, session } = open_target(&url, random)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let status = session.status().await.expect("it is logged in");
        assert_eq!(
            status.frame_bytes,
            hyperscsi::FRAME_BYTES_MAX,
            "loopback carries them"
        );
        let lun = Rc::new(target.lun(0).await.expect("a disk"));
        let working = Rc::clone(&lun);
        let load = spawn(async move { work(&working, 1, 4, 400).await });
        sleep(Duration::from_millis(20)).await;
        drop(running);
        let (endpoint, _) = udp(address);
        let _running = server::on(vec![endpoint], unit(&disk, 1), Rules::default());
        load.await;
        let found = discover(&url.place, Duration::from_millis(100), random)
            .await
            .expect("a socket");
        assert_eq!(
            found
                .iter()
                .flat_map(|found| &found.targets)
                .collect::<Vec<_>>(),
            [TARGET]
        );
        closed().await;
    });
}

#[test]
fn two_addresses_are_two_paths() {
    run(async {
        let (first, one) = udp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (second, two) = udp(SocketAddr::from(([127, 0, 0, 2], 0)));
        let _running = server::on(
            vec![first, second],
            unit(&fast_disk(BLOCKS), 1),
            Rules::default(),
        );
        // A host that is named twice is only one path.
        let url =
            Url::parse(&format!("hyperscsi+udp://{one}+{two}+{one}/{TARGET}/0")).expect("a URL");
        let Opened { target, session } = open_target(&url, random)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let lun = Rc::new(target.lun(0).await.expect("a disk"));
        work(&lun, 1, 4, 50).await;
        let paths = session.status().await.expect("it is logged in").paths;
        let paths: Vec<_> = paths.iter().map(|path| (path.remote, path.is_up)).collect();
        assert_eq!(
            paths,
            [
                (DatagramAddress::Udp(one), true),
                (DatagramAddress::Udp(two), true)
            ]
        );
        closed().await;
    });
}

#[test]
fn a_port_where_nobody_is_says_nothing() {
    run(async {
        let (endpoint, address) = udp(SocketAddr::from(([127, 0, 0, 1], 0)));
        drop(endpoint);
        let said = refused(&format!("hyperscsi+udp://{address}/{TARGET}/0?timeout=2s")).await;
        assert_eq!(
            said,
            format!("no HyperSCSI target responded at hyperscsi+udp://{address} within 2 s")
        );
    });
}

/// Runs `work` with the connected interfaces `left` and `right`. Does nothing if there is no permission to
/// create them.
fn with_pair(work: impl FnOnce() + Send) {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return eprintln!("skipped: no network namespace here ({error})"),
    };
    let peer_in = namespace.clone();
    let inside = move || {
        let rtnetlink = Rtnetlink::open().expect("the kernel's");
        rtnetlink
            .add_pair("left", "right", &peer_in)
            .expect("a pair");
        for (name, last) in [("left", 1), ("right", 2)] {
            let settings = InterfaceSettings {
                ethernet: Some([2, 0, 0, 0, 0, last]),
                ..InterfaceSettings::default()
            };
            rtnetlink
                .set_up(rtnetlink.index(name).expect("made"), &settings)
                .expect("up");
        }
        work();
    };
    namespace.run(inside).expect("a thread");
}

fn frames(interface: &str) -> Box<dyn Datagrams> {
    let interface = interface.to_owned();
    server::open(DatagramEndpoint::Ethernet {
        interface,
        ether_type: ETHERTYPE,
    })
}

#[test]
fn raw_frames_carry_it() {
    with_pair(|| {
        run(async {
            let disk = fast_disk(8192);
            let running = server::on(vec![frames("right")], unit(&disk, 1), Rules::default());
            let lun = Rc::new(opened(&format!("hyperscsi://left/{TARGET}/0")).await);
            let mut data = Buffer::zeroed(1 << 20);
            data.iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = (at / 999) as u8);
            let (whole, expected) = (Extent::new(96, 2048), data.to_vec());
            lun.write(whole, data.share(), Durability::Cached)
                .await
                .expect("written");
            assert!(
                lun.read(whole, Buffer::zeroed(1 << 20))
                    .await
                    .expect("read")[..]
                    == expected[..]
            );
            let working = Rc::clone(&lun);
            let load = spawn(async move { work(&working, 1, 4, 400).await });
            sleep(Duration::from_millis(20)).await;
            drop(running);
            let _running = server::on(vec![frames("right")], unit(&disk, 1), Rules::default());
            load.await;
            let place = Place::parse("left", false).expect("an interface");
            let found = discover(&place, Duration::from_millis(100), random)
                .await
                .expect("an interface");
            let [found] = &found[..] else {
                panic!("{found:?}")
            };
            assert_eq!(
                (found.from.to_string().as_str(), &found.targets[..]),
                ("02:00:00:00:00:02", &[TARGET.to_owned()][..])
            );
            closed().await;
        });
    });
}

#[test]
fn what_is_missing_is_said_in_a_sentence() {
    with_pair(|| {
        run(async {
            assert_eq!(
                refused("hyperscsi://eth9/x/0").await,
                "there is no interface eth9; this machine has lo, right, left (ip link)"
            );
            let rtnetlink = Rtnetlink::open().expect("the kernel's");
            let settings = InterfaceSettings {
                mtu: Some(1000),
                ..InterfaceSettings::default()
            };
            rtnetlink
                .set_up(rtnetlink.index("left").expect("made"), &settings)
                .expect("narrow");
            assert_eq!(
                refused("hyperscsi://left/x/0").await,
                "the MTU of interface left is 1000 bytes, but must be at least 1232; raise it (ip link set \
                 left mtu 1232)"
            );
        });
    });
}
