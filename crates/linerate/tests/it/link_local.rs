//! Tests of a server on a link-local IPv6 address, and hosts on the same link. Skipped without root or `ip`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::program::{LINERATE, installed, run, run_command, says, write_patterned_file};

const LUN: &str = "iqn.2026-01.io.linerate:disk/0";

/// Two network namespaces, each with one end of a link and a link-local address.
struct Link {
    server: String,
    client: String,
}

impl Link {
    fn new() -> Option<Link> {
        if !installed(&["ip"]) {
            return None;
        }
        let name = |end: &str| format!("linerate-{}-link-{end}", std::process::id());
        let link = Link {
            server: name("server"),
            client: name("client"),
        };
        if !run("ip", &["netns", "add", &link.server]).status.success() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        run("ip", &["netns", "add", &link.client]).expect_success();
        let ends = [
            "link",
            "add",
            "veth0",
            "type",
            "veth",
            "peer",
            "name",
            "veth1",
            "netns",
            &link.client,
        ];
        let within =
            |namespace: &str, words: &[&str]| run("ip", &[&["-n", namespace], words].concat());
        within(&link.server, &ends).expect_success();
        for (namespace, interface, address) in [
            (&link.server, "veth0", "fe80::5/64"),
            (&link.client, "veth1", "fe80::6/64"),
        ] {
            if !within(
                namespace,
                &["addr", "add", address, "dev", interface, "nodad"],
            )
            .status
            .success()
            {
                eprintln!("skipped: no IPv6 here");
                return None;
            }
            within(namespace, &["link", "set", "lo", "up"]).expect_success();
            within(namespace, &["link", "set", interface, "up"]).expect_success();
        }
        Some(link)
    }

    fn command(namespace: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, program]);
        command
    }

    /// The output of a program on the client's end.
    fn client(&self, program: &str, arguments: &[&str]) -> crate::program::Ended {
        let mut command = Link::command(&self.client, program);
        run_command(command.args(arguments))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client] {
            let _ = run("ip", &["netns", "delete", namespace]); // a leftover one is harmless
        }
    }
}

/// A server, which is terminated when this is dropped.
struct Serving {
    child: Child,
    state: TempDir,
}

impl Serving {
    fn on(link: &Link, addresses: &[&str]) -> Serving {
        let state = TempDir::new().expect("a temporary folder");
        let mut command = Link::command(&link.server, LINERATE);
        command
            .args(["serve", "--volume", "disk=ram:8MiB", "--state"])
            .arg(state.path());
        command.arg("--control").arg(state.path().join("control"));
        command.args(addresses.iter().flat_map(|address| ["--listen", address]));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a server");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        assert!(
            said.by_ref().any(|line| line == "ready"),
            "a server that is ready"
        );
        std::thread::spawn(move || said.for_each(drop)); // so that it never blocks on a full pipe
        Serving { child, state }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_is_reached_at_a_link_local_address_with_its_interface() {
    let Some(link) = Link::new() else { return };
    let listen = [
        "iscsi://[fe80::5%25veth0]:3260",
        "nbd://[fe80::5%veth0]:10809",
    ];
    let serving = Serving::on(&link, &listen);
    let image = serving.state.path().join("image");
    write_patterned_file(&image, 8 << 20);
    let (image, back) = (
        image.display().to_string(),
        serving.state.path().join("back"),
    );
    let lun = format!("iscsi://[fe80::5%25veth1]/{LUN}");
    link.client(LINERATE, &["copy", "--yes", "--verify", &image, &lun])
        .expect_success();
    let export = "nbd://[fe80::5%veth1]/disk";
    link.client(LINERATE, &["copy", export, &back.display().to_string()])
        .expect_success();
    assert!(std::fs::read(&image).expect("the image") == std::fs::read(&back).expect("the copy"));
    // The name of the server's interface has no meaning on other hosts.
    let found = link
        .client(LINERATE, &["discover", "--luns", "fe80::5%veth1"])
        .expect_success();
    says(&found, &["[fe80::5%veth1]:3260", "8MiB"]);
    if installed(&["iscsi-ls"]) {
        let listed = link.client("iscsi-ls", &["-s", "iscsi://[fe80::5%veth1]:3260/"]);
        says(&listed.said, &["iqn.2026-01.io.linerate:disk"]);
    }
    let without = link
        .client(LINERATE, &["info", &format!("iscsi://[fe80::5]/{LUN}")])
        .expect_failure();
    says(&without, &["add the interface, as in fe80::5%eth0"]);
    let elsewhere = link
        .client(LINERATE, &["info", "nbd://[fe80::5%25nosuch]/disk"])
        .expect_failure();
    says(&elsewhere, &["this machine has no interface `nosuch`"]);
    let mut refused = Link::command(&link.server, LINERATE);
    refused.args("serve --check --volume disk=ram:8MiB --listen [fe80::5]:3260".split(' '));
    let refused = run_command(&mut refused).expect_failure();
    assert!(refused.contains("add the interface"), "{refused}");
}
