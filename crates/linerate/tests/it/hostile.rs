//! Peers that mean ill, against the running server: each gets what RFC 7143 says, a Reject, a status or the end of
//! its connection, while another session works on undisturbed and the server's memory stays where it was.

use std::thread;
use std::time::{Duration, Instant};

use iscsi::login::{Attached, InitiatorConfig, InitiatorEvent, LoginFailure};
use iscsi::negotiate::{DigestKind, Offers};
use iscsi::pdu::{
    BHS_BYTES, Bhs, Cid, DataOut, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, LogoutReason,
    LogoutRequest, Lun, NopOut, Opcode, R2t, Reject, RejectReason, Residual, ScsiCommand, ScsiResponse,
    Stage, TaskAttribute, TextRequest, Tsih, Ttt,
};
use iscsi::serial::Sn;

use crate::peer::{BLOCK, Moves, Peer, initiator, read_10, write_10};
use crate::program::until;
use crate::server::Server;
use crate::sessions::sessions;
use crate::wire::{Heard, NoLogin, PATIENCE, Wire};

const SHORT_LOGIN: &str = "login-time = \"1s\"";

/// How a login begins.
const INTRODUCTION: &[u8] =
    b"InitiatorName=iqn.2026-01.com.example:peer\0SessionType=Discovery\0AuthMethod=None\0";

/// The limits that end what is silent. Where a scene sets none of them, they are longer than it: what it waits for has to
/// come for another reason.
const TIMES: [&str; 4] = ["login-time", "discovery-time", "send-stall", "nop-interval"];

