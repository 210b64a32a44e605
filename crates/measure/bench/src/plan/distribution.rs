//! Distributions of random offsets over the span: their parameters with the valid ranges, and their syntax on
//! the command line, in suites and in fio's jobs. [`crate::access`] draws the offsets.
//!
//! To add a distribution, add a variant, a row of [`FORMS`], its sampler in `access`, and a row of the table
//! in `docs/bench.md`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Percent;

/// The distribution of random offsets over the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// All places have the same probability.
    #[default]
    Uniform,
    /// The place number k of a fixed permutation has a probability proportional to k^-theta.
    Zipf {
        /// The exponent: 0.99 is the default of YCSB, 1.1 the default of fio.
        theta: f64,
    },
    /// A Pareto distribution over the places of a fixed permutation, as in fio: a share `h` of the places
    /// receives a share 1 - `h` of the requests (0.2 is the 80/20 rule).
    Pareto {
        /// The skew, above 0 and below 1.
        h: f64,
    },
    /// A share of the requests goes to a share of the span, at its start (vdbench's hot band, fio's zones).
    Hot {
        /// The share of the requests.
        requests: Percent,
        /// The share of the span; not 0.
        span: Percent,
    },
}

/// The textual form of a distribution.
struct Form {
    /// The name, which serde also uses, with fio's default parameters.
    example: &'static str,
    fio: &'static str,
    ranges: &'static str,
    /// Parses the parameters. Returns `None` if their number or a value is wrong.
    read: fn(&[&str]) -> Option<Distribution>,
    /// Formats the parameters. Returns `None` for a different distribution.
    write: fn(Distribution) -> Option<Vec<String>>,
}

macro_rules! form {
    ($example:expr, $fio:expr, $variant:ident { $($number:ident),* }, $ranges:expr, $fits:expr) => {
        Form {
            example: $example,
            fio: $fio,
            ranges: $ranges,
            read: |numbers| match *numbers {
                [$($number),*] => Some(Distribution::$variant { $($number: $number.parse().ok()?),* })
                    .filter(|read| matches!(*read, Distribution::$variant { $($number),* } if $fits)),
                _ => None,
            },
            write: |distribution| match distribution {
                Distribution::$variant { $($number),* } => Some(vec![$($number.to_string()),*]),
                _ => None,
            },
        }
    };
}

const FORMS: [Form; 4] = [
    form!("uniform", "random", Uniform {}, "", true),
    // With an exponent above 10, practically all requests go to the first place.
    form!(
        "zipf:1.1",
        "zipf",
        Zipf { theta },
        " (above 0, at most 10)",
        theta > 0.0 && theta <= 10.0
    ),
    form!(
        "pareto:0.2",
        "pareto",
        Pareto { h },
        " (above 0, below 1)",
        h > 0.0 && h < 1.0
    ),
    form!(
        "hot:90/10",
        "zoned",
        Hot { requests, span },
        " (percent of the requests / of the span, above 0)",
        requests <= Percent::ALL && span > Percent::NONE
    ),
];

impl Distribution {
    /// Parses fio's syntax.
    pub(crate) fn of_fio(text: &str) -> Result<Distribution, String> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let form = FORMS.iter().find(|form| form.fio == name);
        let (first, zones) = values.split_once(':').unwrap_or((values, ""));
        let read = form.and_then(|form| {
            if values.is_empty() {
                Some(form.example())
            } else {
                form.read(first)
            }
        });
        // Two zones are a hot part: the second zone must be the rest of the span, with the rest of the
        // requests.
        let read = read.filter(|read| zones.is_empty() && name != "zoned" || read.fio() == text);
        read.ok_or_else(|| {
            format!(
                "`{text}` is unknown; use {}",
                Self::choices(|example| example.fio())
            )
        })
    }

    /// Formats the distribution in fio's syntax: `zipf:1.1`, `zoned:90/10:10/90`.
    pub fn fio(self) -> String {
        let (form, numbers) = self.form();
        let rest = match self {
            Distribution::Hot { requests, span } => {
                format!(":{}/{}", 100 - requests.get(), 100 - span.get())
            }
            _ => String::new(),
        };
        format!("{}{numbers}{rest}", form.fio)
    }

    /// Returns whether the parameters, which may come from a file, are within their ranges.
    pub(crate) fn is_valid(self) -> bool {
        self.to_string().parse() == Ok(self)
    }

    /// Lists an example of each distribution, with its valid ranges, for help texts and messages.
    pub fn choices(written: fn(&Distribution) -> String) -> String {
        let each: Vec<String> = FORMS
            .iter()
            .map(|form| written(&form.example()) + form.ranges)
            .collect();
        let (last, others) = each.split_last().expect("the table has rows");
        format!("{} or {last}", others.join(", "))
    }

    /// Returns the form of the distribution, and its parameters, which start with a colon if there are any.
    fn form(self) -> (&'static Form, String) {
        let form = FORMS
            .iter()
            .find_map(|form| Some((form, (form.write)(self)?.join("/"))));
        let (form, numbers) = form.expect("a test compares the table with the variants");
        (
            form,
            if numbers.is_empty() {
                numbers
            } else {
                format!(":{numbers}")
            },
        )
    }
}

