//! Tests raw Ethernet frames over a pair of interfaces in a network namespace, and UDP over loopback.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use host::namespace::Namespace;
use host::rtnetlink::{InterfaceSettings, Rtnetlink};
use host::{Epoll, EpollOptions};
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, DatagramRing, DatagramShare,
    Datagrams, MacAddress, OutDatagram, OutSlice, block_on, sleep, timeout, world, yield_now,
};
use rustix::thread::CapabilitySet;

const ETHER_TYPE: u16 = 0x88a2;
const VLAN: u16 = 0x8100;
/// An EtherType for experiments (IEEE 802).
const PROBE: u16 = 0x88b5;
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn run<F: Future>(future: F) -> F::Output {
    block_on(
        Epoll::shared(EpollOptions::default()).expect("an epoll"),
        async {
            timeout(Duration::from_secs(20), future)
                .await
                .expect("in time")
        },
    )
}

/// Runs `work` with two connected interfaces, `left` and `right`. Skips it if namespaces are not allowed.
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
            let ethernet = Some([2, 0, 0, 0, 0, last]);
            let settings = InterfaceSettings {
                ethernet,
                ..InterfaceSettings::default()
            };
            rtnetlink
                .set_up(rtnetlink.index(name).expect("made"), &settings)
                .expect("up");
        }
        run(carries());
        work();
    };
    namespace.run(inside).expect("a thread");
}

