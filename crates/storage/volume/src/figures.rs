//! Figures for monitoring: metrics with their samples. A layer in use has a table of them.

use std::fmt::Display;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of durations by bucket.
    Histogram,
}

impl MetricKind {
    /// Its name in Prometheus's format.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A metric: its name, and the common properties of its samples.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The names of their labels.
    pub labels: &'static [&'static str],
    /// Its help text.
    pub help: &'static str,
}

/// A metric, and the source of its samples.
#[derive(Debug)]
pub struct Figure<S: 'static> {
    /// The metric.
    pub family: Family,
    /// Adds the samples of one instance, with the values of the last labels, which distinguish its samples.
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
