//! The JSON of commands matches `docs/schemas`, including failures and progress.

use serde_json::Value;

use crate::program::{LINERATE, linerate, run};
use crate::server::{Server, free_port};

pub(crate) const ATTACH: &str = include_str!("../../../../docs/schemas/attach.schema.json");
const BENCH: &str = include_str!("../../../../docs/schemas/bench.schema.json");
const CHANGES: &str = include_str!("../../../../docs/schemas/changes.schema.json");
const COPY: &str = include_str!("../../../../docs/schemas/copy.schema.json");
pub(crate) const DISCOVER: &str = include_str!("../../../../docs/schemas/discover.schema.json");
const DONE: &str = include_str!("../../../../docs/schemas/done.schema.json");
const ERROR: &str = include_str!("../../../../docs/schemas/error.schema.json");
pub(crate) const INFO: &str = include_str!("../../../../docs/schemas/info.schema.json");
const PROGRESS: &str = include_str!("../../../../docs/schemas/progress.schema.json");
const SCSI: &str = include_str!("../../../../docs/schemas/scsi.schema.json");
const SELFTEST: &str = include_str!("../../../../docs/schemas/selftest.schema.json");
const SESSIONS: &str = include_str!("../../../../docs/schemas/sessions.schema.json");
const TARGETS: &str = include_str!("../../../../docs/schemas/targets.schema.json");
const VERIFY: &str = include_str!("../../../../docs/schemas/verify.schema.json");
const VOLUMES: &str = include_str!("../../../../docs/schemas/volumes.schema.json");

/// The position at which a value does not match a schema. Supports the JSON Schema keywords used by the
/// schemas here; another keyword is an error.
fn fault(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let wrong = |why: &str| Some(format!("{at}: {why}: {value}"));
    let is = |kind: &Value| match kind.as_str() {
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("null") => value.is_null(),
        other => panic!("type {other:?}"),
    };
    schema
        .as_object()
        .expect("a schema")
        .iter()
        .find_map(|(keyword, said)| match keyword.as_str() {
            "$schema" | "title" | "description" => None,
            "type"
                if said.as_array().is_some_and(|kinds| kinds.iter().any(is))
                    || said.is_string() && is(said) =>
            {
                None
            }
            "type" => wrong("another type"),
            "const" => {
                if value == said {
                    None
                } else {
                    wrong("another value")
                }
            }
            "minimum" => {
                if value.as_f64() >= said.as_f64() || value.is_null() {
                    None
                } else {
                    wrong("less than allowed")
                }
            }
            "required" => {
                let names = said.as_array()?.iter().filter_map(Value::as_str);
                let missing = names.into_iter().find(|name| value.get(name).is_none())?;
                wrong(&format!("{missing} is missing"))
            }
            "additionalProperties" => {
                let known = schema["properties"].as_object().expect("properties");
                let more = value
                    .as_object()?
                    .keys()
                    .find(|name| !known.contains_key(*name))?;
                wrong(&format!("{more} is not in the schema"))
            }
            "properties" => said
                .as_object()?
                .iter()
                .find_map(|(name, part)| fault(part, value.get(name)?, &format!("{at}.{name}"))),
            "items" => value
                .as_array()?
                .iter()
                .find_map(|item| fault(said, item, &format!("{at}[]"))),
            "anyOf" => {
                let faults: Option<Vec<String>> = said
                    .as_array()?
                    .iter()
                    .map(|one| fault(one, value, at))
                    .collect();
                faults.map(|faults| faults.join("; or "))
            }
            other => panic!("the keyword {other}"),
        })
}

#[track_caller]
pub(crate) fn check(schema: &str, value: &Value) {
    let schema = serde_json::from_str(schema).expect("JSON");
    assert_eq!(fault(&schema, value, "result"), None);
}

fn lines(said: &str) -> Vec<Value> {
    said.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(Value::is_object)
        .collect()
}

