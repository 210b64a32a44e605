//! The self-test, as run by a user who has just built the program.

use crate::program::{LINERATE, run};

#[test]
fn the_proof_verifies_measures_and_leaves_a_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("proof");
    std::fs::create_dir(&out).expect("a folder");
    std::fs::write(out.join("result.json"), "{}").expect("a report of an earlier proof");
    let arguments = [
        "selftest",
        "--seconds",
        "0.2",
        "--out",
        &out.display().to_string(),
    ];
    let told = run(LINERATE, &arguments).expect_success();
    let (measured, diagnosed) = told
        .split_once("Bottleneck: the path")
        .expect("a diagnosis behind the measurements");
    assert_eq!(measured.matches('✓').count(), 15, "{told}");
    assert!(diagnosed.contains("PASSED: every written block"), "{told}");
    let cells: Vec<&str> = measured
        .lines()
        .filter(|line| line.contains("iB ") && line.contains(", depth "))
        .collect();
    assert_eq!(cells.len(), 15, "{told}");
    // The output shows a share of the ceiling, unless the ceiling was measured on a busy machine and is below
    // the rate.
    let has_share = |line: &&&str| line.ends_with(" %") || line.ends_with("exceeded");
    assert_eq!(
        cells.iter().filter(has_share).count(),
        14,
        "all cells but the mixed one: {told}"
    );
    let record = std::fs::read_to_string(out.join("result.json")).expect("a record");
    let record: bench::record::Record =
        serde_json::from_str(&record).expect("a record of this format");
    assert_eq!(record.runs.len(), 45);
    assert!(record.ended.is_some() && !record.limits.is_empty());
    // A run of 20 ms in which a busy machine did not schedule the program counts nothing, not even CPU time.
    let counted =
        |run: &&bench::record::CellRun| run.clients.iter().any(|client| client.run.ios() > 0);
    let unknown = record
        .runs
        .iter()
        .filter(counted)
        .find(|run| run.server_cpu.is_none());
    assert!(unknown.is_none(), "{unknown:#?}");
    let page = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("TCP on this machine"), "the ceiling is drawn");
    assert!(diagnosed.contains("PDU handling"), "{told}");
    let diagnosis =
        std::fs::read_to_string(out.join("diagnosis/diagnosis.json")).expect("a diagnosis");
    let diagnosis: diagnose::Diagnosis = serde_json::from_str(&diagnosis).expect("of this format");
    assert_eq!(diagnosis.evidence.loads.len(), diagnosis.explained.len());
    assert!(
        diagnosis.evidence.loads.iter().all(|run| run.errors == 0),
        "{told}"
    );
    assert!(out.join("diagnosis/report.html").exists());
}
