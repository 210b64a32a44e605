//! Attacks on a running server by malicious peers. Each peer must get the response that RFC 7143 requires: a
//! Reject, a status, or the end of its connection. Meanwhile, another session must continue undisturbed, and
//! the server's memory must not grow.

mod before_login;
mod data;
mod digests;
mod floods;
mod pdus;

use std::time::Duration;

use iscsi::login::InitiatorConfig;
use iscsi::negotiate::{DigestKind, Offers};
use iscsi::pdu::{
    BHS_BYTES, Bhs, Cid, DataOut, Isid, Itt, LoginRequest, Lun, NopOut, Opcode, Reject,
    RejectReason, ScsiCommand, ScsiResponse, Sn, Stage, Tsih, Ttt,
};

use crate::peer::{BLOCK, Peer, initiator, read_10, write_10};
use crate::program::until;
use crate::server::Server;
use crate::wire::{Heard, PATIENCE, Wire};

const SHORT_LOGIN: &str = "login-time = \"1s\"";

/// The text of the first login request.
const INTRODUCTION: &[u8] =
    b"InitiatorName=iqn.2026-01.com.example:peer\0SessionType=Discovery\0AuthMethod=None\0";

/// The time limits for peers. Unless a scene sets a limit, it is longer than the scene, so that it cannot be
/// the cause of an event in the scene.
const TIMES: [&str; 4] = ["login-time", "discovery-time", "send-stall", "nop-interval"];

/// Time limit for actions that take two seconds, on a busy machine.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// The maximum growth of the server's memory by a peer, including its own caches and the allocator's
/// reserves.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// A server under attack, and a session that must not be affected.
struct Siege {
    server: Server,
    witness: Peer,
    memory_bytes: u64,
}

impl Siege {
    /// Starts a server. `limits` are lines of `[limits]`, in addition to long time limits.
    fn begin(limits: &str) -> Option<Siege> {
        Siege::with(&format!("{limits}\n{}", long_times_beside(limits)))
    }

    /// Starts a server with only these lines of `[limits]`.
    fn with(limits: &str) -> Option<Siege> {
        let text = format!(
            "[limits]\n{limits}\n[volume.disk]\nspec = \"ram:64MiB\"\n[[target]]\n\
             name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n"
        );
        let server = Server::configured(&text)?;
        let mut witness = Peer::attach(&server, "disk", 200);
        witness.write(0, &[0x5a; 64 * BLOCK]);
        let memory_bytes = resident_bytes(&server);
        Some(Siege {
            server,
            witness,
            memory_bytes,
        })
    }

    fn wire(&self) -> Wire {
        Wire::connect(&self.server.portal())
    }

    fn peer(&self, change: impl FnOnce(&mut InitiatorConfig)) -> Rogue {
        let mut config = initiator(Some(&self.server.target_name("disk")), 1);
        change(&mut config);
        let mut wire = self.wire();
        let attached = wire.log_in(config).expect("a session");
        Rogue {
            wire,
            cmd_sn: attached.exp_cmd_sn,
            max_cmd_sn: attached.max_cmd_sn,
            tag: 1000,
        }
        .at_ease()
    }

    /// Checks that the server is running and serves others, and that its memory has not grown.
    fn holds(mut self) {
        self.witness.ping();
        assert_eq!(
            self.witness.read(0, 64),
            [0x5a; 64 * BLOCK],
            "and has its data"
        );
        let grown = resident_bytes(&self.server).saturating_sub(self.memory_bytes);
        println!("the server has grown by {} KiB", grown >> 10);
        assert!(grown < MEMORY_BYTES_MAX, "by {grown} bytes");
        Peer::attach(&self.server, "disk", 201); // new sessions are accepted
    }
}

fn long_times_beside(limits: &str) -> String {
    let others = TIMES.iter().filter(|time| !limits.contains(*time));
    others.map(|time| format!("{time} = \"1h\"\n")).collect()
}

/// A server with this limit, and one with its default.
fn with_and_without(limit: &str) -> Option<[Siege; 2]> {
    Some([
        Siege::begin(limit)?,
        Siege::with(&long_times_beside(limit))?,
    ])
}

/// Checks that a limit is effective. A state that starts on both servers must end on the server with the
/// limit, while it continues on the other one, whose default is longer. If the machine is so busy that it has
/// ended on both, this is repeated.
pub(crate) fn ends_earlier<S, T>(
    [limited, other]: &[S; 2],
    begin: impl Fn(&S) -> T,
    has_ended: impl Fn(&S, &mut T) -> bool,
) {
    until("an end before the default", || {
        let (mut later, mut earlier) = (begin(other), begin(limited));
        until("an end", || has_ended(limited, &mut earlier));
        !has_ended(other, &mut later)
    });
}