#[test]
fn results_are_as_their_schemas_say() {
    let nothing = linerate(&[
        "bench",
        "delay:2s:[ram:16MiB]",
        "--seconds",
        "0.5",
        "--json",
    ]);
    let (failures, results): (Vec<Value>, Vec<Value>) = lines(&nothing.said)
        .into_iter()
        .partition(|line| line.get("error").is_some());
    results.iter().for_each(|line| check(BENCH, line));
    failures.iter().for_each(|line| check(ERROR, line));
    let server = Server::serving(&["disk=ram:16MiB"]);
    let url = server.url("disk");
    let bench = [
        "bench",
        &url,
        "--depth",
        "1,2",
        "--clients",
        "2",
        "--seconds",
        "1",
        "--statistics",
        "--json",
    ];
    // No client can make so many requests: the rate is not reached.
    let hasty = [
        "bench",
        "ram:16MiB",
        "--rate",
        "10000000",
        "--depth",
        "1",
        "--seconds",
        "0.5",
        "--json",
    ];
    let [bench, hasty] =
        [&bench[..], &hasty].map(|words| lines(&run(LINERATE, words).expect_success()));
    assert_eq!((bench.len(), hasty.len()), (2, 1));
    bench
        .iter()
        .chain(&hasty)
        .for_each(|line| check(BENCH, line));
    let kinds: Vec<&Value> = hasty[0]["warnings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["kind"])
        .collect();
    assert!(kinds.contains(&&Value::from("overload")), "{kinds:?}");
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    linerate(&["bench", "ram:16MiB", "--seconds", "0.5", "--out", out]).expect_success();
    lines(&linerate(&["report", out, "--format", "json"]).expect_success())
        .iter()
        .for_each(|line| check(BENCH, line));
    check(
        COPY,
        &linerate(&["copy", "ram:1MiB", "ram:1MiB", "--json"]).expect_json_line(),
    );
    let discovered = linerate(&["discover", &server.portal(), "--luns", "--json"]).expect_success();
    check(DISCOVER, &serde_json::from_str(&discovered).expect("JSON"));
}

#[test]
fn answers_of_a_unit_are_as_their_schema_says() {
    let server = Server::serving(&["disk=ram:16MiB"]);
    needs!(server.is_ours());
    let url = server.url("disk");
    for verb in [
        &["inquiry", &url][..],
        &["vpd", &url],
        &["sense", &url],
        &["modes", &url],
        &["capacity", &url],
        &["lba-status", &url, "0"],
        &["luns", &url],
        &["port-groups", &url],
        &["opcodes", &url],
        &["sync", &url],
        &["register", &url, "--key", "a"],
        &["reserve", &url, "--key", "a"],
        &["registrations", &url],
        &["raw", &url, "--cdb", "12 00 00 00 24 00", "--in", "36"],
    ] {
        let told = linerate(&[&["scsi"], verb, &["--json"]].concat()).expect_success();
        let told: Value =
            serde_json::from_str(&told).unwrap_or_else(|error| panic!("{verb:?}: {error}: {told}"));
        check(SCSI, &told);
        assert_eq!(told["version"], 1, "{verb:?}");
        for page in told["pages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let told = linerate(&["scsi", "vpd", &url, page, "--json"]).expect_success();
            check(SCSI, &serde_json::from_str(&told).expect("JSON"));
        }
    }
}

#[test]
fn a_portal_with_several_targets_is_one_document() {
    let server = Server::serving(&["one=ram:1MiB", "two=ram:1MiB"]);
    needs!(server.is_ours());
    let told = linerate(&["info", &server.portal(), "--json"]).expect_success();
    let told: Value = serde_json::from_str(&told).expect("one document");
    check(INFO, &told);
    assert_eq!(
        (told["version"].as_u64(), told["portal"].as_str()),
        (Some(1), Some(&*server.portal()))
    );
    let names = told["targets"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["session"]["target"]);
    let [one, two] = ["one", "two"].map(|volume| Value::from(server.target_name(volume)));
    assert_eq!(names.collect::<Vec<_>>(), [&one, &two]);
    assert!(
        told["targets"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|one| one["luns"].is_array())
    );
}

#[test]
fn what_is_known_of_a_disk_is_as_its_schema_says() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = server.url("disk");
    for words in ["register --key abc", "reserve --key abc"] {
        let words: Vec<&str> = words.split(' ').collect();
        linerate(&[&["scsi", words[0], &url], &words[1..]].concat()).expect_success();
    }
    let told = linerate(&["info", &url, "--vpd", "83", "--vpd", "0", "--json"]).expect_success();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    check(INFO, &told);
    let lun = &told["luns"][0];
    assert!(
        lun["reservation"].is_object() && lun["registrations"][0]["key"].is_string(),
        "{told}"
    );
    assert_eq!(lun["vpd"].as_array().map(Vec::len), Some(2));
}

