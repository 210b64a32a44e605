//! Tests of the metrics of a server with real clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use block::Buffer;
use host::{Epoll, EpollOptions};
use iscsi_client::{Transfer, Url, cdb};
use volume::backend::MetricKind;

use crate::exposition::Exposition;
use crate::program::{LINERATE, PATIENCE, installed, run, until};
use crate::remote::{attached, in_a_world, random, read, write};
use crate::server::{Server, free_port};

const DASHBOARD: &str = include_str!("../../../../contrib/grafana/linerate.json");
const RULES: &str = include_str!("../../../../contrib/prometheus/linerate.rules.yml");
const TARGET: &str = "iqn.2026-01.com.example:t";
const BASE: &str = "
reactors = 2
[volume.a]
spec = \"ram:8MiB\"
[volume.b]
spec = \"fault:[file:{state}/b.img?size=8MiB]\"
[[target]]
name = \"iqn.2026-01.com.example:t\"
lun = [{ lun = 0, volume = \"a\" }, { lun = 1, volume = \"b\" }]
[[target]]
name = \"iqn.2026-01.com.example:closed\"
initiators = [\"iqn.2026-01.com.example:friend\"]
lun = [{ lun = 0, volume = \"a\" }]
[metrics]
listen = \"127.0.0.1:{metrics}\"
";

/// A server with metrics, and their address.
struct Monitored {
    server: Server,
    address: SocketAddr,
}

fn monitored() -> Option<Monitored> {
    let port = free_port();
    let server = Server::configured(&BASE.replace("{metrics}", &port.to_string()))?;
    Some(Monitored {
        server,
        address: SocketAddr::from(([127, 0, 0, 1], port)),
    })
}

/// A header for the last request of a connection.
const CLOSE: &str = "Host: test\r\nConnection: close";

/// Sends bytes, and returns the response until the connection ends.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("a server of metrics");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    // The server may close the connection before a long request has been sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status and the body of a page.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = exchange(
        address,
        format!("GET {path} HTTP/1.1\r\n{CLOSE}\r\n\r\n").as_bytes(),
    );
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no reply: {answer}"));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    (status, body.to_owned())
}

impl Monitored {
    fn text(&self) -> String {
        let (status, text) = get(self.address, "/metrics");
        assert_eq!(status, 200, "{text}");
        text
    }

    fn scrape(&self) -> Exposition {
        let text = self.text();
        Exposition::read(&text).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"))
    }

    /// Like [`Monitored::scrape`], but through the control socket, without the limits of HTTP.
    fn scrape_by_socket(&self) -> Exposition {
        let text = self.linerate(&["server", "metrics"]);
        Exposition::read(&text).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"))
    }

    fn health(&self) -> (u16, serde_json::Value) {
        let (status, text) = get(self.address, "/healthz");
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    fn linerate(&self, arguments: &[&str]) -> String {
        self.server.ask(arguments).expect_success()
    }

    fn url(&self, lun: u16) -> String {
        format!("iscsi://127.0.0.1:{}/{TARGET}/{lun}", self.server.port())
    }
}

#[test]
fn counters_are_those_of_the_client_to_the_unit() {
    let mut monitored = or_skip!(monitored());
    in_a_world(async {
        let lun = attached(&monitored.url(0)).await;
        let before = monitored.scrape();
        for at in 0..20 {
            write(&lun, at * 8, &[7; 4096], false)
                .await
                .expect("written");
        }
        for at in 0..30 {
            read(&lun, at, 512).await;
        }
        let beyond = lun
            .command(cdb::read_16(1 << 40, 1), Transfer::None)
            .await
            .expect("an answer");
        assert_eq!(beyond.status, 2, "CHECK CONDITION");
        let after = monitored.scrape();
        let since = |name: &str, labels: &[(&str, &str)]| {
            after.value(name, labels).unwrap_or(0.0) - before.value(name, labels).unwrap_or(0.0)
        };
        let of = |op| [("volume", "a"), ("protocol", "iscsi"), ("op", op)];
        let (reads, writes) = (of("read"), of("write"));
        assert_eq!(since("linerate_volume_commands_total", &writes), 20.0);
        assert_eq!(since("linerate_volume_commands_total", &reads), 31.0);
        assert_eq!(since("linerate_volume_bytes_total", &writes), 20.0 * 4096.0);
        assert_eq!(since("linerate_volume_bytes_total", &reads), 30.0 * 512.0);
        assert_eq!(
            since("linerate_volume_command_duration_seconds_count", &reads),
            31.0
        );
        assert!(since("linerate_volume_command_duration_seconds_sum", &reads) > 0.0);
        let refused = [
            ("volume", "a"),
            ("protocol", "iscsi"),
            ("op", "read"),
            ("kind", "illegal_request"),
        ];
        assert_eq!(since("linerate_volume_errors_total", &refused), 1.0);
        assert!(
            after
                .value(
                    "linerate_session_commands_total",
                    &[("protocol", "iscsi"), ("target", TARGET), ("initiator", "")]
                )
                .is_none()
        );
        let sessions = &after.0["linerate_sessions"].samples;
        assert!(
            sessions
                .iter()
                .any(|sample| sample.labels["target"] == TARGET && sample.value == 1.0)
        );
        lun.close().await;
    });
    monitored.server.stop();
}

/// The metrics must be the same through HTTP and the control socket, and Prometheus' own tool must accept
/// them.
#[test]
fn under_load_the_text_is_what_prometheus_takes() {
    let mut monitored = or_skip!(monitored());
    let urls = [monitored.url(0), monitored.url(1)];
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            in_a_world(async {
                for round in 0..200 {
                    for url in &urls {
                        let lun = attached(url).await;
                        write(&lun, round % 64, &[1; 4096], round % 2 == 0)
                            .await
                            .expect("written");
                        read(&lun, 0, 65_536).await;
                        lun.close().await;
                    }
                }
            });
        });
        while !load.is_finished() {
            monitored.scrape();
        }
    });
    until("all sessions ended", || {
        let sessions = monitored.scrape();
        sessions.0["linerate_sessions"]
            .samples
            .iter()
            .all(|sample| sample.value == 0.0)
    });
    // After this many scrapes, a page may be some hundred milliseconds old.
    let by_socket = monitored.scrape_by_socket();
    let name = "linerate_volume_commands_total";
    until("the same by both ways", || {
        monitored.scrape().0[name].samples == by_socket.0[name].samples
    });
    let by_http = monitored.scrape();
    let accepted = [
        ("protocol", "iscsi"),
        ("target", TARGET),
        ("result", "accepted"),
    ];
    assert!(by_http.value("linerate_logins_total", &accepted) >= Some(400.0));
    let waits = by_http.value(
        "linerate_volume_device_waits_total",
        &[("volume", "b"), ("protocol", "iscsi")],
    );
    assert!(
        waits >= Some(100.0),
        "a FUA write waits for its file: {waits:?}"
    );
    check_by_promtool(&monitored.text());
    monitored.server.stop();
}

