//! Tests of reasons for which a server refuses to start: it must print one clear sentence on standard error,
//! exit with code 2, and serve nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::program::{Ended, LINERATE, run_command, says};
use crate::server::{Server, free_port, serve};

/// Starts a server that must not come up, and returns its output.
fn refused(command: &mut Command) -> String {
    let Ended { status, said } = run_command(command);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn serving(volume: &str, state: &Path) -> Command {
    serve(free_port(), &[volume.to_owned()], state)
}

#[test]
fn a_port_in_use() {
    let other = Server::serving(&["disk=ram:1MiB"]);
    if other.is_ours() {
        let state = tempfile::tempdir().expect("a temporary folder");
        let said = refused(&mut serve(
            other.port(),
            &["disk=ram:1MiB".to_owned()],
            state.path(),
        ));
        assert!(said.contains(&other.portal()), "{said}");
    }
}

#[test]
fn a_volume_that_another_server_serves() {
    let other = Server::serving(&["disk=file:{state}/disk.img?size=1MiB"]);
    if other.is_ours() {
        let state = tempfile::tempdir().expect("a temporary folder");
        let image = other.state().join("disk.img").display().to_string();
        let said = refused(&mut serving(&format!("disk=file:{image}"), state.path()));
        says(&said, &[&image, "in use by another process; waiting"]);
    }
}

#[test]
fn a_file_that_is_not_there() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let missing = state.path().join("missing.img").display().to_string();
    let said = refused(&mut serving(&format!("disk=file:{missing}"), state.path()));
    assert!(said.contains(&missing), "{said}");
}

#[test]
fn a_file_too_short_for_a_block() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let short = state.path().join("short.img");
    std::fs::write(&short, [0; 100]).expect("a temporary file");
    let said = refused(&mut serving(
        &format!("disk=file:{}", short.display()),
        state.path(),
    ));
    assert!(said.contains(&short.display().to_string()), "{said}");
}

#[test]
fn a_specification_with_a_mistake() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let said = refused(&mut serving("disk=ram:1MiB?blok=4096", state.path()));
    assert!(said.contains("blok") && said.contains("block"), "{said}");
}

#[test]
fn a_configuration_with_a_mistake() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let file = state.path().join("linerate.toml");
    std::fs::write(&file, "[[volume]]\nname = 7\n").expect("a temporary file");
    let mut command = Command::new(LINERATE);
    let said = refused(command.args(["serve", "--check", "--config"]).arg(&file));
    assert!(said.contains("linerate.toml:"), "{said}");
}

/// Runs `serve --check` with this configuration file, whose mode is `mode`.
fn checked(text: &str, mode: u32) -> Ended {
    let state = tempfile::tempdir().expect("a temporary folder");
    let file = state.path().join("linerate.toml");
    std::fs::write(&file, text).expect("a temporary file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("our own file");
    let mut command = Command::new(LINERATE);
    run_command(
        command
            .args(["serve", "--check", "--listen", "127.0.0.1:0", "--state"])
            .arg(state.path())
            .arg("--config")
            .arg(&file),
    )
}

const WITH_SECRET: &str = r#"
[volume.disk]
spec = "ram:1MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
"#;

#[test]
fn a_configuration_with_secrets_that_others_may_read_is_refused() {
    for mode in [0o644, 0o640, 0o602] {
        let Ended { status, said } = checked(WITH_SECRET, mode);
        assert_eq!(status.code(), Some(2), "{said}");
        says(&said, &[&format!("mode {mode:o}"), "chmod 600"]);
        assert!(
            said.contains("linerate.toml:9:") && !said.contains("horse"),
            "{said}"
        );
    }
    checked(WITH_SECRET, 0o600).expect_success();
    let open = WITH_SECRET
        .split("[[target.chap")
        .next()
        .expect("the part before it");
    checked(open, 0o644).expect_success(); // the file has no secrets
}

#[test]
fn a_secret_s_own_file_is_looked_at_instead_of_the_configuration() {
    let secret = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(secret.path(), "correct-horse-battery\n").expect("a temporary file");
    let path = secret.path().display().to_string();
    let text = WITH_SECRET.replace(
        "secret = \"correct-horse-battery\"",
        &format!("secret-file = \"{path}\""),
    );
    std::fs::set_permissions(secret.path(), PermissionsExt::from_mode(0o640))
        .expect("our own file");
    let Ended { status, said } = checked(&text, 0o644);
    assert!(
        status.code() == Some(2) && said.contains(&path) && said.contains("mode 640"),
        "{said}"
    );
    std::fs::set_permissions(secret.path(), PermissionsExt::from_mode(0o400))
        .expect("our own file");
    checked(&text, 0o644).expect_success();
}

/// The initiator has the same rule as a server, and does not even connect.
#[test]
fn an_initiator_s_secret_that_others_may_read_is_refused() {
    let secret = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(secret.path(), "correct-horse-battery\n").expect("a temporary file");
    std::fs::set_permissions(secret.path(), PermissionsExt::from_mode(0o640))
        .expect("our own file");
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = format!(
        "{}?secret-file={}",
        server.url("disk"),
        secret.path().display()
    );
    let mut command = Command::new(LINERATE);
    let said = refused(command.args(["info", &url.replace("iscsi://", "iscsi://alice@")]));
    assert!(
        said.contains("mode 640") && said.contains("chmod 600") && !said.contains("horse"),
        "{said}"
    );
}

#[test]
fn a_secret_in_a_mistaken_line_or_argument_is_not_repeated() {
    for mistake in ["\"hush", "hush-hush", "\"hush\""] {
        let said = checked(
            &WITH_SECRET.replace("\"correct-horse-battery\"", mistake),
            0o600,
        )
        .expect_failure();
        assert!(
            said.contains("linerate.toml:9:") && !said.contains("hush"),
            "{said}"
        );
    }
    let state = tempfile::tempdir().expect("a temporary folder");
    let said = refused(&mut serving(
        "disk=delay:5ms:[iscsi://joe%hush-hush-hush@san1/iqn.x/0]",
        state.path(),
    ));
    assert!(
        said.contains("iscsi://joe%****") && !said.contains("hush"),
        "{said}"
    );
}
