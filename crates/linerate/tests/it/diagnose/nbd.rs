//! Tests with exports of NBD servers: Linerate's, and nbdkit's with faults that nbdkit's filters cause.

use serde_json::Value;

use super::told::{self, json};
use super::{diagnose, evidence, median_us, why_not};
use crate::nbd::tls::Pki;
use crate::nbd_client::Foreign;
use crate::program::installed;
use crate::server::{Server, free_port};

/// Linerate's server with the export `disk` and these lines in `[nbd]`, and the server's port.
fn serving(lines: &str) -> Option<(Server, u16)> {
    let port = free_port();
    let text = format!(
        "[nbd]\nlisten = [\"127.0.0.1:{port}\"]\n{lines}\n[[nbd.export]]\nvolume = \"disk\"\n[volume.disk]\nspec = \
         \"ram:64MiB\"\n"
    );
    Server::configured(&text).map(|server| (server, port))
}

/// The results of a change tested with the loads of several requests, by its name in JSON.
fn beside<'a>(found: &'a Value, otherwise: &Value) -> Vec<&'a Value> {
    let loads = found["loads"].as_array().expect("loads");
    let loads = loads
        .iter()
        .filter(|load| load["load"]["depth"].as_u64() > Some(1));
    let all = loads.filter_map(|load| load["beside"].as_array()).flatten();
    all.filter(|beside| beside["otherwise"] == *otherwise)
        .collect()
}

#[test]
fn every_layer_of_an_export_is_measured() {
    let (_server, port) = or_skip!(serving(""));
    let found = evidence(&format!("nbd://127.0.0.1:{port}/disk"), &["--allow-write"]);
    let ladder = &found["ladder"];
    for rung in [
        "nop",
        "cached_read",
        "medium_read",
        "write",
        "durable_write",
        "flush",
    ] {
        assert!(median_us(&ladder[rung]) > 0.0, "{rung}");
    }
    assert_eq!(ladder["nop_with_data"], Value::Array(Vec::new()));
    assert!(
        found["got"].is_null() && found["asked"].is_null(),
        "there are no keys of iSCSI"
    );
    let session = &found["nbd"];
    let said = ["multi_conn", "base_allocation", "encrypted", "unix_socket"]
        .map(|name| session[name].as_bool());
    assert_eq!(
        said,
        [Some(true), Some(true), Some(false), Some(false)],
        "{session}"
    );
    assert_eq!(
        (&session["replies"], &session["connections"]),
        (&"extended".into(), &1.into())
    );
    let path = &found["paths"][0];
    assert!(path["round_trip_us"].as_f64() > Some(0.0), "{path}");
    let tried = beside(&found, &serde_json::json!({ "connections": 4 }));
    assert_eq!(
        tried.len(),
        3,
        "each load of more than one request: {found}"
    );
    assert!(tried.iter().any(|beside| {
        beside["pairs"]
            .as_array()
            .is_some_and(|pairs| !pairs.is_empty())
    }));
    let loads = found["loads"].as_array().expect("loads");
    for load in loads
        .iter()
        .filter(|load| load["under_way"].as_f64() > Some(0.0))
    {
        assert!(
            load["under_way"].as_f64() <= load["load"]["depth"].as_f64(),
            "{load}"
        );
        assert!(
            load["server_busy"].is_number(),
            "the server is a process of this machine: {load}"
        );
    }
}

#[test]
fn nothing_of_an_export_is_changed_unless_writing_is_allowed() {
    let (_server, port) = or_skip!(serving(""));
    let url = format!("nbd://127.0.0.1:{port}/disk");
    let found = evidence(&url, &[]);
    assert!(why_not(&found["ladder"]["flush"]).contains("--allow-write"));
    let loads = found["loads"].as_array().expect("loads");
    assert!(loads.iter().all(|load| load["load"]["direction"] == "read"));
    let refused = |options: &[&str]| diagnose(&url, options).expect_failure();
    assert!(refused(&["--block", "1000B"]).contains("blocks of 512"));
    assert!(refused(&["--allow-write=32MiB..128MiB"]).contains("beyond the end"));
    assert!(
        diagnose(&format!("{url}?channels=4"), &[])
            .expect_failure()
            .contains("unknown key")
    );
    assert!(
        diagnose(&format!("nbd://127.0.0.1:{port}/other"), &[])
            .expect_failure()
            .contains("other")
    );
}