/// For what takes two seconds, on a machine that is busy; a fixed two minutes are too long.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// What a peer may make the server take beyond what it had: its own caches and the allocator's reserves included.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// A server under attack, and a session that must not notice.
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

    /// With these lines of `[limits]` and no others.
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

    /// The server lives, serves others and has not grown.
    fn holds(mut self) {
        self.witness.ping();
        assert_eq!(self.witness.read(0, 64), [0x5a; 64 * BLOCK], "and has its data");
        let grown = resident_bytes(&self.server).saturating_sub(self.memory_bytes);
        println!("the server has grown by {} KiB", grown >> 10);
        assert!(grown < MEMORY_BYTES_MAX, "by {grown} bytes");
        Peer::attach(&self.server, "disk", 201); // and new ones are let in
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

/// What begins on both servers ends on the one with the limit while it is still there on the other: the default is longer. On
/// a machine so busy that both have ended meanwhile, it begins again.
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

/// A session that says what it likes.
struct Rogue {
    wire: Wire,
    cmd_sn: Sn,
    max_cmd_sn: Sn,
    tag: u32,
}

impl Rogue {
    /// Takes the unit attention of a new session.
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

    /// The next PDU of this kind; others before it are passed over.
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

    /// The session goes on as if nothing had been.
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
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: false,
            write: false,
            attribute: TaskAttribute::Simple,
            total_ahs_length: 0,
            data_segment_length: 0,
            lun: Lun(0),
            itt: self.next_tag(),
            expected_data_transfer_length: 0,
            cmd_sn,
            exp_stat_sn: Sn(0),
            cdb,
        }
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

// --- before the login is over

#[test]
fn who_does_not_log_in_is_shown_the_door() {
    let Some(siege) = Siege::begin("") else { return };
    for garbage in [
        vec![0xa5; 4096],
        vec![0xff; 48],
        vec![0; 48],
        (0..=255).collect(),
        b"GET / HTTP/1.1\r\n\r\n".repeat(8),
    ] {
        let mut wire = siege.wire();
        wire.send_bytes(&garbage).expect("a connection that is open");
        assert_eq!(
            wire.hear_the_end(),
            0,
            "section 4.2.3: terminated, without a word: {:02x?}",
            &garbage[..8]
        );
    }
    siege.holds();
}

#[test]
fn a_login_that_does_not_end_is_ended() {
    let Some(sieges) = with_and_without(SHORT_LOGIN) else { return };
    let half = |siege: &Siege| {
        let mut half = siege.wire();
        half.send_bytes(&login(1, false, 0).0[..20]).expect("a connection that is open");
        half
    };
    let begin = Instant::now();
    ends_earlier(&sieges, half, |_, wire| wire.is_closed());
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
    ends_earlier(&sieges, Siege::wire, |_, wire| wire.is_closed());
    sieges.into_iter().for_each(Siege::holds);
}

#[test]
fn a_crowd_that_says_nothing_leaves_room_for_others() {
    const MOST: usize = 50;
    let limits = format!("login-time = \"1h\"\nconnections-per-address = {MOST}");
    let Some(siege) = Siege::begin(&limits) else { return };
    let mut open: Vec<Wire> = Vec::new();
    for _ in 0..20 {
        open.extend((0..50).map(|_| siege.wire()));
        open.retain_mut(|wire| !wire.is_closed());
    }
    until("no more are open than may be", || {
        open.retain_mut(|wire| !wire.is_closed());
        open.len() <= MOST
    });
    siege.holds();
    drop(open);
}

#[test]
fn a_login_text_without_end_is_refused() {
    let Some(siege) = Siege::begin("") else { return };
    let mut wire = siege.wire();
    let text = vec![b'x'; 8192];
    for _ in 0..100 {
        wire.send(&login(1, true, text.len()), &text).expect("a connection that is open");
        let Heard::Pdu(bhs, _) = wire.hear(PATIENCE) else { panic!("closed without a status") };
        match LoginResponse::parse(&bhs).expect("a login response").status {
            LoginStatus::Success => {}
            status => {
                assert_eq!(status, LoginStatus::InitiatorError);
                wire.hear_the_end();
                return siege.holds();
            }
        }
    }
    panic!("800 KiB of login text were taken");
}

#[test]
fn a_login_that_announces_sixteen_megabytes_is_refused() {
    let Some(siege) = Siege::begin("") else { return };
    // The first request; then, in another login, the second: it once passed for one without a text.
    for begun in [false, true] {
        let mut wire = siege.wire();
        if begun {
            wire.send(&login(1, false, INTRODUCTION.len()), INTRODUCTION).expect("a connection that is open");
            assert!(matches!(wire.hear(PATIENCE), Heard::Pdu(..)));
        }
        wire.send_bytes(&login(1, false, 0xff_ffff).0).expect("a connection that is open");
        let Heard::Pdu(bhs, _) = wire.hear(PATIENCE) else { panic!("closed without a status") };
        assert_eq!(LoginResponse::parse(&bhs).map(|pdu| pdu.status), Ok(LoginStatus::InitiatorError));
        wire.hear_the_end();
    }
    siege.holds();
}

#[test]
fn other_pdus_have_no_place_in_a_login() {
    let Some(siege) = Siege::begin("") else { return };
    let mut wire = siege.wire();
    wire.send(&login(1, false, INTRODUCTION.len()), INTRODUCTION).expect("a connection that is open");
    assert!(matches!(wire.hear(PATIENCE), Heard::Pdu(..)));
    wire.send(&ping(None).emit(), &[]).expect("a connection that is open");
    let Heard::Pdu(bhs, _) = wire.hear(PATIENCE) else { panic!("closed without a status") };
    assert_eq!(LoginResponse::parse(&bhs).map(|pdu| pdu.status), Ok(LoginStatus::InvalidDuringLogin));
    wire.hear_the_end();
    siege.holds();
}

// --- data that were not asked for like this

/// A write that is answered by an R2T, and this Data-Out for it.
fn answers_its_r2t(answer: impl Fn(Itt, &R2t) -> DataOut) {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(solicited_only);
    let write = rogue.write(16 * BLOCK);
    rogue.say(&write.emit(), &[]);
    let r2t = R2t::parse(&rogue.hear_a(Opcode::R2t).0).expect("an R2T");
    let pdu = answer(write.itt, &r2t);
    rogue.say(&pdu.emit(), &vec![1; pdu.data_segment_length as usize]);
    if pdu.ttt == Some(r2t.ttt) {
        rogue.expect_check_condition();
    } else {
        // Of a transfer that nobody asked for; what was asked for is still due.
        let whole = data_out(write.itt, Some(r2t.ttt), 0, 0, r2t.desired_data_transfer_length.get());
        rogue.say(&whole.emit(), &vec![1; whole.data_segment_length as usize]);
        rogue.expect_check_condition();
    }
    rogue.expect_alive();
    let mut witness = siege;
    assert_eq!(witness.witness.read(1000, 1), [0; BLOCK], "nothing is written beside the write");
    witness.holds();
}

#[test]
fn a_data_out_out_of_order_fails_its_command() {
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 5, 0, 16 * BLOCK as u32));
}

