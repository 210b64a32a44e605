//! Tests of SCSI and NBD on one volume, and of the effects of administration on both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iscsi::pdu::{TaskManagementFunction, TaskManagementResult};

use super::client::{Client, EIO, EPERM, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES};
use super::{Both, export_of};
use crate::peer::{Moves, Peer};
use crate::program::{LINERATE, run, says, until};
use crate::server::free_port;
use crate::sessions::sessions;

pub(super) const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;

/// PERSISTENT RESERVE OUT with this service action.
pub(super) fn persistent_reserve(peer: &mut Peer, action: u8, kind: u8, key: u64, new_key: u64) {
    let parameters = [key.to_be_bytes(), new_key.to_be_bytes(), [0; 8]].concat();
    peer.run(
        &[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0],
        Moves::Out(parameters),
    )
    .expect_good();
}

#[test]
fn a_reservation_keeps_nbd_clients_out() {
    let both = or_skip!(Both::serving(&["disk=ram:64MiB"], ""));
    let mut client = Client::attach(both.port, "disk");
    client.write(512, &[7; 1024]).expect("written");
    let mut peer = Peer::attach(&both.server, "disk", 1);
    persistent_reserve(&mut peer, 0, 0, 0, 7);
    client
        .write(512, &[8; 1024])
        .expect("a registration reserves nothing");
    for (kind, reads) in [(WRITE_EXCLUSIVE, true), (EXCLUSIVE_ACCESS, false)] {
        persistent_reserve(&mut peer, 1, kind, 7, 0);
        let mut later = Client::attach(both.port, "disk");
        for client in [&mut client, &mut later] {
            for offset in [0, 100] {
                assert_eq!(client.write(offset, &[9; 1024]), Err(EPERM));
                assert_eq!(client.ask(WRITE_ZEROES, offset, 8192, &[]), Err(EPERM));
            }
            assert_eq!(client.ask(TRIM, 0, 8192, &[]), Err(EPERM));
            assert_eq!(
                client.read(512, 1024),
                if reads { Ok(vec![8; 1024]) } else { Err(EPERM) }
            );
            assert_eq!(
                client.read(700, 100),
                if reads { Ok(vec![8; 100]) } else { Err(EPERM) }
            );
        }
        persistent_reserve(&mut peer, 2, kind, 7, 0);
        client
            .write(512, &[8; 1024])
            .expect("it is no longer reserved");
    }
    assert_eq!(peer.read(1, 2), [8; 1024]);
}

#[test]
fn an_iscsi_url_at_an_nbd_port_is_told_what_it_speaks() {
    let both = or_skip!(Both::serving(&["disk=ram:1MiB"], ""));
    let portal = format!("127.0.0.1:{}", both.port);
    let url = format!("iscsi://{portal}/iqn.2026-01.io.linerate:disk/0");
    for asked in [["info", &url], ["discover", &portal]] {
        let said = run(LINERATE, &asked).expect_failure();
        says(
            &said,
            &["this port speaks NBD: use a URL that begins with nbd://"],
        );
    }
}

/// A volume that can be made to hang.
fn sick(deadline: &str) -> Option<Both> {
    sick_as("fault:[ram:16MiB]", deadline)
}

fn sick_as(spec: &str, deadline: &str) -> Option<Both> {
    let text = format!("[volume.sick]\nspec = \"{spec}\"\ndeadline = \"{deadline}\"\n");
    let port = free_port();
    let text = format!(
        "[nbd]\nlisten = [\"127.0.0.1:{port}\"]\n{}{text}[[target]]\nname = \"iqn.2026-01.io.linerate:sick\"\n\
         lun = [{{ lun = 0, volume = \"sick\" }}]\n",
        export_of("sick")
    );
    Both::configured(text, port)
}

/// Waits until the server has an outstanding request.
fn until_outstanding(both: &Both) {
    until("an outstanding request of an NBD client", || {
        sessions(&both.server)
            .iter()
            .any(|session| session["front_end"] == "nbd" && session["in_flight"] != 0)
    });
}

/// Regression, found by `cargo measure soak`: a client relates the error of a write with FUA only to that
/// write. If the error reported a loss, the client did not notice the loss, because the next flush succeeded.
#[test]
fn changes_with_fua_leave_lost_writes_to_the_next_flush() {
    const CHUNK: usize = 128 << 10;
    let both = or_skip!(sick_as("buffered:1MiB:[fault:[ram:16MiB]]", "1h"));
    let mut client = Client::attach(both.port, "sick");
    both.command(&["fault", "sick", "fail"]).expect_success();
    client
        .write(0, &[1; CHUNK])
        .expect("kept in memory, and written back immediately: it ends a chunk");
    until("a loss", || client.read(0, 512) == Err(EIO));
    both.command(&["fault", "sick", "pass"]).expect_success();
    let changes = [
        (WRITE, 1 << 20, 4096_u64),
        (WRITE, (1 << 20) + 100, 5),
        (WRITE_ZEROES, 2 << 20, 4096),
        (TRIM, 3 << 20, 4096),
    ];
    for (kind, offset, length) in changes {
        let mut header = client.header(kind, offset, length);
        header[5] |= 1;
        client.say(&header);
        client.say(&vec![2; if kind == WRITE { length as usize } else { 0 }]);
        assert_eq!(
            client.answer(0).expect("an answer").error,
            0,
            "{kind} at {offset}: its data is durable"
        );
    }
    assert_eq!(client.ask(FLUSH, 0, 0, &[]), Err(EIO), "the chunk is lost");
    assert_eq!(
        client.ask(FLUSH, 0, 0, &[]),
        Ok(vec![]),
        "which was reported"
    );
}

