//! Tests of TLS: other clients with certificates, the checks of server and client, and clients without TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tempfile::TempDir;

use super::Both;
use super::client::{Client, OPT_GO, OPT_LIST, OPT_STARTTLS, an_option, string};
use super::programs::copied_there_and_back;
use crate::program::{installed, linerate, run, run_command, says, until};
use crate::qemu::TLS_CREDENTIALS;
use crate::server::free_port;

/// Certificates with the file names that QEMU and libnbd expect, and others.
/// `crates/runtime/tls/tests/pki/make.sh` creates them.
pub(crate) struct Pki(TempDir);

macro_rules! pki {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../runtime/tls/tests/pki/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] = pki!("ca-cert.pem" "stranger-cert.pem" "server-cert.pem" "server-key.pem" "client-cert.pem"
    "client-key.pem" "elsewhere-cert.pem" "elsewhere-key.pem" "expired-cert.pem" "expired-key.pem");

impl Pki {
    pub(crate) fn new() -> Pki {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in FILES {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its owner's");
        }
        Pki(folder)
    }

    pub(crate) fn folder(&self) -> String {
        self.0.path().display().to_string()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn copy(&self, from: &str, to: &str) {
        fs::copy(self.file(from), self.file(to)).expect("copied");
    }

    /// Creates another directory without a client certificate, and with this CA.
    fn without_own(&self, ca: &str) -> TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::copy(self.file(ca), folder.path().join("ca-cert.pem")).expect("copied");
        folder
    }
}

/// A server with the certificate of `localhost`, whose `disk` is open to all, and `secret` is for the client
/// `host1.example`.
fn serving(pki: &Pki, keys: &str) -> Option<Both> {
    let port = free_port();
    let folder = pki.folder();
    let only = if keys.contains("tls-client-ca") {
        "[[nbd.export]]\nvolume = \"secret\"\nclients = [\"host2\", \"host1.example\"]\n[volume.secret]\nspec = \"ram:8MiB\"\n"
    } else {
        ""
    };
    let keys = keys.replace("DIR", &folder);
    let text = format!(
        "[log]\nfilter = \"warn,audit=info\"\n[limits]\nlogin-time = \"5s\"\n[nbd]\nlisten = [\"127.0.0.1:{port}\"]\ntls-certificate = \"{folder}/server-cert.pem\"\n\
         tls-key = \"{folder}/server-key.pem\"\n{keys}\n[[nbd.export]]\nvolume = \"disk\"\n{only}[volume.disk]\nspec = \
         \"ram:64MiB\"\n"
    );
    Both::configured(text, port)
}

const MUTUAL: &str = "tls-client-ca = \"DIR/ca-cert.pem\"";

impl Both {
    fn secure(&self, export: &str, query: &str) -> String {
        format!("nbds://localhost:{}/{export}?{query}", self.port)
    }
}

#[test]
fn other_peoples_clients_use_certificates() {
    needs!(installed(&[
        "nbdinfo", "nbdcopy", "qemu-img", "qemu-io", "cmp"
    ]));
    let pki = Pki::new();
    for keys in ["", MUTUAL] {
        let both = or_skip!(serving(&pki, keys));
        let url = both.secure("disk", &format!("tls-certificates={}", pki.folder()));
        let listed = run("nbdinfo", &["--list", &url]).expect_success();
        assert!(listed.contains("export=\"disk\""), "{listed}");
        assert_eq!(
            listed.contains("export=\"secret\""),
            keys == MUTUAL,
            "{listed}"
        );
        assert!(
            run("nbdinfo", &[&url])
                .expect_success()
                .contains("protocol: newstyle-fixed with TLS")
        );
        let [before, _] = copied_there_and_back(&both, &url);

        let object = TLS_CREDENTIALS.replace("DIR", &pki.folder());
        let image = format!(
            "driver=nbd,host=localhost,port={},export=disk,tls-creds=tls0",
            both.port
        );
        let qemu = |program: &str, rest: &[&str]| {
            run(
                program,
                &[
                    &rest[..1],
                    &["--object", &object, "--image-opts"],
                    &rest[1..],
                ]
                .concat(),
            )
        };
        let there = format!("driver=raw,file.driver=file,file.filename={before}");
        qemu("qemu-img", &["compare", &there, &image]).expect_success();
        let commands = [
            "write -P 0xa5 0 4M",
            "read -P 0xa5 1000 5000",
            "write -f -P 7 4095 2",
            "read -P 7 4095 2",
        ];
        let commands: Vec<&str> = commands
            .iter()
            .flat_map(|command| ["-c", command])
            .collect();
        let said = run(
            "qemu-io",
            &[
                &["--object", &object, "--image-opts"],
                &commands[..],
                &[&image],
            ]
            .concat(),
        );
        assert!(!said.expect_success().contains("verification failed"));

        let names = if keys == MUTUAL {
            "certificate=\"host1, host1.example\""
        } else {
            "certificate=\"\""
        };
        assert!(both.server.log().contains(names), "{}", both.server.log());
    }
}

