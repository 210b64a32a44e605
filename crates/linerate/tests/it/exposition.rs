//! A strict parser of Prometheus' text format 0.0.4, written from the description of the format and not from
//! Linerate's writer. Prometheus accepts every text that this parser accepts.
//!
//! In addition to the grammar, it checks promtool's rules. HELP and TYPE precede all samples of a family,
//! each once. Families are contiguous, and no sample occurs twice. Histograms are cumulative, complete and
//! have a `+Inf`. Exactly the names of counters end in `_total`.

use std::collections::{BTreeMap, BTreeSet};

/// A metric family.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// All families, by name.
#[derive(Clone, Debug)]
pub(crate) struct Exposition(pub(crate) BTreeMap<String, Family>);

impl Exposition {
    /// Parses a text; an error names its line.
    pub(crate) fn read(text: &str) -> Result<Exposition, String> {
        if !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        let mut reader = Reader::default();
        for (number, line) in text.split_terminator('\n').enumerate() {
            reader
                .line(line)
                .map_err(|mistake| format!("line {}: {mistake}: {line}", number + 1))?;
        }
        reader.close();
        let exposition = Exposition(reader.done);
        exposition.0.iter().try_for_each(|(name, family)| {
            judge(name, family).map_err(|m| format!("{name}: {m}"))
        })?;
        Ok(exposition)
    }

    /// The value of the sample with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let family = name.trim_end_matches("_count").trim_end_matches("_sum");
        let family = self.0.get(name).or_else(|| self.0.get(family))?;
        let wanted: BTreeMap<String, String> = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let found = family
            .samples
            .iter()
            .find(|sample| sample.name == name && sample.labels == wanted);
        found.map(|sample| sample.value)
    }

    /// The number of time series.
    pub(crate) fn series(&self) -> usize {
        self.0.values().map(|family| family.samples.len()).sum()
    }
}

/// Name, HELP, TYPE and samples.
type CurrentFamily = (String, Option<String>, Option<String>, Vec<Sample>);

#[derive(Default)]
struct Reader {
    done: BTreeMap<String, Family>,
    current: Option<CurrentFamily>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("HELP without a text")?;
            self.begin(name)?;
            let (.., known, _, samples) = self.current.as_mut().ok_or("no family")?;
            if known.is_some() || !samples.is_empty() {
                return Err("a second or late HELP".to_owned());
            }
            *known = Some(unescape(help, &['\\', 'n'])?);
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("TYPE without a type")?;
            self.begin(name)?;
            let (.., known, samples) = self.current.as_mut().ok_or("no family")?;
            if known.is_some() || !samples.is_empty() {
                return Err("a second or late TYPE".to_owned());
            }
            if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) {
                return Err("an unknown type".to_owned());
            }
            *known = Some(kind.to_owned());
            return Ok(());
        }
        if line.starts_with('#') || line.is_empty() {
            return Err("a comment or an empty line, which we do not write".to_owned());
        }
        let sample = sample(line)?;
        let (family, _, kind, samples) = self.current.as_mut().ok_or("a sample before its TYPE")?;
        let is_histogram = kind.as_deref() == Some("histogram");
        let suffix = sample
            .name
            .strip_prefix(family.as_str())
            .ok_or("a sample of another family")?;
        let fits = if is_histogram {
            ["_bucket", "_sum", "_count"].contains(&suffix)
        } else {
            suffix.is_empty()
        };
        if !fits {
            return Err("a sample that is not of its family".to_owned());
        }
        samples.push(sample);
        Ok(())
    }

    fn begin(&mut self, name: &str) -> Result<(), String> {
        if self
            .current
            .as_ref()
            .is_some_and(|(current, ..)| current == name)
        {
            return Ok(());
        }
        self.close();
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
        if !name.starts_with(letter) || !name.chars().all(|c| letter(c) || c.is_ascii_digit()) {
            return Err("not the name of a metric".to_owned());
        }
        if self.done.contains_key(name) {
            return Err("a family in two pieces".to_owned());
        }
        self.current = Some((name.to_owned(), None, None, Vec::new()));
        Ok(())
    }

    fn close(&mut self) {
        if let Some((name, help, kind, samples)) = self.current.take() {
            let family = Family {
                kind: kind.unwrap_or_default(),
                help: help.unwrap_or_default(),
                samples,
            };
            self.done.insert(name, family);
        }
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let name_end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").ok_or("a label without a value")?;
            let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
            if !label.starts_with(letter) || !label.chars().all(|c| letter(c) || c.is_ascii_digit())
            {
                return Err(format!("`{label}` is not the name of a label"));
            }
            let end = closing_quote(value).ok_or("a label's value without an end")?;
            let text = unescape(&value[..end], &['\\', '"', 'n'])?;
            if labels.insert(label.to_owned(), text).is_some() {
                return Err("a label twice".to_owned());
            }
            rest = &value[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = rest.strip_prefix('}').ok_or("labels without an end")?,
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        text if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            text.parse().map_err(|_| "not a number")?
        }
        _ => return Err("not a number".to_owned()),
    };
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at)
    })
}

