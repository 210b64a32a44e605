//! Impossible requests are rejected before anything is done, with one sentence that contains the remedy.

use super::{REFUSED, Scene, bench, expect};
use crate::program::says;

#[test]
fn what_does_not_go_together_is_refused() {
    for (arguments, words) in [
        (&["--poisson"][..], &["--rate"][..]),
        (&["--rate", "0"], &["rate"]),
        (&["--read", "101"], &["101"]),
        (&["--block", "4KiB:70,64KiB:20"], &["100"]),
        (&["--block", "1000"], &["512"]), // not a multiple of the storage's block size
        (&["--depth", "0"], &["0"]),
        (&["--seconds", "0"], &["0"]),
        (&["--seconds", "NaN"], &["NaN"]),
        (&["--seconds", "-1"], &["-1"]),
        (&["--span", "2MiB..1MiB"], &["2MiB..1MiB"]),
        (&["--distribution", "zipf:11"], &["zipf"]),
        (&["--distribution", "pareto:1.5"], &["pareto"]),
        (&["--out", "x", "--resume", "y"], &["--out", "--resume"]),
        (&["ram:2MiB"], &["ram:2MiB", "linerate compare"]),
        (&["--durable", "flush:0"], &["flush:N"]),
        (
            &["--durable", "fua", "--verify-log", "x"],
            &["--verify-log"],
        ),
        (&["--data", "compressible:101"], &["compressible:PERCENT"]),
    ] {
        let all = [&["ram:16MiB"], arguments].concat();
        let said = expect(bench(&all), REFUSED, words);
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn a_span_that_the_storage_has_not_is_refused_with_both_sizes() {
    expect(
        bench(&["ram:16MiB", "--span", "1GiB"]),
        REFUSED,
        &["1GiB", "16"],
    );
    expect(
        bench(&["ram:16MiB", "--span", "8MiB..17MiB"]),
        REFUSED,
        &["17MiB"],
    );
    expect(
        bench(&["ram:64KiB", "--block", "1MiB"]),
        REFUSED,
        &["65536"],
    );
    let scene = Scene::new();
    expect(bench(&[&scene.file("empty", "")]), REFUSED, &["empty"]);
}

#[test]
fn writing_is_asked_for_where_anything_is_kept() {
    let scene = Scene::new();
    let image = scene.image("disk.img", 1);
    expect(
        bench(&[&image, "--read", "50"]),
        REFUSED,
        &["--allow-write"],
    );
    let part = [
        "--read",
        "0",
        "--yes",
        "--seconds",
        "0.1",
        "--allow-write=256KiB..512KiB",
    ];
    bench(&[&[image.as_str()], &part[..]].concat()).expect_success();
    let content = std::fs::read(image).expect("it is there");
    let untouched = |part: &[u8]| part.iter().all(|&byte| byte == 0x5a);
    assert!(untouched(&content[..256 << 10]) && untouched(&content[512 << 10..]));
    assert!(!untouched(&content[256 << 10..512 << 10]));
}

#[test]
fn a_volume_that_is_not_there_is_made_only_where_writing_is_allowed() {
    let scene = Scene::new();
    let path = scene.text("new.img");
    for place in [
        format!("file:{path}?size=4MiB"),
        format!("512e:[file:{path}?size=4MiB&block=4096]"),
    ] {
        for workload in [&[][..], &["--read", "100"], &["--read", "0", "--yes"]] {
            let all = [&[&place, "--seconds", "0.1"][..], workload].concat();
            expect(bench(&all), REFUSED, &["new.img", "--allow-write"]);
            assert!(!scene.path("new.img").exists(), "{all:?}");
        }
        bench(&[
            &place,
            "--seconds",
            "0.1",
            "--block",
            "4KiB",
            "--read",
            "50",
            "--allow-write",
        ])
        .expect_success();
        // Reading holes would measure nothing.
        let space = std::os::unix::fs::MetadataExt::blocks(
            &scene.path("new.img").metadata().expect("a file"),
        );
        assert!(space * 512 >= 4 << 20, "{space} sectors");
        std::fs::remove_file(&path).expect("our own file");
    }
}

#[test]
fn a_place_that_is_not_there_is_not_made() {
    let scene = Scene::new();
    expect(
        bench(&[&scene.text("missing.img")]),
        REFUSED,
        &["missing.img"],
    );
    expect(
        bench(&[&scene.text("missing.img"), "--allow-write"]),
        REFUSED,
        &["missing.img"],
    );
    assert!(!scene.path("missing.img").exists());
    expect(
        bench(&[&scene.folder.path().display().to_string()]),
        REFUSED,
        &["neither a regular file nor a block device"],
    );
}

#[test]
fn a_record_that_is_none_is_not_resumed_nor_overwritten() {
    let scene = Scene::new();
    let folder = scene.path("out");
    std::fs::create_dir(&folder).expect("a folder");
    let out = scene.text("out");
    let resume = || bench(&["ram:16MiB", "--resume", &out]);
    expect(resume(), REFUSED, &["result.json"]);
    for (content, words) in [
        ("", "result"),
        ("{", "result"),
        ("[1, 2]", "result"),
        ("{\"format\": 99}", "99"),
        ("{\"format\": 1}", "result"),
        ("{\"format\": 1e400}", "result"),
    ] {
        std::fs::write(folder.join("result.json"), content).expect("a file");
        expect(resume(), REFUSED, &[words]);
        expect(
            bench(&["ram:16MiB", "--seconds", "0.1", "--out", &out]),
            REFUSED,
            &["holds a result"],
        );
        assert_eq!(
            std::fs::read_to_string(folder.join("result.json")).expect("it is there"),
            content
        );
    }
}

#[test]
fn a_document_that_there_is_not_is_told_before_anything_is_measured() {
    let scene = Scene::new();
    let out = scene.text("out");
    let sweep = [
        "ram:16MiB",
        "--block",
        "4KiB,64KiB",
        "--seconds",
        "0.1",
        "--out",
        &out,
        "--beside",
    ];
    let beside = |document| bench(&[&sweep[..], &[document]].concat());
    expect(
        beside("009"),
        REFUSED,
        &[
            "invalid value '009'",
            "possible values: 000, 001, 002, 003, 004",
        ],
    );
    assert!(!scene.path("out").exists());
    beside("001").expect_success();
    let page = std::fs::read_to_string(scene.path("out/report.html")).expect("a report");
    says(&page, &["Document 001 has no result with the same path"]);
}

#[test]
fn what_was_never_written_is_no_silent_result() {
    let scene = Scene::new();
    let path = scene.path("sparse.img");
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(16 << 20))
        .expect("a sparse file");
    let (path, out) = (path.display().to_string(), scene.text("out"));
    bench(&[&path, "--seconds", "1", "--out", &out]).expect_success();
    let notes = super::record(&scene.path("out"))["notes"].to_string();
    assert!(notes.contains("have never been written"), "{notes}");
    let (full, out) = (scene.image("full.img", 16), scene.text("full"));
    bench(&[&full, "--seconds", "1", "--out", &out]).expect_success();
    assert_eq!(
        super::record(&scene.path("full"))["notes"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}
