//! Writes that end, or coincide with an UNMAP, in the middle of a block, on a volume that receives data in
//! place: every block is completely old or completely new, and its allocation is known.

use std::time::{Duration, Instant};

use iscsi::negotiate::Offers;
use iscsi::pdu::{
    DataOut, Itt, Lun, NopOut, Opcode, R2t, ScsiCommand, ScsiResponse, Sn, TaskManagementFunction,
    TaskManagementResult, Ttt,
};

use crate::isolation::{await_commands, commands};
use crate::peer::{BLOCK, Moves, Peer, initiator, write_10};
use crate::server::Server;
use crate::wire::{Heard, PATIENCE, Wire};

const WITH_FILE: &str = r#"
reactors = 1
[limits]
staging = "16MiB"
session-staging = "16MiB"
[volume.disk]
spec = "ram:16MiB"
[volume.file]
spec = "file:{state}/disk?size=64MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[[target]]
name = "iqn.2026-01.io.linerate:file"
lun = [{ lun = 0, volume = "file" }]
"#;

const GOOD: u8 = 0;
const TASK_SET_FULL: u8 = 0x28;

const OLD: u8 = 0x0f;
const NEW: u8 = 0xe1;

/// The number of blocks of the write.
const BLOCKS: usize = 512;

/// A volume of old data with a page of blocks after the write, and an observer.
struct Scene {
    server: Server,
    witness: Peer,
}

impl Scene {
    fn begin() -> Scene {
        Scene::on(Server::serving(&["disk=ram:16MiB"]))
    }

    /// Starts a scene with little memory for commands, which the commands of a second volume use.
    fn with_file() -> Option<Scene> {
        Server::configured(WITH_FILE).map(Scene::on)
    }

    fn on(server: Server) -> Scene {
        let mut witness = Peer::attach(&server, "disk", 1);
        witness.write(0, &vec![OLD; (BLOCKS + 8) * BLOCK]);
        Scene { server, witness }
    }