fn unescape(text: &str, allowed: &[char]) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next().filter(|c| allowed.contains(c)) {
                Some('n') => out.push('\n'),
                Some(c) => out.push(c),
                None => return Err("an unknown escape".to_owned()),
            },
            '"' if allowed.contains(&'"') => return Err("a quote that is not escaped".to_owned()),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn judge(name: &str, family: &Family) -> Result<(), String> {
    if family.help.is_empty() || family.kind.is_empty() {
        return Err("no HELP or no TYPE".to_owned());
    }
    if (family.kind == "counter") != name.ends_with("_total") {
        return Err("counters, and nothing else, end in _total".to_owned());
    }
    if ["milliseconds", "kilobytes", "_ms", "_us", "percent"]
        .iter()
        .any(|unit| name.contains(unit))
    {
        return Err("not a base unit".to_owned());
    }
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        if !seen.insert((&sample.name, &sample.labels)) {
            return Err(format!("twice: {sample:?}"));
        }
        if !sample.value.is_finite() || (family.kind != "gauge" && sample.value < 0.0) {
            return Err(format!("an impossible value: {sample:?}"));
        }
    }
    if family.kind == "histogram" {
        histograms(name, family)
    } else {
        Ok(())
    }
}

fn histograms(name: &str, family: &Family) -> Result<(), String> {
    let mut buckets: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in family
        .samples
        .iter()
        .filter(|sample| sample.name == format!("{name}_bucket"))
    {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le").ok_or("a bucket without le")?;
        let bound = if bound == "+Inf" {
            f64::INFINITY
        } else {
            bound.parse().map_err(|_| "a bound")?
        };
        buckets
            .entry(labels)
            .or_default()
            .push((bound, sample.value));
    }
    for (labels, buckets) in buckets {
        let find = |suffix: &str| {
            let name = format!("{name}{suffix}");
            family
                .samples
                .iter()
                .find(|sample| sample.name == name && sample.labels == labels)
        };
        let (sum, count) = find("_sum")
            .zip(find("_count"))
            .ok_or("no sum or no count")?;
        let rises = buckets
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        if !rises
            || buckets
                .last()
                .is_none_or(|(bound, all)| *bound != f64::INFINITY || *all != count.value)
        {
            return Err(format!("not cumulative, or without its end: {labels:?}"));
        }
        if sum.value > 0.0 && count.value == 0.0 {
            return Err(format!("a sum of nothing: {labels:?}"));
        }
    }
    Ok(())
}

#[test]
fn mistakes_are_found() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\\\n\"} 1\n";
    let read = Exposition::read(good).expect("good");
    assert_eq!(read.value("a_total", &[("x", "q\"\\\n")]), Some(1.0));
    let histogram = "# HELP h_seconds H.\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"1\"} 2\n\
                     h_seconds_bucket{le=\"+Inf\"} 2\nh_seconds_sum 1.5\nh_seconds_count 2\n";
    Exposition::read(histogram).expect("good");
    for (text, from, to) in [
        (good, "\\\"", "\""),
        (good, "counter", "gauge"),
        (good, "# HELP a_total A.\n", ""),
        (good, " 1\n", " one\n"),
        (good, " 1\n", " 1"),
        (good, "a_total{", "b_total{"),
        (good, "# TYPE", "#TYPE"),
        (good, "x=", "1x="),
        (histogram, "le=\"1\"} 2", "le=\"1\"} 3"),
        (histogram, "count 2", "count 3"),
        (histogram, "h_seconds_sum 1.5\n", ""),
    ] {
        assert!(text.contains(from));
        let bad = text.replacen(from, to, 1);
        Exposition::read(&bad).expect_err(&bad);
    }
    Exposition::read(&good.repeat(2)).expect_err("twice");
}
