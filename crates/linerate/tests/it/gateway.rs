//! A server whose volume is a LUN of another server.

use std::process::Command;

use block::{BlockDevice, Buffer, Durability, Extent};
use iscsi_client::RemoteLun;

use crate::program::{LINERATE, installed, linerate, run, run_command, says, write_patterned_file};
use crate::remote::{attached, in_a_world};
use crate::server::{Server, free_port, serve};

/// A server of a file in its state directory, and a gateway to that server, with this layer over the LUN
/// (`{}` is the LUN).
fn behind(layer: &str) -> Option<(Server, Server)> {
    let back = Server::serving(&["disk=file:{state}/disk?size=8MiB"]);
    let front = Server::serving(&[&format!("disk={}", layer.replace("{}", &back.url("disk")))]);
    back.is_ours().then_some((back, front))
}

async fn write(lun: &RemoteLun, lba: u64, byte: u8) {
    let data = Buffer::from(&[byte; 4096][..]).share();
    lun.write(Extent::new(lba, 8), data, Durability::Cached)
        .await
        .expect("room");
}

async fn shows(lun: &RemoteLun, lba: u64, byte: u8) {
    let buffer = Buffer::zeroed(4096);
    let read = lun
        .read(Extent::new(lba, 8), buffer)
        .await
        .expect("it is there");
    assert!(
        read.iter().all(|found| *found == byte),
        "block {lba} begins with {:#x}",
        read[0]
    );
}

#[test]
fn what_is_written_through_a_gateway_is_on_the_other_server() {
    let (mut back, mut front) = or_skip!(behind("{}"));
    in_a_world(async {
        let [one, other] = [
            attached(&front.url("disk")).await,
            attached(&front.url("disk")).await,
        ];
        write(&one, 0, 0x11).await;
        one.flush().await.expect("it lasts");
        shows(&other, 0, 0x11).await;
        let beside = attached(&back.url("disk")).await;
        shows(&beside, 0, 0x11).await;
        write(&beside, 8, 0x22).await;
        shows(&one, 8, 0x22).await;
        for lun in [one, other, beside] {
            lun.close().await;
        }
    });
    front.stop();
    back.stop();
}

/// Both initiators of the gateway wait for the other server, and continue; flushed data is intact.
#[test]
fn a_gateway_outlives_a_restart_of_the_other_server() {
    let (mut back, mut front) = or_skip!(behind("{}"));
    in_a_world(async {
        let [one, other] = [
            attached(&front.url("disk")).await,
            attached(&front.url("disk")).await,
        ];
        write(&one, 16, 0x33).await;
        one.flush().await.expect("it lasts");
        back.kill();
        let waiting = reactor::spawn(async move {
            write(&one, 24, 0x44).await;
            one
        });
        back.restart();
        let one = waiting.await;
        shows(&other, 16, 0x33).await;
        shows(&other, 24, 0x44).await;
        for lun in [one, other] {
            lun.close().await;
        }
    });
    front.stop();
    back.stop();
}

#[test]
fn layers_lie_over_a_remote_lun_as_over_any_volume() {
    let (mut back, mut front) = or_skip!(behind("buffered:1MiB:[limit:100000iops:[{}]]"));
    needs!(installed(&["qemu-img"]));
    let image = front.state().join("image");
    write_patterned_file(&image, 8 << 20);
    let image = image.display().to_string();
    let (through, behind) = (front.url("disk"), back.url("disk"));
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", &image, &through],
    )
    .expect_success();
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &image, &through],
    )
    .expect_success();
    front.stop(); // it flushes its data
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &image, &behind],
    )
    .expect_success();
    back.stop();
}

/// Storage has one syntax: what can be served can also be copied and measured.
#[test]
fn a_command_takes_layers_over_a_remote_lun() {
    let back = Server::serving(&["disk=ram:1MiB"]);
    needs!(back.is_ours());
    let (from, to) = (back.state().join("from"), back.state().join("to"));
    write_patterned_file(&from, 1 << 20);
    let place = format!("delay:1us:[{}]", back.url("disk"));
    let (from, to) = (from.display().to_string(), to.display().to_string());
    linerate(&["copy", "--yes", &from, &place]).expect_success();
    linerate(&["copy", "--yes", &place, &to]).expect_success();
    assert!(std::fs::read(&from).expect("a file") == std::fs::read(&to).expect("a copy"));
}

#[test]
fn a_gateway_to_nobody_does_not_start_and_names_the_volume() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let volume = format!(
        "away=iscsi://127.0.0.1:{}/iqn.2026-01.com.example:disk/0?login-time=1",
        free_port()
    );
    let ended = run_command(&mut serve(free_port(), &[volume], folder.path()));
    assert_eq!(ended.status.code(), Some(3), "{}", ended.said);
    says(&ended.said, &["linerate: volume away: "]);
}

#[test]
fn a_secret_in_a_specification_is_refused_and_not_repeated() {
    let mut command = Command::new(LINERATE);
    command.args("serve --check --volume a=iscsi://user%hunter2@san1/iqn.x:y/0".split(' '));
    let said = run_command(&mut command).expect_failure();
    assert!(
        said.contains("put it into a file") && !said.contains("hunter2"),
        "{said}"
    );
}