impl Form {
    fn name(&self) -> &'static str {
        self.example.split(':').next().unwrap_or_default()
    }

    /// Parses parameters separated by `/`. An empty text contains no parameters.
    fn read(&self, numbers: &str) -> Option<Distribution> {
        let numbers: Vec<&str> = numbers.split('/').filter(|_| !numbers.is_empty()).collect();
        (self.read)(&numbers)
    }

    fn example(&self) -> Distribution {
        self.example.parse().expect("a test reads them")
    }
}

impl fmt::Display for Distribution {
    /// Formats the distribution in the syntax of the command line and of suites: `zipf:1.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, numbers) = self.form();
        write!(f, "{}{numbers}", form.name())
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let form = FORMS.iter().find(|form| form.name() == name);
        let read = form.and_then(|form| form.read(values));
        read.ok_or_else(|| {
            format!(
                "`{text}` is not a distribution; use {}",
                Self::choices(Self::to_string)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fio_job, suite};

    /// Returns the distribution of a suite with one cell, or the error.
    fn in_suite(written: &str) -> Result<Distribution, String> {
        let text = format!(
            "name = \"s\"\ntitle = \"S\"\nabout = \"S.\"\n[[step]]\nstop = {{ time = \"1s\" }}\n[[step.cell]]\nname = \"c\"\n\
             block = \"4KiB\"\ndepth = 1\nread = 100\nrandom = 100\ndistribution = {written}\n"
        );
        let suite = suite::parse(&text).map_err(|error| error.to_string())?;
        Ok(suite.cells().next().expect("a cell").roles[0]
            .workload
            .distribution)
    }

    /// Returns the distribution of a fio job, or the error.
    fn in_job(written: &str) -> Result<Distribution, String> {
        let text = format!("[a]\nrw=randread\nsize=100%\nrandom_distribution={written}\n");
        let jobs = fio_job::parse(&text, &[]).map_err(|mistakes| mistakes[0].to_string())?;
        let suite = jobs.suite("jobs", 1 << 20)?;
        Ok(suite.cells().next().expect("a cell").roles[0]
            .workload
            .distribution)
    }

    #[test]
    fn every_distribution_is_read_as_it_is_written_and_documented() {
        let rows = || {
            include_str!("../../../../../docs/bench.md")
                .lines()
                .filter_map(|line| line.strip_prefix("| "))
        };
        for (written, example) in FORMS.iter().map(|form| (form.example, form.example())) {
            assert_eq!(example.to_string(), written);
            assert_eq!(in_suite(&format!("{written:?}")), Ok(example));
            assert_eq!(in_job(&example.fio()), Ok(example));
            let name = written.split(':').next().expect("a name");
            assert!(
                rows().any(|row| row.trim_start_matches('`').starts_with(name)),
                "{name} in docs/bench.md"
            );
            assert!(example.is_valid(), "{written}");
        }
        let suites = include_str!("../../../../../docs/suites.md");
        let row = suites
            .lines()
            .find(|line| line.starts_with("| `distribution` |"))
            .expect("the row");
        let values: Vec<&str> = row
            .split('`')
            .skip(3)
            .step_by(2)
            .filter(|value| !value.starts_with('-'))
            .collect();
        assert!(
            values.len() > 3 && values.iter().all(|value| in_suite(value).is_ok()),
            "{values:?}"
        );
    }

    #[test]
    fn every_variant_has_a_form_of_its_name() {
        let why = serde_json::from_str::<Distribution>("\"?\"")
            .expect_err("no variant")
            .to_string();
        let variants = why.split_once("expected").expect("the variants").1;
        let variants: Vec<&str> = variants.split('`').skip(1).step_by(2).collect();
        assert_eq!(variants, FORMS.each_ref().map(Form::name));
        for form in &FORMS {
            let stored = serde_json::to_value(form.example()).expect("JSON");
            assert!(
                stored == form.name() || stored.get(form.name()).is_some(),
                "{stored}"
            );
        }
    }

    #[test]
    fn a_range_is_the_same_wherever_a_distribution_is_written() {
        let text = |text: &str| text.parse::<Distribution>();
        for (name, good, bad) in [
            (
                "zipf",
                &["0.001", "1", "5.5", "10"][..],
                &["0", "10.1", "-1", "nan", "1/2", "x"][..],
            ),
            ("pareto", &["0.001", "0.999"], &["0", "1", "nan", "inf"]),
        ] {
            for number in good {
                let read = text(&format!("{name}:{number}"));
                assert!(
                    read.as_ref().is_ok_and(|read| read.is_valid()),
                    "{name} {number}: {read:?}"
                );
                assert_eq!(in_suite(&format!("{{ {name} = {number} }}")), read);
                assert_eq!(in_job(&format!("{name}:{number}")), read);
            }
            for number in bad {
                assert!(
                    text(&format!("{name}:{number}")).is_err(),
                    "{name} {number}"
                );
                assert!(
                    in_suite(&format!("{{ {name} = {number} }}")).is_err(),
                    "{name} {number}"
                );
                assert!(
                    in_job(&format!("{name}:{number}")).is_err(),
                    "{name} {number}"
                );
            }
        }
        for shares in ["90/0", "101/10", "90/10.5", "256/10", "90", "90/10/1", "/"] {
            assert!(text(&format!("hot:{shares}")).is_err(), "{shares}");
            assert!(
                in_suite(&format!("{{ hot = [{}] }}", shares.replace('/', ", "))).is_err(),
                "{shares}"
            );
        }
        assert!(in_job("zoned:100/100:0/0").is_ok());
        for zones in [
            "zoned",
            "zoned:90/10",
            "zoned:90/10:10/80",
            "zoned:90/0:10/100",
            "zoned:5/5:5/5:90/90",
        ] {
            assert!(in_job(zones).is_err(), "{zones}");
        }
        for wrong in ["uniform:1", "zipf", "hot:", "", "normal:10"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fio_has_numbers_where_none_are_written() {
        assert_eq!(in_job("zipf"), Ok(Distribution::Zipf { theta: 1.1 }));
        assert_eq!(in_job("pareto"), Ok(Distribution::Pareto { h: 0.2 }));
    }

    #[test]
    fn a_mistake_names_every_form_as_it_would_be_written_there() {
        let words = ["zipf:1.1 (above 0, at most 10)", "hot:90/10 (percent"];
        let said =
            ["zipf:11", "normal:5"].map(|text| text.parse::<Distribution>().expect_err(text));
        assert!(
            said.iter()
                .all(|said| words.iter().all(|word| said.contains(word))),
            "{said:?}"
        );
        for written in [
            "{ zipf = 11 }",
            "\"zipf:11\"",
            "{ zipf = 1, hot = 2 }",
            "7",
            "[]",
        ] {
            let said = in_suite(written).expect_err(written);
            assert!(
                words.iter().all(|word| said.contains(word)),
                "{written}: {said}"
            );
        }
        assert!(in_suite("{ zipf = \"1\" }").is_err_and(|said| said.contains("write a number")));
        let said = in_job("zipf:11").expect_err("too much");
        assert!(
            said.contains("random, zipf:1.1 (") && said.contains("or zoned:90/10:10/90 ("),
            "{said}"
        );
    }
}
