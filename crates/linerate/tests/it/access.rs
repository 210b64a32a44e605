//! Who may: CHAP, initiator names, and LUNs that only some see.

use iscsi::chap::{Algorithm, ChapClaim, Credentials, Secret};
use iscsi::login::{InitiatorConfig, InitiatorEvent, LoginFailure};
use iscsi::name::Name;
use iscsi::pdu::{Cid, LoginRequest, LoginResponse, LoginStatus, Stage};
use iscsi::serial::Sn;

use crate::capture::watched;
use crate::peer::{BLOCK, Peer, initiator};
use crate::program::{installed, run};
use crate::server::{Server, ask};
use crate::sessions::sessions;
use crate::wire::{Heard, NoLogin, PATIENCE, Wire};

/// What a login that fails is told.
#[track_caller]
pub(crate) fn refusal(outcome: Result<impl std::fmt::Debug, NoLogin>) -> LoginStatus {
    let Err(NoLogin::Told(event)) = outcome else { panic!("{outcome:?}") };
    let InitiatorEvent::Failed(LoginFailure::Refused(status)) = *event else { panic!("{event:?}") };
    status
}

/// What proves that one is `user`.
fn claim(user: &str, secret: &str) -> Option<ChapClaim> {
    let initiator = Credentials { name: user.to_owned(), secret: Secret::new(secret.as_bytes()) };
    Some(ChapClaim { algorithms: vec![Algorithm::Sha256], initiator, target: None })
}

const LOCKED: &str = r#"
[volume.disk]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[target.chap]
algorithms = ["md5"] # the one that libiscsi has
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
"#;

#[test]
fn chap_lets_in_who_knows_the_secret() {
    if !installed(&["iscsi-inq", "qemu-img"]) {
        return;
    }
    let Some(server) = Server::configured(LOCKED) else { return };
    let with = |account: &str| server.url("disk").replace("iscsi://", &format!("iscsi://{account}"));
    watched(&server, || {
        let url = with("alice%correct-horse-battery@");
        assert!(ask("iscsi-inq", &[], &url).contains("DIRECT_ACCESS"));
        run("qemu-img", &["info", &url]).expect_success();
        for stranger in ["", "alice%wrong-horse-battery@", "bob%correct-horse-battery@"] {
            let said = run("iscsi-inq", &[with(stranger)]).expect_failure();
            assert!(
                said.contains("Login Failed") || said.contains("login") || said.contains("auth"),
                "{said}"
            );
        }
    });
}

const MASKED: &str = r#"
[volume.shared]
spec = "ram:16MiB"
[volume.private]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
initiators = ["iqn.2026-01.com.example:alice", "iqn.2026-01.com.example:bob"]
[[target.lun]]
lun = 0
volume = "shared"
[[target.lun]]
lun = 1
volume = "private"
initiators = ["iqn.2026-01.com.example:alice"]
"#;

#[test]
fn initiators_see_their_targets_and_their_luns() {
    if !installed(&["iscsi-ls"]) {
        return;
    }
    let Some(server) = Server::configured(MASKED) else { return };
    let portal = format!("iscsi://{}", server.portal());
    let seen_by = |name: &str| {
        let name = format!("iqn.2026-01.com.example:{name}");
        run("iscsi-ls", &["-s", "-i", &name, &portal]).said
    };
    watched(&server, || {
        let (alice, bob, eve) = (seen_by("alice"), seen_by("bob"), seen_by("eve"));
        assert!(alice.contains("Lun:0") && alice.contains("Lun:1"), "{alice}");
        assert!(bob.contains("Lun:0") && !bob.contains("Lun:1"), "{bob}");
        assert!(!eve.contains("Target:"), "{eve}"); // a target that may not be used does not show itself
    });
}

#[test]
fn who_is_not_on_the_list_is_not_let_in() {
    if !installed(&["iscsi-inq"]) {
        return;
    }
    let Some(server) = Server::configured(MASKED) else { return };
    watched(&server, || {
        run("iscsi-inq", &["-i", "iqn.2026-01.com.example:eve", &server.url("disk")]).expect_failure();
        run("iscsi-inq", &["-i", "iqn.2026-01.com.example:bob", &server.url("disk")]).expect_success();
    });
}

const GUARDED_DISCOVERY: &str = r#"
[volume.disk]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[discovery.chap]
[[discovery.chap.account]]
user = "alice"
secret = "correct-horse-battery"
"#;

/// The key has no meaning in a discovery session (RFC 7143 section 13.4), so it must not choose how that authenticates.
#[test]
fn a_discovery_login_that_names_an_open_target_still_needs_the_secret_of_discovery() {
    let Some(server) = Server::configured(GUARDED_DISCOVERY) else { return };
    let name = Name::new(&server.target_name("disk")).expect("an iSCSI name");
    let naming_it = || InitiatorConfig { target_name: Some(name.clone()), ..initiator(None, 1) };
    assert_eq!(refusal(Peer::log_in(&server, initiator(None, 1))), LoginStatus::AuthenticationFailure);
    assert_eq!(refusal(Peer::log_in(&server, naming_it())), LoginStatus::AuthenticationFailure);
    let proved = InitiatorConfig { chap: claim("alice", "correct-horse-battery"), ..naming_it() };
    let mut alice = Peer::log_in(&server, proved).expect("a discovery session");
    assert!(alice.targets("All").contains(name.as_str()));
    Peer::attach(&server, "disk", 1); // and the target stays open
}

