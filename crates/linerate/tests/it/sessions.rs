//! Sessions and their connections, from the first login to the last logout, as `linerate server sessions` shows them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use iscsi::chap::{Algorithm, Challenge, ChapClaim, Credentials, Secret};
use iscsi::login::{InitiatorConfig, InitiatorEvent};
use iscsi::negotiate::{DigestKind, Offers};
use iscsi::pdu::{Cid, LoginStatus, Lun, TaskManagementFunction, TaskManagementResult, Tsih};

use crate::access::refusal;
use crate::peer::{BLOCK, Ended, Moves, Peer, initiator, read_10, write_10};
use crate::program::{LINERATE, installed, run, run_command, says, until};
use crate::server::{Server, has_ipv6};
use crate::wire::{NoLogin, PATIENCE};

/// A server of one volume on two cores, with further lines for the start of the configuration file and for
/// its target.
fn configured(head: &str, target: &str) -> Option<Server> {
    Server::configured(&format!(
        "reactors = 2\n{head}\n[volume.disk]\nspec = \"ram:64MiB\"\n[[target]]\n\
         name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n{target}\n"
    ))
}

fn to_disk(server: &Server, number: u8) -> InitiatorConfig {
    initiator(Some(&server.target_name("disk")), number)
}

/// `linerate server sessions --json`.
pub(crate) fn sessions(server: &Server) -> Vec<serde_json::Value> {
    sessions_at(&server.state().join("control"))
}

/// Like [`sessions`], for the server with this control socket.
pub(crate) fn sessions_at(control: &Path) -> Vec<serde_json::Value> {
    let mut command = Command::new(LINERATE);
    let command = command
        .args(["server", "sessions", "--json", "--control"])
        .arg(control);
    listed("sessions", &run_command(command).expect_success())
}

/// A list that a command has printed as JSON.
#[track_caller]
pub(crate) fn listed(name: &str, json: &str) -> Vec<serde_json::Value> {
    let mut told: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(told["version"], 1, "{json}");
    serde_json::from_value(told[name].take()).expect("a list")
}

#[test]
fn the_same_isid_replaces_a_session_and_another_begins_one() {
    let server = or_skip!(configured("", ""));
    let [mut first, mut other] = [1, 2].map(|number| Peer::attach(&server, "disk", number));
    assert_eq!(sessions(&server).len(), 2);
    let mut again = Peer::attach(&server, "disk", 1);
    assert_eq!(sessions(&server).len(), 2, "section 6.3.5: reinstated");
    assert!(
        first.hear_the_end(PATIENCE),
        "the session that was replaced is closed"
    );
    other.write(0, &[1; BLOCK]);
    assert_eq!(again.read(0, 1), [1; BLOCK]);
    again.log_out();
    other.log_out();
    until("a server without a session after the logouts", || {
        sessions(&server).is_empty()
    });
}

#[test]
fn the_same_cid_replaces_a_connection() {
    let server = or_skip!(configured("", ""));
    let mut peer = Peer::attach(&server, "disk", 1);
    peer.join(&server, 1).expect("a connection");
    peer.join(&server, 1)
        .expect("section 6.3.4: the same again");
    peer.write(0, &[7; BLOCK]);
    let newest = peer.connections() - 1;
    let read = peer.begin(newest, &read_10(0, 1), Moves::In(BLOCK as u32));
    assert_eq!(peer.answer(read).data, [7; BLOCK]);
    let seen = sessions(&server);
    assert_eq!(
        seen[0]["connections"].as_array().map(Vec::len),
        Some(2),
        "{seen:?}"
    );
}

