//! Shutdowns and restarts: flushed data is kept, and shutdowns complete in time.

use crate::program::installed;
use crate::qemu::qemu_io;
use crate::server::Server;

const FILE: &[&str] = &["disk=file:{state}/disk.img?size=64MiB"];

#[test]
fn a_server_asked_to_end_does_so_in_time() {
    let mut server = Server::serving(FILE);
    if server.is_ours() {
        server.stop();
    }
}

#[test]
fn what_was_flushed_is_there_after_a_kill() {
    needs!(installed(&["qemu-io"]));
    let mut server = Server::serving(FILE);
    qemu_io(&server.url("disk"), &["write -P 0x77 1M 1M", "flush"]);
    server.kill();
    server.restart();
    qemu_io(&server.url("disk"), &["read -P 0x77 1M 1M"]);
}

#[test]
fn what_was_written_is_there_after_an_orderly_end() {
    needs!(installed(&["qemu-io"]));
    let mut server = Server::serving(FILE);
    if server.is_ours() {
        qemu_io(&server.url("disk"), &["write -P 0x33 0 4M"]);
        server.stop();
        server.restart();
        qemu_io(&server.url("disk"), &["read -P 0x33 0 4M"]);
    }
}

#[test]
fn identifiers_survive_a_restart() {
    needs!(installed(&["iscsi-inq"]));
    let mut server = Server::serving(FILE);
    if server.is_ours() {
        let url = server.url("disk");
        let identification = || crate::server::ask("iscsi-inq", &["-e", "1", "-c", "131"], &url);
        let before = identification();
        server.kill();
        server.restart();
        assert_eq!(identification(), before);
    }
}
