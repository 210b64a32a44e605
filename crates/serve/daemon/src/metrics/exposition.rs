//! Prometheus' text format, version 0.0.4: families with their HELP and TYPE, samples with their labels.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::{Display, Write as _};
use std::time::Duration;

use front_end_core::{CLASSES, Durations};
use volume::backend::{Family, Figure};

/// A text to which families are appended.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    pub(super) text: String,
    /// The families in the text.
    pub(super) families: Vec<&'static Family>,
}

impl Exposition {
    /// Writes a table of figures for each subject. The first labels of each subject are given.
    pub(super) fn table<'a, S, const N: usize>(
        &mut self,
        figures: &'static [Figure<S>],
        all: impl IntoIterator<Item = ([&'a str; N], &'a S)>,
    ) {
        let all: Vec<_> = all.into_iter().collect();
        for Figure { family, samples } in figures {
            let mut out = self.family(family);
            for (labels, one) in &all {
                samples(one, &mut |more, value| {
                    out.add(&[&labels[..], more].concat(), value)
                });
            }
        }
    }

    /// Begins a family; its samples follow immediately.
    pub(super) fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let Family {
            name, kind, help, ..
        } = family;
        debug_assert!(
            self.families.iter().all(|known| known.name != *name),
            "a family is written once"
        );
        self.line(format_args!(
            "# HELP {name} {}",
            help.replace('\\', "\\\\").replace('\n', "\\n")
        ));
        self.line(format_args!("# TYPE {name} {}", kind.name()));
        self.families.push(family);
        Samples {
            text: &mut self.text,
            family,
        }
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a `String` does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}

pub(super) struct Samples<'a> {
    text: &'a mut String,
    family: &'static Family,
}

impl Samples<'_> {
    /// Adds a sample, with the values of the labels in order.
    pub(super) fn add(&mut self, labels: &[&str], value: impl Display) {
        self.sample("", labels, None, value);
    }

    pub(super) fn histogram(&mut self, labels: &[&str], durations: &Durations) {
        let mut count = 0;
        for class in 0..CLASSES {
            count += durations.counts[class];
            let bound = Durations::bound(class)
                .map_or("+Inf".to_owned(), |bound| seconds(bound).to_string());
            self.sample("_bucket", labels, Some(&bound), count);
        }
        self.sample("_sum", labels, None, seconds(durations.sum));
        self.sample("_count", labels, None, count);
    }

    fn sample(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: impl Display) {
        debug_assert_eq!(
            labels.len(),
            self.family.labels.len(),
            "{}",
            self.family.name
        );
        self.text.push_str(self.family.name);
        self.text.push_str(suffix);
        let mut opening = '{';
        let labels = self
            .family
            .labels
            .iter()
            .copied()
            .zip(labels.iter().copied());
        for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
            self.text.push(opening);
            opening = ',';
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value);
            self.text.push('"');
        }
        if opening == ',' {
            self.text.push('}');
        }
        // Writing to a `String` does not fail.
        let _ = writeln!(self.text, " {value}");
    }
}

/// Appends a label's value. The value may contain any character, as initiator names do, so three characters
/// are escaped.
fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(c),
        }
    }
}

/// Converts a time to seconds, the unit of time in Prometheus.
pub(super) fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use volume::backend::MetricKind;

    use super::*;

    static PLAIN: Family = Family {
        name: "a_bytes",
        kind: MetricKind::Gauge,
        labels: &[],
        help: "One\nline \\.",
    };
    static LABELLED: Family = Family {
        name: "b_total",
        kind: MetricKind::Counter,
        labels: &["x", "y"],
        help: "B.",
    };
    static TIMES: Family = Family {
        name: "c_seconds",
        kind: MetricKind::Histogram,
        labels: &["x"],
        help: "C.",
    };

    #[test]
    fn families_are_written_as_the_format_wants_it() {
        let mut exposition = Exposition::default();
        exposition.family(&PLAIN).add(&[], 7);
        exposition.family(&LABELLED).add(&["a\\b\"c\nd", "ü"], 1.5);
        let expected = "# HELP a_bytes One\\nline \\\\.\n# TYPE a_bytes gauge\na_bytes 7\n\
                        # HELP b_total B.\n# TYPE b_total counter\nb_total{x=\"a\\\\b\\\"c\\nd\",y=\"ü\"} 1.5\n";
        assert_eq!(exposition.text, expected);
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_all() {
        let mut durations = Durations {
            sum: Duration::from_millis(3),
            ..Durations::default()
        };
        (
            durations.counts[0],
            durations.counts[2],
            durations.counts[CLASSES - 1],
        ) = (1, 2, 4);
        let mut exposition = Exposition::default();
        exposition.family(&TIMES).histogram(&["v"], &durations);
        let text = exposition.text;
        for line in [
            "c_seconds_bucket{x=\"v\",le=\"0.000004\"} 1",
            "c_seconds_bucket{x=\"v\",le=\"0.000008\"} 1",
            "c_seconds_bucket{x=\"v\",le=\"0.000016\"} 3",
            "c_seconds_bucket{x=\"v\",le=\"16.777216\"} 3",
            "c_seconds_bucket{x=\"v\",le=\"+Inf\"} 7",
            "c_seconds_sum{x=\"v\"} 0.003",
            "c_seconds_count{x=\"v\"} 7",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
