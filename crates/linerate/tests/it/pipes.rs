//! Tests of `linerate read` and `linerate write` with a LUN and a pipe.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::copy::ours;
use crate::program::{Ended, LINERATE, linerate, run_command, says, write_patterned_file};

const MIB: usize = 1 << 20;

/// Writes these bytes to a volume with `linerate write`, with further arguments.
fn write(url: &str, bytes: &[u8], arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = Command::new(LINERATE)
        .args(["write", url])
        .args(arguments)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the linerate binary");
    // Ignore an error: a command that has been refused does not read.
    let _ = child.stdin.take().expect("a pipe").write_all(bytes);
    let ended = child.wait_with_output().expect("an end");
    (
        ended.status.code(),
        String::from_utf8_lossy(&ended.stderr).into_owned(),
    )
}

/// Reads a part of a volume into a file, and returns the file's bytes.
fn read(url: &str, folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = folder.join("output");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" read \"$@\" > \"$OUTPUT\"", LINERATE, url]);
    run_command(command.args(arguments).env("OUTPUT", &output)).expect_success();
    std::fs::read(output).expect("what was read")
}

#[test]
fn a_read_that_fails_leaves_no_empty_file() {
    let server = or_skip!(ours(&["disk=fault:[ram:1MiB]"]));
    server
        .ask(&["server", "fault", "disk", "fail"])
        .expect_success();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("output");
    linerate(&[
        "read",
        &server.url("disk"),
        "--output",
        &output.display().to_string(),
    ])
    .expect_failure();
    assert!(!output.exists());
}

#[test]
fn a_pipe_or_a_character_device_takes_what_is_read() {
    let server = or_skip!(ours(&["disk=ram:1MiB"]));
    let url = server.url("disk");
    linerate(&["read", &url, "--output", "/dev/null"]).expect_success();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("pipe").display().to_string();
    let script =
        "mkfifo \"$2\" && { \"$0\" read \"$1\" --output \"$2\" & wc -c < \"$2\"; wait $!; }";
    let mut command = Command::new("sh");
    let said = run_command(command.args(["-c", script, LINERATE, &url, &pipe]));
    assert_eq!(said.expect_success().trim(), "1048576");
    assert!(Path::new(&pipe).exists());
}

#[test]
fn what_comes_through_a_pipe_goes_back_through_one() {
    let server = or_skip!(ours(&["disk=ram:16MiB", "large=ram:16MiB?block=4096"]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    write_patterned_file(&image, 5 * MIB + 24);
    let bytes = std::fs::read(&image).expect("an image");
    for volume in ["disk", "large"] {
        let url = server.url(volume);
        assert_eq!(
            write(&url, &bytes, &["--offset", "1000"]),
            (Some(0), String::new()),
            "{volume}"
        );
        let length = bytes.len().to_string();
        assert!(
            read(
                &url,
                folder.path(),
                &["--offset", "1000", "--length", &length]
            ) == bytes,
            "{volume}"
        );
        let all = read(&url, folder.path(), &[]);
        assert_eq!(all.len(), 16 * MIB);
        assert!(
            all[..1000]
                .iter()
                .chain(&all[1000 + bytes.len()..])
                .all(|byte| *byte == 0),
            "{volume}"
        );
    }
}

#[test]
fn a_reader_that_has_enough_is_a_clean_end() {
    let server = or_skip!(ours(&["disk=ram:64MiB"]));
    let mut command = Command::new("sh");
    let script = "{ \"$0\" read \"$1\"; echo \"status $?\" >&2; } | head -c 10000 | wc -c";
    let said = run_command(command.args(["-c", script, LINERATE, &server.url("disk")]));
    let said = said.expect_success();
    says(&said, &["10000", "status 0"]);
}

#[test]
fn a_short_input_is_an_error_where_a_length_was_given() {
    let server = or_skip!(ours(&["disk=ram:16MiB"]));
    let (code, said) = write(&server.url("disk"), &[7; 5000], &["--length", "8KiB"]);
    assert_eq!(code, Some(1));
    says(&said, &["the input ended after 5000 bytes of 8192"]);
}

#[test]
fn more_than_there_is_room_for_is_an_error_once_it_is_full() {
    let server = or_skip!(ours(&["disk=ram:1MiB"]));
    let full = [7; MIB];
    assert_eq!(
        write(&server.url("disk"), &full, &[]).0,
        Some(0),
        "exactly full"
    );
    let (code, said) = write(&server.url("disk"), &[9; MIB + 1], &["--yes"]);
    assert_eq!(code, Some(11), "{said}");
    assert!(said.contains("is full, and more input follows"), "{said}");
}

#[test]
fn a_file_system_is_not_overwritten_unasked() {
    let server = or_skip!(ours(&["disk=ram:16MiB"]));
    let url = server.url("disk");
    let mut disk = vec![0; MIB];
    (disk[1080], disk[1081]) = (0x53, 0xef);
    disk[1120] = 0x40;
    disk[1144..1148].copy_from_slice(b"root");
    assert_eq!(write(&url, &disk, &[]).0, Some(0));
    let (code, said) = write(&url, &[1; 512], &["--offset", "8MiB"]);
    assert_eq!(code, Some(2));
    says(&said, &["an ext4 file system (label root) is on iscsi://"]);
    assert!(said.contains("use --yes to overwrite it"), "{said}");
    assert_eq!(
        write(&url, &[1; 512], &["--offset", "8MiB", "--yes"]).0,
        Some(0)
    );
}

#[test]
fn a_place_beyond_the_end_is_refused() {
    let server = or_skip!(ours(&["disk=ram:16MiB"]));
    let url = server.url("disk");
    let refused = |arguments: &[&str]| -> Ended { linerate(arguments) };
    assert!(
        refused(&["read", &url, "--offset", "17MiB"])
            .expect_failure()
            .contains("ends at byte 16777216")
    );
    assert!(
        refused(&["read", &url, "--length", "17MiB"])
            .expect_failure()
            .contains("ends at byte")
    );
}

#[test]
fn an_output_file_that_exists_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("output");
    File::create(&output).expect("a file");
    let said = linerate(&[
        "read",
        "ram:1MiB",
        "--output",
        &output.display().to_string(),
    ])
    .expect_failure();
    assert!(said.contains("cannot create"), "{said}");
}

#[test]
fn a_layer_that_is_read_only_keeps_what_is_below_it_as_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    let shown = image.display();
    // A read does not create a missing file, even under layers.
    let missing = linerate(&["read", &format!("delay:1us:[file:{shown}?size=1MiB]")]);
    assert_eq!(missing.status.code(), Some(2), "{}", missing.said);
    assert!(!image.exists(), "made by a reader");
    std::fs::write(&image, vec![0; MIB]).expect("a temporary file");
    let (code, said) = write(
        &format!("delay:1us:[file:{shown}]?read-only"),
        &[7; 512],
        &["--yes"],
    );
    assert_eq!(code, Some(8), "{said}");
    assert!(
        std::fs::read(&image)
            .expect("the image")
            .iter()
            .all(|byte| *byte == 0)
    );
}