#[test]
fn the_connections_of_a_session_keep_the_order_of_its_commands() {
    let server = or_skip!(configured("", ""));
    let mut peer = Peer::attach(&server, "disk", 1);
    (1..4).for_each(|cid| peer.join(&server, cid).expect("a connection"));
    let seen = sessions(&server);
    assert_eq!(
        (seen.len(), seen[0]["connections"].as_array().map(Vec::len)),
        (1, Some(4)),
        "{seen:?}"
    );
    for round in 0..20 {
        let line = round % 4;
        peer.hold(line);
        let first = peer.begin(line, &[0; 6], Moves::Nothing);
        let second = peer.begin((line + 1) % 4, &[0; 6], Moves::Nothing);
        assert_eq!(
            peer.end_within(second, Duration::from_millis(20)),
            None,
            "its turn has not come"
        );
        peer.release(line);
        assert!(peer.answer(first).is_good() && peer.answer(second).is_good());
    }
    for round in 0..200 {
        let data = vec![round as u8; 8 * BLOCK];
        let write = peer.begin(
            round % 4,
            &write_10(8 * round as u32, data.len(), false),
            Moves::Out(data.clone()),
        );
        peer.answer(write).expect_good();
        let read = peer.begin(
            (round + 1) % 4,
            &read_10(8 * round as u32, 8),
            Moves::In(data.len() as u32),
        );
        assert_eq!(
            peer.answer(read).data,
            data,
            "what one connection wrote the next one reads"
        );
    }
}

#[test]
fn further_connections_come_only_to_sessions_that_have_room() {
    let server = or_skip!(configured("[limits]\nconnections-per-session = 2", ""));
    let mut peer = Peer::attach(&server, "disk", 1);
    peer.join(&server, 1).expect("a connection");
    assert_eq!(
        refusal(peer.join(&server, 2)),
        LoginStatus::TooManyConnections
    );
    let stranger = InitiatorConfig {
        tsih: Tsih(peer.attached.tsih.0 ^ 0x0f0f),
        cid: Cid(5),
        session: Some(peer.attached.parameters.clone()),
        ..to_disk(&server, 1)
    };
    assert_eq!(
        refusal(Peer::log_in(&server, stranger)),
        LoginStatus::SessionDoesNotExist
    );
    peer.write(0, &[1; BLOCK]);
}

#[test]
fn a_lost_connection_takes_its_commands_and_leaves_the_others() {
    let server = or_skip!(configured("", ""));
    let mut peer = Peer::attach(&server, "disk", 1);
    peer.join(&server, 1).expect("a connection");
    peer.hold(1); // a write whose data never arrives
    let lost = peer.begin(
        1,
        &write_10(0, 256 * BLOCK, false),
        Moves::Out(vec![1; 256 * BLOCK]),
    );
    peer.cut(1);
    assert!(matches!(peer.end(lost), Ended::Without(_)));
    peer.write(0, &[2; BLOCK]);
    assert_eq!(peer.read(0, 1), [2; BLOCK]);
}

#[test]
fn digests_and_their_keys_from_end_to_end() {
    let server = or_skip!(configured("", ""));
    let mut config = to_disk(&server, 1);
    config.offers = Offers {
        header_digest: vec![DigestKind::Crc32c, DigestKind::None],
        data_digest: vec![DigestKind::Crc32c, DigestKind::None],
        max_recv_data_segment_length: 16_384,
        initial_r2t: true,
        ..config.offers
    };
    let mut peer = Peer::log_in(&server, config).expect("a session").ready();
    for blocks in [1, 3, 64, 300] {
        let data: Vec<u8> = (0..blocks * BLOCK).map(|at| (at * 31 / 7) as u8).collect();
        peer.write(5, &data);
        assert_eq!(peer.read(5, blocks), data);
    }
    let seen = sessions(&server);
    let keys = &seen[0]["parameters"];
    for (key, value) in [
        ("HeaderDigest", "CRC32C"),
        ("DataDigest", "CRC32C"),
        ("InitialR2T", "Yes"),
    ] {
        assert_eq!(keys[key], value, "{key} in {keys}");
    }
    assert!(keys["MaxBurstLength"].is_u64(), "{keys}");
    assert_eq!(seen[0]["initiator"], "iqn.2026-01.com.example:peer");
    let said = server.ask(&["server", "sessions"]).expect_success();
    says(
        &said,
        &["iqn.2026-01.com.example:peer", "DataDigest=CRC32C"],
    );
}

/// A reader would close its connection if the digest did not match the received bytes.
#[test]
fn blocks_that_are_overwritten_while_they_are_read_come_with_their_digest() {
    let server = or_skip!(configured("", ""));
    let mut config = to_disk(&server, 1);
    config.offers.data_digest = vec![DigestKind::Crc32c];
    let mut reader = Peer::log_in(&server, config).expect("a session").ready();
    let mut writer = Peer::log_in(&server, to_disk(&server, 2))
        .expect("a session")
        .ready();
    let is_done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            for pattern in (0..=u8::MAX)
                .cycle()
                .take(5000)
                .take_while(|_| !is_done.load(Relaxed))
            {
                writer.write(0, &[pattern; 256 * BLOCK]);
            }
        });
        for _ in 0..500 {
            reader.read(0, 256);
        }
        is_done.store(true, Relaxed);
    });
}

