//! Tests of a second front end, next to iSCSI, in the table of a configured server. It is added and removed
//! with its section of the file.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use block::{BlockDevice, Buffer, Durability, Extent};
use daemon::control::{Change, ControlReply, ControlRequest, Event, subscribe};
use daemon::front_ends::{FrontEnds, iscsi};
use daemon::{StartOptions, Started};

use crate::front_end::ECHO;
use crate::section::KIND;
use crate::{BLOCK, Echo, by_iscsi};

const NAME: &str = "iqn.2026-01.io.linerate:disk";

/// The table of front ends. A row is all that is needed to add another front end.
const TABLE: FrontEnds = FrontEnds(&[iscsi::KIND, KIND]);

struct Configured {
    folder: tempfile::TempDir,
    file: PathBuf,
    server: Started,
}

impl Configured {
    fn start(text: &str) -> Configured {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("linerate.toml");
        std::fs::write(&file, text).expect("written");
        let start_options = StartOptions {
            path: Some(file.clone()),
            state: Some(folder.path().to_owned()),
            reactors: Some(2),
            front_ends: TABLE,
            ..StartOptions::default()
        };
        let config = start_options
            .safe_config()
            .unwrap_or_else(|error| panic!("{error}"));
        let mut server =
            daemon::start(start_options, config).unwrap_or_else(|error| panic!("{error}"));
        server.open().expect("a control socket");
        Configured {
            folder,
            file,
            server,
        }
    }

    /// Applies another configuration. Returns the list of changes, or the reason for a failure.
    fn reload(&self, text: &str, force: bool) -> Result<Vec<String>, String> {
        std::fs::write(&self.file, text).expect("written");
        lines(self.server.live().answer(
            &ControlRequest::Reload {
                dry_run: false,
                force,
            },
            "test",
        ))
    }

    fn change(&self, change: Change) -> Result<Vec<String>, String> {
        lines(self.server.live().answer(
            &ControlRequest::Change {
                change,
                dry_run: false,
                force: false,
            },
            "test",
        ))
    }
}

fn lines(reply: ControlReply) -> Result<Vec<String>, String> {
    match reply {
        ControlReply::Reloaded {
            changes, failed, ..
        } if failed.is_empty() => Ok(changes),
        ControlReply::Refused { reason } => Err(reason),
        other => panic!("{other:?}"),
    }
}

/// An address of this machine on which only this process listens: 127.0.0.0/8 has one for each process.
fn own_address() -> SocketAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 90, high, low], 7007))
}