#[test]
fn a_data_out_at_another_offset_fails_its_command() {
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 0, 512, 15 * BLOCK as u32));
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 0, u32::MAX - 3, 512));
}

#[test]
fn a_data_out_beyond_its_r2t_fails_its_command() {
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 0, 0, 32 * BLOCK as u32));
}

#[test]
fn a_data_out_for_another_r2t_fails_its_command() {
    answers_its_r2t(|itt, r2t| data_out(itt, Ttt::new(r2t.ttt.get() ^ 0x5555), 0, 0, 16 * BLOCK as u32));
}

#[test]
fn unsolicited_data_where_none_are_agreed_on_fail_their_command() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(solicited_only);
    let write = ScsiCommand { data_segment_length: 1024, ..rogue.write(8 * BLOCK) };
    rogue.say(&write.emit(), &[1; 1024]);
    rogue.expect_check_condition();
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn unsolicited_data_beyond_the_first_burst_fail_their_command() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|config| {
        config.offers = Offers { initial_r2t: false, first_burst_length: 4096, ..config.offers.clone() };
    });
    let write = ScsiCommand { is_final: false, ..rogue.write(32 * BLOCK) };
    rogue.say(&write.emit(), &[]);
    rogue.say(&data_out(write.itt, None, 0, 0, 8192).emit(), &[1; 8192]);
    rogue.expect_check_condition();
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn data_for_no_command_are_dropped() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(solicited_only);
    for tag in 0..200 {
        let pdu = data_out(Itt::new(tag).expect("a tag"), Ttt::new(tag), 0, 0, 4096);
        rogue.say(&pdu.emit(), &[1; 4096]);
    }
    rogue.expect_alive();
    siege.holds();
}

// --- digests

#[test]
fn a_bad_header_digest_ends_the_connection() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(with_digests);
    let mut bytes = rogue.wire.framed(&ping(Itt::new(1)).emit(), &[], &[]);
    bytes[40] ^= 1;
    rogue.wire.send_bytes(&bytes).expect("a connection that is open");
    rogue.wire.hear_the_end();
    siege.holds();
}

