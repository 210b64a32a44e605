//! A portal on a Unix socket: other clients, access rules, TLS, and the creation and removal of its file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::programs::copied_there_and_back;
use super::tls::Pki;
use super::{Both, export_of};
use crate::program::{installed, linerate, run, says};
use crate::qemu::qemu_io;
use crate::server::free_port;
use crate::sessions::sessions;

/// A server whose exports, `disk` and those in `more`, are available through a Unix socket and a port.
fn serving(keys: &str, more: &str) -> Option<Both> {
    let port = free_port();
    let text = format!(
        "[nbd]\nlisten = [\"nbd+unix://{{state}}/nbd.sock\", \"127.0.0.1:{port}\"]\n{keys}\n{}{more}\
         [volume.disk]\nspec = \"ram:64MiB\"\n",
        export_of("disk")
    );
    Both::configured(text, port)
}

impl Both {
    fn socket(&self) -> PathBuf {
        self.server.state().join("nbd.sock")
    }

    fn local(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }
}

#[test]
fn clients_of_this_machine_use_the_socket() {
    needs!(installed(&["nbdinfo", "nbdcopy", "qemu-io", "cmp"]));
    let Some(both) = serving("", "") else { return };
    let mode = fs::metadata(both.socket())
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "it is for its owner");
    let url = both.local("disk");
    let said = run("nbdinfo", &["--list", &url]).expect_success();
    says(&said, &["export=\"disk\"", "export-size: 67108864"]);
    let [_, after] = copied_there_and_back(&both, &url);
    let said = qemu_io(
        &url,
        &[
            "write -P 0xa5 0 4M",
            "write -f -P 7 4095 2",
            "read -P 7 4095 2",
            "flush",
        ],
    );
    assert!(!said.contains("Pattern verification failed"), "{said}");
    let copied = both.server.state().join("copied").display().to_string();
    linerate(&["copy", &url, &copied, "--verify"]).expect_success();
    run("nbdcopy", &[&both.url("disk"), &after]).expect_success();
    run("cmp", &[&copied, &after]).expect_success();
    assert!(linerate(&["info", &url]).expect_success().contains("64MiB"));
}

#[test]
fn the_socket_is_told_of() {
    let Some(both) = serving("", "") else { return };
    let path = both.socket().display().to_string();
    let _session = super::client::Client::local(&both.socket(), "disk");
    let connection = &sessions(&both.server)[0]["connections"][0];
    assert_eq!(connection["peer"], "127.0.0.1:0");
    assert_eq!(connection["local"], format!("unix:{path}"));
    let targets = both.command(&["targets", "--json"]).expect_success();
    assert!(targets.contains(&format!("\"unix:{path}\"")), "{targets}");
    assert!(
        both.command(&["usage"])
            .expect_success()
            .contains(&format!("127.0.0.1 {}", both.port))
    );
    let config = both
        .server
        .state()
        .join("linerate.toml")
        .display()
        .to_string();
    let state = both.server.state().display().to_string();
    let check = ["serve", "--check", "--config", &config, "--state", &state];
    let said = linerate(&check).expect_success();
    says(&said, &[&format!("listens on nbd+unix://{path}\n")]);
    says(
        &said,
        &[&format!("unix:{path}: another server is using it")],
    );
    let only = format!("--listen=nbd+unix://{path}.2");
    let said = linerate(&[
        "serve",
        "--check",
        "--volume=a=ram:1MiB",
        &only,
        "--state",
        &format!("{state}/2"),
    ]);
    assert!(
        said.expect_success()
            .contains(&format!("listens on nbd+unix://{path}.2\n"))
    );
    assert!(
        !PathBuf::from(format!("{path}.2")).exists(),
        "nothing is changed"
    );
}

/// For the key `networks`, the address of a client on the socket is 127.0.0.1.
#[test]
fn who_uses_the_socket_is_this_machine() {
    let export = |name: &str, networks: &str| {
        format!(
            "[[nbd.export]]\nvolume = \"disk\"\nname = \"{name}\"\nnetworks = [\"{networks}\"]\n"
        )
    };
    let more = export("here", "127.0.0.0/8")
        + &export("elsewhere", "192.0.2.0/24")
        + &export("six", "::1");
    let both = or_skip!(serving("", &more));
    linerate(&["info", &both.local("here")]).expect_success();
    for name in ["elsewhere", "six"] {
        linerate(&["info", &both.local(name)]).expect_failure();
    }
}