#[test]
fn a_front_end_comes_and_goes_with_its_section() {
    let echo_at = own_address();
    let iscsi_only = format!(
        "[volume.disk]\nspec = \"ram:1MiB\"\n[[portal]]\nlisten = \"127.0.0.1:0\"\n[[target]]\nname = \"{NAME}\"\n\
         lun = [{{ lun = 0, volume = \"disk\" }}]\n"
    );
    let both = format!(
        "{iscsi_only}[volume.more]\nspec = \"ram:2MiB\"\n[echo]\nlisten = \"{echo_at}\"\n\
         [[echo.export]]\nvolume = \"disk\"\n[[echo.export]]\nvolume = \"more\"\n"
    );
    let configured = Configured::start(&iscsi_only);
    let url = format!("iscsi://{}/{NAME}/0", configured.server.addresses()[0]);
    by_iscsi(&url, async |lun| {
        let mut data = Buffer::zeroed(BLOCK);
        data.fill(0x5a);
        lun.write(Extent::new(4, 1), data.share(), Durability::Stable)
            .await
            .expect("a block");
        lun.close().await;
    });
    let refused = configured
        .reload(&both.replace("\"more\"\n", "\"mroe\"\n"), false)
        .expect_err("no such volume");
    assert!(
        refused.contains("unknown volume `mroe`; did you mean `more`?"),
        "{refused}"
    );
    assert!(TcpStream::connect(echo_at).is_err(), "nothing was changed");

    let changes = configured.reload(&both, false).expect("good");
    let expected = [
        "+ volume more = ram:2MiB".to_owned(),
        "+ echo of disk".to_owned(),
        "+ echo of more".to_owned(),
        format!("+ portal echo://{echo_at}"),
    ];
    assert_eq!(changes, expected);
    let mut echo = Echo::connect(echo_at);
    assert_eq!(echo.ask("use disk"), "ok 2048");
    assert_eq!(echo.ask("read 4"), "ok 5a", "what an initiator wrote");
    assert_eq!(echo.ask("use more"), "ok 4096");

    let ControlReply::Sessions { sessions } = configured
        .server
        .live()
        .answer(&ControlRequest::Sessions, "test")
    else {
        panic!()
    };
    let told: Vec<_> = sessions
        .iter()
        .map(|session| (&*session.front_end, session.target.as_deref()))
        .collect();
    assert_eq!(told, [("echo", Some("more"))]);

    let added = Change::Add {
        volume: "third".parse().expect("a name"),
        spec: "ram:4MiB".to_owned(),
        front_end: Some("echo".to_owned()),
        target: None,
        lun: None,
        initiators: Vec::new(),
        keys: Vec::new(),
    };
    let changes = configured.change(added).expect("room for it");
    assert_eq!(changes, ["+ volume third = ram:4MiB", "+ echo of third"]);
    let mut another = Echo::connect(echo_at);
    assert_eq!(another.ask("use third"), "ok 8192");
    let volumes = configured.server.live().volumes();
    let third = volumes
        .iter()
        .find(|volume| volume.name == "third")
        .expect("it is served");
    assert_eq!(
        (&*third.luns[0].front_end, third.luns[0].lun, third.in_file),
        ("echo", None, true)
    );
    let unknown = Change::Add {
        volume: "fourth".parse().expect("a name"),
        spec: "ram:4MiB".to_owned(),
        front_end: Some("ehco".to_owned()),
        target: None,
        lun: None,
        initiators: Vec::new(),
        keys: Vec::new(),
    };
    let refused = configured.change(unknown).expect_err("no such front end");
    assert!(refused.contains("did you mean `echo`?"), "{refused}");
    let in_use = configured.change(Change::Remove {
        volume: "third".parse().expect("a name"),
    });
    assert!(
        in_use
            .expect_err("in use")
            .contains("127.0.0.1 uses the echo of third")
    );
    drop(another);

    let in_use = configured.reload(&iscsi_only, false).expect_err("in use");
    assert!(in_use.contains("uses the echo of more"), "{in_use}");
    let changes = configured.reload(&iscsi_only, true).expect("by force");
    assert!(
        changes.contains(&format!("- portal echo://{echo_at}")),
        "{changes:?}"
    );
    assert_eq!(echo.hear(), "", "its volume is not served any more");
    assert!(
        TcpStream::connect(echo_at).is_err(),
        "nothing listens there any more"
    );
    by_iscsi(&url, async |lun| {
        let read = lun
            .read(Extent::new(4, 1), Buffer::zeroed(BLOCK))
            .await
            .expect("a block");
        assert!(read.iter().all(|byte| *byte == 0x5a));
        lun.close().await;
    });
    configured
        .server
        .live()
        .shutdown(std::time::Duration::from_secs(10));
    configured.server.join().expect("flushed");
}