/// The first finding depends on the machine's other load; the crate `diagnose` tests that of a slow medium.
#[test]
fn reports_about_nbdkit_use_the_terms_of_nbd() {
    needs!(installed(&["nbdkit"]));
    let server = Foreign::nbdkit(&["--filter=delay", "memory", "64M", "rdelay=100ms"]);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").display().to_string();
    let said = told::diagnose(&server.url(), &["--out", &out]).expect_success();
    let read = |name: &str| std::fs::read_to_string(format!("{out}/{name}")).expect(name);
    let evidence = &json(&read("diagnosis.json"))["evidence"];
    assert!(median_us(&evidence["ladder"]["cached_read"]) >= 100_000.0);
    let tried = beside(evidence, &serde_json::json!({ "connections": 4 }));
    assert_eq!(
        tried.len(),
        2,
        "both loads of more than one request: {evidence}"
    );
    let page = read("report.html");
    let body = &page[page.find("</style>").expect("the end of the styles")..];
    for text in [&said, &read("report.md"), body] {
        for word in [
            "NOP",
            "PDU",
            "R2T",
            "TEST UNIT READY",
            "SYNCHRONIZE CACHE",
            "tgt",
            "LIO",
            "target",
        ] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn a_server_of_one_connection_and_simple_replies_has_fewer_layers() {
    needs!(installed(&["nbdkit"]));
    let options = [
        "--no-sr",
        "--filter=multi-conn",
        "memory",
        "64M",
        "multi-conn-mode=disable",
    ];
    let server = Foreign::nbdkit(&options);
    let found = evidence(&server.url(), &[]);
    assert!(
        why_not(&found["ladder"]["nop"]).contains("base:allocation"),
        "{found}"
    );
    assert!(median_us(&found["ladder"]["cached_read"]) > 0.0);
    assert_eq!(
        (&found["nbd"]["replies"], &found["nbd"]["multi_conn"]),
        (&"simple".into(), &false.into())
    );
    assert!(beside(&found, &serde_json::json!({ "connections": 4 })).is_empty());
    told::diagnose(&server.url(), &["--check"]); // it must end, with any verdict
}

#[test]
fn a_unix_socket_has_no_network() {
    needs!(installed(&["nbdkit"]));
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd.sock").display().to_string();
    let _server = Foreign::nbdkit_on(&socket, &["memory", "64M"]);
    let found = evidence(&format!("nbd+unix:///?socket={socket}"), &[]);
    assert_eq!(found["nbd"]["unix_socket"], true);
    assert!(why_not(&found["link"]).contains("Unix socket"), "{found}");
    assert!(median_us(&found["ladder"]["nop"]) > 0.0);
    assert_eq!(found["loads"].as_array().map(Vec::len), Some(3));
}

#[test]
fn what_tls_costs_is_tried_where_the_server_allows_clear_text() {
    let pki = Pki::new();
    let folder = pki.folder();
    let certificate = format!(
        "tls-certificate = \"{folder}/server-cert.pem\"\ntls-key = \"{folder}/server-key.pem\"\n"
    );
    for is_allowed in [true, false] {
        let allowed = if is_allowed { "tls = \"allowed\"" } else { "" };
        let (_server, port) = or_skip!(serving(&format!("{certificate}{allowed}")));
        let url = format!(
            "nbds://localhost:{port}/disk?tls-ca={}",
            pki.file("ca-cert.pem")
        );
        let found = evidence(&url, &[]);
        assert_eq!(found["nbd"]["encrypted"], true);
        let plain = beside(&found, &"plain".into());
        assert_eq!(plain.len(), 2, "{found}");
        for tried in plain {
            let pairs = tried["pairs"].as_array().expect("pairs");
            match is_allowed {
                true => assert!(!pairs.is_empty(), "{tried}"),
                false => {
                    assert!(
                        pairs.is_empty()
                            && tried["first_failure"]
                                .as_str()
                                .is_some_and(|why| why.contains("TLS"))
                    );
                }
            }
        }
    }
}
