//! Tests of Linerate's server that send and receive individual frames.

use std::sync::Arc;
use std::time::Duration;

use aoe::{
    Ata, Body, Config as Query, ConfigCommand, ErrorCode, Frame, Header, MacList, Reserve,
    ReserveCommand, write_trim_ranges,
};
use aoe_server::{Config, Limits, Slot};
use block::{BlockDevice as _, BlockSize, Buffer, DeviceError, Durability, Extent};
use reactor::{
    DatagramAddress, DatagramBatch, Datagrams, MacAddress, OutDatagram, OutSlice, block_on, now,
    sleep, timeout,
};
use testkit::{Ethernet, Random, TestDisk};

use crate::servers::{DEVICE, endpoint, ours, served, slots, slow_disk};
use crate::{GOOD, SECTOR, SECTORS, opened};

/// A host that sends each command with its own tag, in its own frame.
struct Host(Box<dyn Datagrams>);

/// The reply to an ATA command. `Done` contains the data of a read.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done(Vec<u8>),
    Failed,
    Error(ErrorCode),
}

impl Host {
    fn new(interface: &str) -> Host {
        Host(
            reactor::world()
                .datagrams(&endpoint(interface))
                .expect("an endpoint"),
        )
    }

    fn address(&self) -> [u8; 6] {
        let DatagramAddress::Ethernet(address) = self.0.local() else {
            panic!("a station")
        };
        address.0
    }

    fn send(&self, tag: u32, body: Body<'_>) {
        let header = Header {
            is_response: false,
            error: None,
            address: DEVICE,
            tag,
        };
        let frame = Frame { header, body }.write();
        let to = DatagramAddress::Ethernet(MacAddress::BROADCAST);
        self.0
            .try_send(&[OutDatagram {
                to,
                payload: &[OutSlice::Bytes(&frame)],
            }])
            .expect("room");
    }

    /// The payload of the reply with this tag.
    async fn answer(&self, tag: u32) -> Vec<u8> {
        let mut batch = DatagramBatch::new(16, 9000);
        loop {
            self.0.receive(&mut batch).await.expect("it is up");
            for (_, payload) in batch.iter() {
                let header = Frame::parse(payload).expect("a frame").header;
                if header.is_response && header.tag == tag {
                    return payload.to_vec();
                }
            }
        }
    }

    async fn ask(&self, tag: u32, ata: Ata, data: &[u8]) -> Answer {
        self.send(tag, Body::Ata(ata, data));
        self.taken(tag).await
    }

    /// The reply to the ATA command with this tag.
    async fn taken(&self, tag: u32) -> Answer {
        let answer = self.answer(tag).await;
        let frame = Frame::parse(&answer).expect("a frame");
        match (frame.header.error, frame.body) {
            (Some(error), _) => Answer::Error(error),
            (None, Body::Ata(ata, data)) if !ata.has_failed() => Answer::Done(data.to_vec()),
            _ => Answer::Failed,
        }
    }

    /// Sends a change every second until it gets a reply, as hosts do.
    async fn changes(&self, tag: u32, ata: Ata, data: &[u8]) {
        for _ in 0..20 {
            if let Ok(answer) = timeout(Duration::from_secs(1), self.ask(tag, ata, data)).await {
                return assert!(matches!(answer, Answer::Done(_)), "{ata:?}: {answer:?}");
            }
        }
        panic!("{ata:?} is not answered");
    }

    /// Sends a command that gets no reply.
    async fn unanswered(&self, tag: u32, ata: Ata, data: &[u8]) {
        self.send(tag, Body::Ata(ata, data));
        let answer = timeout(Duration::from_secs(1), self.answer(tag)).await;
        assert!(answer.is_err(), "{ata:?} was answered");
    }

    async fn has_flushed(&self, tag: u32) -> bool {
        matches!(self.ask(tag, Ata::flush(true), &[]).await, Answer::Done(_))
    }

    async fn reserve(&self, tag: u32, stations: MacList) {
        self.send(
            tag,
            Body::Reserve(Reserve {
                command: ReserveCommand::Set,
                stations,
            }),
        );
        let answer = self.answer(tag).await;
        assert_eq!(Frame::parse(&answer).expect("a frame").header.error, None);
    }
}