/// A write over the witness's data, all in one segment that is bent on its way and comes in two parts, the first of
/// `cut` bytes: nothing of it may be seen afterwards.
fn writes_bent_data(blocks: usize, cut: usize) {
    let Some(mut siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(with_digests);
    let write = rogue.write(blocks * BLOCK);
    rogue.say(&write.emit(), &[]);
    let r2t = R2t::parse(&rogue.hear_a(Opcode::R2t).0).expect("an R2T");
    let pdu = data_out(write.itt, Some(r2t.ttt), 0, 0, (blocks * BLOCK) as u32);
    let mut bytes = rogue.wire.framed(&pdu.emit(), &[], &vec![1; blocks * BLOCK]);
    bytes[100] ^= 1;
    let (first, rest) = bytes.split_at(cut);
    rogue.wire.send_bytes(first).expect("a connection that is open");
    assert_eq!(siege.witness.read(0, 64), [0x5a; 64 * BLOCK], "before the digest has come");
    rogue.wire.send_bytes(rest).expect("a connection that is open");
    rogue.expect_reject(RejectReason::DataDigestError);
    rogue.expect_check_condition();
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_bad_data_digest_is_rejected_and_fails_the_write() {
    writes_bent_data(8, 0);
}

#[test]
fn bent_data_that_come_in_pieces_never_reach_the_medium() {
    writes_bent_data(8, 2000);
}

#[test]
fn bent_data_too_long_for_one_read_never_reach_the_medium() {
    writes_bent_data(512, 100_000);
}

#[test]
fn data_whose_digest_is_all_that_is_missing_have_not_reached_the_medium() {
    writes_bent_data(512, 52 + 512 * BLOCK);
}

// --- PDUs that have no place

#[test]
fn sixteen_megabytes_in_one_pdu_end_the_connection() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    rogue
        .wire
        .send_bytes(&NopOut { data_segment_length: 0xff_ffff, ..ping(Itt::new(1)) }.emit().0)
        .expect("open");
    rogue.wire.hear_the_end();
    siege.holds();
}

#[test]
fn opcodes_that_do_not_exist_are_rejected() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    for opcode in [0x07, 0x0f, 0x1c, 0x1e, 0x2f, 0x3e] {
        let mut bhs = ping(Itt::new(1)).emit();
        bhs.set_u8(0, opcode | 0x40);
        rogue.say(&bhs, &[]);
        let (bhs, _) = rogue.hear_a(Opcode::Reject);
        let reason = Reject::parse(&bhs).expect("a Reject").reason;
        assert!(
            matches!(reason, RejectReason::CommandNotSupported | RejectReason::ProtocolError),
            "{reason:?}"
        );
    }
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_target_opcode_is_rejected() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    rogue.say(&Bhs::new(Opcode::R2t), &[]);
    rogue.expect_reject(RejectReason::CommandNotSupported);
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_snack_is_rejected() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    rogue.say(&Bhs::new(Opcode::SnackRequest), &[]);
    rogue.expect_reject(RejectReason::SnackReject);
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_second_login_ends_the_connection() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    rogue.say(&login(1, false, 0), &[]);
    rogue.wire.hear_the_end();
    siege.holds();
}

#[test]
fn additional_headers_that_make_no_sense_are_rejected() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    for ahs in [vec![0xff; 1020], vec![0; 4], vec![0, 200, 1, 0]] {
        let command = ScsiCommand { total_ahs_length: ahs.len(), ..rogue.read(1) };
        rogue.cmd_sn = command.cmd_sn; // a command that is rejected does not count as received (section 7.3)
        rogue.wire.send_with(&command.emit(), &ahs, &[]).expect("a connection that is open");
        let (bhs, _) = rogue.hear_a(Opcode::Reject);
        println!("AHS {:02x?}…: {:?}", &ahs[..4], Reject::parse(&bhs).expect("a Reject").reason);
    }
    rogue.expect_alive();
    siege.holds();
}