/// Waits until frames from each interface arrive at the other. This is necessary because the kernel starts
/// the interfaces' queues shortly after they come up.
async fn carries() {
    for names in [["left", "right"], ["right", "left"]] {
        let [from, to] = names.map(|name| open(&ethernet(name, PROBE)));
        let mut batch = DatagramBatch::new(1, 1500);
        while to.try_receive(&mut batch).is_err() {
            send(&*from, to.local(), b"is it up?");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn ethernet(interface: &str, ether_type: u16) -> DatagramOptions {
    DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet {
            interface: interface.to_owned(),
            ether_type,
        },
        receive_buffer_bytes: None,
        ring: None,
        payload_bytes_min: 0,
        share: None,
    }
}

/// The two ways to receive frames: with system calls, and into a ring for payloads of 1500 bytes.
const WAYS: [Option<DatagramRing>; 2] = [None, ring(1500)];

const fn ring(payload_bytes: usize) -> Option<DatagramRing> {
    Some(DatagramRing {
        payload_bytes,
        places_max: usize::MAX,
    })
}

fn with_ring(way: Option<DatagramRing>, interface: &str) -> DatagramOptions {
    DatagramOptions {
        ring: way,
        ..ethernet(interface, ETHER_TYPE)
    }
}

fn open(options: &DatagramOptions) -> Box<dyn Datagrams> {
    world().datagrams(options).expect("opened")
}

fn send(from: &dyn Datagrams, to: DatagramAddress, payload: &[u8]) {
    let (head, tail) = payload.split_at(payload.len() / 2);
    let pieces = [OutSlice::Bytes(head), OutSlice::Bytes(tail)];
    assert_eq!(
        from.try_send(&[OutDatagram {
            to,
            payload: &pieces
        }])
        .expect("sent"),
        1
    );
}

async fn received(at: &dyn Datagrams) -> Vec<(DatagramAddress, Vec<u8>)> {
    let mut batch = DatagramBatch::new(64, 2000);
    at.receive(&mut batch).await.expect("received");
    batch
        .iter()
        .map(|(from, payload)| (from, payload.to_vec()))
        .collect()
}

fn refusal(options: &DatagramOptions) -> io::Error {
    run(async { world().datagrams(options).err().expect("refused") })
}

#[test]
fn frames_go_both_ways_and_to_all() {
    with_pair(|| {
        for way in WAYS {
            run(async {
                let (left, right) = (
                    open(&with_ring(way, "left")),
                    open(&with_ring(way, "right")),
                );
                assert_eq!(left.local().to_string(), "02:00:00:00:00:01");
                assert_eq!(left.payload_bytes_max(), 1500);
                send(&*left, right.local(), b"to you");
                assert_eq!(
                    received(&*right).await,
                    [(left.local(), b"to you".to_vec())]
                );
                send(
                    &*right,
                    DatagramAddress::Ethernet(MacAddress::BROADCAST),
                    b"to all",
                );
                assert_eq!(
                    received(&*left).await,
                    [(right.local(), b"to all".to_vec())]
                );
            });
        }
    });
}

/// The filter checks a word at an offset, and is changed while the socket is in use. It rejects a frame that
/// is too short to contain the word.
#[test]
fn a_socket_takes_only_what_it_is_told_to() {
    const LAST: u32 = 0;
    with_pair(|| {
        for way in WAYS {
            run(async {
                let left = open(&ethernet("left", ETHER_TYPE));
                let [one, two] = [(), ()].map(|()| open(&with_ring(way, "right")));
                let frame = |word: u32| [&[7; 7][..], &word.to_be_bytes(), b"behind"].concat();
                let all = |words: &[u32]| {
                    words
                        .iter()
                        .for_each(|word| send(&*left, one.local(), &frame(*word)))
                };
                let arrived = async |at: &dyn Datagrams| {
                    let mut words = Vec::new();
                    while words.last() != Some(&LAST) {
                        let frames = received(at).await.into_iter();
                        let word = |frame: Vec<u8>| frame[7..11].try_into().map(u32::from_be_bytes);
                        words.extend(frames.map(|(_, frame)| word(frame).expect("four bytes")));
                    }
                    words
                };
                one.take_only(7, &[0x8000_0001, LAST]).expect("a filter");
                two.take_only(7, &[2, 3, LAST]).expect("a filter");
                send(&*left, one.local(), b"short");
                all(&[0x8000_0001, 2, 3, 4, LAST]);
                assert_eq!(arrived(&*one).await, [0x8000_0001, LAST]);
                assert_eq!(arrived(&*two).await, [2, 3, LAST]);
                one.take_only(7, &[4, LAST]).expect("another filter");
                all(&[0x8000_0001, 4, 2, LAST]);
                assert_eq!(arrived(&*one).await, [4, LAST]);
                assert_eq!(arrived(&*two).await, [2, LAST]);
            });
        }
    });
}

#[test]
fn what_is_for_others_does_not_arrive() {
    with_pair(|| {
        for way in WAYS {
            run(async {
                let (left, right) = (
                    open(&with_ring(way, "left")),
                    open(&with_ring(way, "right")),
                );
                // An interface on which tcpdump listens receives frames for all hosts.
                send(
                    &*left,
                    DatagramAddress::Ethernet(MacAddress([2, 0, 0, 0, 0, 9])),
                    b"for another station",
                );
                let tagged = open(&ethernet("left", VLAN));
                send(
                    &*tagged,
                    right.local(),
                    &[&[0, 5, 0x88, 0xa2][..], b"of VLAN 5"].concat(),
                );
                let other = open(&ethernet("left", ETHER_TYPE + 1));
                send(&*other, right.local(), b"of another protocol");
                // A tag of VLAN 0 only carries a priority.
                send(
                    &*tagged,
                    right.local(),
                    &[&[0xe0, 0, 0x88, 0xa2][..], b"urgent"].concat(),
                );
                send(&*left, right.local(), b"for you");
                let mut all = Vec::new();
                while all.last().is_none_or(|(_, payload)| payload != b"for you") {
                    all.extend(received(&*right).await);
                }
                assert_eq!(
                    all,
                    [
                        (left.local(), b"urgent".to_vec()),
                        (left.local(), b"for you".to_vec())
                    ]
                );
            });
        }
    });
}

#[test]
fn a_burst_comes_in_order_and_what_has_no_room_is_counted() {
    with_pair(|| {
        for way in WAYS {
            run(async {
                let left = open(&ethernet("left", ETHER_TYPE));
                let small = DatagramOptions {
                    receive_buffer_bytes: Some(16 << 10),
                    ..with_ring(way, "right")
                };
                let right = open(&small);
                const SENT: usize = 1000;
                let numbers: Vec<[u8; 4]> = (0..SENT as u32).map(u32::to_be_bytes).collect();
                let slices: Vec<[OutSlice<'_>; 1]> = numbers
                    .iter()
                    .map(|bytes| [OutSlice::Bytes(bytes)])
                    .collect();
                let all: Vec<OutDatagram<'_>> = slices
                    .iter()
                    .map(|payload| OutDatagram {
                        to: right.local(),
                        payload,
                    })
                    .collect();
                let mut sent = 0;
                while sent < SENT {
                    sent += left.try_send(&all[sent..]).expect("room");
                }
                let mut arrived: Vec<Vec<u8>> = Vec::new();
                let mut batch = DatagramBatch::new(64, 100);
                while let Ok(count) = right.try_receive(&mut batch) {
                    assert_eq!(count, batch.iter().count());
                    arrived.extend(batch.iter().map(|(_, payload)| payload.to_vec()));
                }
                assert!(
                    arrived
                        .iter()
                        .map(Vec::as_slice)
                        .eq(numbers.iter().take(arrived.len()).map(|bytes| &bytes[..]))
                );
                let dropped = right.drops().receive_buffer_full;
                assert!(dropped > 0, "the buffer has no room for so many");
                assert_eq!(arrived.len() as u64 + dropped, SENT as u64);
                assert_eq!(
                    right.drops().receive_buffer_full,
                    dropped,
                    "asking changes nothing"
                );
            });
        }
    });
}

#[test]
fn one_that_is_longer_than_its_place_is_dropped() {
    with_pair(|| {
        for way in WAYS {
            run(async {
                let (left, right) = (
                    open(&ethernet("left", ETHER_TYPE)),
                    open(&with_ring(way, "right")),
                );
                send(&*left, right.local(), &[7; 100]);
                send(&*left, right.local(), &[8; 10]);
                let mut batch = DatagramBatch::new(8, 50);
                right.receive(&mut batch).await.expect("received");
                assert_eq!(
                    batch.iter().collect::<Vec<_>>(),
                    [(left.local(), &[8; 10][..])]
                );
                assert_eq!(right.drops().too_long, 1);
                let too_long = [OutSlice::Bytes(&[0; 1501])];
                let refused = left.try_send(&[OutDatagram {
                    to: right.local(),
                    payload: &too_long,
                }]);
                assert_eq!(
                    refused.expect_err("beyond the MTU").kind(),
                    io::ErrorKind::InvalidInput
                );
            });
        }
    });
}

#[test]
fn an_interface_that_goes_down_says_so_once_and_comes_back() {
    with_pair(|| {
        for way in WAYS {
            run(async {
                let (left, right) = (
                    open(&with_ring(way, "left")),
                    open(&with_ring(way, "right")),
                );
                let rtnetlink = Rtnetlink::open().expect("the kernel's");
                let index = rtnetlink.index("right").expect("there");
                rtnetlink.set_down(index).expect("down");
                let mut batch = DatagramBatch::new(8, 100);
                let told = right.receive(&mut batch).await.expect_err("it is down");
                assert_eq!(told.kind(), io::ErrorKind::NetworkDown);
                let then = right.try_receive(&mut batch).expect_err("nothing is there");
                assert_eq!(then.kind(), io::ErrorKind::WouldBlock);
                rtnetlink
                    .set_up(index, &InterfaceSettings::default())
                    .expect("up again");
                carries().await;
                send(&*left, right.local(), b"again");
                assert_eq!(received(&*right).await, [(left.local(), b"again".to_vec())]);
            });
        }
    });
}

#[test]
fn a_ring_goes_round_and_its_places_are_read_and_changed_where_they_are() {
    with_pair(|| {
        run(async {
            let left = open(&ethernet("left", ETHER_TYPE));
            // One block, which has 41 slots.
            let small = DatagramOptions {
                receive_buffer_bytes: Some(64 << 10),
                ..with_ring(ring(1500), "right")
            };
            let right = open(&small);
            let mut batch = DatagramBatch::new(1, 1);
            for round in 0..100_u8 {
                (0..3).for_each(|place| send(&*left, right.local(), &vec![round; 1000 + place]));
                let mut lengths = Vec::new();
                while lengths.len() < 3 {
                    let taken = right.receive_each(&mut batch, &mut |from, payload| {
                        assert!(from == left.local() && payload.iter().all(|byte| *byte == round));
                        payload.fill(0xff);
                        lengths.push(payload.len());
                    });
                    if taken.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                        yield_now().await;
                    }
                }
                assert_eq!(lengths, [1000, 1001, 1002]);
            }
            let narrow = open(&with_ring(ring(100), "right"));
            send(&*left, right.local(), &[7; 117]);
            send(&*left, right.local(), &[8; 100]);
            assert_eq!(received(&*narrow).await, [(left.local(), vec![8; 100])]);
            assert_eq!(
                (narrow.drops().too_long, right.drops().receive_buffer_full),
                (1, 0)
            );
        });
    });
}

#[test]
fn a_ring_of_a_usual_mtu_has_short_places_and_few_of_them() {
    with_pair(|| {
        run(async {
            let few = Some(DatagramRing {
                payload_bytes: 9216,
                places_max: 64,
            });
            let (left, right) = (
                open(&ethernet("left", ETHER_TYPE)),
                open(&with_ring(few, "right")),
            );
            for count in 1..=70 {
                send(&*left, right.local(), &[count; 1500]);
            }
            assert_eq!(right.drops().receive_buffer_full, 6, "of 70 in 64 places");
            let (mut batch, mut taken) = (DatagramBatch::new(1, 1), Vec::new());
            while taken.len() < 64 {
                let more = right.receive_each(&mut batch, &mut |_, payload| taken.push(payload[0]));
                assert!(more.is_ok_and(|more| more > 0), "{} are there", taken.len());
            }
            assert!((1..=64).eq(taken));
            let rtnetlink = Rtnetlink::open().expect("the kernel's");
            for name in ["left", "right"] {
                let index = rtnetlink.index(name).expect("there");
                let settings = InterfaceSettings {
                    mtu: Some(9000),
                    ..Default::default()
                };
                rtnetlink.set_up(index, &settings).expect("changed");
            }
            let wide = open(&with_ring(few, "right"));
            assert_eq!(
                (left.payload_bytes_max(), wide.payload_bytes_max()),
                (9000, 9000)
            );
            assert_eq!(right.payload_bytes_max(), 1968, "slots of 2 KiB");
            send(&*left, right.local(), &[1; 9000]);
            send(&*left, right.local(), &[2; 1968]);
            let mut lengths = Vec::new();
            while lengths.len() < 2 {
                let more =
                    wide.receive_each(&mut batch, &mut |_, payload| lengths.push(payload.len()));
                assert!(more.is_ok_and(|more| more > 0), "{lengths:?}");
            }
            assert_eq!(lengths, [9000, 1968]);
            assert_eq!(received(&*right).await, [(left.local(), vec![2; 1968])]);
            assert_eq!(right.drops().too_long, 1);
        });
    });
}

const AT: u16 = 7;

fn shared(options: &DatagramOptions, index: u32, count: u32) -> DatagramOptions {
    DatagramOptions {
        share: Some(DatagramShare {
            index,
            count,
            word_at: AT,
        }),
        ..options.clone()
    }
}

/// Sends payloads with these words from `from`. Once all have arrived, returns the words that each of `all`
/// has received.
async fn divided(
    from: &dyn Datagrams,
    to: DatagramAddress,
    words: &[u32],
    all: &[Box<dyn Datagrams>],
) -> Vec<Vec<u32>> {
    for word in words {
        send(
            from,
            to,
            &[&[9; AT as usize][..], &word.to_be_bytes(), b"behind"].concat(),
        );
    }
    let mut arrived = vec![Vec::new(); all.len()];
    let mut batch = DatagramBatch::new(8, 100);
    while arrived.iter().map(Vec::len).sum::<usize>() < words.len() {
        for (socket, arrived) in all.iter().zip(&mut arrived) {
            if socket.try_receive(&mut batch).is_ok() {
                let word = |payload: &[u8]| {
                    u32::from_be_bytes(payload[7..11].try_into().expect("four bytes"))
                };
                arrived.extend(batch.iter().map(|(_, payload)| word(payload)));
            }
        }
        yield_now().await;
    }
    arrived
}

const WORDS: [u32; 7] = [0, 5, 0xffff_ffff, 4, 3, 0x8000_0001, 7];

/// Returns the words that each of three endpoints must receive, in the order in which they were sent.
fn thirds() -> Vec<Vec<u32>> {
    let of = |index| {
        WORDS
            .iter()
            .copied()
            .filter(|word| word % 3 == index)
            .collect()
    };
    (0..3).map(of).collect()
}

#[test]
fn sockets_of_an_interface_share_what_arrives_by_a_word_whichever_come_and_go() {
    with_pair(|| {
        for way in WAYS {
            run(async {
                let options = with_ring(way, "right");
                let left = open(&ethernet("left", ETHER_TYPE));
                // Open the endpoints in any order, one of them for another thread.
                let last = open(&shared(&options, 2, 3));
                let first = world()
                    .detached_datagrams(&shared(&options, 0, 3))
                    .expect("opened");
                let mut all = vec![
                    world().adopt_datagrams(first).expect("adopted"),
                    open(&shared(&options, 1, 3)),
                    last,
                ];
                let to = all[0].local();
                send(&*left, to, b"short"); // which no endpoint receives
                assert_eq!(divided(&*left, to, &WORDS, &all).await, thirds());
                all[0] = open(&shared(&options, 0, 3));
                assert_eq!(divided(&*left, to, &WORDS, &all).await, thirds());
                let rtnetlink = Rtnetlink::open().expect("the kernel's");
                let index = rtnetlink.index("right").expect("there");
                rtnetlink.set_down(index).expect("down");
                let mut batch = DatagramBatch::new(8, 100);
                for socket in &all {
                    let told = socket.receive(&mut batch).await.expect_err("it is down");
                    assert_eq!(told.kind(), io::ErrorKind::NetworkDown);
                }
                rtnetlink
                    .set_up(index, &InterfaceSettings::default())
                    .expect("up again");
                carries().await;
                assert_eq!(divided(&*left, to, &WORDS, &all).await, thirds());
            });
        }
    });
}

/// If a share has only one endpoint, that endpoint receives everything.
#[test]
fn one_of_one_gets_everything() {
    with_pair(|| {
        run(async {
            let left = open(&ethernet("left", ETHER_TYPE));
            let right = open(&shared(&ethernet("right", ETHER_TYPE), 0, 1));
            send(&*left, right.local(), b"short");
            assert_eq!(received(&*right).await, [(left.local(), b"short".to_vec())]);
        });
    });
}

#[test]
fn sockets_of_a_udp_port_share_what_arrives_by_a_word() {
    run(async {
        for loopback in [LOOPBACK, SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let at = |at| DatagramOptions {
                endpoint: DatagramEndpoint::Udp(at),
                receive_buffer_bytes: None,
                ring: None,
                payload_bytes_min: 0,
                share: None,
            };
            let first = open(&shared(&at(loopback), 0, 3));
            let DatagramAddress::Udp(local) = first.local() else {
                panic!("it is UDP")
            };
            // While there is no other endpoint, this one receives everything.
            let sender = open(&at(loopback));
            let alone = [first];
            assert_eq!(
                divided(&*sender, alone[0].local(), &WORDS, &alone).await,
                [WORDS]
            );
            let [first] = alone;
            let mut all = vec![first];
            for index in 1..3 {
                let other = world()
                    .detached_datagrams(&shared(&at(local), index, 3))
                    .expect("opened");
                all.push(world().adopt_datagrams(other).expect("adopted"));
            }
            for word in WORDS {
                let wanted = (0..3).map(|index| {
                    if word % 3 == index {
                        vec![word]
                    } else {
                        Vec::new()
                    }
                });
                let found = divided(&*sender, all[0].local(), &[word], &all).await;
                assert_eq!(found, wanted.collect::<Vec<_>>());
            }
            // Another server cannot share the port.
            for options in [at(local), shared(&at(local), 0, 3)] {
                let refused = world()
                    .datagrams(&options)
                    .err()
                    .expect("the port is taken");
                assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            }
            drop(all);
            drop(open(&shared(&at(local), 0, 3)));
        }
    });
}

#[test]
fn what_is_missing_is_said_in_a_sentence() {
    with_pair(|| {
        let unknown = refusal(&ethernet("eth9", ETHER_TYPE)).to_string();
        assert_eq!(
            unknown,
            "there is no interface eth9; this machine has lo, right, left (ip link)"
        );
        let down = refusal(&ethernet("lo", ETHER_TYPE)).to_string();
        assert_eq!(
            down,
            "interface lo is down; bring it up (ip link set lo up)"
        );
        let narrow = DatagramOptions {
            payload_bytes_min: 4000,
            ..ethernet("left", ETHER_TYPE)
        };
        assert_eq!(
            refusal(&narrow).to_string(),
            "the MTU of interface left is 1500 bytes, but must be at least 4000; raise it (ip link set left \
             mtu 4000)"
        );
    });
}

#[test]
fn without_the_capability_the_remedy_is_named() {
    with_pair(|| {
        let mut sets = rustix::thread::capabilities(None).expect("they can be asked");
        sets.effective.remove(CapabilitySet::NET_RAW);
        rustix::thread::set_capabilities(None, sets).expect("one may have less");
        let refused = refusal(&ethernet("left", ETHER_TYPE));
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let why = refused.to_string();
        assert!(
            why.contains("left requires CAP_NET_RAW; grant it (setcap") && why.contains("or use"),
            "{why}"
        );
    });
}

#[test]
fn udp_is_the_same_interface() {
    run(async {
        let options = DatagramOptions {
            endpoint: DatagramEndpoint::Udp(LOOPBACK),
            receive_buffer_bytes: Some(1 << 20),
            ring: None,
            payload_bytes_min: 0,
            share: None,
        };
        let (one, two) = (open(&options), open(&options));
        send(&*one, two.local(), b"to you");
        assert_eq!(received(&*two).await, [(one.local(), b"to you".to_vec())]);
        assert_eq!(two.drops().receive_buffer_full, 0);
        let station = DatagramAddress::Ethernet(MacAddress::BROADCAST);
        let refused = one.try_send(&[OutDatagram {
            to: station,
            payload: &[],
        }]);
        assert_eq!(
            refused.expect_err("no UDP port").kind(),
            io::ErrorKind::InvalidInput
        );
    });
}

/// The kernel joins datagrams of equal length when sending and receiving. Nevertheless they must arrive as
/// they were sent.
#[test]
fn a_burst_over_udp_comes_in_order_whatever_its_lengths_are() {
    run(async {
        let options = DatagramOptions {
            endpoint: DatagramEndpoint::Udp(LOOPBACK),
            receive_buffer_bytes: Some(8 << 20),
            ring: None,
            payload_bytes_min: 0,
            share: None,
        };
        let (one, two, other) = (open(&options), open(&options), open(&options));
        let lengths = (0..200).map(|at| match at {
            0..100 => 1400,
            100 => 700,
            101..150 => 1400,
            150..160 => 0,
            160..170 => 9000,
            _ => at,
        });
        let sent: Vec<Vec<u8>> = lengths
            .enumerate()
            .map(|(at, length)| vec![at as u8; length])
            .collect();
        let slices: Vec<[OutSlice<'_>; 2]> = sent
            .iter()
            .map(|bytes| bytes.split_at(bytes.len() / 3))
            .map(|(head, tail)| [OutSlice::Bytes(head), OutSlice::Bytes(tail)])
            .collect();
        let to = |at: usize| if at == 20 { other.local() } else { two.local() };
        let all: Vec<OutDatagram<'_>> = slices
            .iter()
            .enumerate()
            .map(|(at, payload)| OutDatagram {
                to: to(at),
                payload,
            })
            .collect();
        for in_place in [true, false] {
            let (mut batch, mut arrived) = (DatagramBatch::new(7, 9000), Vec::new());
            let mut gone = 0;
            while gone < all.len() {
                gone += one.try_send(&all[gone..]).expect("room");
            }
            while arrived.len() < sent.len() - 1 {
                if in_place {
                    let taken = two.receive_each(&mut batch, &mut |from, payload| {
                        assert_eq!(from, one.local());
                        arrived.push(payload.to_vec());
                    });
                    assert!(taken.is_ok_and(|count| count <= 64));
                } else {
                    two.receive(&mut batch).await.expect("received");
                    arrived.extend(batch.iter().map(|(_, payload)| payload.to_vec()));
                }
            }
            let wanted = sent
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != 20)
                .map(|(_, bytes)| bytes);
            assert!(arrived.iter().eq(wanted));
            assert_eq!(received(&*other).await, [(one.local(), sent[20].clone())]);
        }
        let too_long = vec![OutSlice::Bytes(&[0; 65_507]), OutSlice::Bytes(&[0; 1])];
        let refused = one.try_send(&[OutDatagram {
            to: two.local(),
            payload: &too_long,
        }]);
        assert_eq!(
            refused.expect_err("beyond what IP has room for").kind(),
            io::ErrorKind::InvalidInput
        );
    });
}
