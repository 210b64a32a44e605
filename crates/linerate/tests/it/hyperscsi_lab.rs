//! HyperSCSI over the lab's links, which lose, delay and reorder frames: the real sockets, drivers and
//! programs of both sides.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lab::{Conditions, Direction, Lab, Plan};

use crate::aoe::Running;
use crate::program::{LINERATE, run_command, write_patterned_file};

const DISK_BYTES: usize = 1 << 20;

fn conditions(loss: f64, reorder: f64, jitter_us: u64, seed: u64) -> Conditions {
    Conditions {
        loss,
        reorder,
        jitter: Duration::from_micros(jitter_us),
        seed,
        ..Conditions::default()
    }
}

#[test]
fn a_verified_load_goes_over_links_that_lose_and_reorder() {
    needs!(crate::lab::can_build());
    let lab = Lab::build(&Plan::pair(Conditions::default())).expect("a lab");
    let [client, server] = ["client", "server"].map(|name| lab.host(name).expect("a host"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut child = server
        .start(LINERATE, |command| {
            command.args([
                "--log",
                "error",
                "serve",
                "--listen",
                "hyperscsi://wire",
                "--volume",
                "disk=ram:1MiB",
            ]);
            command.args([
                "--listen",
                "hyperscsi+udp://0.0.0.0:5674",
                "--state",
                &at("state"),
            ]);
            command.stdout(Stdio::piped());
        })
        .expect("the server starts");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    let _server = Running(child);
    assert!(
        said.lines()
            .map_while(Result::ok)
            .any(|line| line == "ready"),
        "it ended before it served"
    );
    let wire = lab.link("wire").expect("a link");
    let (image, copy) = (at("image"), at("copy"));
    for (number, conditions) in [
        conditions(0.01, 0.02, 0, 11),
        conditions(0.2, 0.0, 0, 12),
        conditions(0.05, 0.2, 300, 13),
    ]
    .iter()
    .enumerate()
    {
        wire.set(Direction::Both, conditions).expect("conditions");
        for (way, url) in [
            ("raw", "hyperscsi://wire/disk/0"),
            ("udp", "hyperscsi+udp://10.77.0.2/disk/0"),
        ] {
            let linerate =
                |words: &[&str]| run_command(client.command(LINERATE).args(words)).expect_success();
            let before = wire.counts();
            write_patterned_file(Path::new(&image), DISK_BYTES);
            linerate(&["copy", &image, url, "--yes"]);
            linerate(&["copy", url, &copy, "--yes"]);
            assert!(
                fs::read(&image).expect("there") == fs::read(&copy).expect("there"),
                "{way}, {conditions:?}"
            );
            let lost = wire.counts().lost - before.lost;
            assert!(lost > 0, "{way}, {conditions:?}: the link lost nothing");
            // Overlapping random writes and reads, and their final content.
            let log = at(&format!("{way}{number}"));
            let load = [
                "--read",
                "50",
                "--block",
                "4KiB:60,16KiB:40",
                "--depth",
                "8",
                "--allow-write",
                "--yes",
            ];
            linerate(
                &[
                    &["bench", url, "--seconds", "1", "--verify-log", &log][..],
                    &load,
                ]
                .concat(),
            );
            linerate(&["bench", "verify", &log, url]);
        }
    }
}