/// Concurrent flushes may be for different writes.
#[test]
fn each_of_two_concurrent_flushes_reports_a_loss() {
    const CHUNK: usize = 128 << 10;
    let both = or_skip!(sick_as("buffered:1MiB:[fault:[ram:16MiB]]", "1h"));
    let mut client = Client::attach(both.port, "sick");
    both.command(&["fault", "sick", "fail"]).expect_success();
    client
        .write(0, &[1; CHUNK])
        .expect("kept in memory, and written back immediately: it ends a chunk");
    until("a loss", || client.read(0, 512) == Err(EIO));
    both.command(&["fault", "sick", "hang"]).expect_success();
    for _ in 0..2 {
        let header = client.header(FLUSH, 0, 0);
        client.say(&header);
    }
    until("two flushes", || {
        sessions(&both.server)
            .iter()
            .any(|session| session["in_flight"] == 2)
    });
    both.command(&["fault", "sick", "pass"]).expect_success();
    for flush in ["the first", "the second"] {
        assert_ne!(client.answer(0).expect("an answer").error, 0, "{flush}");
    }
    assert_eq!(client.ask(FLUSH, 0, 0, &[]), Ok(vec![]), "it was reported");
}

#[test]
fn a_reset_ends_what_an_nbd_client_waits_for() {
    let Some(both) = sick("1h") else { return };
    let mut client = Client::attach(both.port, "sick");
    client.write(0, &[1; 4096]).expect("written");
    let mut peer = Peer::attach(&both.server, "sick", 1);
    both.command(&["fault", "sick", "hang"]).expect_success();
    client.begin(WRITE, 0, 4096, &[2; 4096]);
    client.begin(WRITE, 100, 5, &[2; 5]);
    until_outstanding(&both);
    assert_eq!(
        peer.manage(TaskManagementFunction::LogicalUnitReset),
        TaskManagementResult::FunctionComplete
    );
    for _ in 0..2 {
        assert_eq!(client.answer(0).expect("an answer").error, EIO);
    }
    both.command(&["fault", "sick", "pass"]).expect_success();
    until("a volume that answers", || client.read(0, 4096).is_ok());
    assert_eq!(
        client.read(0, 4096),
        Ok(vec![1; 4096]),
        "what was aborted has had no effect"
    );
    client.write(0, &[3; 4096]).expect("and it works again");
    assert_eq!(client.read(0, 4096), Ok(vec![3; 4096]));
}

#[test]
fn a_preemption_ends_what_it_shuts_an_nbd_client_out_of() {
    let Some(both) = sick("1h") else { return };
    let mut client = Client::attach(both.port, "sick");
    client.write(0, &[1; 4096]).expect("written");
    let [mut victim, mut host] = [1, 2].map(|number| Peer::attach(&both.server, "sick", number));
    persistent_reserve(&mut victim, 0, 0, 0, 7);
    persistent_reserve(&mut host, 0, 0, 0, 8);
    both.command(&["fault", "sick", "hang"]).expect_success();
    client.begin(WRITE, 0, 4096, &[2; 4096]);
    until_outstanding(&both);
    persistent_reserve(&mut host, 1, WRITE_EXCLUSIVE, 8, 0);
    // PREEMPT AND ABORT: the volume does not quiesce, and is fenced.
    persistent_reserve(&mut host, 5, WRITE_EXCLUSIVE, 8, 7);
    assert_eq!(client.answer(0).expect("an answer").error, EPERM);
    both.command(&["fault", "sick", "pass"]).expect_success();
    until("a volume that answers", || client.read(0, 4096).is_ok());
    assert_eq!(
        client.read(0, 4096),
        Ok(vec![1; 4096]),
        "what was shut out has had no effect"
    );
    persistent_reserve(&mut host, 2, WRITE_EXCLUSIVE, 8, 0);
    client
        .write(0, &[3; 4096])
        .expect("and the release lets it in again");
}

/// Blocks of an orphaned change are not locked forever.
#[test]
fn a_client_that_goes_while_the_device_has_its_write_leaves_nothing_locked() {
    let Some(both) = sick("1h") else { return };
    let mut client = Client::attach(both.port, "sick");
    client.write(0, &[1; 4096]).expect("written");
    both.command(&["fault", "sick", "hang"]).expect_success();
    client.begin(WRITE, 0, 4096, &[2; 4096]);
    client.begin(WRITE, 5000, 5, &[2; 5]);
    until_outstanding(&both);
    drop(client);
    until("the client is gone", || sessions(&both.server).is_empty());
    both.command(&["fault", "sick", "pass"]).expect_success();
    let mut other = Client::attach(both.port, "sick");
    until("a volume that answers", || {
        other.write(0, &[3; 8192]).is_ok()
    });
    assert_eq!(other.read(0, 8192), Ok(vec![3; 8192]));
}

