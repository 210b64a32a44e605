//! What a server refuses to start with: one clear sentence on standard error, exit code 2, nothing served.

use std::path::Path;
use std::process::Command;

use crate::program::{Ended, run_command};
use crate::server::{Server, free_port, serve};

/// Starts a server that must not come up, and returns what it says.
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
        let said = refused(&mut serve(other.port(), &["disk=ram:1MiB".to_owned()], state.path()));
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
        assert!(said.contains(&image), "{said}");
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
    let said = refused(&mut serving(&format!("disk=file:{}", short.display()), state.path()));
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    let said = refused(command.args(["serve", "--check", "--config"]).arg(&file));
    assert!(said.contains("linerate.toml:"), "{said}");
}