/// FORCEDTLS: in clear text, the server reveals nothing and admits no client.
#[test]
fn clear_text_gets_nothing_where_tls_is_required() {
    let pki = Pki::new();
    let both = or_skip!(serving(&pki, ""));
    let mut client = Client::connect(both.port);
    for option in [OPT_LIST, OPT_GO, 8, 11, 4711] {
        assert_eq!(client.option(option, &[]), 0x8000_0005, "TLS_REQD");
    }
    let mut client = Client::connect(both.port);
    client.say(&an_option(1, b"disk"));
    assert!(client.is_closed(), "EXPORT_NAME has no error");
    until("it is logged", || {
        both.server.log().contains("requires TLS")
    });
    let told = linerate(&["info", &both.url("disk")]);
    assert_eq!(told.status.code(), Some(2), "{}", told.said);
    assert!(
        told.said.contains("requires TLS; use nbds://"),
        "{}",
        told.said
    );
}

/// SELECTIVETLS: an export for certain clients does not exist for others, and cannot be opened in clear text.
#[test]
fn an_export_is_for_the_clients_that_are_listed() {
    let pki = Pki::new();
    let both = or_skip!(serving(&pki, &format!("tls = \"allowed\"\n{MUTUAL}")));
    Client::attach(both.port, "disk")
        .read(0, 512)
        .expect("for anybody");
    let mut client = Client::connect(both.port);
    let go = |name| [&string(name)[..], &[0, 0]].concat();
    assert_eq!(
        client.option(OPT_GO, &go("secret")),
        0x8000_0005,
        "TLS_REQD"
    );
    assert_eq!(
        client.option(OPT_GO, &go("nothing")),
        0x8000_0006,
        "UNKNOWN"
    );
    assert_eq!(
        client.option(OPT_GO, &go("")),
        1,
        "the only one for this client"
    );
    let own = format!("tls-certificates={}", pki.folder());
    linerate(&["info", &both.secure("secret", &own)]).expect_success();
    let listed = |query: &str| linerate(&["discover", &both.secure("", query)]).expect_success();
    assert!(
        listed(&own).contains("secret") && listed(&own).contains("disk"),
        "{}",
        listed(&own)
    );
    let listed = linerate(&["discover", &both.url("")]).expect_success();
    assert!(
        listed.contains("disk") && !listed.contains("secret"),
        "{listed}"
    );
    // The client uses a certificate for another name.
    pki.copy("elsewhere-cert.pem", "client-cert.pem");
    pki.copy("elsewhere-key.pem", "client-key.pem");
    let wrong = linerate(&["info", &both.secure("secret", &own)]).expect_failure();
    assert!(
        wrong.contains("wrong purpose") || wrong.contains("rejects our certificate"),
        "{wrong}"
    );
}

