//! Tests of recordings, which read the resulting files.

mod reader;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use iscsi::framing::Framing;
use iscsi::pdu::{Bhs, Opcode};
use proptest::prelude::*;

use crate::recorder::tests::reader::{File, Packet, read};
use crate::recorder::{ENDED_MAX, Ends, FILES_MAX, FlightRecorder, Recording};

const BOTH: Framing = Framing {
    header_digest: true,
    data_digest: true,
};

fn ends(local: &str, peer: &str) -> Ends {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    Ends {
        local: address(local),
        peer: address(peer),
        cid: 3,
        target: Some("iqn.x:disk".to_owned()),
    }
}

/// A logged-in connection with a test clock.
struct Scene {
    recorder: FlightRecorder,
    recording: Recording,
    framing: Framing,
    now: Instant,
}

impl Scene {
    fn new(pdus: usize, framing: Framing) -> Scene {
        let recorder = FlightRecorder::new(pdus);
        let now = Instant::now();
        let recording = recorder.begin(now, ends("10.0.0.1:40000", "10.0.0.2:3260"));
        recording.tape().logged_in(framing);
        Scene {
            recorder,
            recording,
            framing,
            now,
        }
    }

    fn sent(&mut self, bhs: Bhs, data: &[u8]) {
        let (header, trailer) = self.framed(bhs, data);
        self.recording
            .tape()
            .sent(self.now, &header, data, &trailer);
    }

    fn received(&mut self, bhs: Bhs, data: &[u8]) {
        let (header, trailer) = self.framed(bhs, data);
        let mut tape = self.recording.tape();
        tape.received(self.now, &header);
        tape.received_data(data, &trailer);
    }

    /// Returns a header with its additional segments and digest, and the trailer of its data.
    fn framed(&mut self, bhs: Bhs, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        self.now += Duration::from_micros(1);
        let mut header = bhs.0.to_vec();
        header.resize(header.len() + bhs.total_ahs_length(), 0xa5);
        self.framing.end_header(&mut header, 0);
        let mut trailer = Vec::new();
        self.framing.end_data(&mut trailer, data);
        (header, trailer)
    }

    /// Returns the packets of the file after the three that open a conversation.
    fn packets(&self) -> Vec<Packet> {
        read(&self.recorder.pcapng()).packets.split_off(3)
    }
}

fn header(opcode: Opcode, tag: u32, data: &[u8]) -> Bhs {
    let mut bhs = Bhs::new(opcode);
    bhs.set_u32(16, tag);
    bhs.set_data_segment_length(data.len() as u32);
    bhs
}

fn command(tag: u32, operation_code: u8) -> Bhs {
    let mut bhs = header(Opcode::ScsiCommand, tag, &[]);
    bhs.set_u8(32, operation_code);
    bhs
}

const INQUIRY: u8 = 0x12;
const READ_10: u8 = 0x28;

#[test]
fn of_a_read_the_first_bytes_are_kept_and_the_true_length() {
    let mut scene = Scene::new(4, BOTH);
    let data = [7; 4096];
    scene.sent(command(1, READ_10), &[]);
    scene.received(header(Opcode::DataIn, 1, &data), &data);
    let answer = &scene.packets()[1];
    assert_eq!(answer.payload.len(), 48 + 4 + 64);
    assert_eq!(answer.payload_bytes, 48 + 4 + 4096 + 4);
}

#[test]
fn a_page_is_kept_whole_with_its_padding_and_digests() {
    let mut scene = Scene::new(4, BOTH);
    let page = [7; 1021];
    scene.sent(command(1, INQUIRY), &[]);
    scene.received(header(Opcode::DataIn, 1, &page), &page);
    let answer = &scene.packets()[1];
    assert_eq!(answer.payload.len(), 48 + 4 + 1021 + 3 + 4);
    assert_eq!(answer.payload.len(), answer.payload_bytes);
}

#[test]
fn a_pdu_longer_than_a_packet_takes_several() {
    let mut scene = Scene::new(4, Framing::default());
    let data = vec![7; 256 << 10];
    scene.sent(header(Opcode::DataOut, 1, &data), &data);
    let lengths: Vec<usize> = scene
        .packets()
        .iter()
        .map(|packet| packet.payload_bytes)
        .collect();
    assert_eq!(
        lengths,
        [
            65_000,
            65_000,
            65_000,
            65_000,
            48 + (256 << 10) - 4 * 65_000
        ]
    );
}

