//! Tests with malicious records: names that contain markup, and implausible numbers.

use bench::plan::Step;
use bench::record::Record;
use serde_json::{Value, json};

use crate::{all, assert_well_formed, records, report};

#[test]
fn hostile_names_stay_text_in_html() {
    let record = records::partial();
    let page = report(&record).html();
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains(['\u{202e}', '\u{1b}']));
    assert_well_formed(&page);
}

#[test]
fn hostile_names_stay_text_in_markdown_and_on_a_terminal() {
    let record = records::partial();
    let page = report(&record).markdown();
    // A code block contains no markup.
    let outside = page.split("```").step_by(2);
    assert!(
        outside.clone().count() == 2 && outside.clone().all(|part| !part.contains("<script")),
        "{page}"
    );
    assert!(!page.contains(['\u{202e}', '\u{1b}']));
    let seen = report(&record).terminal(80);
    assert!(
        seen.chars()
            .all(|letter| letter == '\n' || !letter.is_control()),
        "{seen}"
    );
}

#[test]
fn no_number_in_a_record_makes_a_report_fail() {
    for mut record in all() {
        // A few runs of each cell contain numbers of every kind.
        record.runs.truncate(3);
        for client in record.runs.iter_mut().flat_map(|run| &mut run.clients) {
            client.run.samples.truncate(3);
            client.run.reads.service.0.truncate(3);
        }
        for step in &mut record.suite.steps {
            if let Step::Measure { cells, .. } = step {
                // Of a matrix, keep only the cells that still have runs.
                cells.retain(|cell| {
                    cell.setting.is_none() || record.runs.iter().any(|run| run.cell == cell.name)
                });
            }
        }
        let value = serde_json::to_value(&record).expect("JSON");
        for extreme in [
            json!(0),
            json!(u64::MAX),
            json!(u32::MAX),
            json!(1e308),
            json!(-1.5),
        ] {
            let mut parts = Vec::new();
            numbers(&value, &mut Vec::new(), &mut parts);
            // Change all fields with the same name together, so that a field changes in every run.
            let mut names: Vec<Vec<String>> = parts;
            names.sort();
            names.dedup();
            for name in names {
                let mut changed = value.clone();
                set(&mut changed, &name, &extreme);
                if let Ok(record) = serde_json::from_value::<Record>(changed) {
                    every_form(&record);
                }
            }
        }
    }
}

fn every_form(record: &Record) {
    let report = report(record);
    assert_well_formed(&report.html());
    let texts = [
        report.markdown(),
        report.terminal(80),
        report.cells_csv(),
        report.samples_csv(),
    ];
    assert!(
        texts
            .iter()
            .chain(&[report.iometer_csv(), report.fio_json()])
            .all(|text| !text.contains("NaN"))
    );
}

/// Collects the paths of all numbers, without the indices of list elements.
fn numbers(value: &Value, way: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Number(_) => found.push(way.clone()),
        Value::Array(items) => items.iter().for_each(|item| numbers(item, way, found)),
        Value::Object(fields) => {
            for (name, field) in fields {
                way.push(name.clone());
                numbers(field, way, found);
                way.pop();
            }
        }
        _ => {}
    }
}

fn set(value: &mut Value, way: &[String], to: &Value) {
    match value {
        Value::Number(_) if way.is_empty() => *value = to.clone(),
        Value::Array(items) => items.iter_mut().for_each(|item| set(item, way, to)),
        Value::Object(fields) => {
            if let Some((name, rest)) = way.split_first()
                && let Some(field) = fields.get_mut(name)
            {
                set(field, rest, to);
            }
        }
        _ => {}
    }
}
