//! Malicious peers of the running server: each gets the response required by RFC 7143, a Reject, a status or
//! the end of its connection. Meanwhile another session continues undisturbed, and the server's memory does
//! not grow.

mod before_login;
mod data;
mod digests;
mod floods;
mod pdus;

use std::time::Duration;

use iscsi::login::InitiatorConfig;
use iscsi::negotiate::{DigestKind, Offers};
use iscsi::pdu::{
    BHS_BYTES, Bhs, Cid, DataOut, Isid, Itt, LoginRequest, Lun, NopOut, Opcode, Reject, RejectReason,
    ScsiCommand, ScsiResponse, Sn, Stage, Tsih, Ttt,
};

use crate::peer::{BLOCK, Peer, initiator, read_10, write_10};
use crate::program::until;
use crate::server::Server;
use crate::wire::{Heard, PATIENCE, Wire};

const SHORT_LOGIN: &str = "login-time = \"1s\"";

/// How a login begins.
const INTRODUCTION: &[u8] =
    b"InitiatorName=iqn.2026-01.com.example:peer\0SessionType=Discovery\0AuthMethod=None\0";

/// The limits for idle peers. Unless a scene sets them, they are longer than the scene, whose events must
/// then have another reason.
const TIMES: [&str; 4] = ["login-time", "discovery-time", "send-stall", "nop-interval"];

/// For actions of two seconds, on a busy machine; a fixed two minutes are too long.
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
    /// `limits` are lines of `[limits]`.
    fn begin(limits: &str) -> Option<Siege> {
        Siege::with(&format!("{limits}\n{}", long_times_beside(limits)))
    }

    /// With only these lines of `[limits]`.
    fn with(limits: &str) -> Option<Siege> {
        let text = format!(
            "[limits]\n{limits}\n[volume.disk]\nspec = \"ram:64MiB\"\n[[target]]\n\
             name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n"
        );
        let server = Server::configured(&text)?;
        let mut witness = Peer::attach(&server, "disk", 200);
        witness.write(0, &[0x5a; 64 * BLOCK]);
        let memory_bytes = resident_bytes(&server);
        Some(Siege { server, witness, memory_bytes })
    }

    fn wire(&self) -> Wire {
        Wire::connect(&self.server.portal())
    }

    fn peer(&self, change: impl FnOnce(&mut InitiatorConfig)) -> Rogue {
        let mut config = initiator(Some(&self.server.target_name("disk")), 1);
        change(&mut config);
        let mut wire = self.wire();
        let attached = wire.log_in(config).expect("a session");
        Rogue { wire, cmd_sn: attached.exp_cmd_sn, max_cmd_sn: attached.max_cmd_sn, tag: 1000 }.at_ease()
    }

    /// The server is running, serves others and has not grown.
    fn holds(mut self) {
        self.witness.ping();
        assert_eq!(self.witness.read(0, 64), [0x5a; 64 * BLOCK], "and has its data");
        let grown = resident_bytes(&self.server).saturating_sub(self.memory_bytes);
        println!("the server has grown by {} KiB", grown >> 10);
        assert!(grown < MEMORY_BYTES_MAX, "by {grown} bytes");
        Peer::attach(&self.server, "disk", 201); // and new ones are accepted
    }
}

fn long_times_beside(limits: &str) -> String {
    let others = TIMES.iter().filter(|time| !limits.contains(*time));
    others.map(|time| format!("{time} = \"1h\"\n")).collect()
}

/// A server with this limit, and one with its default.
fn with_and_without(limit: &str) -> Option<[Siege; 2]> {
    Some([Siege::begin(limit)?, Siege::with(&long_times_beside(limit))?])
}

/// An event that starts on both servers ends on the one with the limit while it continues on the other, whose
/// default is longer. On a machine so busy that both have ended, it is repeated.
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

/// VmRSS of proc(5).
pub(crate) fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a running server");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
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
        self.wire.send(bhs, data).expect("a connection that is open");
    }

    fn hear(&mut self) -> (Bhs, Vec<u8>) {
        match self.wire.hear(PATIENCE) {
            Heard::Pdu(bhs, data) => (*bhs, data),
            other => panic!("no PDU: {other:?}"),
        }
    }

    /// The next PDU of this kind; others before it are skipped.
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
        assert_eq!(data.len(), BHS_BYTES, "the header that was refused (section 11.17)");
    }

    #[track_caller]
    fn expect_check_condition(&mut self) {
        assert_eq!(self.response().status, 2);
    }

    /// The session continues normally.
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
        ScsiCommand { write: true, expected_data_transfer_length: bytes as u32, ..command }
    }

    fn read(&mut self, blocks: usize) -> ScsiCommand {
        let command = self.command(long(&read_10(0, blocks)));
        ScsiCommand { read: true, expected_data_transfer_length: (blocks * BLOCK) as u32, ..command }
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
    config.offers = Offers { initial_r2t: true, immediate_data: false, ..config.offers.clone() };
}

fn with_digests(config: &mut InitiatorConfig) {
    solicited_only(config);
    config.offers.header_digest = vec![DigestKind::Crc32c];
    config.offers.data_digest = vec![DigestKind::Crc32c];
}