#[test]
fn a_ring_that_has_come_round_says_how_many_pdus_it_lost() {
    let mut scene = Scene::new(4, Framing::default());
    (0..10).for_each(|tag| scene.sent(header(Opcode::NopOut, tag, &[]), &[]));
    let packets = scene.packets();
    let tags: Vec<u8> = packets.iter().map(|packet| packet.payload[19]).collect();
    assert_eq!(tags, [6, 7, 8, 9]);
    assert!(
        packets[0]
            .comment
            .as_ref()
            .is_some_and(|remark| remark.starts_with("6 PDUs")),
        "{packets:?}"
    );
}

#[test]
fn data_that_come_after_the_ring_has_come_round_belong_to_nobody() {
    let mut scene = Scene::new(2, Framing::default());
    let data = [7; 64];
    let (late, _) = scene.framed(header(Opcode::DataIn, 1, &data), &data);
    scene.recording.tape().received(scene.now, &late);
    (2..4).for_each(|tag| scene.sent(header(Opcode::NopOut, tag, &[]), &[]));
    scene.recording.tape().received_data(&data, &[]);
    assert!(
        scene
            .packets()
            .iter()
            .all(|packet| packet.payload.len() == 48)
    );
}

#[test]
fn data_that_never_came_are_remarked() {
    let mut scene = Scene::new(2, Framing::default());
    let (header, _) = scene.framed(header(Opcode::DataIn, 1, &[0; 512]), &[]);
    scene.recording.tape().received(scene.now, &header);
    let packets = scene.packets();
    assert_eq!(
        (packets[0].payload.len(), packets[0].payload_bytes),
        (48, 48 + 512)
    );
    assert!(packets[0].comment.is_some());
}

#[test]
fn the_last_packet_tells_why_the_connection_ended() {
    let mut scene = Scene::new(4, Framing::default());
    scene.sent(header(Opcode::NopOut, 1, &[]), &[]);
    scene
        .recording
        .end(scene.now, &"the target is unresponsive");
    scene.recording.end(scene.now, &"no longer relevant");
    let packets = scene.packets();
    assert_eq!(
        packets.last().and_then(|last| last.comment.as_deref()),
        Some("the target is unresponsive")
    );
}

#[test]
fn the_first_pdu_tells_what_the_connection_is_made_for() {
    let scene = Scene::new(4, Framing::default());
    let (request, answer) = (
        header(Opcode::LoginRequest, 1, &[]),
        header(Opcode::LoginResponse, 1, &[]),
    );
    scene
        .recording
        .tape()
        .login(scene.now, crate::recorder::Direction::Sent, &request.0);
    scene
        .recording
        .tape()
        .login(scene.now, crate::recorder::Direction::Received, &answer.0);
    scene
        .recording
        .tape()
        .occasion("the session was restored".to_owned());
    let comments: Vec<_> = scene
        .packets()
        .into_iter()
        .map(|packet| packet.comment)
        .collect();
    assert_eq!(
        comments,
        [Some("the session was restored".to_owned()), None]
    );
}

#[test]
fn a_connection_is_an_interface_with_its_name() {
    let scene = Scene::new(4, Framing::default());
    let File { interfaces, .. } = read(&scene.recorder.pcapng());
    assert_eq!(
        interfaces,
        [("10.0.0.2:3260, CID 3".to_owned(), "iqn.x:disk".to_owned())]
    );
}

#[test]
fn an_ipv6_connection_has_ipv6_packets() {
    let recorder = FlightRecorder::new(4);
    let recording = recorder.begin(Instant::now(), ends("[::1]:40000", "[::1]:3260"));
    recording
        .tape()
        .login(Instant::now(), crate::recorder::Direction::Sent, &[3; 52]);
    let packets = read(&recorder.pcapng()).packets;
    assert_eq!(packets[3].ports, (40_000, 3260));
    assert_eq!(packets[3].payload, [3; 52]);
}

#[test]
fn a_recorder_of_no_pdus_records_nothing() {
    let mut scene = Scene::new(0, Framing::default());
    scene.sent(header(Opcode::NopOut, 1, &[]), &[]);
    scene
        .recording
        .tape()
        .login(scene.now, crate::recorder::Direction::Sent, &[3; 48]);
    scene.recording.end(scene.now, &"over");
    assert!(read(&scene.recorder.pcapng()).interfaces.is_empty());
}