/// R and W that do not fit the CDB (RFC 7143 11.3.1): no data move, and the command must not end with GOOD.
#[test]
fn a_command_whose_data_are_declared_the_wrong_way_is_refused() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    let edtl = |command| ScsiCommand { expected_data_transfer_length: BLOCK as u32, ..command };
    for (cdb, read, write) in [
        (long(&write_10(0, BLOCK, false)), true, false),
        (long(&write_10(0, BLOCK, false)), true, true),
        (long(&read_10(0, 1)), true, true),
    ] {
        let command = ScsiCommand { read, write, ..edtl(rogue.command(cdb)) };
        rogue.say(&command.emit(), &[]);
        let (bhs, sense) = rogue.hear_a(Opcode::ScsiResponse);
        assert_eq!(ScsiResponse::parse(&bhs).map(|response| response.status), Ok(2), "{cdb:x?}");
        assert_eq!((sense[4] & 0x0f, &sense[14..16]), (5, &[0x0e, 0x03][..]), "{cdb:x?}");
    }
    // A READ that is declared a write: all that it would return is more than was declared.
    let read = ScsiCommand { write: true, ..edtl(rogue.command(long(&read_10(0, 1)))) };
    rogue.say(&read.emit(), &[]);
    let (bhs, _) = rogue.hear_a(Opcode::ScsiResponse);
    let response = ScsiResponse::parse(&bhs).expect("a response");
    assert_eq!((response.status, response.residual), (0, Residual::Overflow(BLOCK as u32)));
    rogue.expect_alive();
    siege.holds();
}

/// SAM-5 8.9: INVALID MESSAGE ERROR where there is no auto contingent allegiance.
#[test]
fn the_aca_attribute_is_refused() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    for command in [rogue.command([0; 16]), rogue.read(1), rogue.write(BLOCK)] {
        rogue.say(&ScsiCommand { attribute: TaskAttribute::Aca, ..command }.emit(), &[]);
        let (bhs, sense) = rogue.hear_a(Opcode::ScsiResponse);
        assert_eq!(ScsiResponse::parse(&bhs).map(|response| response.status), Ok(2));
        assert_eq!((sense[4] & 0x0f, &sense[14..16]), (5, &[0x49, 0x00][..]));
    }
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_tag_that_is_taken_is_rejected() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(solicited_only);
    let first = rogue.write(BLOCK);
    let second = ScsiCommand { itt: first.itt, ..rogue.write(BLOCK) };
    rogue.say(&first.emit(), &[]);
    rogue.say(&second.emit(), &[]);
    rogue.expect_reject(RejectReason::TaskInProgress);
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn commands_outside_of_the_window_are_ignored() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    let beyond = rogue.max_cmd_sn.plus(1000);
    let before = rogue.cmd_sn.minus(50);
    for cmd_sn in [beyond, before, beyond.plus(1 << 30), before] {
        let stray = ScsiCommand { cmd_sn, itt: rogue.next_tag(), ..rogue.read(1) };
        rogue.cmd_sn = rogue.cmd_sn.minus(1);
        rogue.say(&stray.emit(), &[]);
    }
    let ready = rogue.command([0; 16]);
    rogue.say(&ready.emit(), &[]);
    let (first, _) = rogue.hear();
    assert_eq!(first.itt_raw(), ready.itt.get(), "section 4.2.2.1: ignored without a word");
    siege.holds();
}

#[test]
fn after_a_logout_nothing_is_done() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(|_| {});
    let logout = LogoutRequest {
        immediate: true,
        reason: LogoutReason::CloseSession,
        itt: rogue.next_tag(),
        cid: Cid(0),
        cmd_sn: rogue.cmd_sn,
        exp_stat_sn: Sn(0),
    };
    let (reads, mut bytes) = ([rogue.read(1), rogue.read(1)], rogue.wire.framed(&logout.emit(), &[], &[]));
    reads.iter().for_each(|read| bytes.extend(rogue.wire.framed(&read.emit(), &[], &[])));
    rogue.wire.send_bytes(&bytes).expect("a connection that is open");
    assert_eq!(rogue.hear().0.opcode(), Some(Opcode::LogoutResponse));
    assert_eq!(rogue.wire.hear_the_end(), 0, "the commands behind the logout are not answered");
    siege.holds();
}

// --- floods

/// Sends the same without listening until the server takes no more, or has had enough of it.
fn flood(rogue: &mut Rogue, pdu: impl Fn(u32) -> Vec<u8>) {
    for round in 0..2000 {
        if rogue.wire.send_bytes(&pdu(round)).is_err() {
            println!("closed after {round} rounds");
            return;
        }
    }
    println!("took all of it");
}

