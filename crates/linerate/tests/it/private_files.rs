//! Tests that files with user data are readable only by their owner, whatever the umask.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{Ended, LINERATE, run_command, until, write_patterned_file};
use crate::server::Server;
use crate::sessions::sessions;

/// Runs the program with an umask that lets all users read and write its files.
fn generous(arguments: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 0; exec \"$@\"", "sh", LINERATE])
        .args(arguments);
    run_command(&mut command)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn what_is_made_of_a_disks_data_is_for_its_owner() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let url = server.url("disk");
    write_patterned_file(&path("image"), 1 << 20);
    let read_10 = "28000000000000000100";
    let made: [(&str, &[&str]); 4] = [
        (
            "copied",
            &[
                "copy",
                &text("image"),
                &text("copied"),
                "--journal",
                &text("journal"),
            ],
        ),
        ("read", &["read", &url, "--output", &text("read")]),
        (
            "saved",
            &[
                "scsi",
                "raw",
                &url,
                "--cdb",
                read_10,
                "--in",
                "512",
                "--save",
                &text("saved"),
            ],
        ),
        ("recorded", &["--record", &text("recorded"), "info", &url]),
    ];
    for (name, arguments) in made {
        generous(arguments).expect_success();
        assert_eq!(format!("{:o}", mode(&path(name))), "600", "{name}");
    }
}

#[test]
fn a_file_that_is_copied_over_keeps_its_mode() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    write_patterned_file(&from, 4096);
    fs::write(&to, "before").expect("a file");
    fs::set_permissions(&to, fs::Permissions::from_mode(0o640)).expect("its mode");
    let [from, to_text] = [&from, &to].map(|path| path.display().to_string());
    let journal = folder.path().join("journal").display().to_string();
    generous(&["copy", &from, &to_text, "--yes", "--journal", &journal]).expect_success();
    assert_eq!(format!("{:o}", mode(&to)), "640");
}

/// The names of recordings are predictable, and their directory may be public.
#[test]
fn a_recording_of_a_lost_connection_is_for_its_owner_and_follows_no_link() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let precious = folder.path().join("precious");
    fs::write(&precious, "precious").expect("a file");
    let mut server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    // The shell executes the program in its own process, so the PID is known in advance.
    let script = "umask 0; ln -s precious \"$1/linerate-$$-0.pcapng\"; export LINERATE_RECORD_DIR=\"$1\"; shift; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .arg(folder.path())
        .arg(LINERATE);
    // The command's input does not end, so the command waits while its target ends.
    command.args(format!("write {}?reconnect-time=0 --yes", server.url("disk")).split(' '));
    let mut writer = command
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the linerate binary");
    let recording = folder
        .path()
        .join(format!("linerate-{}-0.pcapng", writer.id()));
    until("a session", || sessions(&server).len() == 1);
    server.kill();
    until("a recording", || {
        fs::symlink_metadata(&recording).is_ok_and(|file| file.is_file() && file.len() > 0)
    });
    writer.kill().and_then(|()| writer.wait()).expect("a child");
    assert_eq!(format!("{:o}", mode(&recording)), "600");
    assert_eq!(fs::read_to_string(&precious).expect("it"), "precious");
}