#[test]
fn a_request_past_its_deadline_fails_and_fences_the_volume_until_it_answers() {
    let Some(both) = sick("1s") else { return };
    let mut client = Client::attach(both.port, "sick");
    client.write(0, &[1; 4096]).expect("written");
    both.command(&["fault", "sick", "hang"]).expect_success();
    client.begin(WRITE, 0, 4096, &[2; 4096]);
    client.begin(WRITE, 100, 5, &[2; 5]); // this write waits for the blocks of the first one
    for _ in 0..2 {
        assert_eq!(client.answer(0).expect("an answer").error, EIO);
    }
    // Regression: these requests waited for their blocks until the device responded.
    assert_eq!(client.read(8192, 512), Err(EIO), "fenced");
    assert_eq!(client.write(0, &[2; 4096]), Err(EIO), "fenced");
    assert_eq!(client.write(100, &[2; 5]), Err(EIO), "fenced");
    both.command(&["fault", "sick", "pass"]).expect_success();
    until("a volume that answers", || client.read(0, 4096).is_ok());
    assert_eq!(
        client.read(0, 4096),
        Ok(vec![1; 4096]),
        "what was given up has had no effect"
    );
    client.write(0, &[3; 4096]).expect("and it works again");
    client.ask(FLUSH, 0, 0, &[]).expect("flushed");
}

#[test]
fn a_client_is_listed_and_dropped() {
    let both = or_skip!(Both::serving(&["disk=ram:64MiB"], ""));
    let (mut one, mut two) = (
        Client::attach(both.port, "disk"),
        Client::attach(both.port, "protected"),
    );
    one.write(0, &[1; 4096]).expect("written");
    two.read(0, 512).expect("read");
    let told = sessions(&both.server);
    let of = |export: &str| {
        told.iter()
            .find(|session| session["target"] == export)
            .expect("a session")
            .clone()
    };
    assert_eq!(
        (&of("disk")["front_end"], &of("disk")["written_bytes"]),
        (&"nbd".into(), &4096.into())
    );
    assert_eq!(
        (&of("protected")["commands"], &of("protected")["read_bytes"]),
        (&1.into(), &512.into())
    );
    both.command(&["drop", &format!("nbd:{}", of("disk")["tsih"])])
        .expect_success();
    assert!(one.is_closed());
    two.read(0, 512).expect("another goes on");
    both.command(&["drop", "127.0.0.1"]).expect_success();
    assert!(two.is_closed());
    until("no session", || sessions(&both.server).is_empty());
}

#[test]
fn exports_come_and_go_beside_others() {
    let mut both = or_skip!(Both::serving(&["disk=ram:16MiB", "other=ram:16MiB"], ""));
    let (over, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let load = {
        let (mut client, over, done) = (
            Client::attach(both.port, "disk"),
            Arc::clone(&over),
            Arc::clone(&done),
        );
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let count = done.fetch_add(1, Ordering::Relaxed);
                client.write(4096, &count.to_be_bytes()).expect("written");
                assert_eq!(client.read(4096, 8), Ok(count.to_be_bytes().to_vec()));
            }
        })
    };
    let goes_on = || {
        let before = done.load(Ordering::Relaxed);
        until("a hundred requests more", || {
            done.load(Ordering::Relaxed) > before + 100
        });
    };
    let text = both.text.clone();
    let more = export_of("other").replace("volume", "name = \"more\"\nvolume");
    let with = text.replacen("[[nbd.export]]", &format!("{more}[[nbd.export]]"), 1);
    let without = text.replace(&export_of("other"), "");
    for _ in 0..3 {
        let mut client = Client::attach(both.port, "other");
        let mut refused = Client::connect(both.port);
        assert_eq!(
            refused.option(super::client::OPT_GO, b"\0\0\0\x04more\0\0"),
            0x8000_0006
        );
        both.server.reconfigure(&with);
        both.command(&["reload"]).expect_success();
        goes_on();
        let mut more = Client::attach(both.port, "more");
        more.write(0, &[5; 512]).expect("written");
        assert_eq!(
            client.read(0, 512),
            Ok(vec![5; 512]),
            "it is the same volume, and undisturbed"
        );
        both.server.reconfigure(&without);
        // The reload would disturb clients, so it fails and reports this.
        both.command(&["reload"]).expect_failure();
        assert!(client.ask(READ, 0, 512, &[]).is_ok(), "nothing has changed");
        both.command(&["reload", "--force"]).expect_success();
        assert!(client.is_closed() && more.is_closed());
        goes_on();
        both.server.reconfigure(&text);
        both.command(&["reload"]).expect_success();
    }
    over.store(true, Ordering::Relaxed);
    load.join().expect("a load without a failure");
}
