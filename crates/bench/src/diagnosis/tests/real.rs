//! What `linerate diagnose --quick` measured in the lab and on loopback, with a cause planted or with none
//! (`cargo xtask diagnose-matrix`): as it was, but for times that are rounded to two digits.

use crate::diagnosis::{Cause, Diagnosis, Evidence, Verdict, diagnose};
use crate::model::Term;

fn diagnosis(evidence: &str) -> Diagnosis {
    let evidence: Evidence = serde_json::from_str(evidence).expect("it is evidence");
    diagnose(evidence)
}

/// The first finding is the cause, and its gain what taking the cause away was measured to bring.
fn is_told(evidence: &str, cause: Cause, measured: f64) {
    let first = diagnosis(evidence).findings.into_iter().next().expect("something is found");
    assert_eq!(first.cause, cause, "{:?}", first.because);
    let said = first.gain.predicted.expect("something goes as it is");
    assert!((said / measured - 1.0).abs() < 0.2, "{said} for {measured}");
}

#[test]
fn a_receive_buffer_of_48_kib_at_16_ms() {
    is_told(include_str!("real/tcp-window.json"), Cause::TcpWindow, 2.98);
}

#[test]
fn bursts_of_8_kib_at_24_ms() {
    is_told(include_str!("real/small-bursts.json"), Cause::SmallBursts, 2.80);
}

#[test]
fn a_link_of_10_mbits_that_should_be_one_of_100() {
    is_told(include_str!("real/link-rate.json"), Cause::LinkRate, 10.29);
}

#[test]
fn one_connection_at_3_ms_and_one_at_17() {
    is_told(include_str!("real/slow-path.json"), Cause::SlowPath, 3.79);
}

#[test]
fn a_forwarder_that_sends_header_and_data_by_themselves() {
    let first = diagnosis(include_str!("real/delayed-ack.json")).findings.into_iter().next();
    assert_eq!(first.map(|first| first.cause), Some(Cause::DelayedAck));
}

#[test]
fn a_medium_of_8500_kb_a_second() {
    // Before the lab's interfaces told their rate: what more there would be is not known, only that it is much.
    let first = diagnosis(include_str!("real/medium.json")).findings.into_iter().next();
    assert_eq!(first.map(|first| first.cause), Some(Cause::Medium));
}

#[test]
fn loopback_is_as_fast_as_its_cpus_are() {
    let diagnosis = diagnosis(include_str!("real/healthy-loopback.json"));
    assert_eq!(diagnosis.findings, []);
    assert!(matches!(diagnosis.verdict, Verdict::Fine { term: Term::Exchanges, share } if share > 0.9));
}
