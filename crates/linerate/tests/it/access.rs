//! Who may: CHAP, initiator names, and LUNs that only some see.

use crate::capture::watched;
use crate::program::{installed, run};
use crate::server::{Server, ask};

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