/// Monitoring does not depend on the front end, and reports the counters of each: sessions, logins, requests,
/// bytes, durations.
#[test]
fn a_front_end_is_monitored_like_any_other() {
    let echo_at = SocketAddr::from(([127, 0, 0, 1], 0));
    let configured = Configured::start(&format!(
        "[volume.disk]\nspec = \"ram:1MiB\"\n[[portal]]\nlisten = \"127.0.0.1:0\"\n[[target]]\nname = \"{NAME}\"\n\
         lun = [{{ lun = 0, volume = \"disk\" }}]\n[echo]\nlisten = \"{echo_at}\"\n[[echo.export]]\nvolume = \"disk\"\n"
    ));
    let live = configured.server.live();
    let [iscsi_at, echo_at] = configured.server.addresses() else {
        panic!("two portals")
    };
    let socket = configured.folder.path().join("control.sock");
    let mut events = subscribe(&socket).expect("a control socket");
    let mut echo = Echo::connect(echo_at);
    assert_eq!(echo.ask("use nothing"), "error there is no such volume");
    assert_eq!(echo.ask("use disk"), "ok 2048");
    let began = events
        .next_event()
        .expect("a line")
        .expect("an event")
        .event;
    let Event::SessionBegan {
        front_end,
        target,
        tsih,
        ..
    } = &began
    else {
        panic!("{began:?}")
    };
    assert_eq!(
        (front_end.as_str(), target.as_deref(), tsih),
        (ECHO, Some("disk"), &None)
    );
    for _ in 0..3 {
        assert_eq!(echo.ask("write 3 a5"), "ok");
    }
    assert_eq!(echo.ask("read 3"), "ok a5");
    assert_eq!(echo.ask("read 2048"), "error beyond the end of the device");
    by_iscsi(&format!("iscsi://{iscsi_at}/{NAME}/0"), async |lun| {
        lun.read(Extent::new(3, 2), Buffer::zeroed(2 * BLOCK))
            .await
            .expect("blocks");
        let text = live.metrics();
        let value = |series: &str| {
            let of_it = |line: &str| {
                line.strip_prefix(series)?
                    .strip_prefix(' ')?
                    .parse::<f64>()
                    .ok()
            };
            text.lines()
                .find_map(of_it)
                .unwrap_or_else(|| panic!("no {series}\n{text}"))
        };
        let volume = "volume=\"disk\",protocol=\"echo\"";
        let host = "protocol=\"echo\",target=\"disk\",initiator=\"127.0.0.1\"";
        for (series, expected) in [
            (format!("linerate_sessions{{{host}}}"), 1.0),
            (format!("linerate_session_connections{{{host}}}"), 1.0),
            (format!("linerate_session_commands_total{{{host}}}"), 5.0),
            (
                format!("linerate_session_bytes_total{{{host},direction=\"read\"}}"),
                512.0,
            ),
            (
                format!("linerate_session_bytes_total{{{host},direction=\"write\"}}"),
                1536.0,
            ),
            (
                "linerate_logins_total{protocol=\"echo\",target=\"\",result=\"no_such_volume\"}"
                    .to_owned(),
                1.0,
            ),
            (
                "linerate_logins_total{protocol=\"echo\",target=\"disk\",result=\"accepted\"}"
                    .to_owned(),
                1.0,
            ),
            (
                "linerate_target_open_to_any{protocol=\"echo\",target=\"disk\"}".to_owned(),
                1.0,
            ),
            (
                format!("linerate_volume_commands_total{{{volume},op=\"write\"}}"),
                3.0,
            ),
            (
                format!("linerate_volume_commands_total{{{volume},op=\"read\"}}"),
                2.0,
            ),
            (
                format!("linerate_volume_bytes_total{{{volume},op=\"read\"}}"),
                512.0,
            ),
            (
                format!("linerate_volume_bytes_total{{{volume},op=\"write\"}}"),
                1536.0,
            ),
            (
                format!("linerate_volume_command_duration_seconds_count{{{volume},op=\"read\"}}"),
                2.0,
            ),
            (
                format!("linerate_volume_device_duration_seconds_count{{{volume},op=\"write\"}}"),
                3.0,
            ),
            (
                format!("linerate_volume_errors_total{{{volume},op=\"read\",kind=\"error\"}}"),
                1.0,
            ),
            // iSCSI has its own series.
            (
                "linerate_volume_bytes_total{volume=\"disk\",protocol=\"iscsi\",op=\"write\"}"
                    .to_owned(),
                0.0,
            ),
            (
                "linerate_volume_bytes_total{volume=\"disk\",protocol=\"iscsi\",op=\"read\"}"
                    .to_owned(),
                1024.0,
            ),
            (
                format!(
                    "linerate_logins_total{{protocol=\"iscsi\",target=\"{NAME}\",result=\"accepted\"}}"
                ),
                1.0,
            ),
        ] {
            assert_eq!(value(&series), expected, "{series}");
        }
        lun.close().await;
    });
    let ControlReply::Sessions { sessions } = live.answer(&ControlRequest::Sessions, "test") else {
        panic!()
    };
    let echoes = sessions
        .iter()
        .find(|session| session.front_end == ECHO)
        .expect("a session");
    assert_eq!(
        (echoes.commands, echoes.read_bytes, echoes.written_bytes),
        (5, 512, 1536)
    );
    live.shutdown(std::time::Duration::from_secs(10));
    configured.server.join().expect("flushed");
}

/// A server without iSCSI must listen only on configured addresses.
#[test]
fn a_front_end_may_be_the_only_one() {
    let configured = Configured::start(
        "[volume.disk]\nspec = \"ram:1MiB\"\n[echo]\nlisten = \"127.0.0.1:0\"\n[[echo.export]]\nvolume = \"disk\"\n",
    );
    let [address] = configured.server.addresses() else {
        panic!("one portal")
    };
    assert_eq!(Echo::connect(address).ask("use disk"), "ok 2048");
    configured
        .server
        .live()
        .shutdown(std::time::Duration::from_secs(10));
    configured.server.join().expect("flushed");
}
