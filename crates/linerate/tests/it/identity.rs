//! The names of a disk imported from another target, as read by other programs.

use crate::program::{Ended, installed, linerate, run, says};
use crate::remote::{attached, in_a_world};
use crate::server::{Server, ask};

const TARGET: &str = "iqn.2026-01.com.example:t";

const BASE: &str = "[[portal]]
listen = \"127.0.0.1:{port}\"
[volume.a]
spec = \"ram:8MiB\"
serial = \"6f2d4c1e-8a3b\"
naa = \"0x60014056f2d4c1e8a3b4f5d9c7e1b2a3\"
t10-id = \"LIO-ORG vm1:6f2d4c1e-8a3b\"
vendor = \"LIO-ORG\"
product = \"vm1\"
revision = \"4.0\"
[[target]]
name = \"iqn.2026-01.com.example:t\"
lun = [{ lun = 0, volume = \"a\" }, { lun = 1, volume = \"a\" }]
";

fn server(server: &Server, words: &[&str]) -> Ended {
    server.ask(&[&["server"], words].concat())
}

fn url(server: &Server, lun: u16) -> String {
    format!("iscsi://127.0.0.1:{}/{TARGET}/{lun}", server.port())
}

#[test]
fn others_read_the_names_that_a_volume_was_given() {
    let mut served = or_skip!(Server::configured(BASE));
    if installed(&["iscsi-inq"]) {
        let standard = ask("iscsi-inq", &[], &url(&served, 0));
        for line in ["Vendor:LIO-ORG", "Product:vm1", "Revision:4.0"] {
            assert!(
                standard.lines().any(|other| other.trim_end() == line),
                "{line}: {standard}"
            );
        }
        let serial = ask("iscsi-inq", &["-e", "1", "-c", "128"], &url(&served, 1));
        says(&serial, &["Unit Serial Number:[6f2d4c1e-8a3b]"]);
        let designators = ask("iscsi-inq", &["-e", "1", "-c", "131"], &url(&served, 1));
        says(&designators, &["Designator:[LIO-ORG vm1:6f2d4c1e-8a3b]"]);
    }
    if installed(&["sg_vpd"]) {
        let json = linerate(&["scsi", "vpd", &url(&served, 0), "83", "--json"]).expect_success();
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let digits: Vec<char> = json["bytes"].as_str().expect("bytes").chars().collect();
        let bytes: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
        let file = served.state().join("page");
        std::fs::write(&file, bytes.join(" ") + "\n").expect("written");
        let said = run(
            "sg_vpd",
            &["--page=di", &format!("--inhex={}", file.display())],
        )
        .expect_success();
        for line in [
            "0x60014056f2d4c1e8a3b4f5d9c7e1b2a3",
            "vendor id: LIO-ORG",
            "vendor specific: vm1:6f2d4c1e-8a3b",
        ] {
            assert!(
                said.lines().any(|other| other.trim() == line),
                "{line}: {said}"
            );
        }
    }
    let listed = server(&served, &["volumes"]).expect_success();
    says(
        &listed,
        &["naa.60014056f2d4c1e8a3b4f5d9c7e1b2a3  6f2d4c1e-8a3b"],
    );
    served.stop();
}

/// A disk with another identity is another disk, and a reload does not remove a disk in use.
#[test]
fn a_volume_in_use_keeps_its_names_and_one_that_is_added_gets_them() {
    let mut served = or_skip!(Server::configured(BASE));
    let naa = |served: &Server| linerate(&["scsi", "vpd", &url(served, 0), "83"]).expect_success();
    served.reconfigure(
        &BASE
            .replace("{port}", &served.port().to_string())
            .replace("b2a3", "b2a4"),
    );
    in_a_world(async {
        let lun = attached(&url(&served, 0)).await;
        let refused = server(&served, &["reload"]);
        assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
        says(&refused.said, &["uses LUN 0, 1 of"]);
        lun.close().await;
    });
    assert!(naa(&served).contains("b2a3"));
    let said = server(&served, &["reload", "--force"]).expect_success();
    says(
        &said,
        &["~ volume a has new identifiers: initiators treat it as another disk"],
    );
    assert!(naa(&served).contains("b2a4"));

    let twin = "naa=naa.60014056f2d4c1e8a3b4f5d9c7e1b2a4";
    let refused = server(&served, &["add", "b=ram:1MiB", "--set", twin]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
    says(&refused.said, &["`b` and `a` have the same NAA identifier"]);
    let refused = server(
        &served,
        &["add", "b=ram:1MiB", "--set", "vendor=much-too-long"],
    );
    assert!(refused.expect_failure().contains("use 1 to 8 ASCII"));
    server(
        &served,
        &[
            "add",
            "b=ram:1MiB",
            "--set",
            "serial=B12",
            "--set",
            "read-only=true",
        ],
    )
    .expect_success();
    let listed = server(&served, &["volumes"]).expect_success();
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with("b ") && line.ends_with("B12")),
        "{listed}"
    );
    served.stop();
}