#[test]
fn tls_is_spoken_on_the_socket_too() {
    let pki = Pki::new();
    let folder = pki.folder();
    let keys = format!(
        "tls-certificate = \"{folder}/server-cert.pem\"\ntls-key = \"{folder}/server-key.pem\""
    );
    let both = or_skip!(serving(&keys, ""));
    let (clear, path) = (both.local("disk"), both.socket().display().to_string());
    let secure = format!("nbds+unix:///disk?socket={path}&tls-certificates={folder}");
    linerate(&["info", &clear]).expect_failure();
    linerate(&["info", &secure]).expect_success();
    if installed(&["nbdinfo"]) {
        run("nbdinfo", &[&clear]).expect_failure();
        assert!(
            run("nbdinfo", &[&secure])
                .expect_success()
                .contains("protocol: newstyle-fixed with TLS")
        );
    }
}

#[test]
fn the_socket_comes_and_goes_with_its_portal() {
    let mut both = or_skip!(serving("", ""));
    let (socket, path) = (both.socket(), both.socket().display().to_string());
    // A second server does not take over the socket, and reports why.
    let other = both.server.state().join("other").display().to_string();
    let listen = format!("--listen=nbd+unix://{path}");
    let serve = ["serve", "--volume=a=ram:1MiB", &listen, "--state", &other];
    let said = linerate(&serve).expect_failure();
    says(
        &said,
        &[&format!(
            "cannot listen on unix:{path}: another server is using it"
        )],
    );
    linerate(&["info", &both.local("disk")]).expect_success();

    let state = both.server.state().display().to_string();
    let with = both.text.replace("{state}", &state);
    let without = with.replace(&format!("\"nbd+unix://{path}\", "), "");
    let mut client = super::client::Client::local(&socket, "disk");
    both.server.reconfigure(&without);
    let said = both.command(&["reload"]).expect_success();
    says(&said, &[&format!("- portal nbd+unix://{path}")]);
    assert!(!socket.exists());
    client.write(0, &[7; 512]).expect("a connection stays");
    both.server.reconfigure(&with);
    let said = both.command(&["reload"]).expect_success();
    says(&said, &[&format!("+ portal nbd+unix://{path}")]);
    assert!(linerate(&["info", &both.local("disk")]).status.success());

    // The leftover socket of a killed server is replaced, and a server that shuts down leaves none.
    both.server.kill();
    assert!(socket.exists());
    both.server.restart();
    linerate(&["info", &both.local("disk")]).expect_success();
    both.server.stop();
    assert!(!socket.exists());
    fs::write(&socket, "notes").expect("a file");
    let said = linerate(&serve).expect_failure();
    says(&said, &["the path exists and is not a socket"]);
    assert_eq!(fs::read(&socket).expect("the file"), b"notes");
}

#[test]
fn paths_that_cannot_be_meant_name_the_remedy() {
    for (listen, says) in [
        ("nbd+unix://nbd.sock", "not the absolute path of a socket"),
        (
            "nbd+unix:///disk?socket=/run/nbd.sock",
            "nbd+unix:///run/linerate/nbd.sock",
        ),
        (
            "nbd+unix:///nonexistent/folder/nbd.sock",
            "choose a path at which this user can create a socket",
        ),
        (
            "iscsi+unix:///run/iscsi.sock",
            "`iscsi+unix://` is not served here; write iscsi://",
        ),
    ] {
        let state = tempfile::tempdir().expect("a folder");
        let state = state.path().join("state").display().to_string();
        let serve = [
            "serve",
            "--volume=a=ram:1MiB",
            "--listen",
            listen,
            "--state",
            &state,
        ];
        let said = linerate(&serve).expect_failure();
        assert!(said.contains(says), "{listen}: {said}");
    }
}