const LOCK: &str = r#"
[target.chap]
algorithms = ["sha3-256", "sha256", "sha1", "md5"]
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
[target.chap.mutual]
user = "disk"
secret = "staple-of-the-target"
"#;

#[test]
fn chap_one_way_and_mutual_by_every_algorithm() {
    let server = or_skip!(configured("", LOCK));
    let account = |name: &str, secret: &str| Credentials {
        name: name.into(),
        secret: Secret::new(secret.as_bytes()),
    };
    let with = |algorithm, secret, target: Option<&str>| {
        let challenge = Challenge {
            identifier: 9,
            bytes: vec![0x3c; 32],
        };
        let target = target.map(|secret| (account("disk", secret), challenge));
        let chap = ChapClaim {
            algorithms: vec![algorithm],
            initiator: account("alice", secret),
            target,
        };
        Peer::log_in(
            &server,
            InitiatorConfig {
                chap: Some(chap),
                ..to_disk(&server, 1)
            },
        )
    };
    for algorithm in Algorithm::ALL {
        with(algorithm, "correct-horse-battery", None).expect("one-way");
        with(
            algorithm,
            "correct-horse-battery",
            Some("staple-of-the-target"),
        )
        .expect("mutual");
        let wrong = with(algorithm, "wrong-horse-battery", None);
        assert_eq!(
            refusal(wrong),
            LoginStatus::AuthenticationFailure,
            "{algorithm:?}"
        );
        let impostor = with(
            algorithm,
            "correct-horse-battery",
            Some("what-the-target-is-not"),
        );
        assert!(
            impostor.is_err(),
            "a target that proves nothing is none, by {algorithm:?}"
        );
    }
    assert_eq!(
        refusal(Peer::log_in(&server, to_disk(&server, 1))),
        LoginStatus::AuthenticationFailure
    );
}

#[test]
fn a_target_that_has_moved_says_where_to() {
    for permanent in [false, true] {
        let redirect =
            format!("[target.redirect]\naddress = \"192.0.2.9:3260\"\npermanent = {permanent}");
        let server = or_skip!(configured("", &redirect));
        let Err(NoLogin::Told(event)) = Peer::log_in(&server, to_disk(&server, 1)) else {
            panic!("no redirection")
        };
        let expected = InitiatorEvent::Redirected {
            address: "192.0.2.9:3260".into(),
            permanent,
        };
        assert_eq!(*event, expected);
    }
}

#[test]
fn discovery_shows_to_each_what_it_may_use() {
    let server = or_skip!(configured(
        "",
        "initiators = [\"iqn.2026-01.com.example:peer\"]"
    ));
    let mut friend = Peer::log_in(&server, initiator(None, 1)).expect("a discovery session");
    assert!(
        friend
            .targets("All")
            .contains("TargetName=iqn.2026-01.io.linerate:disk\0")
    );
    let stranger = InitiatorConfig {
        initiator_name: iscsi::name::Name::new("iqn.2026-01.com.example:eve").expect("a name"),
        ..initiator(None, 1)
    };
    let mut stranger = Peer::log_in(&server, stranger).expect("a discovery session");
    assert_eq!(stranger.targets("All"), "");
}

/// By RFC 7143 appendix C, a normal session "MUST NOT return targets other than the one to which the session
/// is logged in".
#[test]
fn a_normal_session_is_told_of_its_own_target_alone() {
    let other = "[[target]]\nname = \"iqn.2026-01.io.linerate:other\"\n\
                 lun = [{ lun = 0, volume = \"disk\" }]";
    let server = or_skip!(configured("", other));
    let mut peer = Peer::log_in(&server, to_disk(&server, 1)).expect("a session");
    let own = peer.targets("");
    assert!(
        own.starts_with("TargetName=iqn.2026-01.io.linerate:disk\0") && !own.contains(":other"),
        "{own}"
    );
    assert_eq!(peer.targets("iqn.2026-01.io.linerate:disk"), own);
    assert_eq!(peer.targets("iqn.2026-01.io.linerate:other"), "");
    assert_eq!(peer.targets("All"), "SendTargets=Reject\0");
    let mut discovery = Peer::log_in(&server, initiator(None, 2)).expect("a discovery session");
    assert!(
        discovery
            .targets("iqn.2026-01.io.linerate:other")
            .contains(":other\0")
    );
}

