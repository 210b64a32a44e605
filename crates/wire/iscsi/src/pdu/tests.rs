//! Compares every PDU with bytes written by hand, and checks properties of all PDUs.

use std::num::NonZeroU32;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::pdu::bhs::Sn;

macro_rules! parsers {
    ($($pdu:ident)*) => {
        [$((Opcode::$pdu, |bhs| $pdu::parse(bhs).map(Pdu::$pdu)),)*]
    };
}

type Parser = fn(&Bhs) -> Result<Pdu, Malformed>;

const PARSERS: [(Opcode, Parser); 18] = parsers! {
    NopOut ScsiCommand TaskManagementRequest LoginRequest TextRequest DataOut LogoutRequest SnackRequest
    NopIn ScsiResponse TaskManagementResponse LoginResponse TextResponse DataIn LogoutResponse R2t AsyncMessage Reject
};

fn itt(tag: u32) -> Itt {
    Itt::new(tag).expect("a tag")
}

const NUMBERS: TargetNumbers = TargetNumbers {
    stat_sn: Sn(9),
    exp_cmd_sn: Sn(6),
    max_cmd_sn: Sn(0x105),
};
const LUN_1: Lun = Lun(0x0001_0000_0000_0000);

/// PDUs and their headers as hexadecimal digits.
fn golden() -> Vec<(Pdu, &'static str)> {
    vec![
        // WRITE(10) of eight blocks at LBA 0x1234 with all its data as immediate data.
        (
            Pdu::ScsiCommand(ScsiCommand {
                immediate: false,
                is_final: true,
                read: false,
                write: true,
                attribute: TaskAttribute::Simple,
                total_ahs_length: 0,
                data_segment_length: 4096,
                lun: LUN_1,
                itt: itt(0x11),
                expected_data_transfer_length: 4096,
                cmd_sn: Sn(5),
                exp_stat_sn: Sn(0x0a0b_0c0d),
                cdb: *b"\x2a\0\0\0\x12\x34\0\0\x08\0\0\0\0\0\0\0",
            }),
            "01a10000 00001000 00010000 00000000 00000011 00001000 \
             00000005 0a0b0c0d 2a000000 12340000 08000000 00000000",
        ),
        // CHECK CONDITION with fixed sense data; none of the 512 bytes was transferred.
        (
            Pdu::ScsiResponse(ScsiResponse {
                response: Response::Completed,
                status: 2,
                itt: itt(0x11),
                snack_tag: 0,
                numbers: TargetNumbers {
                    stat_sn: Sn(7),
                    exp_cmd_sn: Sn(6),
                    max_cmd_sn: Sn(0x105),
                },
                exp_data_sn: Sn(0),
                residual: Residual::Underflow(512),
                read_residual: Residual::None,
                data_segment_length: 20,
            }),
            "21820002 00000014 00000000 00000000 00000011 00000000 \
             00000007 00000006 00000105 00000000 00000000 00000200",
        ),
        // The last Data-In of an INQUIRY that returns 36 of the 255 expected bytes.
        (
            Pdu::DataIn(DataIn {
                is_final: true,
                acknowledge: false,
                status: Some(DataInStatus {
                    status: 0,
                    stat_sn: Sn(7),
                    residual: Residual::Underflow(219),
                }),
                lun: Lun(0),
                itt: itt(0x11),
                ttt: None,
                exp_cmd_sn: Sn(6),
                max_cmd_sn: Sn(0x105),
                data_sn: Sn(0),
                buffer_offset: 0,
                data_segment_length: 36,
            }),
            "25830000 00000024 00000000 00000000 00000011 ffffffff \
             00000007 00000006 00000105 00000000 00000000 000000db",
        ),
        (
            Pdu::R2t(R2t {
                lun: Lun(0),
                itt: itt(0x11),
                ttt: Ttt::new(0x77).expect("a tag"),
                numbers: TargetNumbers {
                    stat_sn: Sn(7),
                    exp_cmd_sn: Sn(6),
                    max_cmd_sn: Sn(0x105),
                },
                r2t_sn: Sn(1),
                buffer_offset: 0x1_0000,
                desired_data_transfer_length: NonZeroU32::new(0x4_0000).expect("not zero"),
            }),
            "31800000 00000000 00000000 00000000 00000011 00000077 \
             00000007 00000006 00000105 00000001 00010000 00040000",
        ),
        (
            Pdu::TaskManagementRequest(TaskManagementRequest {
                immediate: true,
                function: TaskManagementFunction::AbortTask,
                lun: Lun(0),
                itt: itt(0x12),
                referenced_task: Itt::new(0x11),
                cmd_sn: Sn(6),
                exp_stat_sn: Sn(8),
                ref_cmd_sn: Sn(5),
                exp_data_sn: Sn(0),
            }),
            "42810000 00000000 00000000 00000000 00000012 00000011 \
             00000006 00000008 00000005 00000000 00000000 00000000",
        ),
        (
            Pdu::LoginRequest(LoginRequest {
                continues: false,
                stage: Stage::OperationalNegotiation,
                transit_to: Some(Stage::FullFeature),
                version_max: 0,
                version_min: 0,
                isid: Isid([0x80, 1, 2, 3, 4, 5]),
                tsih: Tsih::NEW,
                itt: itt(1),
                cid: Cid(7),
                cmd_sn: Sn(1),
                exp_stat_sn: Sn(0),
                data_segment_length: 300,
            }),
            "43870000 0000012c 80010203 04050000 00000001 00070000 \
             00000001 00000000 00000000 00000000 00000000 00000000",
        ),
        (
            Pdu::LoginResponse(LoginResponse {
                continues: false,
                stage: Stage::OperationalNegotiation,
                transit_to: Some(Stage::FullFeature),
                version_max: 0,
                version_active: 0,
                isid: Isid([0x80, 1, 2, 3, 4, 5]),
                tsih: Tsih(0x10),
                itt: itt(1),
                numbers: TargetNumbers {
                    stat_sn: Sn(3),
                    exp_cmd_sn: Sn(1),
                    max_cmd_sn: Sn(0x100),
                },
                status: LoginStatus::Success,
                data_segment_length: 100,
            }),
            "23870000 00000064 80010203 04050010 00000001 00000000 \
             00000003 00000001 00000100 00000000 00000000 00000000",
        ),
        (
            Pdu::LogoutRequest(LogoutRequest {
                immediate: true,
                reason: LogoutReason::CloseConnection,
                itt: itt(0x20),
                cid: Cid(7),
                cmd_sn: Sn(6),
                exp_stat_sn: Sn(9),
            }),
            "46810000 00000000 00000000 00000000 00000020 00070000 \
             00000006 00000009 00000000 00000000 00000000 00000000",
        ),
        (
            Pdu::TextRequest(TextRequest {
                immediate: true,
                is_final: true,
                continues: false,
                lun: Lun(0),
                itt: itt(3),
                ttt: None,
                cmd_sn: Sn(1),
                exp_stat_sn: Sn(4),
                data_segment_length: 16,
            }),
            "44800000 00000010 00000000 00000000 00000003 ffffffff \
             00000001 00000004 00000000 00000000 00000000 00000000",
        ),
        (
            Pdu::TextResponse(TextResponse {
                is_final: false,
                continues: true,
                lun: Lun(0),
                itt: itt(3),
                ttt: Ttt::new(1),
                numbers: TargetNumbers {
                    stat_sn: Sn(4),
                    exp_cmd_sn: Sn(1),
                    max_cmd_sn: Sn(0x100),
                },
                data_segment_length: 8192,
            }),
            "24400000 00002000 00000000 00000000 00000003 00000001 \
             00000004 00000001 00000100 00000000 00000000 00000000",
        ),
        (
            Pdu::AsyncMessage(AsyncMessage {
                lun: Lun(0),
                numbers: NUMBERS,
                event: AsyncEvent::LogoutRequested,
                vendor_code: 0,
                parameters: [0, 0, 10],
                data_segment_length: 0,
            }),
            "32800000 00000000 00000000 00000000 ffffffff 00000000 \
             00000009 00000006 00000105 01000000 0000000a 00000000",
        ),
        (
            Pdu::SnackRequest(SnackRequest {
                kind: SnackKind::Status,
                lun: Lun(0),
                itt: None,
                tag: 0xffff_ffff,
                exp_stat_sn: Sn(9),
                first: Sn(9),
                run_length: 1,
            }),
            "10810000 00000000 00000000 00000000 ffffffff ffffffff \
             00000000 00000009 00000000 00000000 00000009 00000001",
        ),
        (
            Pdu::Reject(Reject {
                reason: RejectReason::ProtocolError,
                numbers: NUMBERS,
                data_sn: Sn(0),
                data_segment_length: 48,
            }),
            "3f800400 00000030 00000000 00000000 ffffffff 00000000 \
             00000009 00000006 00000105 00000000 00000000 00000000",
        ),
        (
            Pdu::DataOut(DataOut {
                is_final: true,
                lun: LUN_1,
                itt: itt(0x11),
                ttt: Ttt::new(0x77),
                exp_stat_sn: Sn(7),
                data_sn: Sn(2),
                buffer_offset: 0x4000,
                data_segment_length: 8192,
            }),
            "05800000 00002000 00010000 00000000 00000011 00000077 \
             00000000 00000007 00000000 00000002 00004000 00000000",
        ),
        (
            Pdu::TaskManagementResponse(TaskManagementResponse {
                result: TaskManagementResult::FunctionRejected,
                itt: itt(0x12),
                numbers: TargetNumbers {
                    stat_sn: Sn(8),
                    exp_cmd_sn: Sn(6),
                    max_cmd_sn: Sn(0x105),
                },
            }),
            "2280ff00 00000000 00000000 00000000 00000012 00000000 \
             00000008 00000006 00000105 00000000 00000000 00000000",
        ),
        (
            Pdu::LogoutResponse(LogoutResponse {
                result: LogoutResult::CidNotFound,
                itt: itt(0x20),
                numbers: NUMBERS,
                time2wait_s: 2,
                time2retain_s: 20,
            }),
            "26800100 00000000 00000000 00000000 00000020 00000000 \
             00000009 00000006 00000105 00000000 00020014 00000000",
        ),
        (
            Pdu::NopOut(NopOut {
                immediate: true,
                lun: Lun(0),
                itt: None,
                ttt: Ttt::new(0x99),
                cmd_sn: Sn(6),
                exp_stat_sn: Sn(9),
                data_segment_length: 0,
            }),
            "40800000 00000000 00000000 00000000 ffffffff 00000099 \
             00000006 00000009 00000000 00000000 00000000 00000000",
        ),
        (
            Pdu::NopIn(NopIn {
                lun: Lun(0),
                itt: None,
                ttt: Ttt::new(0x99),
                numbers: NUMBERS,
                data_segment_length: 0,
            }),
            "20800000 00000000 00000000 00000000 ffffffff 00000099 \
             00000009 00000006 00000105 00000000 00000000 00000000",
        ),
    ]
}

