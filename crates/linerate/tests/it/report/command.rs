//! `linerate report`: a result in every form, and invalid results.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::records;
use crate::program::{linerate, says};

/// A directory as written by `linerate bench --out`.
fn result() -> TempDir {
    directory(&serde_json::to_string(&records::atto()).expect("JSON"))
}

fn directory(result: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a folder");
    fs::write(directory.path().join("result.json"), result).expect("a result");
    directory
}

fn report(directory: &Path, arguments: &[&str]) -> crate::program::Ended {
    let directory = directory.to_str().expect("a path");
    linerate(&[&["report", directory], arguments].concat())
}

#[test]
fn the_files_of_a_report_are_written_again() {
    let directory = result();
    let said = report(directory.path(), &["--beside", "001"]).expect_success();
    let sources = ["read", "write"].map(|way| format!("Super ATTO Clone pattern, {way}"));
    assert!(
        sources.iter().all(|source| said.contains(source)) && said.contains("ratio"),
        "{said}"
    );
    says(&said, &["read-512", "report.html"]);
    assert!(
        said.contains("write-8388608") && !said.contains("more, in the report"),
        "{said}"
    );
    for name in ["report.html", "report.md", "cells.csv", "samples.csv"] {
        assert!(
            fs::metadata(directory.path().join(name)).expect(name).len() > 1000,
            "{name}"
        );
    }
    let page = fs::read_to_string(directory.path().join("report.html")).expect("a page");
    assert!(
        sources
            .iter()
            .all(|source| page.contains(&format!("document 001, {source}")))
    );
}

#[test]
fn other_forms_are_printed_and_nothing_is_written() {
    let directory = result();
    let print = |format: &str| report(directory.path(), &["--format", format]).expect_success();
    assert!(print("terminal").starts_with("atto on iscsi://"));
    assert!(print("html").starts_with("<!DOCTYPE html>"));
    assert!(print("markdown").starts_with("# atto on "));
    assert!(print("cells").starts_with("cell,series,"));
    assert!(print("samples").starts_with("cell,round,"));
    assert!(print("iometer-csv").starts_with("'Test Type,Test Description\n"));
    let file: Value = serde_json::from_str(&print("fio-json")).expect("JSON");
    assert_eq!(file["jobs"].as_array().map(Vec::len), Some(30));
    assert_eq!(fs::read_dir(directory.path()).expect("a folder").count(), 1);
}

#[test]
fn results_of_a_tree_and_of_several_folders_are_one_page() {
    let tree = tempfile::tempdir().expect("a folder");
    let text = serde_json::to_string(&records::sweep()).expect("JSON");
    for name in ["monday", "tuesday/atto", ".hidden"] {
        let folder = tree.path().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("result.json"), &text).expect("a result");
    }
    let said = report(tree.path(), &[]).expect_success();
    assert!(
        said.contains("monday") && said.contains("tuesday/atto") && !said.contains("hidden"),
        "{said}"
    );
    let page = fs::read_to_string(tree.path().join("reports.html")).expect("a page");
    for part in [
        "<h1>2 results</h1>",
        "id=\"result-1-sizes\"",
        "id=\"result-2-sizes\"",
        "The same cells in several",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(fs::metadata(tree.path().join("tuesday/atto/report.html")).is_ok());

    let [monday, tuesday] =
        ["monday", "tuesday"].map(|name| tree.path().join(name).display().to_string());
    let refused = linerate(&["report", &monday, &tuesday]).expect_failure();
    assert!(refused.contains("--out DIR"), "{refused}");
    let refused = linerate(&["report", &monday, &tuesday, "--format", "cells"]).expect_failure();
    assert!(refused.contains("supports only one result"), "{refused}");
    let both = tree.path().join("both").display().to_string();
    linerate(&["report", &monday, &tuesday, "--out", &both]).expect_success();
    assert!(
        fs::metadata(tree.path().join("both/reports.md"))
            .expect("a page")
            .len()
            > 1000
    );
}

#[test]
fn what_is_no_result_is_refused_with_its_place() {
    let refused = |result: &str| report(directory(result).path(), &[]).expect_failure();
    assert!(refused("{\n  \"format\": 1,\n  nonsense").contains("line 3 column"));
    assert!(refused("{\"format\": 99}").contains("has format 99"));
    assert!(refused("").contains("is not a result of linerate bench"));
    let empty = tempfile::tempdir().expect("a folder");
    assert!(
        report(empty.path(), &[])
            .expect_failure()
            .contains("cannot read")
    );
    assert!(
        report(&empty.path().join("not there"), &[])
            .expect_failure()
            .contains("cannot read")
    );
}

#[test]
fn an_unknown_document_is_refused_before_anything_is_written() {
    let directory = result();
    let said = report(directory.path(), &["--beside", "005"]).expect_failure();
    says(&said, &["possible values: 000, 001, 002, 003, 004"]);
    assert_eq!(fs::read_dir(directory.path()).expect("a folder").count(), 1);
}