#[test]
fn pings_whose_answers_nobody_takes_cost_little() {
    let Some(siege) = Siege::begin("send-stall = \"2s\"") else { return };
    let mut rogue = siege.peer(|_| {});
    let pdu = NopOut { data_segment_length: 4096, ..ping(Itt::new(1)) }.emit();
    let bytes = rogue.wire.framed(&pdu, &[], &[7; 4096]).repeat(16);
    flood(&mut rogue, |_| bytes.clone());
    siege.holds();
}

#[test]
fn texts_whose_answers_nobody_takes_cost_little() {
    let Some(siege) = Siege::begin("send-stall = \"2s\"") else { return };
    let mut rogue = siege.peer(|_| {});
    let text = b"SendTargets=All\0X-com.example.nonsense=1\0";
    let request = TextRequest {
        immediate: true,
        is_final: true,
        continues: false,
        lun: Lun(0),
        itt: Itt::new(1).expect("a tag"),
        ttt: None,
        cmd_sn: Sn(0),
        exp_stat_sn: Sn(0),
        data_segment_length: text.len() as u32,
    };
    let bytes = rogue.wire.framed(&request.emit(), &[], text).repeat(64);
    flood(&mut rogue, |_| bytes.clone());
    siege.holds();
}

#[test]
fn data_that_nobody_takes_cost_little() {
    let Some(mut sieges) = with_and_without("send-stall = \"2s\"") else { return };
    let deaf = |siege: &Siege| {
        let mut rogue = siege.peer(|_| {});
        for _ in 0..200 {
            let read = rogue.read(2048);
            rogue.say(&read.emit(), &[]);
        }
        rogue
    };
    let mut rogue = deaf(&sieges[0]);
    for _ in 0..20 {
        assert_eq!(sieges[0].witness.read(0, 64), [0x5a; 64 * BLOCK]);
    }
    until("an end of its session", || sessions(&sieges[0].server).len() == 1);
    // The Data-In that were sent before the peer was given up are still there to be heard; then comes the end.
    rogue.wire.hear_the_end();
    ends_earlier(&sieges, deaf, |siege, _| sessions(&siege.server).len() == 1);
    sieges.into_iter().for_each(Siege::holds);
}

#[test]
fn immediate_commands_beyond_what_is_bearable_are_rejected() {
    let Some(siege) = Siege::begin("") else { return };
    let mut rogue = siege.peer(solicited_only);
    for _ in 0..200 {
        let write = ScsiCommand { immediate: true, ..rogue.write(BLOCK) };
        rogue.cmd_sn = write.cmd_sn;
        rogue.say(&write.emit(), &[]);
    }
    rogue.expect_reject(RejectReason::ImmediateCommandReject);
    rogue.expect_alive();
    siege.holds();
}

/// Alive in TCP, silent in iSCSI: what it has reserved is free again after eight intervals.
#[test]
fn an_initiator_that_answers_no_nop_in_loses_its_session_in_time() {
    let text = "[limits]\nnop-interval = \"250ms\"\n[volume.disk]\nspec = \"ram:64MiB\"\n[[target]]\n\
                name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{ lun = 0, volume = \"disk\" }]\n";
    let Some(server) = Server::configured(text) else { return };
    let mut silent = Peer::attach(&server, "disk", 1);
    silent.run(&[0x16, 0, 0, 0, 0, 0], Moves::Nothing).expect_good();
    let mut wire = silent.abandon();
    let mut nop_ins = 0;
    loop {
        match wire.hear(LONG_ENOUGH) {
            Heard::Pdu(bhs, _) => nop_ins += usize::from(bhs.opcode() == Some(Opcode::NopIn)),
            Heard::Closed => break,
            Heard::Nothing => panic!("it is kept for as long as it likes"),
        }
    }
    assert_eq!(nop_ins, 1);
    Peer::attach(&server, "disk", 2); // and is ready: nothing is reserved any more
}