#[test]
fn lists_of_a_server_are_as_their_schemas_say() {
    let server = or_skip!(Server::configured(
        "[volume.disk]\nspec = \"raid1:[ram:8MiB, ram:8MiB]\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:disk\"\n\
         lun = [{ lun = 0, volume = \"disk\" }]\n",
    ));
    let _peer = crate::peer::Peer::attach(&server, "disk", 1);
    server.ask(&["raid", "scrub", "disk"]).expect_success();
    for (name, schema) in [
        ("sessions", SESSIONS),
        ("volumes", VOLUMES),
        ("targets", TARGETS),
    ] {
        let listed = server.ask(&["server", name, "--json"]).expect_success();
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        check(schema, &listed);
        assert_eq!(listed[name].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn changes_of_a_server_are_as_their_schemas_say() {
    let server = or_skip!(Server::configured(
        "[[portal]]\nlisten = \"127.0.0.1:{port}\"\n[volume.disk]\nspec = \"fault:[ram:1MiB]\"\n[[target]]\n\
         name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{ lun = 0, volume = \"disk\" }]\n",
    ));
    let image = server.state().join("more.img").display().to_string();
    let asked = |words: &[&str]| {
        server
            .ask(&[&["server", "--json"], words].concat())
            .expect_json_line()
    };
    let volume = format!("more=file:{image}?size=1MiB");
    let changes: [&[&str]; 5] = [
        &["add", &volume],
        &["resize", "more", "2MiB", "--dry-run"],
        &["resize", "more", "2MiB"],
        &["remove", "more"],
        &["reload"],
    ];
    let changes = changes.map(|words| {
        let changed = asked(words);
        check(CHANGES, &changed);
        changed["changes"].as_array().expect("a list").len()
    });
    assert!(
        changes[..4].iter().all(|lines| *lines > 0) && changes[4] == 0,
        "{changes:?}"
    );
    check(DONE, &asked(&["fault", "disk", "pass"]));
    let _peer = crate::peer::Peer::attach(&server, "disk", 1);
    let dropped = asked(&[
        "drop",
        &crate::sessions::sessions(&server)[0]["tsih"].to_string(),
    ]);
    check(DONE, &dropped);
    assert_eq!(dropped["sessions"], 1);
    let refused = server.ask(&["server", "remove", "nothing", "--json"]);
    check(ERROR, &lines(&refused.said)[0]);
}

#[test]
fn verbs_that_act_say_so_as_their_schema_says() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = server.url("disk");
    for words in [
        "ready",
        "register --key abc",
        "reserve --key abc",
        "release --key abc",
        "preempt --key abc --victim abc",
        "unregister --key abc",
        "unmap 0 8 --yes",
        "write-same 0 8 --yes",
        "sync",
        "stop",
        "start",
        "abort-task-set",
        "clear-task-set",
        "reset-lun",
        "reset-target",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let said = linerate(&[&["scsi", words[0], &url], &words[1..], &["--json"]].concat());
        // A target without the command reports that, also as JSON.
        match lines(&said.said).as_slice() {
            [done] if said.status.success() => {
                check(DONE, done);
                assert_eq!(done["verb"], words[0]);
            }
            [failed] if !server.is_ours() => check(ERROR, failed),
            _ => panic!("{words:?}: {}", said.said),
        }
    }
}

#[test]
fn proofs_are_as_their_schemas_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (log, image) = (at("log"), at("image"));
    std::fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let bench = [
        "bench",
        &image,
        "--verify",
        "--allow-write",
        "--yes",
        "--seconds",
        "0.5",
        "--read",
        "0",
    ];
    linerate(&[&bench[..], &["--verify-log", &log]].concat()).expect_success();
    let verified = linerate(&["bench", "verify", &log, &image, "--json"]).expect_json_line();
    check(VERIFY, &verified);
    assert_eq!(verified["wrong"], 0);
    std::fs::write(&image, vec![0x5a; 1 << 20]).expect("the image");
    let wrong = linerate(&["bench", "verify", &log, &image, "--json"]);
    let [result, error] = &lines(&wrong.said)[..] else {
        panic!("{}", wrong.said)
    };
    check(VERIFY, result);
    check(ERROR, error);
    assert!(
        result["wrong"].as_u64() > Some(0) && error["code"] == 10,
        "{}",
        wrong.said
    );

    let words = [
        "selftest",
        "--seconds",
        "0.2",
        "--out",
        &at("proof"),
        "--json",
    ];
    let proof = run(LINERATE, &words).expect_json_line();
    check(SELFTEST, &proof);
    assert_eq!(proof["proved"], true);
    let runs = proof["runs"].as_array().expect("a list");
    assert_eq!(
        (runs.len(), proof["ways"].as_array().map(Vec::len)),
        (45, Some(15))
    );
    runs.iter().for_each(|run| check(BENCH, run));
}

#[test]
fn failures_are_lines_of_json_with_their_exit_code() {
    let nobody = format!(
        "iscsi://127.0.0.1:{}/iqn.2026-01.com.example:disk/0",
        free_port()
    );
    let (unreachable, wrong) = (
        ["bench", &nobody, "--json"],
        ["bench", "ram:1MiB", "--bloc", "4KiB", "--json"],
    );
    for (words, code) in [
        (&unreachable[..], 3),
        (&wrong, 2),
        (&["copy", "ram:1MiB", "ram:much", "--json"], 2),
    ] {
        let ended = run(LINERATE, words);
        assert_eq!(ended.status.code(), Some(code), "{}", ended.said);
        let errors = lines(&ended.said);
        assert_eq!(errors.len(), 1, "{}", ended.said);
        check(ERROR, &errors[0]);
        assert_eq!(errors[0]["code"], code);
    }
    let wrong = lines(&run(LINERATE, &wrong).said);
    let whole = wrong[0]["error"].as_str().expect("text");
    assert!(
        whole.contains("'--bloc'") && whole.contains("'--block'"),
        "with the tip: {whole}"
    );
}

#[test]
fn progress_is_lines_of_json_if_that_is_asked_for() {
    let bench = [
        "bench",
        "ram:1MiB",
        "--depth",
        "1,2",
        "--seconds",
        "0.5",
        "--progress",
        "json",
    ];
    let progress = lines(&run(LINERATE, &bench).expect_success());
    assert!(progress.len() >= 2, "{progress:?}");
    progress.iter().for_each(|line| check(PROGRESS, line));
    assert!(
        progress.iter().any(|line| line["step"] == 2),
        "{progress:?}"
    );
}

#[test]
fn watching_without_a_terminal_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let ended = run(
        LINERATE,
        &[
            "bench",
            "ram:1MiB",
            "--watch",
            "--out",
            out.to_str().expect("text"),
        ],
    );
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
    assert!(
        ended.said.contains("--watch needs a terminal") && !out.exists(),
        "{}",
        ended.said
    );
}