fn disk() -> Arc<TestDisk> {
    slow_disk(1, SECTORS, BlockSize::B512)
}

#[test]
fn a_repeated_change_is_answered_while_the_medium_holds_it_and_carried_out_when_no_copy_can_come() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let (_server, host) = (ours(disk(), "server"), Host::new("1"));
        let mut ranges = [0; SECTOR];
        write_trim_ranges(0, 8, &mut ranges);
        let write = Ata::write_sectors(0, 1);
        let changes: [(Ata, &[u8], u8); 2] = [(Ata::trim(1), &ranges, 0), (write, &[5; SECTOR], 5)];
        for (tag, (change, data, left)) in (0..).step_by(10).zip(changes) {
            let read = async |tag| host.ask(tag, Ata::read(0, 1), &[]).await;
            for _ in 0..2 {
                host.changes(tag, change, data).await;
            }
            host.changes(tag + 1, write, &[7; SECTOR]).await;
            host.unanswered(tag, change, data).await;
            assert_eq!(
                read(tag + 2).await,
                Answer::Done(vec![7; SECTOR]),
                "a late copy undoes nothing"
            );
            host.changes(tag, change, data).await;
            assert_eq!(
                read(tag + 3).await,
                Answer::Done(vec![left; SECTOR]),
                "what was answered is done"
            );
        }
    });
}

/// The host has few tags, so that each is reused within milliseconds.
#[test]
fn a_host_that_reuses_its_tags_reads_what_it_wrote() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let (_server, host) = (ours(disk(), "server"), Host::new("1"));
        let mut random = Random::new(11);
        let mut shown = [0; 4];
        for number in 0..200 {
            let (tag, lba, data) = (number % 3, random.below(4), random.below(2) as u8 + 1);
            host.changes(tag, Ata::write_sectors(lba, 1), &[data; SECTOR])
                .await;
            shown[lba as usize] = data;
            for (lba, data) in (0..).zip(shown) {
                let read = host.ask(1000 + number, Ata::read(lba, 1), &[]).await;
                assert_eq!(read, Answer::Done(vec![data; SECTOR]), "write {number}");
            }
        }
    });
}

#[test]
fn each_station_is_told_of_lost_writes_however_often_it_asks_and_wherever_it_was() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let disk = disk();
        let _server = ours(Arc::clone(&disk), "server");
        let (host, other) = (Host::new("1"), Host::new("2"));
        assert!(host.has_flushed(1).await && other.has_flushed(1).await);
        disk.fail_next_flush(DeviceError::WritesLost);
        assert!(!host.has_flushed(2).await);
        assert!(!host.has_flushed(2).await, "the answer may have been lost");
        assert!(host.has_flushed(3).await);
        for tag in 4..20 {
            sleep(Duration::from_secs(10)).await;
            assert!(host.has_flushed(tag).await);
        }
        assert!(!other.has_flushed(2).await, "it was away");
        assert!(
            !Host::new("3").has_flushed(1).await,
            "it may have used an earlier server"
        );
        sleep(Duration::from_secs(300)).await;
        assert!(
            Host::new("4").has_flushed(1).await,
            "it had nothing to lose"
        );
    });
}

#[test]
fn a_reservation_outlives_a_change_of_settings() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let (server, front_end, config) = served(disk(), "server");
        let (host, other) = (Host::new("1"), Host::new("2"));
        host.reserve(1, vec![host.address()]).await;
        let refused = Answer::Error(ErrorCode::Reserved);
        assert_eq!(other.ask(1, Ata::read(0, 1), &[]).await, refused);
        let changed = slots(&config.volumes[0].1, Duration::from_secs(20));
        server
            .reconfigure(config, || front_end.adopt(changed))
            .await
            .expect("the same portals");
        assert_eq!(other.ask(2, Ata::read(0, 1), &[]).await, refused);
        assert_eq!(
            host.ask(2, Ata::read(0, 1), &[]).await,
            Answer::Done(vec![0; SECTOR])
        );
    });
}