fn golden_header(opcode: Opcode) -> Bhs {
    let (pdu, _) = golden()
        .into_iter()
        .find(|(pdu, _)| pdu.emit().opcode() == Some(opcode))
        .expect("one of each");
    pdu.emit()
}

#[test]
fn every_pdu_has_just_these_bytes_and_they_are_just_this_pdu() {
    assert_eq!(golden().len(), PARSERS.len());
    for (pdu, digits) in golden() {
        let header = pdu.emit();
        let hex = |word: &[u8]| {
            word.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        assert_eq!(
            header.0.chunks(4).map(hex).collect::<Vec<_>>().join(" "),
            digits,
            "{pdu:?}"
        );
        assert_eq!(Pdu::parse(&header), Ok(pdu));
    }
}

/// Arbitrary bytes either violate a rule or are re-encoded to the same PDU; nothing panics.
///
/// Lengths are zero half of the time, since most PDUs cannot have an AHS, and some no data.
#[test]
fn any_header_holds() {
    let headers = (any::<[[u8; 16]; BHS_BYTES / 16]>(), any::<[bool; 4]>());
    for (opcode, parse) in PARSERS {
        let property = |(thirds, [other_opcode, ahs, data, task]): ([[u8; 16]; 3], [bool; 4])| {
            let mut bhs = Bhs([0; BHS_BYTES]);
            thirds
                .iter()
                .enumerate()
                .for_each(|(i, third)| bhs.set_bytes(16 * i, third));
            if !other_opcode {
                bhs.set_u8(0, bhs.u8(0) & 0x40 | opcode as u8);
            }
            if !ahs {
                bhs.set_u8(4, 0);
            }
            if !data {
                bhs.set_u24(5, 0);
            }
            if !task && matches!(opcode, Opcode::AsyncMessage | Opcode::Reject) {
                bhs.set_u32(16, 0xffff_ffff);
            }
            if let Ok(pdu) = parse(&bhs) {
                let again = parse(&pdu.emit());
                prop_assert_eq!(again.as_ref(), Ok(&pdu));
            }
            Ok(())
        };
        TestRunner::new(Config::with_cases(1024))
            .run(&headers, property)
            .expect("the property holds");
    }
}

#[test]
fn a_header_that_breaks_a_rule_says_which() {
    use Malformed::*;
    for (opcode, at, value, broken) in [
        (Opcode::ScsiCommand, 1, 0x40, UnsolicitedDataWithoutWrite),
        (Opcode::ScsiCommand, 1, 0x85, ReservedAttribute),
        (Opcode::ScsiResponse, 1, 0x86, ContradictoryResidual),
        (Opcode::ScsiResponse, 1, 0x98, ContradictoryResidual),
        (Opcode::ScsiResponse, 2, 0x40, ReservedResponse),
        (Opcode::DataIn, 1, 0x01, StatusWithoutFinal),
        (Opcode::R2t, 45, 0, EmptyR2t),
        (Opcode::TaskManagementRequest, 7, 4, UnexpectedData),
        (Opcode::LoginRequest, 1, 0x84, BackwardStage),
        (Opcode::LoginRequest, 1, 0x85, BackwardStage),
        (Opcode::LoginRequest, 1, 0x8f, BackwardStage),
        (Opcode::LoginRequest, 1, 0x0c, BackwardStage),
        (Opcode::LoginRequest, 1, 0x86, ReservedStage),
        (Opcode::LoginRequest, 1, 0x08, ReservedStage),
        (Opcode::LoginRequest, 1, 0xc7, ContinueAndFinal),
        (Opcode::LogoutRequest, 1, 0x83, ReservedLogoutReason),
        (Opcode::TextRequest, 1, 0xc0, ContinueAndFinal),
        (Opcode::TextResponse, 1, 0xc0, ContinueAndFinal),
        (Opcode::AsyncMessage, 16, 0, UnexpectedItt),
        (Opcode::SnackRequest, 1, 0x84, ReservedSnackKind),
        (Opcode::Reject, 16, 0, UnexpectedItt),
        (Opcode::NopOut, 0, 0x1c, UnknownOpcode),
    ] {
        let mut bhs = golden_header(opcode);
        bhs.set_u8(at, value);
        assert_eq!(
            Pdu::parse(&bhs),
            Err(broken),
            "{opcode:?} with {value:#x} at {at}"
        );
    }
    let mut unnamed = golden_header(Opcode::R2t);
    unnamed.set_u32(20, 0xffff_ffff);
    assert_eq!(R2t::parse(&unnamed), Err(ReservedTtt));
    assert_eq!(
        R2t::parse(&golden_header(Opcode::DataOut)),
        Err(WrongOpcode)
    );
}

#[test]
fn the_stages_of_a_refusal_do_not_matter() {
    let mut refusal = golden_header(Opcode::LoginResponse);
    refusal.set_u16(36, LoginStatus::NotFound.into());
    refusal.set_u8(1, 0xff);
    let parsed = LoginResponse::parse(&refusal).expect("a refusal");
    assert_eq!(
        (parsed.status, parsed.transit_to),
        (LoginStatus::NotFound, None)
    );
}

#[test]
fn every_number_is_its_code_s_own() {
    assert!((0..=255).all(|number| u8::from(RejectReason::from(number)) == number));
    assert!((0..=255).all(|number| u8::from(TaskManagementResult::from(number)) == number));
    assert!((0..0x80).all(|number| u8::from(TaskManagementFunction::from(number)) == number));
    assert!((0..=0xffff).all(|number| u16::from(LoginStatus::from(number)) == number));
    assert_eq!(LoginStatus::from(0x0263), LoginStatus::Other(0x0263));
    assert_eq!(
        LoginStatus::NotFound.to_string(),
        "there is no such target, or it does not admit this initiator (0203)"
    );
    let known: Vec<Opcode> = (0..64).flat_map(Opcode::try_from).collect();
    assert_eq!(known.len(), 18);
    assert!(
        known
            .iter()
            .all(|&opcode| Opcode::try_from(opcode as u8) == Ok(opcode))
    );
}

#[test]
fn every_opcode_leads_to_its_own_pdu() {
    for number in 0u8..64 {
        let mut bhs = Bhs::new(Opcode::NopOut);
        bhs.set_u8(0, number);
        match Pdu::parse(&bhs) {
            Ok(pdu) => assert_eq!(pdu.emit().opcode(), bhs.opcode()),
            Err(broken) => assert_ne!(broken, Malformed::WrongOpcode),
        }
    }
}

#[test]
fn the_reserved_tag_has_no_name() {
    assert_eq!((Itt::new(0xffff_ffff), Ttt::new(0xffff_ffff)), (None, None));
}

#[test]
fn fields_are_big_endian() {
    let mut bhs = Bhs([0; BHS_BYTES]);
    bhs.set_u16(8, 0x0102);
    bhs.set_u24(10, 0x03_0405);
    bhs.set_u32(16, 0x0607_0809);
    bhs.set_u64(20, 0x0a0b_0c0d_0e0f_1011);
    assert_eq!(bhs.bytes(8), [1, 2, 3, 4, 5]);
    assert_eq!(bhs.bytes(16), [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
    assert_eq!((bhs.u16(8), bhs.u24(10)), (0x0102, 0x03_0405));
    assert_eq!(
        (bhs.u32(16), bhs.u64(20)),
        (0x0607_0809, 0x0a0b_0c0d_0e0f_1011)
    );
}

#[test]
fn the_wire_counts_ahs_in_words() {
    let mut bhs = Bhs::new(Opcode::ScsiCommand);
    bhs.set_u8(4, 0xff);
    assert_eq!(bhs.total_ahs_length(), 1020);
}

#[test]
fn data_is_padded_to_whole_words() {
    assert_eq!([0, 1, 2, 3, 4].map(pad_bytes), [0, 3, 2, 1, 0]);
}

#[test]
fn the_reserved_top_bit_of_the_opcode_byte_is_ignored() {
    let mut bhs = Bhs::new(Opcode::NopOut);
    bhs.set_u8(0, 0xc0);
    assert_eq!(
        (bhs.opcode(), bhs.immediate()),
        (Some(Opcode::NopOut), true)
    );
}