/// Discovery sessions have one connection (RFC 7143 section 13.2) and no nexus; what is open to all must not lead into
/// a session that had to prove who it is.
#[test]
fn a_discovery_login_does_not_join_a_session() {
    let Some(server) = Server::configured(&LOCKED.replace("[\"md5\"]", "[\"sha256\"]")) else { return };
    let config = initiator(Some(&server.target_name("disk")), 1);
    let proved = InitiatorConfig { chap: claim("alice", "correct-horse-battery"), ..config.clone() };
    let mut alice = Peer::log_in(&server, proved).expect("a session").ready();
    let text = format!(
        "InitiatorName={}\0TargetName={}\0SessionType=Discovery\0",
        config.initiator_name,
        server.target_name("disk")
    );
    let straight_in = LoginRequest {
        continues: false,
        stage: Stage::OperationalNegotiation,
        transit_to: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: config.isid,
        tsih: alice.attached.tsih,
        itt: config.itt,
        cid: Cid(1),
        cmd_sn: config.cmd_sn,
        exp_stat_sn: Sn(0),
        data_segment_length: text.len() as u32,
    };
    let mut stranger = Wire::connect(&server.portal());
    stranger.send(&straight_in.emit(), text.as_bytes()).expect("a connection that is open");
    let Heard::Pdu(bhs, _) = stranger.hear(PATIENCE) else { panic!("closed without a status") };
    let status = LoginResponse::parse(&bhs).expect("a login response").status;
    assert_eq!(status, LoginStatus::SessionDoesNotExist);
    alice.write(0, &[1; BLOCK]);
}

/// Two users; either may come as any of these hosts, because the configuration says so.
const TWO_USERS: &str = r#"
[volume.disk]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[target.chap]
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
initiators = ["iqn.2026-01.com.example:peer"]
[[target.chap.account]]
user = "bob"
secret = "staple-of-his-own"
initiators = ["iqn.2026-01.com.example:*"]
"#;

fn alice(server: &Server) -> InitiatorConfig {
    let config = initiator(Some(&server.target_name("disk")), 1);
    InitiatorConfig { chap: claim("alice", "correct-horse-battery"), ..config }
}

fn bob(server: &Server) -> InitiatorConfig {
    InitiatorConfig { chap: claim("bob", "staple-of-his-own"), ..alice(server) }
}

/// An I_T nexus is named by what anybody may say (RFC 7143 section 4.4.2); whose session it is, by what was proved.
#[test]
fn a_user_does_not_take_over_the_session_of_another() {
    let Some(server) = Server::configured(TWO_USERS) else { return };
    let mut hers = Peer::log_in(&server, alice(&server)).expect("a session").ready();
    assert_eq!(refusal(Peer::log_in(&server, bob(&server))), LoginStatus::AuthorizationFailure);
    hers.write(0, &[1; BLOCK]);
    let mut again = Peer::log_in(&server, alice(&server)).expect("her own may be reinstated").ready();
    assert_eq!(again.read(0, 1), [1; BLOCK]);
}

#[test]
fn a_user_does_not_join_the_session_of_another() {
    let Some(server) = Server::configured(TWO_USERS) else { return };
    let mut hers = Peer::log_in(&server, alice(&server)).expect("a session").ready();
    let joining = |config: InitiatorConfig| InitiatorConfig {
        tsih: hers.attached.tsih,
        cid: Cid(1),
        session: Some(hers.attached.parameters.clone()),
        ..config
    };
    let (his, her_own) = (joining(bob(&server)), joining(alice(&server)));
    assert_eq!(refusal(Wire::connect(&server.portal()).log_in(his)), LoginStatus::SessionDoesNotExist);
    Wire::connect(&server.portal()).log_in(her_own).expect("a further connection");
    hers.write(0, &[1; BLOCK]);
}

/// Her LUNs and her reservations belong to her initiator's name: nobody else's secret may go with it.
#[test]
fn a_user_comes_only_under_the_initiator_names_of_its_account() {
    let Some(server) = Server::configured(TWO_USERS) else { return };
    let named = |config: InitiatorConfig, name: &str| InitiatorConfig {
        initiator_name: Name::new(name).expect("an iSCSI name"),
        ..config
    };
    let other = "iqn.2026-01.com.example:other";
    let refused = Peer::log_in(&server, named(alice(&server), other));
    assert_eq!(refusal(refused), LoginStatus::AuthorizationFailure);
    let _his = Peer::log_in(&server, named(bob(&server), other)).expect("his account says that he may");
    let _hers = Peer::log_in(&server, alice(&server)).expect("her own name");
    let seen = sessions(&server);
    let user_of =
        |name: &str| seen.iter().find(|session| session["initiator"] == name).map(|session| &session["user"]);
    assert_eq!(user_of(other).and_then(|user| user.as_str()), Some("bob"), "{seen:?}");
}