#[test]
fn failed_logins_do_not_displace_the_connection_that_was_lost() {
    let mut scene = Scene::new(4, Framing::default());
    scene.sent(header(Opcode::NopOut, 1, &[]), &[]);
    scene.recording.end(scene.now, &"lost");
    let Scene {
        recorder,
        recording,
        now,
        ..
    } = scene;
    drop(recording);
    for number in 0..20 {
        recorder
            .begin(now, ends("10.0.0.1:40001", "10.0.0.2:3260"))
            .end(now, &format!("refused {number}"));
    }
    let File {
        packets,
        interfaces,
    } = read(&recorder.pcapng());
    let told: Vec<_> = packets
        .iter()
        .filter_map(|packet| packet.comment.as_deref())
        .collect();
    assert_eq!(interfaces.len(), ENDED_MAX);
    assert!(
        told.contains(&"lost") && told.contains(&"refused 19"),
        "{told:?}"
    );
}

#[test]
fn an_ending_that_was_not_meant_leaves_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(4, Framing::default());
    scene.recorder.write_endings_to(folder.path());
    scene.sent(header(Opcode::NopOut, 1, &[]), &[]);
    for _ in 0..FILES_MAX + 3 {
        scene
            .recording
            .end_badly(scene.now, &"the target is unresponsive");
    }
    let files: Vec<_> = folder
        .path()
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(files.len(), FILES_MAX);
    let packets = read(&std::fs::read(&files[0]).unwrap()).packets;
    assert_eq!(
        packets.last().and_then(|last| last.comment.as_deref()),
        Some("the target is unresponsive")
    );
}

/// An event on a connection.
#[derive(Clone, Debug)]
enum Happening {
    Login {
        sent: bool,
        bytes: Vec<u8>,
    },
    Sent {
        bhs: [u8; 12],
        data: Vec<u8>,
    },
    Received {
        bhs: [u8; 12],
        data: Vec<u8>,
    },
    /// A PDU of which only the header, possibly truncated, was received.
    Cut {
        bytes: usize,
    },
}

fn happening() -> impl Strategy<Value = Happening> {
    let bhs = || prop_oneof![Just([1; 12]), Just([0x25; 12]), any::<[u8; 12]>()];
    let data = || (0usize..10_000, any::<u8>()).prop_map(|(length, fill)| vec![fill; length]);
    prop_oneof![
        (any::<bool>(), prop::collection::vec(any::<u8>(), 0..9_000))
            .prop_map(|(sent, bytes)| Happening::Login { sent, bytes }),
        (bhs(), data()).prop_map(|(bhs, data)| Happening::Sent { bhs, data }),
        (bhs(), data()).prop_map(|(bhs, data)| Happening::Received { bhs, data }),
        (0usize..2_000).prop_map(|bytes| Happening::Cut { bytes }),
    ]
}

impl Scene {
    fn happen(&mut self, happening: Happening) {
        let whole = |bhs: [u8; 12], data: &[u8]| {
            let mut whole = Bhs(std::array::from_fn(|at| bhs[at % 12]));
            whole.set_data_segment_length(data.len() as u32);
            whole
        };
        match happening {
            Happening::Login { sent, bytes } => {
                let direction = if sent {
                    crate::recorder::Direction::Sent
                } else {
                    crate::recorder::Direction::Received
                };
                self.recording.tape().login(self.now, direction, &bytes);
            }
            Happening::Sent { bhs, data } => self.sent(whole(bhs, &data), &data),
            Happening::Received { bhs, data } => self.received(whole(bhs, &data), &data),
            Happening::Cut { bytes } => {
                self.recording.tape().received(self.now, &vec![0xff; bytes])
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_file_can_be_read_and_is_bounded(
        pdus in 0usize..20,
        (header_digest, data_digest) in any::<(bool, bool)>(),
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let mut scene = Scene::new(pdus, Framing { header_digest, data_digest });
        happenings.into_iter().for_each(|happening| scene.happen(happening));
        scene.recording.end(scene.now, &"the end");
        let file = scene.recorder.pcapng();
        let kept: usize = read(&file).packets.iter().map(|packet| packet.payload.len()).sum();
        // The limits of the login, of the ring of bytes, and of the fixed part of each PDU.
        prop_assert!(kept <= (64 << 10) + (64 << 10) + pdus * (48 + 64 + 16), "{kept} bytes");
    }
}