/// A documented family that is never written would be a nonexistent metric. The TYPE of a family is written
/// even if the family has no samples.
#[test]
fn all_families_are_written_in_their_order_and_no_others() {
    let mut monitored = or_skip!(monitored());
    let text = monitored.text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let written: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    let known: Vec<&str> = daemon::metrics::families()
        .iter()
        .map(|family| family.name)
        .collect();
    assert_eq!(written, known);
    monitored.server.stop();
}

/// Whether Prometheus accepts a page, if its tool is installed.
fn check_by_promtool(text: &str) {
    needs!(installed(&["promtool"]));
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = tool.spawn().expect("promtool");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("taken");
    drop(input);
    let ended = child.wait_with_output().expect("an end");
    let said = [ended.stdout, ended.stderr].concat();
    assert!(
        ended.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// A reply on a persistent connection: its head and its body.
fn reply_of(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    (head, String::from_utf8(body).expect("text"))
}

/// Ten thousand scrapes, by clients with persistent connections and by others without. At any rate, only a
/// few of these pages involve the cores.
#[test]
fn ten_thousand_scrapes_leave_memory_and_descriptors_as_they_were() {
    let mut monitored = or_skip!(monitored());
    let mut latest = String::new();
    let mut kept = None;
    let mut scrape = |number: usize| {
        let connected = || TcpStream::connect(monitored.address).expect("a server of metrics");
        let (version, header) = match number % 3 {
            0 => ("1.1", "Connection: keep-alive"),
            1 => ("1.1", "Connection: close"),
            _ => ("1.0", "Accept: */*"),
        };
        let request = format!("GET /metrics HTTP/{version}\r\nHost: x\r\n{header}\r\n\r\n");
        let (head, text) = if number.is_multiple_of(3) {
            // Reuse each connection for several scrapes.
            let stream = match number % 90 {
                0 => kept.insert(connected()),
                _ => kept.get_or_insert_with(connected),
            };
            stream.write_all(request.as_bytes()).expect("it was kept");
            reply_of(stream)
        } else {
            let answer = exchange(monitored.address, request.as_bytes());
            let (head, text) = answer
                .split_once("\r\n\r\n")
                .unwrap_or_else(|| panic!("no reply: {answer}"));
            (head.to_owned(), text.to_owned())
        };
        assert!(head.split(' ').nth(1) == Some("200"), "{head}");
        let is_new = text != latest;
        if is_new {
            Exposition::read(&text).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"));
            latest = text;
        }
        usize::from(is_new)
    };
    let usage = |exposition: &Exposition| {
        let value = |name| exposition.value(name, &[]).expect("procfs");
        (
            value("process_resident_memory_bytes"),
            value("process_open_fds"),
        )
    };
    let begin = Instant::now();
    let mut pages: usize = (0..500).map(&mut scrape).sum();
    let (memory, files) = usage(&monitored.scrape_by_socket());
    pages += (0..10_000).map(&mut scrape).sum::<usize>();
    let allowed = 11.0 + 5.0 * begin.elapsed().as_secs_f64();
    assert!(
        pages as f64 <= allowed,
        "{pages} pages, more than {allowed}"
    );
    until("as many descriptors as before", || {
        usage(&monitored.scrape_by_socket()).1 <= files
    });
    let after = usage(&monitored.scrape_by_socket()).0;
    assert!(
        after <= memory + f64::from(4 << 20),
        "{after} bytes of memory after {memory}"
    );
    check_by_promtool(&latest);

    // Clients that do not read their response only occupy their own slots.
    let mut slow: Vec<TcpStream> = (0..4)
        .map(|_| TcpStream::connect(monitored.address).expect("taken"))
        .collect();
    for stream in &mut slow {
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("sent");
    }
    monitored.scrape();
    drop(slow);
    monitored.server.stop();
}

/// Tests the device's share of a command's time, a file's share of its file system, and a full window.
#[test]
fn the_shares_of_device_and_file_system_are_told() {
    let port = free_port();
    let text = BASE.replace("{metrics}", &port.to_string()) + "[limits]\nwindow = 1\n";
    let server = or_skip!(Server::configured(&text));
    let mut monitored = Monitored {
        server,
        address: SocketAddr::from(([127, 0, 0, 1], port)),
    };
    in_a_world(async {
        let lun = attached(&monitored.url(1)).await;
        monitored.linerate(&["server", "fault", "b", "slow=20ms"]);
        for at in 0..5 {
            write(&lun, at * 8, &[7; 4096], true)
                .await
                .expect("written");
        }
        monitored.linerate(&["server", "fault", "b", "pass"]);
        let scrape = monitored.scrape_by_socket();
        let writes = [("volume", "b"), ("protocol", "iscsi"), ("op", "write")];
        let value = |name: &str| {
            scrape
                .value(name, &writes)
                .unwrap_or_else(|| panic!("no {name}"))
        };
        assert_eq!(value("linerate_volume_device_duration_seconds_count"), 5.0);
        let device = value("linerate_volume_device_duration_seconds_sum");
        let all = value("linerate_volume_command_duration_seconds_sum");
        assert!(0.09 <= device && device <= all, "{device} of {all}");
        let closed = scrape.0["linerate_session_window_full_total"]
            .samples
            .iter()
            .map(|sample| sample.value);
        assert!(
            closed.sum::<f64>() >= 5.0,
            "each command fills a window of one"
        );
        // A file of fixed size is checked every ten seconds.
        let allocated = |volume| {
            monitored
                .scrape_by_socket()
                .value("linerate_volume_allocated_bytes", &[("volume", volume)])
        };
        let before = allocated("b").expect("a sparse file");
        assert!(before < f64::from(1 << 20), "{before}");
        for at in 0..32 {
            write(&lun, at * 128, &[7; 65_536], true)
                .await
                .expect("written");
        }
        until("the file takes what was written", || {
            allocated("b") >= Some(f64::from(2 << 20))
        });
        lun.close().await;
        let lun = attached(&monitored.url(0)).await;
        write(&lun, 0, &[7; 4096], false).await.expect("written");
        assert!(allocated("a") >= Some(4096.0));
        lun.close().await;
    });
    monitored.server.stop();
}

/// Names invented by an initiator must neither create an unlimited number of time series nor break the text.
#[test]
fn names_of_initiators_make_a_bounded_number_of_series() {
    let mut monitored = or_skip!(monitored());
    // Do not record the sessions, because that would take longer than the sessions themselves.
    let login = |number: usize| {
        let url = format!(
            "{}?initiator-name=iqn.2026-01.com.example:x{number}",
            monitored.url(0)
        );
        let url = Url::parse(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let world = Epoll::shared(EpollOptions::default()).expect("an epoll instance");
        reactor::block_on(world, async {
            iscsi_client::open(&url, random)
                .await
                .expect("a login")
                .close()
                .await
        });
    };
    (0..256).for_each(login);
    let before = monitored.scrape().series();
    (256..300).for_each(login);
    let after = monitored.scrape();
    // There are at most six series: sessions, connections, commands, full windows, and bytes in two
    // directions.
    assert!(
        after.series() <= before + 6,
        "{} after {before}",
        after.series()
    );
    let others = [
        ("protocol", "iscsi"),
        ("target", TARGET),
        ("initiator", "(others)"),
    ];
    assert!(
        after
            .value("linerate_session_commands_total", &others)
            .is_some()
    );
    monitored.server.stop();
}

#[test]
fn refused_logins_are_counted_by_their_reason() {
    let mut monitored = or_skip!(monitored());
    let port = monitored.server.port();
    for (target, label, result) in [
        (
            "iqn.2026-01.com.example:closed",
            "iqn.2026-01.com.example:closed",
            "initiator_not_listed",
        ),
        ("iqn.2026-01.com.example:made-up", "", "no_such_target"),
    ] {
        let url = format!("iscsi://127.0.0.1:{port}/{target}/0");
        run(LINERATE, &["info", &url]).expect_failure();
        let labels = [("protocol", "iscsi"), ("target", label), ("result", result)];
        let count = monitored.scrape().value("linerate_logins_total", &labels);
        assert!(count >= Some(1.0), "{result}: {count:?}");
    }
    monitored.server.stop();
}

#[test]
fn a_volume_whose_storage_fails_makes_the_server_unhealthy() {
    let mut monitored = or_skip!(monitored());
    assert_eq!(
        monitored.health(),
        (200, serde_json::json!({ "healthy": true, "problems": [] }))
    );
    in_a_world(async {
        let lun = attached(&monitored.url(1)).await;
        monitored.linerate(&["server", "fault", "b", "fail"]);
        let data = Transfer::into_all_of(Buffer::zeroed(512));
        let answer = lun
            .command(cdb::read_16(0, 1), data)
            .await
            .expect("an answer");
        assert_eq!(answer.status, 2, "CHECK CONDITION");
        let (status, health) = monitored.health();
        assert_eq!((status, &health["healthy"]), (503, &false.into()));
        let problem = &health["problems"][0];
        assert_eq!(
            (&problem["kind"], &problem["name"]),
            (&"volume".into(), &"b".into()),
            "{health}"
        );
        let scrape = monitored.scrape();
        assert_eq!(
            scrape.value("linerate_volume_failing", &[("volume", "b")]),
            Some(1.0)
        );
        assert!(
            scrape.value("linerate_volume_storage_errors_total", &[("volume", "b")]) >= Some(1.0)
        );
        monitored.linerate(&["server", "fault", "b", "pass"]);
        read(&lun, 0, 512).await;
        assert_eq!(monitored.health().0, 200);
        lun.close().await;
    });
    monitored.server.stop();
}

#[test]
fn the_section_is_reloaded() {
    let mut monitored = or_skip!(monitored());
    let old = monitored.address;
    let text =
        std::fs::read_to_string(monitored.server.state().join("linerate.toml")).expect("its file");
    let port = free_port();
    let moved = text.replace(
        &format!("127.0.0.1:{}\"\n", old.port()),
        &format!("127.0.0.1:{port}\"\n"),
    );
    assert_ne!(moved, text);
    monitored.server.reconfigure(&moved);
    let said = monitored.linerate(&["server", "reload"]);
    assert_eq!(said, format!("~ metrics on 127.0.0.1:{port}\n"));
    until("the old address is closed", || {
        TcpStream::connect(old).is_err()
    });
    monitored.address.set_port(port);
    let scrape = monitored.scrape();
    assert_eq!(
        scrape.value("linerate_reloads_total", &[("result", "success")]),
        Some(1.0)
    );
    assert_eq!(scrape.value("linerate_config_generation", &[]), Some(2.0));

    // A configuration with an address that is in use changes nothing.
    let taken = moved.replace(
        &format!("127.0.0.1:{port}\"\n"),
        &format!("{}\"\n", monitored.server.portal()),
    );
    monitored.server.reconfigure(&taken);
    let control = monitored
        .server
        .state()
        .join("control")
        .display()
        .to_string();
    let refused = run(LINERATE, &["server", "reload", "--control", &control]).expect_failure();
    assert!(refused.contains("cannot listen for [metrics]"), "{refused}");
    let scrape = monitored.scrape();
    assert_eq!(
        scrape.value("linerate_reloads_total", &[("result", "failure")]),
        Some(1.0)
    );
    assert_eq!(
        scrape.value("linerate_config_last_reload_successful", &[]),
        Some(0.0)
    );

    let without = moved
        .split("[metrics]")
        .next()
        .expect("a beginning")
        .to_owned();
    monitored.server.reconfigure(&without);
    assert_eq!(monitored.linerate(&["server", "reload"]), "- metrics\n");
    until("the listener is closed", || {
        TcpStream::connect(monitored.address).is_err()
    });
    monitored.server.stop();
}

#[test]
fn what_is_no_request_costs_nobody_else_anything() {
    let mut monitored = or_skip!(monitored());
    let address = monitored.address;
    for (bytes, status) in [
        (
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                .to_vec(),
            Some("405"),
        ),
        (
            b"GET /secret HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
            Some("404"),
        ),
        (
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
            Some("404"),
        ),
        (b"\x00\xff\r\n\r\n".to_vec(), None),
        (
            [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'x'; 1 << 20]].concat(),
            None,
        ),
        (
            [b"GET / HTTP/1.1\r\n".to_vec(), b"A: b\r\n".repeat(100_000)].concat(),
            None,
        ),
    ] {
        let answer = exchange(address, &bytes);
        match status {
            Some(status) => assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            ),
            None => assert!(
                answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
                "{answer}"
            ),
        }
    }
    assert!(
        exchange(
            address,
            b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .ends_with("\r\n\r\n")
    );

    // Connections of this host that send nothing: beyond eight, they are closed immediately. The test waits
    // until their slots are free again.
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(address).expect("taken"))
        .collect();
    let other = SocketAddr::from(([127, 0, 0, 1], address.port()));
    until("a scrape after the silent ones were cut", || {
        let Ok(mut stream) = TcpStream::connect(other) else {
            return false;
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 200")
    });
    drop(silent);
    monitored.server.stop();
}

/// Every query of the dashboard uses existing metrics and labels.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut queries: Vec<&str> = targets
        .map(|target| target["expr"].as_str().expect("a query"))
        .collect();
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    queries.extend(
        variables
            .iter()
            .filter(|variable| variable["type"] == "query")
            .filter_map(|v| v["query"].as_str()),
    );
    assert!(queries.len() > 30, "{}", queries.len());
    let mut shown = std::collections::BTreeSet::new();
    for query in queries {
        shown.extend(asked_for(query));
    }
    // All metrics must be shown on the dashboard, except these, which are for alerts and other tools.
    let elsewhere = [
        "linerate_config_generation",
        "linerate_config_last_reload_success_timestamp_seconds",
        "linerate_target_luns",
        "process_virtual_memory_bytes",
        "process_threads",
        "process_start_time_seconds",
    ];
    for family in daemon::metrics::families() {
        assert!(
            shown.contains(family.name) || elsewhere.contains(&family.name),
            "{} is not shown",
            family.name
        );
    }
}

/// The metrics of a query, all of which must have the labels that it names.
fn asked_for(query: &str) -> Vec<&'static str> {
    let (mut shown, families) = (Vec::new(), daemon::metrics::families());
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = query
        .split(|c| !word(c))
        .filter(|name| name.starts_with("linerate_") || name.starts_with("process_"));
    let mut labels: Vec<&str> = Vec::new();
    for name in names {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            let base = name.strip_suffix(suffix)?;
            families
                .iter()
                .find(|family| family.name == base && family.kind == MetricKind::Histogram)
        });
        let family = family.or_else(|| families.iter().find(|family| family.name == name));
        let family = family.unwrap_or_else(|| panic!("there is no {name}: {query}"));
        labels.extend(family.labels);
        shown.push(family.name);
    }
    let matched = query
        .split(['{', '}'])
        .skip(1)
        .step_by(2)
        .flat_map(|inside| inside.split(','));
    let matched = matched.filter_map(|matcher| matcher.split(['=', '!']).next());
    let grouped = query
        .split("by (")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let grouped = grouped.flat_map(|inside| inside.split(','));
    for label in matched
        .chain(grouped)
        .map(str::trim)
        .filter(|label| !label.is_empty())
    {
        assert!(
            labels.contains(&label) || ["instance", "job", "le"].contains(&label),
            "no label {label}: {query}"
        );
    }
    shown
}

/// Every alert uses existing metrics and labels, and promtool accepts the rules.
#[test]
fn the_alerts_ask_for_what_there_is() {
    let rules = RULES.split("- alert:").skip(1);
    let queries: Vec<&str> = rules
        .filter_map(|rule| rule.split("expr:").nth(1)?.split("labels:").next())
        .collect();
    assert_eq!(queries.len(), RULES.matches("- alert:").count());
    let asked: Vec<&str> = queries.iter().flat_map(|query| asked_for(query)).collect();
    assert!(asked.len() >= queries.len(), "{asked:?}");
    if installed(&["promtool"]) {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../contrib/prometheus/linerate.rules.yml"
        );
        run("promtool", &["check", "rules", path]).expect_success();
    }
}