/// The resident memory of a server (VmRSS of proc(5)).
pub(crate) fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))
        .expect("a running server");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a size");
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("a number");
    kib << 10
}

/// A session without protocol checks.
struct Rogue {
    wire: Wire,
    cmd_sn: Sn,
    max_cmd_sn: Sn,
    tag: u32,
}

impl Rogue {
    /// Consumes the unit attention of a new session.
    fn at_ease(mut self) -> Rogue {
        let ready = self.command([0; 16]);
        self.say(&ready.emit(), &[]);
        self.response();
        self
    }

    fn say(&mut self, bhs: &Bhs, data: &[u8]) {
        self.wire
            .send(bhs, data)
            .expect("a connection that is open");
    }

    fn hear(&mut self) -> (Bhs, Vec<u8>) {
        match self.wire.hear(PATIENCE) {
            Heard::Pdu(bhs, data) => (*bhs, data),
            other => panic!("no PDU: {other:?}"),
        }
    }

    /// Receives the next PDU of this kind, and skips others before it.
    fn hear_a(&mut self, opcode: Opcode) -> (Bhs, Vec<u8>) {
        loop {
            let (bhs, data) = self.hear();
            if bhs.opcode() == Some(opcode) {
                return (bhs, data);
            }
        }
    }

    fn response(&mut self) -> ScsiResponse {
        ScsiResponse::parse(&self.hear_a(Opcode::ScsiResponse).0).expect("a response")
    }

    #[track_caller]
    fn expect_reject(&mut self, reason: RejectReason) {
        let (bhs, data) = self.hear_a(Opcode::Reject);
        assert_eq!(Reject::parse(&bhs).map(|reject| reject.reason), Ok(reason));
        assert_eq!(
            data.len(),
            BHS_BYTES,
            "the header that was refused (section 11.17)"
        );
    }

    #[track_caller]
    fn expect_check_condition(&mut self) {
        assert_eq!(self.response().status, 2);
    }

    /// Checks that the session continues normally.
    fn expect_alive(&mut self) {
        let tag = self.next_tag();
        self.say(&ping(Some(tag)).emit(), &[]);
        let (pong, _) = self.hear_a(Opcode::NopIn);
        assert_eq!(pong.itt_raw(), tag.get());
    }

    fn next_tag(&mut self) -> Itt {
        self.tag += 1;
        Itt::new(self.tag).expect("a tag")
    }

    /// The next command in order.
    fn command(&mut self, cdb: [u8; 16]) -> ScsiCommand {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        ScsiCommand::simple(Lun(0), self.next_tag(), cmd_sn, cdb)
    }

    fn write(&mut self, bytes: usize) -> ScsiCommand {
        let command = self.command(long(&write_10(0, bytes, false)));
        ScsiCommand {
            write: true,
            expected_data_transfer_length: bytes as u32,
            ..command
        }
    }

    fn read(&mut self, blocks: usize) -> ScsiCommand {
        let command = self.command(long(&read_10(0, blocks)));
        ScsiCommand {
            read: true,
            expected_data_transfer_length: (blocks * BLOCK) as u32,
            ..command
        }
    }
}

fn long(cdb: &[u8]) -> [u8; 16] {
    std::array::from_fn(|at| cdb.get(at).copied().unwrap_or(0))
}

fn ping(itt: Option<Itt>) -> NopOut {
    NopOut {
        immediate: true,
        lun: Lun(0),
        itt,
        ttt: None,
        cmd_sn: Sn(0),
        exp_stat_sn: Sn(0),
        data_segment_length: 0,
    }
}

fn data_out(itt: Itt, ttt: Option<Ttt>, data_sn: u32, offset: u32, length: u32) -> DataOut {
    DataOut {
        is_final: true,
        lun: Lun(0),
        itt,
        ttt,
        exp_stat_sn: Sn(0),
        data_sn: Sn(data_sn),
        buffer_offset: offset,
        data_segment_length: length,
    }
}

fn login(cmd_sn: u32, continues: bool, length: usize) -> Bhs {
    let request = LoginRequest {
        continues,
        stage: Stage::SecurityNegotiation,
        transit_to: None,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: Itt::new(1).expect("a tag"),
        cid: Cid(0),
        cmd_sn: Sn(cmd_sn),
        exp_stat_sn: Sn(0),
        data_segment_length: length as u32,
    };
    request.emit()
}

fn solicited_only(config: &mut InitiatorConfig) {
    config.offers = Offers {
        initial_r2t: true,
        immediate_data: false,
        ..config.offers.clone()
    };
}

fn with_digests(config: &mut InitiatorConfig) {
    solicited_only(config);
    config.offers.header_digest = vec![DigestKind::Crc32c];
    config.offers.data_digest = vec![DigestKind::Crc32c];
}