#[test]
fn a_change_of_settings_ends_no_command_and_forgets_no_answer() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let disk = disk();
        let (server, front_end, config) = served(Arc::clone(&disk), "server");
        let (host, other) = (Host::new("1"), Host::new("2"));
        let admit = async |hosts: &[&Host], read_only, deadline: u64| {
            let stations = Some(
                hosts
                    .iter()
                    .map(|host| MacAddress(host.address()))
                    .collect(),
            );
            let volume = Arc::clone(&config.volumes[0].1);
            let deadline = Duration::from_secs(deadline);
            let slot = Slot {
                address: DEVICE,
                volume,
                read_only,
                stations,
                deadline,
            };
            let changed = Config {
                slots: vec![Arc::new(slot)],
                limits: Limits::default(),
            };
            server
                .reconfigure(config.clone(), || front_end.adopt(changed))
                .await
                .expect("the same portals");
        };
        let write = |tag, version| (tag, Ata::write_sectors(0, 1), [version; SECTOR]);
        let [first, second] = [write(1, 1), write(2, 2)];
        for (tag, ata, data) in [&first, &second] {
            assert!(matches!(host.ask(*tag, *ata, data).await, Answer::Done(_)));
        }
        disk.delay_next(Duration::from_secs(1));
        host.send(3, Body::Ata(Ata::read(0, 1), &[]));
        sleep(Duration::from_millis(100)).await;
        admit(&[&host, &other], false, 30).await;
        admit(&[&host, &other], false, 20).await;
        assert_eq!(
            host.taken(3).await,
            Answer::Done(vec![2; SECTOR]),
            "it goes on"
        );
        let (tag, ata, data) = &first;
        host.unanswered(*tag, *ata, data).await;
        assert_eq!(
            host.ask(4, Ata::read(0, 1), &[]).await,
            Answer::Done(vec![2; SECTOR]),
            "a late copy"
        );
        for read_only in [true, false] {
            disk.delay_next(Duration::from_secs(1));
            host.send(5, Body::Ata(Ata::read(0, 1), &[]));
            sleep(Duration::from_millis(100)).await;
            admit(&[&host, &other], read_only, 20).await;
            assert_eq!(host.taken(5).await, Answer::Error(ErrorCode::Unavailable));
        }
        host.unanswered(*tag, *ata, data).await;
        assert_eq!(
            host.ask(6, Ata::read(0, 1), &[]).await,
            Answer::Done(vec![2; SECTOR]),
            "a late copy"
        );
        disk.delay_next(Duration::from_secs(1));
        other.send(1, Body::Ata(Ata::read(0, 1), &[]));
        sleep(Duration::from_millis(100)).await;
        admit(&[&host], false, 20).await;
        assert_eq!(
            other.taken(1).await,
            Answer::Error(ErrorCode::Unavailable),
            "it is not admitted"
        );
    });
}

#[test]
fn sectors_of_a_refused_write_wait_for_its_copies() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let (_server, host) = (ours(disk(), "server"), Host::new("1"));
        let device = opened("").await;
        host.reserve(1, vec![host.address()]).await;
        let write = || {
            device.write(
                Extent::new(0, 1),
                Buffer::zeroed(SECTOR).share(),
                Durability::Cached,
            )
        };
        assert_eq!(write().await, Err(DeviceError::Reserved));
        let begin = now();
        assert_eq!(write().await, Err(DeviceError::Reserved));
        assert!(
            now() - begin >= Duration::from_secs(2),
            "a server does not remember what it refused"
        );
    });
}

#[test]
fn a_flush_fails_for_the_reason_that_the_server_gives() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let disk = disk();
        let (_server, host) = (ours(Arc::clone(&disk), "server"), Host::new("1"));
        let device = opened("").await;
        for (failed, told) in [
            (DeviceError::WritesLost, DeviceError::WritesLost),
            (DeviceError::Fenced, DeviceError::NotReady),
            (DeviceError::TimedOut, DeviceError::NotReady),
        ] {
            disk.fail_next_flush(failed);
            assert_eq!(device.flush().await, Err(told), "{failed:?}");
        }
        host.reserve(1, vec![host.address()]).await;
        assert_eq!(device.flush().await, Err(DeviceError::Reserved));
    });
}

