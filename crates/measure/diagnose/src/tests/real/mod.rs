//! Measurements of `linerate diagnose --quick` in the lab and on loopback, with or without a planted cause
//! (`cargo measure diagnose-matrix`). They are unmodified, except that times are rounded to two digits.

use crate::{Cause, Diagnosis, Evidence, Verdict, Where, diagnose};
use block::Random;
use model::Term;

fn diagnosis(evidence: &str) -> Diagnosis {
    let evidence: Evidence = serde_json::from_str(evidence).expect("it is evidence");
    diagnose(evidence)
}

/// Checks that the first finding is the cause, and that its gain matches the one measured by removing the
/// cause.
fn is_told(evidence: &str, cause: Cause, measured: f64) {
    let first = diagnosis(evidence)
        .findings
        .into_iter()
        .next()
        .expect("something is found");
    assert_eq!(first.cause, cause, "{:?}", first.because);
    let said = first.gain.predicted.expect("a rate without the change");
    assert!((said / measured - 1.0).abs() < 0.2, "{said} for {measured}");
}

#[test]
fn a_receive_buffer_of_48_kib_at_16_ms() {
    is_told(include_str!("tcp-window.json"), Cause::TcpWindow, 2.98);
}

#[test]
fn bursts_of_8_kib_at_24_ms() {
    is_told(include_str!("small-bursts.json"), Cause::SmallBursts, 2.80);
}

#[test]
fn a_link_of_10_mbits_that_should_be_one_of_100() {
    is_told(include_str!("link-rate.json"), Cause::LinkRate, 10.29);
}

/// A token bucket of 64 KiB limits a link of 100 Mbit/s to 33, and drops packets that do not fit into its queue.
#[test]
fn a_policer_of_33_mbits_is_a_full_link_although_it_drops_packets() {
    is_told(include_str!("policer.json"), Cause::LinkRate, 2.96);
}

/// A path of 1 to 42 ms, and a receive buffer of the target. Removing either gains 3.5 to 3.7 times.
#[test]
fn a_window_on_a_path_with_jitter_is_no_full_link() {
    is_told(include_str!("jitter.json"), Cause::TcpWindow, 3.72);
}

/// The rate is near that of Ethernet at 10 Mbit/s, and the load is one read of 4 KiB at a time.
#[test]
fn storage_of_1_mb_a_second_delays_single_reads() {
    is_told(include_str!("storage-rate.json"), Cause::Medium, 3.3);
}

#[test]
fn one_connection_at_3_ms_and_one_at_17() {
    is_told(include_str!("slow-path.json"), Cause::SlowPath, 3.79);
}

#[test]
fn a_forwarder_that_sends_header_and_data_by_themselves() {
    let first = diagnosis(include_str!("delayed-ack.json"))
        .findings
        .into_iter()
        .next();
    assert_eq!(first.map(|first| first.cause), Some(Cause::DelayedAck));
}

#[test]
fn a_medium_of_8500_kb_a_second() {
    // This was measured before the lab's interfaces reported their speed, so the exact gain is unknown, but
    // it is large.
    let first = diagnosis(include_str!("medium.json"))
        .findings
        .into_iter()
        .next();
    assert_eq!(first.map(|first| first.cause), Some(Cause::Medium));
}

/// The storage is nbdkit, 1 ms away, with a filter that limits all connections together to 60 Mbit/s. A
/// BLOCK_STATUS on a separate connection does not wait.
#[test]
fn storage_of_7500_kb_a_second_behind_nbdkit() {
    let nbd = include_str!("nbd-medium.json");
    is_told(nbd, Cause::Medium, 6.04);
    let first = diagnosis(nbd).findings.remove(0);
    assert!(
        first
            .remedies
            .iter()
            .all(|remedy| ![Where::Tgt, Where::Lio, Where::Target].contains(&remedy.at))
    );
    let said = first.because.join(" ")
        + &first
            .remedies
            .iter()
            .map(|remedy| &*remedy.change)
            .collect::<String>();
    assert!(
        said.contains("BLOCK_STATUS") && !said.contains("NOP") && !said.contains("target"),
        "{said}"
    );
}