#[test]
fn three_hundred_luns() {
    const COUNT: usize = 300;
    let mut text = String::new();
    for number in 0..COUNT {
        text += &format!("[volume.v{number}]\nspec = \"ram:1MiB\"\n");
    }
    text += "[[target]]\nname = \"iqn.2026-01.io.linerate:disk\"\n";
    for number in 0..COUNT {
        text += &format!("[[target.lun]]\nlun = {number}\nvolume = \"v{number}\"\n");
    }
    let server = or_skip!(Server::configured(&text));
    let mut peer = Peer::attach(&server, "disk", 1);
    let list = peer
        .run(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], Moves::In(4096))
        .expect_good(); // REPORT LUNS
    let length = u32::from_be_bytes(list[..4].try_into().expect("four bytes")) as usize;
    assert_eq!((length, list.len()), (8 * COUNT, 8 + 8 * COUNT));
    let luns: Vec<u64> = list[8..]
        .chunks(8)
        .map(|lun| u64::from_be_bytes(lun.try_into().expect("eight bytes")))
        .collect();
    assert_eq!(luns[255], 255 << 48, "peripheral addressing, SAM-5 4.7.7.2");
    assert_eq!(
        luns[299],
        (0x4000 | 299) << 48,
        "flat space addressing, SAM-5 4.7.7.3"
    );
    for lun in [luns[0], luns[255], luns[256], luns[299]] {
        let inquiry = peer.begin_at(0, Lun(lun), &[0x12, 0, 0, 0, 36, 0], Moves::In(36));
        assert_eq!(
            peer.answer(inquiry).expect_good()[0],
            0,
            "LUN {lun:016x} is a disk"
        );
    }
    // Peripheral device addressing with a bus, as libiscsi, QEMU and LIO write it.
    let mut identity = |lun| {
        let inquiry = peer.begin_at(0, Lun(lun), &[0x12, 1, 0x83, 0, 255, 0], Moves::In(255));
        peer.answer(inquiry).expect_good()
    };
    assert_eq!(identity(0x0100 << 48), identity(luns[256]));
    assert_eq!(identity(0x012b << 48), identity(luns[299]));
    if installed(&["iscsi-readcapacity16"]) {
        let url = format!(
            "iscsi://{}/{}/256",
            server.portal(),
            server.target_name("disk")
        );
        run("iscsi-readcapacity16", &[url]).expect_success();
    }
}

#[test]
fn sessions_come_by_ipv6_too() {
    if !has_ipv6() {
        return eprintln!("skipped: the loopback has no IPv6 address");
    }
    let server = or_skip!(configured("", ""));
    let portal = format!("[::1]:{}", server.port());
    let mut peer = Peer::log_in_at(&portal, to_disk(&server, 1))
        .expect("a session")
        .ready();
    peer.write(0, &[6; BLOCK]);
    assert_eq!(peer.read(0, 1), [6; BLOCK]);
    let discovered = Peer::log_in_at(&portal, initiator(None, 2))
        .expect("a discovery session")
        .targets("All");
    says(
        &discovered,
        &[&format!("TargetAddress=[::1]:{},1", server.port())],
    );
}

#[test]
fn a_command_on_the_heels_of_a_function_is_carried_out() {
    let text = "[volume.slow]\nspec = \"delay:100ms:[ram:64MiB]\"\n[[target]]\n\
                name = \"iqn.2026-01.io.linerate:slow\"\nlun = [{ lun = 0, volume = \"slow\" }]\n";
    let server = or_skip!(Server::configured(text));
    for function in [
        TaskManagementFunction::AbortTaskSet,
        TaskManagementFunction::ClearTaskSet,
    ] {
        let mut peer = Peer::attach(&server, "slow", 1);
        let (result, read) =
            peer.manage_and_begin(function, &read_10(0, 1), Moves::In(BLOCK as u32));
        assert_eq!(result, TaskManagementResult::FunctionComplete);
        assert!(
            peer.end_within(read, PATIENCE).is_some(),
            "{function:?} took what came behind it"
        );
    }
}