#[test]
fn a_discovery_session_has_no_commands() {
    let Some(siege) = Siege::begin("") else { return };
    let mut wire = siege.wire();
    let attached = wire.log_in(initiator(None, 3)).expect("a session");
    let mut rogue = Rogue { wire, cmd_sn: attached.exp_cmd_sn, max_cmd_sn: attached.max_cmd_sn, tag: 0 };
    let read = rogue.read(1);
    rogue.say(&read.emit(), &[]);
    rogue.expect_reject(RejectReason::CommandNotSupported);
    siege.holds();
}

/// Pings that come before their turn, as long as they may be: the first of the window never comes.
fn early_pings(attached: &Attached) -> impl Iterator<Item = (Bhs, Vec<u8>)> {
    let length = attached.parameters.peer_max_recv_data_segment_length;
    let (first, last) = (attached.exp_cmd_sn.next(), attached.max_cmd_sn);
    (0..first.distance(last)).map(move |ahead| {
        let ping = NopOut {
            immediate: false,
            cmd_sn: first.plus(ahead),
            data_segment_length: length,
            ..ping(Itt::new(ahead))
        };
        (ping.emit(), vec![7; length as usize])
    })
}

/// 20 of them once took 300 MiB, before anybody had proved anything.
#[test]
fn discovery_sessions_keep_no_data_that_come_before_their_turn() {
    let Some(siege) = Siege::begin("") else { return };
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut wire = siege.wire();
        let attached = wire.log_in(initiator(None, 3)).expect("a discovery session");
        for (bhs, data) in early_pings(&attached) {
            if wire.send(&bhs, &data).is_err() {
                break; // closed, which is as good
            }
        }
        open.push(wire);
    }
    siege.holds();
}

#[test]
fn data_that_come_before_their_turn_count_as_memory_of_their_session() {
    let Some(siege) = Siege::begin("staging = \"24MiB\"\nsession-staging = \"12MiB\"") else { return };
    let open: Vec<Rogue> = (10..30)
        .map(|number| {
            let mut rogue = siege.peer(|config| config.isid.0[5] = number);
            let first = rogue.write(64 * BLOCK); // which does not come
            for _ in 0..250 {
                let write = ScsiCommand { data_segment_length: 64 * BLOCK as u32, ..rogue.write(64 * BLOCK) };
                rogue.say(&write.emit(), &[1; 64 * BLOCK]);
            }
            rogue.cmd_sn = first.cmd_sn;
            rogue
        })
        .collect();
    siege.holds();
    drop(open);
}

/// Each connection took its longest PDU besides all memory that is counted.
#[test]
fn pings_that_never_end_count_as_memory_of_their_session() {
    let Some(siege) = Siege::begin("staging = \"24MiB\"\nsession-staging = \"12MiB\"") else { return };
    let open: Vec<Rogue> = (1000..1500_u32)
        .map(|number| {
            let mut rogue = siege.peer(|config| {
                config.isid.0[3..].copy_from_slice(&number.to_be_bytes()[1..]);
            });
            let length = 262_144;
            let ping = NopOut { data_segment_length: length, ..ping(Itt::new(1)) };
            let mut bytes = rogue.wire.framed(&ping.emit(), &[], &vec![7; length as usize]);
            bytes.pop();
            rogue.wire.send_bytes(&bytes).expect("a connection that is open");
            rogue
        })
        .collect();
    siege.holds();
    drop(open);
}

