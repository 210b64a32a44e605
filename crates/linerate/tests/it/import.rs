//! `linerate import`: the result for a file matches that of tgt's own tool, and existing files are not
//! overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use daemon::Config;
use tempfile::TempDir;

use crate::program::{LINERATE, installed, linerate, run, run_command};

/// The paths behind the LUNs of each target.
type Luns = BTreeMap<(String, u16), String>;

/// Runs the command, checks its exit code, and reads its output file.
fn imported(foreign: &Path, code: i32) -> (Config, String) {
    let out = foreign.with_extension("toml");
    let ended = linerate(&[
        "import",
        &foreign.display().to_string(),
        "--out",
        &out.display().to_string(),
    ]);
    assert_eq!(ended.status.code(), Some(code), "{}", ended.said);
    let text = fs::read_to_string(&out).expect("a configuration");
    let config = Config::parse("imported", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    (config, ended.said)
}

fn luns(config: &Config) -> Luns {
    let targets = config.iscsi().targets.iter();
    let all = targets.flat_map(|target| {
        target
            .luns
            .iter()
            .map(move |lun| (target.name.to_string(), lun))
    });
    let found = all.map(|(target, lun)| {
        let volume = config.volume(&lun.volume).expect("its volume");
        (
            (target, lun.lun),
            volume.spec.path().expect("a file").display().to_string(),
        )
    });
    found.collect()
}

/// The commands that `tgt-admin --pretend` would send to tgtd.
fn by_tgt_admin(foreign: &Path) -> Luns {
    // No daemon has this control port.
    let said = run(
        "tgt-admin",
        &[
            "--pretend",
            "--execute",
            "--control-port",
            "32767",
            "--conf",
            &foreign.display().to_string(),
        ],
    );
    let mut targets: BTreeMap<String, String> = BTreeMap::new();
    let mut luns = Luns::new();
    for line in said.said.lines() {
        let after = |option: &str| {
            let rest = line.split_once(&format!(" {option} "))?.1;
            Some(rest.split_whitespace().next()?.trim_matches('"').to_owned())
        };
        let Some(tid) = after("--tid").filter(|_| line.contains("--op new")) else {
            continue;
        };
        if let Some(name) = after("-T") {
            targets.insert(tid, name);
        } else if let (Some(lun), Some(path)) = (after("--lun"), after("-b")) {
            luns.insert(
                (targets[&tid].clone(), lun.parse().expect("a number")),
                path,
            );
        }
    }
    assert!(!luns.is_empty(), "{}", said.said);
    luns
}

#[test]
fn luns_have_the_numbers_that_tgt_admin_gives_them() {
    needs!(installed(&["tgt-admin"]));
    let folder = TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let names = ["zebra", "ape", "bee", "cat", "dog", "emu"];
    names
        .iter()
        .for_each(|name| fs::write(path(name), vec![0; 4096]).expect("a file"));
    fs::create_dir(folder.path().join("conf.d")).expect("a folder");
    let [zebra, ape, bee, cat, dog, emu] = names.map(path);
    let plain = format!(
        "<target iqn.2026-01.com.example:plain>\n backing-store {zebra} # LUN 2\n backing-store \\\n  {ape}\n</target>\n"
    );
    fs::write(path("conf.d/plain.conf"), plain).expect("a file");
    let blocks = format!(
        "include {}\n<target iqn.2026-01.com.example:blocks>\n <backing-store {bee}>\n </backing-store>\n\
         /* another\n comment */\n <backing-store {cat}>\n  lun = 1\n  readonly 1\n </backing-store>\n <backing-store {dog}>\n  \
         lun 3\n </backing-store>\n write-cache on\n</target>\n<target iqn.2026-01.com.example:blocks>\n \
         <backing-store {emu}>\n </backing-store>\n</target>\n",
        path("conf.d/*.conf")
    );
    let conf = folder.path().join("targets.conf");
    fs::write(&conf, blocks).expect("a file");
    let (config, said) = imported(&conf, 0);
    assert_eq!(luns(&config), by_tgt_admin(&conf), "{said}");
    let numbers: Vec<u16> = luns(&config).keys().map(|(_, lun)| *lun).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 1, 2], "{said}");
}

#[test]
fn a_file_is_made_once_and_for_its_owner_and_checks() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("saveconfig.json");
    let text = r#"{
  "storage_objects": [{"plugin": "ramdisk", "name": "r", "size": 1048576}],
  "targets": [{"fabric": "iscsi", "wwn": "iqn.2026-01.com.example:r", "tpgs": [{
    "tag": 1, "enable": true,
    "attributes": {"authentication": 1, "generate_node_acls": 0},
    "node_acls": [{"node_wwn": "iqn.1993-08.org.debian:01:h", "chap_userid": "alice", "chap_password": "a-\"long\"-secret",
                   "mapped_luns": [{"index": 0, "tpg_lun": 0, "write_protect": false}]}],
    "luns": [{"index": 0, "storage_object": "/backstores/ramdisk/r"}],
    "portals": [{"ip_address": "127.0.0.1", "port": 3260}]
  }]}]
}"#;
    fs::write(&path, text).expect("a file");
    let (config, said) = imported(&path, 0);
    assert_eq!((said.as_str(), config.iscsi().targets.len()), ("", 1));
    let out = path.with_extension("toml");
    assert_eq!(
        fs::metadata(&out).expect("there").permissions().mode() & 0o777,
        0o600
    );
    let out = out.display().to_string();
    linerate(&["serve", "--check", "--config", &out]).expect_success();
    let again = linerate(&["import", &path.display().to_string(), "--out", &out]);
    assert_eq!(again.status.code(), Some(2));
    assert!(again.said.contains("already exists"), "{}", again.said);
    // Written to a pipe, the output is the same text, and standard error contains a note about its secret.
    let mut command = Command::new(LINERATE);
    let piped = command
        .args(["import", &path.display().to_string()])
        .output()
        .expect("its output");
    assert_eq!(piped.stdout, fs::read(&out).expect("readable"));
    assert!(String::from_utf8_lossy(&piped.stderr).contains("--out FILE"));
}

#[test]
fn what_is_left_out_is_named_with_its_line_and_no_secret_is() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("targets.conf");
    let text = "<target iqn.2026-01.com.example:a>\n backing-store /d\n incominguser alice hush-hush\n rogue 1\n</target>\n";
    fs::write(&path, text).expect("a file");
    let mut command = Command::new(LINERATE);
    let ended = run_command(command.args(["import", &path.display().to_string()]));
    assert_eq!(ended.status.code(), Some(14), "{}", ended.said);
    for said in [
        ":3: the user `alice` is not imported",
        ":4: `rogue` is not imported",
        "# name = ",
    ] {
        assert!(ended.said.contains(said), "{said}: {}", ended.said);
    }
    assert!(!ended.said.contains("hush"), "{}", ended.said);
    assert_eq!(
        linerate(&["import", "/no/such/file"]).status.code(),
        Some(2)
    );
}