#[test]
fn the_check_of_a_certificate_that_failed_is_named() {
    let pki = Pki::new();
    let both = or_skip!(serving(&pki, MUTUAL));
    let fails = |query: &str, here: &str, there: &str| {
        let told = linerate(&["info", &both.secure("disk", query)]).expect_failure();
        assert!(told.contains(here), "{query}: {told}");
        until(there, || both.server.log().contains(there));
    };
    let ca = format!("tls-ca={}", pki.file("ca-cert.pem"));
    let own = |name: &str| {
        let [certificate, key] =
            ["cert", "key"].map(|kind| pki.file(&format!("{name}-{kind}.pem")));
        format!("{ca}&tls-certificate={certificate}&tls-key={key}")
    };
    linerate(&["info", &both.secure("disk", &own("client"))]).expect_success();
    fails(
        &format!("tls-ca={}", pki.file("stranger-cert.pem")),
        "unknown CA",
        "does not trust the CA of our certificate",
    );
    fails(
        &(own("client") + "&tls-hostname=san1.example"),
        "wrong name: the certificate is for",
        "rejects our certificate",
    );
    fails(
        &ca,
        "the server requires a client certificate; add tls-certificate=FILE and tls-key=FILE",
        "no certificate: the peer did not present",
    );
    let wrong_url = linerate(&["info", &both.secure("disk", &ca)]);
    assert_eq!(wrong_url.status.code(), Some(2), "{}", wrong_url.said);
    fails(
        &own("expired"),
        "expired: the peer rejects our certificate",
        "expired: the peer's certificate has expired",
    );
    // libnbd's message differs; Linerate's message is in the log.
    if installed(&["nbdinfo"]) {
        let folder = pki.without_own("ca-cert.pem");
        let query = format!("tls-certificates={}", folder.path().display());
        run("nbdinfo", &[&both.secure("disk", &query)]).expect_failure();
    }
}

/// The commands of docs/tls.md create certificates that our server and the clients accept.
#[test]
fn the_documented_commands_create_certificates() {
    if !installed(&["openssl"]) {
        return;
    }
    let document = include_str!("../../../../../docs/tls.md");
    let commands = document
        .split_once("```sh\n")
        .and_then(|(_, rest)| Some(rest.split_once("```")?.0))
        .expect("a block of commands");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", &commands.replace("san1", "localhost")])
        .current_dir(folder.path());
    run_command(&mut shell).expect_success();
    let pki = Pki(folder);
    let Some(both) = serving(&pki, MUTUAL) else {
        return;
    };
    let place = both.secure("secret", &format!("tls-certificates={}", pki.folder()));
    linerate(&["info", &place]).expect_success();
    if installed(&["nbdinfo"]) {
        run("nbdinfo", &[&place]).expect_success();
    }
}

#[test]
fn a_reload_exchanges_certificates() {
    let pki = Pki::new();
    let mut both = or_skip!(serving(&pki, "tls = \"allowed\""));
    let ca = format!("tls-ca={}", pki.file("ca-cert.pem"));
    let mut before = Client::attach(both.port, "disk");
    linerate(&["info", &both.secure("disk", &ca)]).expect_success();
    pki.copy("elsewhere-cert.pem", "server-cert.pem");
    pki.copy("elsewhere-key.pem", "server-key.pem");
    let said = both.command(&["reload"]).expect_success();
    assert!(said.contains("NBD TLS: tls-certificate"), "{said}");
    let told = linerate(&["info", &both.secure("disk", &ca)]).expect_failure();
    assert!(told.contains("elsewhere.example"), "{told}");
    linerate(&[
        "info",
        &both.secure("disk", &(ca.clone() + "&tls-hostname=elsewhere.example")),
    ])
    .expect_success();
    before.read(0, 512).expect("who was there stays");
    // A mismatched key does not stop the server.
    pki.copy("expired-key.pem", "server-key.pem");
    let said = both.command(&["reload"]).expect_failure();
    assert!(said.contains("not match the certificate"), "{said}");
    before.read(0, 512).expect("who was there stays");
    // An unencrypted client uses an export that will be restricted to others.
    pki.copy("elsewhere-key.pem", "server-key.pem");
    both.text = both.text.replace("\"allowed\"", "\"required\"");
    both.server.reconfigure(&both.text);
    let said = both.command(&["reload"]).expect_failure();
    assert!(said.contains("uses the export disk"), "{said}");
    both.command(&["reload", "--force"]).expect_success();
    assert!(before.is_closed());
}

