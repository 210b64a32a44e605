//! Discovery with the Linux initiator's own tool, even on systems whose kernel has no iSCSI module.
//!
//! `iscsiadm -m discovery -t sendtargets` implements iSCSI itself, but first requests the initiator's name
//! from a daemon and looks in /sys for a transport, which only the kernel module provides. Both can be
//! replaced: the daemon by a thread that answers its three requests, and /sys/class and /etc/iscsi by
//! directories mounted over them in a mount namespace that ends with the command.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Command;

use crate::capture::watched;
use crate::program::{installed, run_command, says};
use crate::server::Server;

#[test]
fn iscsiadm_finds_the_target() {
    if !installed(&["iscsiadm", "unshare"]) || !may_mount() {
        return;
    }
    let server = Server::serving(&["disk=ram:64MiB"]);
    stand_in_for_iscsid();
    let said = watched(&server, || {
        let mut command = Command::new("unshare");
        run_command(command.args(["--mount", "sh", "-c", SCRIPT, "sh", &server.portal()]))
            .expect_success()
    });
    says(
        &said,
        &[&format!(
            "{},1 {}",
            server.portal(),
            server.target_name("disk")
        )],
    );
}

/// Whether this process may mount, which requires root.
fn may_mount() -> bool {
    let may = run_command(Command::new("unshare").args(["--mount", "true"]))
        .status
        .success();
    if !may {
        eprintln!("skipped: mount namespaces need root");
    }
    may
}

/// Sets up the transport `tcp` as the kernel module would show it, and a private database of nodes.
const SCRIPT: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir -p /mnt/class/iscsi_transport/tcp /mnt/class/iscsi_session /mnt/class/iscsi_host /mnt/etc
echo 1 > /mnt/class/iscsi_transport/tcp/handle
echo 0x39 > /mnt/class/iscsi_transport/tcp/caps
echo InitiatorName=iqn.2026-01.io.linerate:interop > /mnt/etc/initiatorname.iscsi
: > /mnt/etc/iscsid.conf
mount --bind /mnt/etc /etc/iscsi
test -d /sys/class/iscsi_transport || mount --bind /mnt/class /sys/class
exec iscsiadm -m discovery -t sendtargets -p "$1"
"#;

/// The address of iscsiadm's daemon: an abstract socket.
const ISCSID: &str = "ISCSIADM_ABSTRACT_NAMESPACE";

/// The sizes of open-iscsi 2.1's request and response.
const REQUEST_BYTES: usize = 16104;
const RESPONSE_BYTES: usize = 2464;

/// Answers iscsiadm in place of iscsid, as long as this process lives. If the name is in use, a real daemon
/// is running.
fn stand_in_for_iscsid() {
    let name = SocketAddr::from_abstract_name(ISCSID).expect("a valid name");
    let Ok(listener) = UnixListener::bind_addr(&name) else {
        return;
    };
    std::thread::spawn(move || listener.incoming().filter_map(Result::ok).for_each(answer));
}

/// Answers a request, which starts with the number of the requested value. The response starts with the same
/// number, followed by 0 for success, and the value.
fn answer(mut stream: UnixStream) {
    let mut request = vec![0; REQUEST_BYTES];
    if stream.read_exact(&mut request).is_err() {
        return; // iscsiadm first checks that there is a daemon
    }
    let value: &[u8] = match request[0] {
        8 => b"iqn.2026-01.io.linerate:interop", // the initiator's name
        10 => b"/etc/iscsi/iscsid.conf",         // the configuration file
        _ => b"",                                // the initiator's alias
    };
    let mut response = vec![0; RESPONSE_BYTES];
    response[..4].copy_from_slice(&request[..4]);
    response[8..8 + value.len()].copy_from_slice(value);
    let _ = stream.write_all(&response); // iscsiadm reports a missing response
}
