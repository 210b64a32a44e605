//! Tests of the reports of diagnoses.

use diagnose::{Cause, Diagnosis, Remedy, Verdict, Where};
use model::Term;
use report::DiagnosisReport;

use crate::{assert_well_formed, diagnoses};

fn report(diagnosis: &Diagnosis) -> DiagnosisReport<'_> {
    DiagnosisReport::new(diagnosis, "2026-11-21 18:00:00 UTC", "0.1.0")
}

#[test]
fn the_verdict_is_the_first_sentence_of_every_form() {
    let diagnosis = diagnoses::held_back();
    let verdict = "! Writes wait for an R2T for their first data: in a trial, the fix gained ×1.85 (1.80 to 1.90)";
    let seen = report(&diagnosis).details(100);
    assert!(
        seen.lines()
            .nth(3)
            .is_some_and(|line| line.starts_with(verdict)),
        "{seen}"
    );
    let page = report(&diagnosis).markdown();
    let (verdict, evidence) = (page.find(verdict), page.find("InitialR2T"));
    assert!(verdict.is_some() && verdict < evidence, "{page}");
    assert_well_formed(&report(&diagnosis).html());
}

#[test]
fn a_finding_has_its_evidence_its_gain_its_settings_and_what_came_of_trying() {
    let diagnosis = diagnoses::held_back();
    for text in [
        report(&diagnosis).details(100),
        report(&diagnosis).markdown(),
    ] {
        for part in [
            "one round trip of 10.2",
            "12.3 MB/s now, about 23.4 MB/s (",
            "open-iscsi",
            "×1.46",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
    let page = report(&diagnosis).markdown();
    assert!(
        page.contains("Tested, in alternating rounds: ×1.85 (1.80 to 1.90)."),
        "{page}"
    );
    assert!(
        page.contains("--confirm alternates between rounds with initial-r2t=no and rounds without"),
        "{page}"
    );
}

#[test]
fn an_earlier_diagnosis_is_compared_load_by_load_in_every_form() {
    let before = diagnoses::held_back();
    let mut now = before.clone();
    let run = &mut now.evidence.loads[0];
    let earlier = run.bytes_per_s.clone();
    run.bytes_per_s.iter_mut().for_each(|rate| *rate *= 2.0);
    now.verdict = Verdict::Fine {
        term: Term::Link,
        share: 0.97,
    };
    let report = report(&now).after(Some(&before));
    for text in [
        report.terminal(100),
        report.details(100),
        report.markdown(),
        report.html(),
    ] {
        for part in [
            "Before: Writes wait for an R2T",
            "MB/s before",
            "×2.0 (",
            "×1.00 (",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
    assert_well_formed(&report.html());
    let json: serde_json::Value =
        serde_json::from_str(&report.json().expect("it is JSON")).expect("it is JSON");
    let compared = &json["compared"][0];
    assert_eq!(
        compared["before_bytes_per_s"].as_f64(),
        Some(stats::median(&earlier))
    );
    let ratio = compared["ratio"]["mean"].as_f64().expect("a ratio");
    assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn diagnoses_without_a_common_load_say_so() {
    let before = diagnoses::held_back();
    let mut now = before.clone();
    now.evidence.place = "iscsi://192.0.2.9/iqn.2026-01.com.example:other/0".to_owned();
    now.evidence
        .loads
        .iter_mut()
        .for_each(|run| run.load.depth += 1000);
    let text = report(&now).after(Some(&before)).terminal(100);
    assert!(text.contains("no load in common"), "{text}");
    assert!(
        text.contains(&format!(
            "The earlier diagnosis is of {}",
            before.evidence.place
        )),
        "{text}"
    );
}

#[test]
fn every_cause_has_a_name_of_its_own_in_every_form() {
    let mut names = Vec::new();
    for cause in diagnoses::CAUSES {
        let diagnosis = diagnoses::with(cause);
        let verdict = report::verdict(&diagnosis);
        let (name, _) = verdict
            .split_once(": expected gain about ×2.5 (2.3 to 2.7)")
            .expect("the gain");
        let report = report(&diagnosis);
        for text in [
            report.details(100),
            report.markdown(),
            report.html().replace("&#39;", "'"),
        ] {
            assert!(text.contains(name), "{cause:?}: {name}");
        }
        names.push(name.to_owned());
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), diagnoses::CAUSES.len());
}

#[test]
fn the_documentation_has_every_cause_by_both_its_names() {
    let page = include_str!("../../../../../docs/diagnose.md");
    for cause in diagnoses::CAUSES {
        let name = serde_json::to_string(&cause)
            .expect("a name")
            .replace('"', "`");
        let verdict = report::verdict(&diagnoses::with(cause));
        let (title, _) = verdict.split_once(": ").expect("a title");
        assert!(
            page.contains(&name) && page.contains(&format!("| {title} |")),
            "{name}: {title}"
        );
    }
}

#[test]
fn that_nothing_is_wrong_is_said_with_what_limits() {
    let mut diagnosis = diagnoses::fine();
    assert!(
        report(&diagnosis)
            .details(80)
            .contains("✓ Nothing is wrong: the path reaches 97 % of what the link carries.")
    );
    diagnosis.verdict = Verdict::Fine {
        term: Term::Medium,
        share: 0.991,
    };
    assert!(
        report(&diagnosis)
            .markdown()
            .contains("the path reaches 99 % of what the storage provides")
    );
    diagnosis.verdict = Verdict::Uncertain { interval: 1.3 };
    let uncertain = report(&diagnosis).markdown();
    assert!(
        uncertain.contains("too uncertain for a conclusion: the error of a rate is ±130 %"),
        "{uncertain}"
    );
    assert!(
        uncertain.contains("without --quick") && !uncertain.contains("Nothing"),
        "{uncertain}"
    );
}

#[test]
fn what_is_not_known_is_said_once_for_each_reason() {
    let diagnosis = diagnoses::not_known();
    for text in [
        report(&diagnosis).details(100),
        report(&diagnosis).markdown(),
    ] {
        assert!(
            text.contains("Unknown: the measurements do not explain 31 % of the time"),
            "{text}"
        );
        assert!(
            text.contains(
                "Long packets do not arrive: a READ of 65,536 bytes had no response in 3 s"
            ),
            "{text}"
        );
    }
    let page = report(&diagnosis).markdown();
    assert!(
        page.contains("Unknown: WRITE, WRITE with FUA, SYNCHRONIZE CACHE: writing was not allowed"),
        "{page}"
    );
    assert!(
        page.contains("12 requests failed; the first: MEDIUM ERROR"),
        "{page}"
    );
}

#[test]
fn a_layer_that_is_not_known_is_told_together_with_the_next() {
    let page = report(&diagnoses::not_known()).markdown();
    assert!(
        page.contains("| a read of 512 B | PDU handling + SCSI dispatch + data path | 120 µs"),
        "{page}"
    );
    assert!(!page.contains("a durable write of"), "{page}");
}

#[test]
fn the_layers_of_a_write_tell_the_wait_for_r2ts_apart() {
    let page = report(&diagnoses::held_back()).markdown();
    assert!(
        page.contains(
            "| a durable write of 4 KiB | waiting for R2Ts | 10.1 ms, calculated | 20.3 ms |"
        ),
        "{page}"
    );
    // A write with FUA took 8.87 ms longer than the same write without FUA.
    assert!(page.contains("| to stable storage | 8.87 ms ± "), "{page}");
}

#[test]
fn the_terminal_shows_all_of_it_in_lines_of_its_width() {
    for (name, diagnosis) in diagnoses::all() {
        for width in [0, 60, 80, 100, 500] {
            let seen = report(&diagnosis).details(width);
            let longest = seen
                .lines()
                .map(|line| line.chars().count())
                .max()
                .unwrap_or(0);
            assert!(
                !seen.contains(" …") && !seen.contains("more, in the report"),
                "{name}:\n{seen}"
            );
            let words = seen.split_whitespace().collect::<Vec<_>>().join(" ");
            for evidence in diagnosis
                .findings
                .iter()
                .flat_map(|finding| &finding.because)
            {
                let evidence = evidence.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(
                    name == "hostile" || words.contains(&evidence),
                    "{name}: {evidence}:\n{seen}"
                );
            }
            assert!(
                longest <= width.clamp(60, 100),
                "{name}: {longest} of {width}:\n{seen}"
            );
        }
    }
    let seen = report(&diagnoses::held_back()).details(100);
    assert!(seen.lines().count() >= 25, "{seen}");
}

#[test]
fn what_a_target_says_stays_text() {
    let diagnosis = diagnoses::hostile();
    let html = report(&diagnosis).html();
    assert_eq!(html.matches("<script").count(), 1, "the page's own");
    assert!(html.contains("&lt;script&gt;alert(1)"));
    assert_well_formed(&html);
    let [page, seen] = [
        report(&diagnosis).markdown(),
        report(&diagnosis).details(80),
    ];
    assert!(
        !page.contains("<script") && !page.contains("\n# x"),
        "{page}"
    );
    for text in [&html, &page, &seen] {
        assert!(
            !text.contains(['\u{202e}', '\u{1b}']) && !text.contains("NaN"),
            "{text}"
        );
    }
    assert!(
        seen.chars()
            .all(|letter| letter == '\n' || !letter.is_control()),
        "{seen}"
    );
}

#[test]
fn the_page_asks_for_nothing_else() {
    for (name, diagnosis) in diagnoses::all() {
        let page = report(&diagnosis).html();
        assert_well_formed(&page);
        for outside in ["src=", "<link", "url(", "@import", "http://", "fetch("] {
            assert!(!page.contains(outside), "{name}: {outside}");
        }
    }
}

#[test]
fn a_diagnosis_survives_its_own_json() {
    for diagnosis in [
        diagnoses::held_back(),
        diagnoses::fine(),
        diagnoses::not_known(),
    ] {
        let text = serde_json::to_string(&diagnosis).expect("JSON");
        let again: Diagnosis = serde_json::from_str(&text).expect("a diagnosis");
        assert_eq!(
            (again.verdict, again.findings.len()),
            (diagnosis.verdict, diagnosis.findings.len())
        );
        // The last bit of a number may differ, since exact parsing would be slow.
        assert_eq!(again.evidence.environment, diagnosis.evidence.environment);
        assert_eq!(again.evidence.loads.len(), diagnosis.evidence.loads.len());
    }
}

#[test]
fn a_diagnosis_fits_on_a_screen() {
    for diagnosis in [
        diagnoses::held_back(),
        diagnoses::fine(),
        diagnoses::not_known(),
    ] {
        let seen = report(&diagnosis).terminal(80);
        assert!(
            seen.lines().count() <= 24,
            "{} lines:\n{seen}",
            seen.lines().count()
        );
        assert!(seen.contains("--details"), "{seen}");
    }
}

#[test]
fn a_screen_has_the_remedies_for_this_target_first() {
    let mut diagnosis = diagnoses::with(Cause::Medium);
    let remedy = |at, change: &str| Remedy {
        at,
        change: change.to_owned(),
    };
    diagnosis.findings[0].remedies = vec![
        remedy(Where::Target, "of any"),
        remedy(Where::Lio, "of LIO"),
        remedy(Where::Linerate, "of Linerate"),
    ];
    for (product, first) in [
        ("LINERATE VOLUME", "of Linerate"),
        ("LIO-ORG disk", "of LIO"),
        ("ACME X", "of any"),
    ] {
        diagnosis.evidence.storage.product = Some(product.to_owned());
        let seen = report(&diagnosis).terminal(80);
        let lines: Vec<&str> = seen.lines().filter(|line| line.contains('→')).collect();
        assert!(lines[0].ends_with(first), "{product}: {lines:?}");
        assert!(lines.len() <= 2, "{product}: {lines:?}");
    }
}
