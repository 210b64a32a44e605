//! Tests with a path whose hosts use jumbo frames, and on which a link silently drops them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use lab::{Conditions, Lab, Plan};

use super::{median_us, parsed};
use crate::attach::is_root;
use crate::program::{LINERATE, run_command};

/// A server in a lab, ended when this is dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended already
        let _ = self.0.wait();
    }
}

/// A lab with a wire that carries 1500 bytes, between interfaces configured for 9000; `None` if no lab can be
/// built.
fn jumbo_frames_that_vanish() -> Option<Lab> {
    if !is_root() {
        eprintln!("skipped: only root makes network namespaces");
        return None;
    }
    let mut plan = Plan::pair(Conditions {
        mtu: 1500,
        ..Conditions::default()
    });
    plan.links[0]
        .ends
        .iter_mut()
        .for_each(|end| end.interface_mtu = Some(9000));
    let lab = Lab::build(&plan);
    lab.map_err(|error| eprintln!("skipped: {error}")).ok()
}

#[test]
fn long_packets_that_vanish_are_noticed_and_gone_around() {
    let lab = or_skip!(jumbo_frames_that_vanish());
    let (client, server) = (
        lab.host("client").expect("a host"),
        lab.host("server").expect("a host"),
    );
    let state = tempfile::TempDir::new().expect("a temporary folder");
    let linerate = LINERATE;
    let portal = format!("{}:3260", server.address());
    let mut serve = server.command(linerate);
    serve.args([
        "--log",
        "error",
        "serve",
        "--volume",
        "disk=ram:64MiB",
        "--listen",
        &portal,
        "--state",
    ]);
    serve
        .arg(state.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut serving = Serving(serve.spawn().expect("the linerate binary"));
    let said = BufReader::new(serving.0.stdout.take().expect("a pipe"));
    assert!(
        said.lines()
            .map_while(Result::ok)
            .any(|line| line == "ready"),
        "it serves"
    );

    let mut diagnose = client.command(linerate);
    let url = format!("iscsi://{portal}/iqn.2026-01.io.linerate:disk/0");
    diagnose.args(format!("--log error diagnose {url} --seconds 2 --evidence -").split(' '));
    let found = parsed(run_command(&mut diagnose));
    let lost = &found["long_packets"];
    assert!(
        lost["segment_bytes"].as_u64() > Some(8000),
        "what both ends believe: {lost}"
    );
    assert_eq!(lost["works_bytes"], 1460, "what Ethernet carries: {lost}");
    assert!(
        median_us(&found["ladder"]["cached_reads"][3][1]) > 0.0,
        "262144 bytes arrive"
    );
    assert!(found["paths"][0]["segment_bytes"].as_u64() <= Some(1460));
    assert!(found["loads"][0]["bytes_per_s"][1].as_f64() > Some(0.0));
}
