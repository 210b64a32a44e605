//! Logins as other programs make them, captured on loopback: QEMU's initiator (libiscsi 1.19) and tgt 1.0.85.

use super::pair::*;
use super::*;
use crate::chap::{Algorithm, Challenge, ChapClaim};
use crate::name::Name;
use crate::pdu::{BHS_BYTES, LoginStatus, Pdu, Tsih};
use crate::serial::Sn;

/// A captured header.
fn header(digits: &str) -> Bhs {
    let nibble = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    let bytes: Vec<u8> =
        digits.as_bytes().chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect();
    let bytes: [u8; BHS_BYTES] = bytes.try_into().expect("forty-eight bytes");
    Bhs(bytes)
}

/// A captured text, written with spaces for NULs.
fn text(pairs: &str) -> Vec<u8> {
    pairs.replace(' ', "\0").into_bytes()
}

#[test]
fn qemu_logs_in_with_one_request() {
    let bhs = header(
        "438700000000019f8070175d000000000981872d00000000787b76a80000000100000000000000000000000000000000",
    );
    let data = text(
        "InitiatorName=iqn.2008-11.org.linux-kvm TargetName=iqn.2026-11.org.example:disk SessionType=Normal \
         HeaderDigest=None,CRC32C DataDigest=None InitialR2T=No ImmediateData=Yes MaxBurstLength=262144 \
         FirstBurstLength=262144 DefaultTime2Wait=2 DefaultTime2Retain=0 MaxOutstandingR2T=1 ErrorRecoveryLevel=0 \
         IFMarker=No OFMarker=No MaxConnections=1 MaxRecvDataSegmentLength=262144 DataPDUInOrder=Yes \
         DataSequenceInOrder=Yes ",
    );
    assert_eq!(data.len(), bhs.data_segment_length() as usize);
    let mut door = Door::open();
    let reply = door.say_pdu(&bhs, &data).expect("a response");
    assert_eq!(
        reply.text,
        "TargetPortalGroupTag=1 MaxRecvDataSegmentLength=262144 HeaderDigest=None DataDigest=None InitialR2T=No \
         ImmediateData=Yes MaxBurstLength=262144 DefaultTime2Wait=2 DefaultTime2Retain=0 MaxOutstandingR2T=1 \
         ErrorRecoveryLevel=0 IFMarker=No OFMarker=No MaxConnections=1 DataPDUInOrder=Yes DataSequenceInOrder=Yes \
         FirstBurstLength=262144 "
    );
    let Some(TargetEvent::LoggedIn(logged_in)) = door.end else { panic!("not logged in: {:?}", door.end) };
    assert_eq!((logged_in.parameters.first_burst_length, logged_in.parameters.initial_r2t), (262_144, false));
    assert_eq!(Pdu::parse(&bhs).map(|pdu| pdu.emit()), Ok(bhs));
}

/// tgt asks for CHAP both ways, takes our proof, gives its own, and keeps most of its defaults.
#[test]
fn tgt_lets_us_in_with_mutual_chap() {
    let mut pair = Pair::plain();
    pair.config.initiator_name = Name::new("iqn.2026-11.org.example:me").expect("a name");
    pair.config.isid = crate::pdu::Isid([0x80, 0, 0, 0, 0, 1]);
    pair.config.chap = Some(ChapClaim {
        algorithms: vec![Algorithm::Md5],
        initiator: credentials("alice", "alicesecret12"),
        target: Some((
            credentials("disk", "disksecret1234"),
            Challenge { identifier: 3, bytes: vec![5; 16] },
        )),
    });
    let mut initiator = InitiatorLogin::new(pair.config);
    let mut said = |header_digits: &str, pairs: &str| {
        let request = initiator.poll_transmit().expect("a request");
        initiator.handle_pdu(&header(header_digits), &text(pairs));
        (String::from_utf8(request.data).expect("text").replace('\0', " "), initiator.poll_event())
    };
    said(
        "230000000000002780000000000100000000000000000000000000000000000100000002000000000000000000000000",
        "TargetPortalGroupTag=1 AuthMethod=CHAP ",
    );
    said(
        "230000000000008080000000000100000000000000000000000000010000000100000002000000000000000000000000",
        "CHAP_A=5 CHAP_I=1 CHAP_C=0x4311cf55b57359bd977af8815b78fa8b1ce9db8788e1d6228f3694017921369071ca094a78a0e\
         5ad95820ba692a1e212ca4b ",
    );
    let (proof, _) = said(
        "238100000000003680000000000100000000000000000000000000020000000100000002000000000000000000000000",
        "CHAP_N=disk CHAP_R=0x38f3444afa87d5181841bad3eaa9c01a ",
    );
    assert!(proof.starts_with("CHAP_N=alice CHAP_R=0x0fa4b0629ff209e78978adf0166731f0 CHAP_I=3 "), "{proof}");
    let (_, end) = said(
        "238700000000013b80000000000102000000000000000000000000030000000100000002000000000000000000000000",
        "HeaderDigest=None DataDigest=None MaxConnections=1 InitialR2T=Yes ImmediateData=Yes MaxBurstLength=262144 \
         FirstBurstLength=65536 DefaultTime2Wait=2 DefaultTime2Retain=20 MaxOutstandingR2T=1 DataPDUInOrder=Yes \
         DataSequenceInOrder=Yes ErrorRecoveryLevel=0 TaskReporting=NotUnderstood iSCSIProtocolLevel=NotUnderstood ",
    );
    let Some(InitiatorEvent::LoggedIn(attached)) = end else { panic!("not logged in: {end:?}") };
    assert_eq!((attached.tsih, attached.exp_stat_sn, attached.max_cmd_sn), (Tsih(0x200), Sn(4), Sn(2)));
    assert!(attached.parameters.initial_r2t);
    assert_eq!(attached.parameters.peer_max_recv_data_segment_length, 8192);
}

/// tgt's refusal has nothing in its header but the status: no ISID, no numbers.
#[test]
fn tgt_s_bare_refusal_is_understood() {
    let mut initiator = InitiatorLogin::new(Pair::plain().config);
    let refusal =
        "230000000000000000000000000000000000000000000000000000000000000000000000020000000000000000000000";
    initiator.handle_pdu(&header(refusal), &[]);
    let refused = LoginFailure::Refused(LoginStatus::InitiatorError);
    assert_eq!(initiator.poll_event(), Some(InitiatorEvent::Failed(refused)));
}