    /// Waits until the blocks before this one are new.
    fn await_landed(&mut self, blocks: usize) {
        let until = Instant::now() + PATIENCE;
        while self.witness.read(blocks as u32 - 1, 1) != [NEW; BLOCK] {
            assert!(Instant::now() < until, "block {} never lands", blocks - 1);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks that this number of blocks is new, and the others are old.
    #[track_caller]
    fn expect_landed(&mut self, new: usize) {
        assert_eq!(self.landed(), new, "new blocks");
    }

    /// The number of new blocks. Checks that the others are old, and that no block is a mixture.
    #[track_caller]
    fn landed(&mut self) -> usize {
        let found = self.witness.read(0, BLOCKS + 8);
        let new = found
            .chunks(BLOCK)
            .take_while(|block| block[0] == NEW)
            .count();
        for (index, block) in found.chunks(BLOCK).enumerate() {
            let byte = if index < new { NEW } else { OLD };
            let differing = block.iter().filter(|&&found| found != byte).count();
            assert_eq!(
                differing, 0,
                "block {index} of {new} new ones: that many bytes are not {byte:#04x}"
            );
        }
        new
    }
}

/// A WRITE whose data is sent in pieces.
struct Writer {
    wire: Wire,
    tag: Itt,
    /// The command's parameters.
    command: ScsiCommand,
    sent: usize,
}

impl Writer {
    /// Sends the command and, if permitted, the immediate data.
    fn begin(
        server: &Server,
        offers: impl FnOnce(Offers) -> Offers,
        immediate_bytes: usize,
    ) -> Writer {
        let mut writer = Writer::log_in(server, offers);
        writer.send_command(BLOCKS * BLOCK, immediate_bytes, true);
        writer
    }

    /// Logs in, but sends no part of the write.
    fn log_in(server: &Server, offers: impl FnOnce(Offers) -> Offers) -> Writer {
        let mut config = initiator(Some(&server.target_name("disk")), 2);
        config.offers = offers(config.offers);
        let mut wire = Wire::connect(&server.portal());
        let attached = wire.log_in(config).expect("a session");
        let tag = Itt::new(1).expect("a tag");
        let command = ScsiCommand::simple(Lun(0), tag, attached.exp_cmd_sn, [0; 16]);
        wire.send(&command.emit(), &[]).expect("a connection"); // the unit attention of a new session
        assert!(matches!(wire.hear(PATIENCE), Heard::Pdu(..)));
        Writer {
            wire,
            tag,
            command: ScsiCommand {
                cmd_sn: command.cmd_sn.next(),
                ..command
            },
            sent: 0,
        }
    }

    /// Sends the header of the command, followed by this number of bytes of its data. If these are not the
    /// final ones, unsolicited Data-Out PDUs follow.
    fn send_command(&mut self, bytes: usize, immediate_bytes: usize, is_final: bool) {
        let cdb = write_10(0, bytes, false);
        let write = ScsiCommand {
            write: true,
            is_final,
            expected_data_transfer_length: bytes as u32,
            data_segment_length: immediate_bytes as u32,
            cdb: std::array::from_fn(|at| cdb.get(at).copied().unwrap_or(0)),
            ..self.command
        };
        self.wire.send_bytes(&write.emit().0).expect("a connection");
    }

    /// Sends the next data, up to this byte, in a Data-Out PDU.
    fn send_data_out(&mut self, ttt: Option<Ttt>, data_sn: u32, end: usize, is_final: bool) {
        let piece = DataOut {
            is_final,
            lun: Lun(0),
            itt: self.tag,
            ttt,
            exp_stat_sn: Sn(0),
            data_sn: Sn(data_sn),
            buffer_offset: self.sent as u32,
            data_segment_length: (end - self.sent) as u32,
        };
        let data = vec![NEW; end - self.sent];
        self.wire.send(&piece.emit(), &data).expect("a connection");
        self.sent = end;
    }

    /// The status of the command.
    fn status(&mut self) -> u8 {
        let Heard::Pdu(response, _) = self.wire.hear(PATIENCE) else {
            panic!("no response")
        };
        assert_eq!(response.opcode(), Some(Opcode::ScsiResponse));
        ScsiResponse::parse(&response).expect("a response").status
    }

    /// Starts a write with all its data in one PDU.
    fn in_one_pdu(server: &Server) -> Writer {
        let bytes = (BLOCKS * BLOCK) as u32;
        let all_at_once = |offers: Offers| Offers {
            first_burst_length: bytes,
            ..offers
        };
        Writer::begin(server, all_at_once, bytes as usize)
    }

    /// Sends more of the data, up to this byte.
    fn send_up_to(&mut self, end: usize) {
        self.wire
            .send_bytes(&vec![NEW; end - self.sent])
            .expect("a connection");
        self.sent = end;
    }

    /// Waits until the sent data has been processed: the response to a NOP-Out follows it.
    fn ping(&mut self) {
        let ping = NopOut {
            immediate: true,
            lun: Lun(0),
            itt: Itt::new(2),
            ttt: None,
            cmd_sn: Sn(0),
            exp_stat_sn: Sn(0),
            data_segment_length: 0,
        };
        self.wire.send(&ping.emit(), &[]).expect("a connection");
        let Heard::Pdu(pong, _) = self.wire.hear(PATIENCE) else {
            panic!("no answer")
        };
        assert_eq!(pong.opcode(), Some(Opcode::NopIn));
    }
}

#[test]
fn a_write_that_is_cut_in_the_middle_of_a_block_leaves_whole_blocks() {
    // The first piece contains little more than the header, so that the next is received in place; the ends
    // are in the middle of a block, one byte after its start, and one before its end.
    for (first, last) in [
        (1000, 100_000),
        (700, 40 * BLOCK + 1),
        (BLOCK, 3 * BLOCK - 1),
    ] {
        let mut scene = Scene::begin();
        let mut writer = Writer::in_one_pdu(&scene.server);
        writer.send_up_to(first);
        scene.await_landed(first / BLOCK);
        scene.expect_landed(first / BLOCK);
        writer.send_up_to(last);
        scene.await_landed(last / BLOCK);
        scene.expect_landed(last / BLOCK);
        drop(writer); // the connection is lost
        Peer::attach(&scene.server, "disk", 2); // the same nexus, so its old session has ended
        scene.expect_landed(last / BLOCK);
    }
}

#[test]
fn a_write_that_is_aborted_in_the_middle_of_a_block_leaves_whole_blocks() {
    let mut scene = Scene::begin();
    let solicited = |offers: Offers| Offers {
        initial_r2t: true,
        immediate_data: false,
        ..offers
    };
    let mut writer = Writer::begin(&scene.server, solicited, 0);
    let Heard::Pdu(r2t, _) = writer.wire.hear(PATIENCE) else {
        panic!("no R2T")
    };
    let r2t = R2t::parse(&r2t).expect("an R2T");
    for (data_sn, end) in [
        (0, 2 * BLOCK),
        (1, 5 * BLOCK - 1),
        (2, 5 * BLOCK),
        (3, 7 * BLOCK + 100),
    ] {
        writer.send_data_out(Some(r2t.ttt), data_sn, end, false);
        writer.ping();
        scene.expect_landed(end / BLOCK);
    }
    let result = scene
        .witness
        .manage(TaskManagementFunction::LogicalUnitReset);
    assert_eq!(result, TaskManagementResult::FunctionComplete);
    scene.witness = scene.witness.ready();
    scene.expect_landed(7);
}

/// Regression: a PDU ended inside a block while other commands had all the memory. The start of the block was
/// dropped, its end was written to the medium, and the write completed with GOOD.
#[test]
fn a_write_that_finds_no_memory_for_an_incomplete_block_is_not_acknowledged_in_part() {
    const BYTES: usize = 64 * BLOCK;
    for ends in [&[1000, BYTES][..], &[1, 600, 5000, BYTES]] {
        let mut scene = or_skip!(Scene::with_file());
        let mut hog = Peer::attach(&scene.server, "file", 3);
        let before = commands(&scene.server, &hog);
        let bytes = 32_767 * BLOCK; // all memory
        hog.begin(0, &write_10(0, bytes, false), Moves::Out(vec![0xaa; bytes])); // ignores the R2T
        await_commands(&scene.server, &hog, before, 1);
        let mut writer = Writer::log_in(&scene.server, |offers| offers);
        writer.wire.hold(); // all of it arrives in one read
        writer.send_command(BYTES, ends[0], false);
        writer.send_up_to(ends[0]);
        writer
            .wire
            .send_bytes(&vec![0; ends[0].next_multiple_of(4) - ends[0]])
            .expect("a connection"); // padding
        for (data_sn, end) in (0..).zip(&ends[1..]) {
            writer.send_data_out(None, data_sn, *end, *end == BYTES);
        }
        writer.wire.release().expect("a connection");
        match writer.status() {
            GOOD => scene.expect_landed(BYTES / BLOCK), // the memory was reclaimed in time
            TASK_SET_FULL => assert!(scene.landed() <= ends[0] / BLOCK),
            status => panic!("status {status:#04x}"),
        }
        writer.ping();
    }
}

#[test]
fn blocks_that_are_written_beside_an_unmap_are_allocated() {
    let mut scene = Scene::begin();
    let mut writer = Writer::in_one_pdu(&scene.server);
    writer.send_up_to(BLOCK);
    scene.await_landed(1);
    scene
        .witness
        .run(&unmap(), Moves::Out(unmap_list(0, BLOCKS as u32)))
        .expect_good();
    writer.send_up_to(BLOCKS * BLOCK);
    assert_eq!(writer.status(), GOOD);
    assert_eq!(
        scene.witness.read(8, BLOCKS - 8),
        vec![NEW; (BLOCKS - 8) * BLOCK]
    );
    let status = scene
        .witness
        .run(&get_lba_status(8), Moves::In(24))
        .expect_good();
    assert_eq!(status[20] & 0x0f, 0, "PROVISIONING STATUS: mapped");
    // A single block is too short to be deallocated, but must still read as zeros.
    scene
        .witness
        .run(&unmap(), Moves::Out(unmap_list(9, 1)))
        .expect_good();
    assert_eq!(scene.witness.read(9, 1), [0; BLOCK]);
}

fn unmap() -> [u8; 10] {
    [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]
}

/// The parameter list of UNMAP (SBC-3 5.28): one descriptor.
fn unmap_list(lba: u64, blocks: u32) -> Vec<u8> {
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(lba.to_be_bytes());
    list.extend(blocks.to_be_bytes());
    list.extend([0; 4]);
    list
}

/// GET LBA STATUS (SBC-3 5.6), with space for one descriptor.
fn get_lba_status(lba: u64) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x12, 24);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb
}