#[test]
fn pings_of_a_discovery_session_whose_answers_nobody_takes_cost_little() {
    const FLOODERS: usize = 8;
    let Some(siege) = Siege::begin("") else { return };
    let flood = || {
        let mut wire = siege.wire();
        let attached = wire.log_in(initiator(None, 3)).expect("a discovery session");
        let length = attached.parameters.peer_max_recv_data_segment_length.min(4096);
        let pdu = NopOut { data_segment_length: length, ..ping(Itt::new(1)) }.emit();
        let bytes = wire.framed(&pdu, &[], &vec![7; length as usize]).repeat(16);
        wire.set_patience(Duration::from_millis(50));
        while wire.send_bytes(&bytes).is_ok() {}
        wire
    };
    let open: Vec<Wire> = thread::scope(|scope| {
        let flooders: Vec<_> =
            (0..FLOODERS).map(|_| scope.spawn(|| (0..15).map(|_| flood()).collect::<Vec<_>>())).collect();
        flooders.into_iter().flat_map(|flooder| flooder.join().expect("a flooder")).collect()
    });
    siege.holds();
    drop(open);
}

#[test]
fn discovery_sessions_take_no_place_of_others() {
    let Some(siege) = Siege::begin("sessions = 2") else { return };
    let log_in = || {
        let mut wire = siege.wire();
        wire.log_in(initiator(None, 3)).map(|_| wire)
    };
    let open: Vec<Wire> = (0..200).map(|_| log_in().expect("a discovery session")).collect();
    let left = sessions(&siege.server).iter().filter(|session| session["target"].is_null()).count();
    assert!(left <= 64, "{left} discovery sessions");
    drop(open);
    siege.holds();
}

/// Each unknown key is answered "NotUnderstood": the answer to the last request takes two pieces, and the second is never
/// asked for. Such logins once held all places for discovery sessions until their time was up.
#[test]
fn logins_that_do_not_take_all_of_their_answer_leave_discovery_to_others() {
    let Some(siege) = Siege::begin("login-time = \"60s\"") else { return };
    let text = [INTRODUCTION, &b"a=1\0".repeat(900)].concat();
    let request = LoginRequest::parse(&login(1, false, text.len())).expect("a request");
    let last = LoginRequest { transit_to: Some(Stage::FullFeature), ..request }.emit();
    let begin = || {
        let mut wire = siege.wire();
        wire.send(&last, &text).expect("a connection that is open");
        let Heard::Pdu(bhs, _) = wire.hear(PATIENCE) else { panic!("closed without a status") };
        assert!(LoginResponse::parse(&bhs).expect("a login response").continues);
        wire
    };
    let open: Vec<Wire> = (0..64).map(|_| begin()).collect();
    Peer::log_in(&siege.server, initiator(None, 3)).expect("a discovery session");
    siege.holds();
    drop(open);
}

#[test]
fn a_discovery_session_that_does_not_end_is_ended() {
    let Some(sieges) = with_and_without("discovery-time = \"1s\"") else { return };
    let discovery = |siege: &Siege| {
        let mut wire = siege.wire();
        wire.log_in(initiator(None, 3)).expect("a discovery session");
        wire
    };
    ends_earlier(&sieges, discovery, |_, wire| wire.is_closed());
    sieges.into_iter().for_each(Siege::holds);
}

#[test]
fn a_crowd_that_says_nothing_does_not_keep_out_those_who_do() {
    let Some(mut siege) = Siege::begin("connections-per-address = 50") else { return };
    let open: Vec<Wire> = (0..200).map(|_| siege.wire()).collect();
    siege.witness.join(&siege.server, 1).expect("a further connection of a session");
    Peer::attach(&siege.server, "disk", 202);
    Peer::log_in(&siege.server, initiator(None, 3)).expect("a discovery session");
    siege.holds();
    drop(open);
}

#[test]
fn who_proves_nothing_and_asks_for_what_is_not_there_is_told_so() {
    let Some(siege) = Siege::begin("") else { return };
    let refused = siege.wire().log_in(initiator(Some("iqn.2026-01.io.linerate:nothing"), 1));
    let Err(NoLogin::Told(event)) = refused else { panic!("{refused:?}") };
    assert_eq!(*event, InitiatorEvent::Failed(LoginFailure::Refused(LoginStatus::NotFound)));
    siege.holds();
}
