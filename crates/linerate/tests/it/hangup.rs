//! SIGHUP, as sent by the kernel when a terminal is closed, and by users to reload a configuration.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::attach::{self, Attached};
use crate::program::{LINERATE, end_of, linerate, signal, until};
use crate::server::{Server, free_port, serve};

/// A process on which other programs depend. It has reported that it is ready.
struct Service {
    child: Child,
    /// The process's log lines.
    lines: Box<dyn Iterator<Item = String>>,
}

impl Service {
    fn start(mut command: Command) -> Service {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the linerate binary");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        assert!(said.any(|line| line == "ready"), "{command:?} is not ready");
        std::thread::spawn(move || said.for_each(drop)); // so that it never blocks on a full pipe
        let lines = BufReader::new(child.stderr.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        Service {
            child,
            lines: Box::new(lines),
        }
    }

    /// Sends SIGHUP, and waits for the log line that it is ignored, or for the end of the process.
    fn hang_up(&mut self) {
        signal(&self.child, "HUP");
        let told = self.lines.any(|line| line.contains("SIGHUP"));
        assert!(told, "ended by SIGHUP: {:?}", self.child.wait());
    }

    fn end(mut self) -> ExitStatus {
        signal(&self.child, "TERM");
        end_of(&mut self.child)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_survives_its_terminal_and_ends_in_good_order_later() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let port = free_port();
    let volumes = [format!(
        "disk=file:{}/disk.img?size=1MiB",
        state.path().display()
    )];
    let server = Service::start(serve(port, &volumes, state.path()));
    let url = format!("iscsi://127.0.0.1:{port}/iqn.2026-01.io.linerate:disk/0");
    // The tests of `reload` check the effect.
    signal(&server.child, "HUP");
    signal(&server.child, "HUP");
    let sector = state.path().join("sector");
    std::fs::write(&sector, [0x77; 512]).expect("a temporary file");
    let sector = sector.display().to_string();
    linerate(&["scsi", "write-same", &url, "0", "8", "--block", &sector]).expect_success();
    assert_eq!(
        server.end().code(),
        Some(0),
        "flushed, and initiators were asked to log out"
    );
}

#[test]
fn whoever_serves_others_survives_the_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "correct horse battery staple").expect("a temporary file");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))
        .expect("our own file");
    for arguments in [
        &[
            "bench",
            "agent",
            "--secret-file",
            &secret.display().to_string(),
        ][..],
        &["lab", "peer"],
    ] {
        let at = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(LINERATE);
        command.args(arguments).args(["--listen", &at]);
        let mut service = Service::start(command);
        service.hang_up();
        TcpStream::connect(&at).unwrap_or_else(|error| panic!("{arguments:?} is gone: {error}"));
    }
}

#[test]
fn an_attached_file_survives_a_hangup() {
    needs!(attach::possible());
    let server = or_skip!(Some(Server::serving(&["disk=ram:1MiB"])).filter(Server::is_ours));
    let attached = Attached::to(&server.url("disk"));
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(attached.path())
        .expect("the file");
    file.write_all_at(&[7; 4096], 0).expect("it writes");
    attach::kill("-HUP", &attached.pid());
    until("a log line about SIGHUP", || {
        attached.log().contains("SIGHUP")
    });
    let mut block = [0; 4096];
    file.sync_all()
        .and_then(|()| file.read_exact_at(&mut block, 0))
        .expect("it is still attached");
    assert_eq!(block, [7; 4096]);
    drop(file);
    attached.detach().expect_success();
}

/// A command that has written more to its standard output than a pipe can hold, and waits for its reader.
fn waiting_for_its_reader(server: &Server, before: &str) -> Child {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("{before} \"$0\" read \"$1\""),
        LINERATE,
        &server.url("disk"),
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    // The first byte of the output shows that the process handles signals.
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut first)
        .expect("a byte");
    child
}

#[test]
fn a_command_ends_in_good_order_with_its_terminal_unless_nohup_says_otherwise() {
    let server = or_skip!(Some(Server::serving(&["disk=ram:64MiB"])).filter(Server::is_ours));
    for (before, code, bytes) in [
        // The tests may themselves have been started with nohup.
        ("exec env --default-signal=HUP", Some(130), None),
        ("trap '' HUP; exec", Some(0), Some((64 << 20) - 1)),
    ] {
        let (mut child, mut said) = (waiting_for_its_reader(&server, before), String::new());
        signal(&child, "HUP");
        let read = std::io::copy(child.stdout.as_mut().expect("a pipe"), &mut std::io::sink())
            .expect("data");
        child
            .stderr
            .as_mut()
            .expect("a pipe")
            .read_to_string(&mut said)
            .expect("text");
        let status = end_of(&mut child);
        assert_eq!(status.code(), code, "{before} {said}");
        bytes.into_iter().for_each(|bytes| assert_eq!(read, bytes));
    }
}
