//! Figures for monitoring: metrics, each with the samples that something has of it. A layer in use has a table of them.

use std::fmt::Display;

/// What the samples of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of durations by classes.
    Histogram,
}

impl MetricKind {
    /// As Prometheus' format has it.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A metric: its name, and what all of its samples have in common.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What its samples are.
    pub kind: MetricKind,
    /// The names of their labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// A metric, and where its samples come from.
#[derive(Debug)]
pub struct Figure<S: 'static> {
    /// The metric.
    pub family: Family,
    /// Adds the samples of one of many: the values of those labels that tell its own samples apart, the last ones.
    pub samples: fn(&S, &mut Add<'_>),
}

/// Takes the last labels of a sample, and its value.
pub type Add<'a> = dyn FnMut(&[&str], &dyn Display) + 'a;

/// A table of figures, in the order in which they are written: `KIND "name" ["label"] "help" => samples;` each.
#[macro_export]
macro_rules! figures {
    ($visibility:vis $table:ident of $source:ty:
     $($kind:ident $name:literal [$($label:literal),*] $help:literal => $samples:expr;)*) => {
        $visibility static $table: &[$crate::figures::Figure<$source>] = &[$($crate::figures::Figure {
            family: $crate::figures::Family {
                name: $name,
                kind: $crate::figures::MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            },
            samples: $samples,
        }),*];
    };
}