/// A server reports a loss only once to each station. Here, it reports the loss to a flush that covered the
/// first frames of the write.
#[test]
fn a_stable_write_fails_if_another_flush_got_the_report_of_its_loss() {
    block_on(Ethernet::new(1, GOOD, 1500).world(), async {
        let disk = disk();
        let _server = ours(Arc::clone(&disk), "server");
        let device = Arc::new(opened("").await);
        let other = Arc::clone(&device);
        disk.fail_next_flush(DeviceError::WritesLost);
        let flush = reactor::spawn(async move { other.flush().await });
        let data = Buffer::zeroed(8 * SECTOR).share();
        let written = device
            .write(Extent::new(0, 8), data, Durability::Stable)
            .await;
        assert_eq!(
            (written, flush.await),
            (Err(DeviceError::WritesLost), Err(DeviceError::WritesLost))
        );
        let data = Buffer::zeroed(8 * SECTOR).share();
        assert_eq!(
            device
                .write(Extent::new(0, 8), data, Durability::Stable)
                .await,
            Ok(())
        );
    });
}

/// A server reports a loss only once to each station, in the reply to the flush that detected the loss.
#[test]
fn a_loss_is_counted_once_even_if_the_requester_of_its_flush_has_gone() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = disk();
        let _server = ours(Arc::clone(&disk), "server");
        let device = opened("?timeout=3s").await;
        let mut losses = 0;
        // The caller drops the flush, or waits until it has timed out.
        for patience in [1, 5] {
            disk.fail_next_flush(DeviceError::WritesLost);
            ethernet.mute(Some("server"));
            let answer = timeout(Duration::from_secs(patience), device.flush()).await;
            assert!(
                matches!(answer, Err(_) | Ok(Err(DeviceError::NotReady))),
                "{answer:?}"
            );
            assert_eq!(
                device.losses().count(),
                losses,
                "the flush is not answered yet"
            );
            ethernet.mute(None);
            sleep(Duration::from_secs(10)).await;
            losses += 1;
            assert_eq!(device.losses().count(), losses);
            assert_eq!(
                (device.flush().await, device.losses().count()),
                (Ok(()), losses)
            );
        }
        disk.fail_next_flush(DeviceError::WritesLost);
        let mut flush = device.flush();
        assert_eq!(testkit::poll(flush.as_mut()), None);
        sleep(Duration::from_secs(1)).await;
        drop(flush); // its reply has arrived
        assert_eq!(
            (device.flush().await, device.losses().count()),
            (Ok(()), losses + 1)
        );
    });
}

#[test]
fn a_flush_succeeds_only_after_the_abandoned_ones_have_ended() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let disk = disk();
        let _server = ours(Arc::clone(&disk), "server");
        let device = opened("").await;
        disk.fail_next_flush(DeviceError::WritesLost);
        ethernet.mute(Some("server"));
        let answer = timeout(Duration::from_millis(100), device.flush()).await;
        assert!(answer.is_err(), "its reply is lost");
        ethernet.mute(None);
        assert_eq!((device.flush().await, device.losses().count()), (Ok(()), 1));
    });
}

#[test]
fn an_answer_that_is_too_long_for_the_interface_stops_no_other() {
    let ethernet = Ethernet::new(1, GOOD, 1500);
    block_on(ethernet.world(), async {
        let (_server, host) = (ours(disk(), "server"), Host::new("1"));
        host.send(
            1,
            Body::Config(Query::query(ConfigCommand::Set, &[b'a'; 1024])),
        );
        host.answer(1).await;
        ethernet.set_mtu(600);
        let begin = now();
        host.send(2, Body::Config(Query::query(ConfigCommand::Read, &[])));
        assert_eq!(
            host.ask(3, Ata::read(0, 1), &[]).await,
            Answer::Done(vec![0; SECTOR])
        );
        assert!(
            now() - begin < Duration::from_millis(50),
            "{:?}",
            now() - begin
        );
    });
}