#[test]
fn files_are_checked_before_anything_is_served() {
    let pki = Pki::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("linerate.toml");
    let check = |keys: &str| {
        let keys = keys.replace("DIR", &pki.folder());
        let text = format!(
            "state = \"{}\"\n[nbd]\nlisten = [\"127.0.0.1:0\"]\n{keys}\n[[nbd.export]]\nvolume = \"disk\"\nclients = [\"host1\"]\n\
             [volume.disk]\nspec = \"ram:1MiB\"\n",
            folder.path().display()
        );
        fs::write(&file, text).expect("written");
        linerate(&["serve", "--check", "--config", &file.display().to_string()])
    };
    let good = format!(
        "tls-certificate = \"DIR/server-cert.pem\"\ntls-key = \"DIR/server-key.pem\"\n{MUTUAL}"
    );
    let said = check(&good).expect_success();
    says(
        &said,
        &["NBD over TLS, required, clients with certificates"],
    );
    for (keys, says) in [
        (String::new(), "set tls-client-ca"),
        (good.replace(MUTUAL, ""), "set tls-client-ca"),
        (good.clone() + "\ntls = \"of\"", "`of`"),
        (
            good.replace("tls-key = \"DIR/server-key.pem\"\n", ""),
            "has no `tls-key`",
        ),
        (
            good.replace("server-key", "client-key"),
            "client-key.pem: the private key does not match the certificate",
        ),
        (
            good.replace("server-cert", "server-key"),
            "server-key.pem: the file has no certificate",
        ),
        (good.replace("server-cert", "nothing"), "cannot read"),
    ] {
        let told = check(&keys).expect_failure();
        assert!(told.contains(says), "{keys}: {told}");
    }
    fs::set_permissions(
        pki.file("server-key.pem"),
        fs::Permissions::from_mode(0o644),
    )
    .expect("changed");
    let told = check(&good).expect_failure();
    says(
        &told,
        &["mode 644 lets other users access it; use `chmod 600"],
    );
}

/// Options sent after STARTTLS and before TLS end the connection, and so does anything that is not TLS.
#[test]
fn nothing_is_taken_from_between_clear_text_and_tls() {
    let pki = Pki::new();
    let both = or_skip!(serving(&pki, ""));
    let go = an_option(OPT_GO, &[&string("disk")[..], &[0, 0]].concat());
    // The options arrive in one segment with STARTTLS.
    let mut client = Client::connect(both.port);
    client.say(&[an_option(OPT_STARTTLS, &[]), go.clone()].concat());
    assert!(client.is_closed());
    until("it is logged", || {
        both.server
            .log()
            .contains("clear text between STARTTLS and TLS")
    });
    // The data arrives after the reply to STARTTLS.
    for said in [
        &go[..],
        &[0; 64],
        &[0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc],
        &[0x17, 3, 3, 0xff, 0xff],
    ] {
        let mut client = Client::connect(both.port);
        assert_eq!(client.option(OPT_STARTTLS, &[]), 1);
        client.say(said);
        client
            .stream
            .shutdown(std::net::Shutdown::Write)
            .expect("a socket");
        assert!(client.is_closed());
    }
    linerate(&[
        "info",
        &both.secure("disk", &format!("tls-ca={}", pki.file("ca-cert.pem"))),
    ])
    .expect_success();
}

/// A TLS handshake has the timeout of a login, whatever its progress. The server serves others in the
/// meantime.
#[test]
fn a_client_that_is_silent_in_its_handshake_is_given_up() {
    let pki = Pki::new();
    let both = or_skip!(serving(&pki, ""));
    let mut open: Vec<Client> = (0..40)
        .map(|index| {
            let mut client = Client::connect(both.port);
            assert_eq!(client.option(OPT_STARTTLS, &[]), 1);
            // Send only a part of a record whose length was announced.
            client.say(&[0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3][..index % 12]);
            client
        })
        .collect();
    let ca = format!("tls-ca={}", pki.file("ca-cert.pem"));
    linerate(&["info", &both.secure("disk", &ca)]).expect_success();
    assert!(open.iter_mut().all(Client::is_closed));
    linerate(&["info", &both.secure("disk", &ca)]).expect_success();
}