/// The limit is tcp_wmem of the server's host, 12 ms away.
#[test]
fn a_connection_of_nbd_that_sends_32_kib_at_once() {
    let nbd = include_str!("nbd-connections.json");
    is_told(nbd, Cause::Connections, 3.91);
    let trial = diagnosis(nbd)
        .findings
        .remove(0)
        .trial
        .expect("it can be tried");
    assert_eq!(trial.settings, [("connections".to_owned(), "4".to_owned())]);
}

/// Measured with a debug build, whose encryption is slower than that of any release.
#[test]
fn tls_that_has_no_cpu() {
    let first = diagnosis(include_str!("nbd-tls.json"))
        .findings
        .into_iter()
        .next()
        .expect("something is found");
    assert_eq!(first.cause, Cause::Tls, "{:?}", first.because);
    assert!(first.gain.predicted > Some(2.0));
}

#[test]
fn an_export_behind_50_mbits_and_11_ms_has_all_that_the_link_carries() {
    let diagnosis = diagnosis(include_str!("nbd-healthy-wan.json"));
    assert_eq!(diagnosis.findings, []);
    assert!(matches!(diagnosis.verdict, Verdict::Fine { term: Term::Link, share } if share > 0.9));
}

/// Fewer than three pairs of rounds are not enough to judge the effect of several connections.
#[test]
fn what_was_tried_once_is_no_finding() {
    let mut evidence: Evidence =
        serde_json::from_str(include_str!("nbd-connections.json")).expect("evidence");
    let pairs = evidence.loads.iter_mut().flat_map(|run| &mut run.beside);
    pairs.for_each(|beside| beside.pairs.truncate(2));
    assert!(
        diagnose(evidence)
            .findings
            .iter()
            .all(|finding| finding.cause != Cause::Connections)
    );
}

#[test]
fn loopback_is_as_fast_as_its_cpus_are() {
    let diagnosis = diagnosis(include_str!("healthy-loopback.json"));
    assert_eq!(diagnosis.findings, []);
    assert!(
        matches!(diagnosis.verdict, Verdict::Fine { term: Term::Exchanges, share } if share > 0.9)
    );
}

/// Evidence may come from a file, and contain any numbers.
#[test]
fn numbers_that_nobody_can_have_measured_are_survived() {
    let evidence = [
        include_str!("slow-path.json"),
        include_str!("nbd-connections.json"),
    ];
    let evidence = evidence.map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
    let mut random = Random::new(11);
    let mut judged = 0;
    for number in 0..800 {
        let mut lie = evidence[number % 2].clone();
        spoil(&mut lie, &mut random);
        let Ok(lie) = serde_json::from_value::<Evidence>(lie) else {
            continue;
        };
        let diagnosis = diagnose(lie);
        assert!(diagnosis.findings.len() <= 3);
        assert_eq!(diagnosis.explained.len(), diagnosis.evidence.loads.len());
        judged += 1;
    }
    assert!(judged > 200, "{judged}");
}

/// Replaces about one number in fifty.
fn spoil(value: &mut serde_json::Value, random: &mut Random) {
    match value {
        serde_json::Value::Number(number) if random.below(50) == 0 => {
            let whole = [0, 1, 512, 4_294_967_295, u64::MAX];
            let broken = [0.0, -1.0, 1e-300, 1e300];
            let is_whole = number.is_u64();
            *value = match is_whole {
                true => whole[random.below(whole.len() as u64) as usize].into(),
                false => broken[random.below(broken.len() as u64) as usize].into(),
            };
        }
        serde_json::Value::Array(values) => {
            values.iter_mut().for_each(|value| spoil(value, random))
        }
        serde_json::Value::Object(values) => {
            values.values_mut().for_each(|value| spoil(value, random))
        }
        _ => {}
    }
}
