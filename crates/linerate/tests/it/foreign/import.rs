//! The dump of a running tgtd, as read by `linerate import`.

use std::fs;

use daemon::Config;

use super::san::PREFIX;
use super::tgt::Tgt;
use crate::program::{installed, linerate, run};
use crate::server::Server;

#[test]
fn what_a_running_tgtd_dumps_is_imported() {
    needs!(installed(&["tgtd", "tgtadm", "tgt-admin"]));
    let tgt = Tgt::start();
    let dump = tgt.dump();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("targets.conf");
    fs::write(&path, &dump).expect("a file");
    let imported = daemon::import::read(&path).unwrap_or_else(|error| panic!("{error}\n{dump}"));
    let config = Config::parse("x", &imported.text).expect("it is good");
    let mut names: Vec<&str> = config
        .iscsi()
        .targets
        .iter()
        .filter_map(|target| target.name.as_str().split(':').nth(1))
        .collect();
    names.sort_unstable();
    // A dump does not contain the secrets of the third target, which must not become open to all initiators.
    assert_eq!(names, ["disks", "narrow"], "{dump}\n{}", *imported.text);
    assert!(!imported.text.contains("PLEASE_CORRECT"), "{dump}");
    let disks = config
        .iscsi()
        .targets
        .iter()
        .find(|target| target.name.as_str().ends_with(":disks"))
        .expect("disks");
    assert_eq!(disks.luns.len(), 4, "{dump}");
    assert!(
        imported
            .notes
            .iter()
            .all(|note| !note.to_string().contains("identity")),
        "{dump}"
    );
    initiators_find_the_same_disks(&tgt, &imported.text);
    let checked = folder.path().join("linerate.toml");
    fs::write(&checked, imported.text.as_bytes()).expect("a file");
    linerate(&[
        "serve",
        "--check",
        "--config",
        &checked.display().to_string(),
    ])
    .expect_success();
}

/// Checks that vendor, product, revision, serial number and designators are those that the running tgtd
/// reports.
fn initiators_find_the_same_disks(tgt: &Tgt, text: &str) {
    let ours = text.replace("0.0.0.0:3260", "127.0.0.1:{port}");
    let (Some(mut ours), true) = (Server::configured(&ours), installed(&["iscsi-inq"])) else {
        return;
    };
    for lun in 1..=4 {
        let [theirs, ours] = [tgt.port(), ours.port()].map(|port| {
            let url = format!("iscsi://127.0.0.1:{port}/{PREFIX}disks/{lun}");
            let standard = run("iscsi-inq", &[url.as_str()]).expect_success();
            let is_name = |line: &&str| {
                ["Vendor:", "Product:", "Revision:"]
                    .iter()
                    .any(|key| line.starts_with(key))
            };
            let mut said: Vec<String> = standard
                .lines()
                .filter(is_name)
                .map(str::to_owned)
                .collect();
            said.push(run("iscsi-inq", &["-e", "1", "-c", "128", &url]).expect_success());
            let designators = linerate(&["scsi", "vpd", &url, "83"]).expect_success();
            let of_unit = |line: &&str| line.contains("naa.6") || line.contains("t10.");
            let mut of_unit: Vec<String> = designators
                .lines()
                .filter(of_unit)
                .map(str::to_owned)
                .collect();
            of_unit.sort();
            said.extend(of_unit);
            said
        });
        assert_eq!(ours, theirs);
        assert_eq!(ours.len(), 6, "{ours:?}");
    }
    ours.stop();
}
