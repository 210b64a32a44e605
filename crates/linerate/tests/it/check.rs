//! Tests of `serve --check`, which reports all errors together, and modifies nothing.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::program::{Ended, LINERATE, run_command, says};
use crate::server::Server;

fn check(text: &str, folder: &Path) -> Ended {
    let file = folder.join("linerate.toml");
    fs::write(
        &file,
        text.replace("{folder}", &folder.display().to_string()),
    )
    .expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("our own file");
    run_command(
        Command::new(LINERATE)
            .args(["serve", "--check", "--config"])
            .arg(&file),
    )
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

const TARGET: &str = "
[[target]]
name = \"iqn.2026-01.com.example:disks\"
";

#[test]
fn all_that_is_wrong_is_told_and_nothing_is_changed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    fs::write(folder.path().join("short.img"), [0; 100]).expect("a file");
    fs::write(folder.path().join("socket"), "notes").expect("a file");
    fs::create_dir_all(folder.path().join("state/volumes/kept")).expect("a folder");
    fs::write(folder.path().join("state/volumes/kept/uuid"), "rubbish").expect("a file");
    fs::write(folder.path().join("one.img"), [0; 4096]).expect("a file");
    let volumes = [
        ("missing", "file:{folder}/missing.img"),
        ("short", "file:{folder}/short.img"),
        ("nowhere", "file:{folder}/short.img/new.img?size=1MiB"),
        ("kept", "ram:1MiB"),
        ("one", "file:{folder}/one.img"),
        ("same", "file:{folder}/one.img"),
        ("made", "file:{folder}/made.img?size=1MiB"),
    ];
    let text: String = volumes
        .iter()
        .map(|(name, spec)| format!("[volume.{name}]\nspec = \"{spec}\"\n"))
        .collect();
    let luns: String = volumes
        .iter()
        .enumerate()
        .map(|(lun, (name, _))| format!("[[target.lun]]\nlun = {lun}\nvolume = \"{name}\"\n"))
        .collect();
    let text = format!(
        "state = \"{{folder}}/state\"\ncontrol = \"{{folder}}/socket\"\n[[portal]]\nlisten = \"127.0.0.1:{port}\"\n[metrics]\nlisten = \"127.0.0.1:{port}\"\n{text}{TARGET}{luns}"
    );
    let Ended { status, said } = check(&text, folder.path());
    assert_eq!(status.code(), Some(2), "{said}");
    for mistake in [
        "volume missing: ".to_owned(),
        "volume short: ".to_owned(),
        "volume nowhere: cannot create ".to_owned(),
        "volume kept: ".to_owned(),
        "volume same: ".to_owned(),
        format!("cannot listen on 127.0.0.1:{port}"),
        format!("cannot listen for [metrics] on 127.0.0.1:{port}"),
        "the path exists and is not a socket".to_owned(),
    ] {
        assert!(said.contains(&mistake), "no {mistake} in {said}");
    }
    assert!(
        !said.contains("volume made") && !said.contains("volume one:"),
        "{said}"
    );
    assert_eq!(
        names(folder.path()),
        ["linerate.toml", "one.img", "short.img", "socket", "state"]
    );
    assert_eq!(names(&folder.path().join("state")), ["volumes"]);
    assert_eq!(names(&folder.path().join("state/volumes")), ["kept"]);
}

#[test]
fn what_a_start_would_make_is_no_mistake_and_not_made() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = format!(
        "state = \"{{folder}}/new/state\"\n[[portal]]\nlisten = \"127.0.0.1:0\"\n[volume.disk]\nspec = \"file:{{folder}}/disk.img?size=1MiB\"\n{TARGET}lun = [{{ lun = 0, volume = \"disk\" }}]\n"
    );
    let said = check(&text, folder.path()).expect_success();
    assert!(said.contains("the configuration is valid"), "{said}");
    assert_eq!(names(folder.path()), ["linerate.toml"]);
}

/// The check must succeed while the server's resources are in use, as before a reload.
#[test]
fn the_configuration_of_a_running_server_is_good() {
    let text = format!(
        "state = \"{{state}}\"\ncontrol = \"{{state}}/control\"\n[[portal]]\nlisten = \"127.0.0.1:{{port}}\"\n[volume.disk]\nspec = \"file:{{state}}/disk.img?size=1MiB\"\n{TARGET}lun = [{{ lun = 0, volume = \"disk\" }}]\n"
    );
    let server = or_skip!(Server::configured(&text));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = server.state().display().to_string();
    let text = text
        .replace("{state}", &state)
        .replace("{port}", &server.port().to_string());
    let said = check(&text, folder.path()).expect_success();
    let process = format!(
        "a server runs with the state directory {state} (process {})",
        server.pid()
    );
    says(&said, &[&process, "the configuration is valid"]);
}
