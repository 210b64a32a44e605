//! A running tgtd's own account of itself, as `linerate import` reads it.

use std::fs;

use manage::Config;

use super::tgt::Tgt;
use crate::program::{installed, run};

#[test]
fn what_a_running_tgtd_dumps_is_imported() {
    if !installed(&["tgtd", "tgtadm", "tgt-admin"]) {
        return;
    }
    let tgt = Tgt::start();
    let dump = tgt.dump();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("targets.conf");
    fs::write(&path, &dump).expect("a file");
    let imported = manage::import::read(&path).unwrap_or_else(|error| panic!("{error}\n{dump}"));
    let config = Config::parse("x", &imported.text).expect("it is good");
    let mut names: Vec<&str> =
        config.iscsi().targets.iter().filter_map(|target| target.name.as_str().split(':').nth(1)).collect();
    names.sort_unstable();
    // The secrets of the third are not in a dump, and it is not opened to all for that.
    assert_eq!(names, ["disks", "narrow"], "{dump}\n{}", *imported.text);
    assert!(!imported.text.contains("PLEASE_CORRECT"), "{dump}");
    let disks =
        config.iscsi().targets.iter().find(|target| target.name.as_str().ends_with(":disks")).expect("disks");
    assert_eq!(disks.luns.len(), 4, "{dump}");
    let checked = folder.path().join("linerate.toml");
    fs::write(&checked, imported.text.as_bytes()).expect("a file");
    run(env!("CARGO_BIN_EXE_linerate"), &["serve", "--check", "--config", &checked.display().to_string()])
        .expect_success();
}
