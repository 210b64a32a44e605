//! Charts as values, and their drawing as SVG.
//!
//! A [`Plot`] has two axes and curves, [`Bars`] have one axis, and [`Heat`] has squares over two lists of
//! names. The charts are drawn without a library: no plotting library is small, maintained and free of
//! scripts, and a report must be readable without scripts. This module does not depend on benchmarks.
//!
//! Every drawing has these properties, which a test with Chromium checks in
//! `crates/linerate/tests/it/report.rs`: no two texts touch, nothing extends beyond the frame, and every axis
//! has a unit. Curves differ in their marks and dashes as well as in colour. Labels are next to the curves,
//! not in a legend.

mod bars;
mod plot;

pub(super) use bars::Bar;
pub(super) use bars::Bars;
pub(super) use bars::Group;
pub(super) use bars::Heat;
pub(super) use bars::Panel;
pub(super) use bars::Square;
pub(super) use plot::Band;
pub(super) use plot::Curve;
pub(super) use plot::Look;
pub(super) use plot::Plot;
pub(super) use plot::Point;

#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// The title, with the unit: `block size`, `throughput in MB/s`.
    pub(super) title: &'static str,
    /// The scale.
    pub(super) scale: Scale,
    /// The format of tick labels.
    pub(super) tick: fn(f64) -> String,
}

/// The width of every drawing, in drawing units; the page scales it to the available width.
const WIDTH: f64 = 780.0;

/// The number of colours. Additional curves use the same colours with different marks.
const COLOURS: usize = 7;

// The width of text, and positions of labels that do not touch each other.
//
// The font that will display a drawing is unknown. The widths here are taken from DejaVu Sans, the widest font
// in the page's style, so the text fits with any of these fonts.

/// The height of a line of labels at [`SIZE`], in drawing units.
const LINE: f64 = 16.0;

/// The font size of all text in a drawing, in drawing units.
const SIZE: f64 = 12.5;

/// Returns an upper bound of the width of a text.
fn width(text: &str) -> f64 {
    text.chars().map(|letter| em(letter) * SIZE).sum()
}

/// Returns as much of the start of a text as fits, with an ellipsis if the text is shortened.
fn fitted(text: &str, room: f64) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut taken = width("…");
    let fits = |letter: &char| {
        taken += em(*letter) * SIZE;
        taken <= room
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Returns positions for labels of one line each, in the order of `wanted`. They are as close as possible to
/// the wanted positions, at least [`LINE`] apart, and between `top` and `bottom`. If there is not enough
/// space, labels extend below `bottom`.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut places = wanted.to_vec();
    let mut free = top;
    for index in &order {
        places[*index] = wanted[*index].max(free);
        free = places[*index] + LINE;
    }
    let mut free = bottom.max(top + (wanted.len().saturating_sub(1)) as f64 * LINE);
    for index in order.iter().rev() {
        places[*index] = places[*index].min(free);
        free = places[*index] - LINE;
    }
    places
}

/// Returns the smallest step with which the labels, centred at these positions, do not touch each other.
fn stride(labels: &[(f64, String)]) -> usize {
    const GAP: f64 = 8.0;
    let apart = |stride: usize| {
        let shown: Vec<_> = labels.iter().step_by(stride).collect();
        shown.windows(2).all(|pair| {
            let needed = (width(&pair[0].1) + width(&pair[1].1)) / 2.0 + GAP;
            (pair[1].0 - pair[0].0).abs() >= needed
        })
    };
    (1..labels.len().max(2))
        .find(|stride| apart(*stride))
        .unwrap_or(labels.len().max(1))
}

/// Returns the advance width of a letter relative to the font size, for DejaVu Sans, rounded up.
fn em(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '\'' | '|' => 0.29,
        ' ' | '.' | ',' | ':' | ';' | '/' | '\\' | '·' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '!' => 0.42,
        'm' | 'W' | '%' | '@' | '…' | '—' => 1.0,
        'M' | 'w' | 'Q' | 'O' | 'G' | 'D' | 'N' | 'H' | '+' | '±' | '=' | '<' | '>' => 0.87,
        'a'..='z' | '0'..='9' | 'µ' => 0.64,
        letter if letter.is_ascii() => 0.74,
        letter if u32::from(letter) < 0x1100 => 0.9,
        _ => 1.1, // ideographs and pictures
    }
}

// Scales: the position of values on an axis, and the ticks.

/// The scale of an axis. Positions are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Equal differences have equal lengths on the axis.
    Linear {
        /// The value at position 0.
        low: f64,
        /// The value at position 1.
        high: f64,
    },
    /// Equal ratios have equal lengths on the axis.
    Log {
        /// The base of the ticks: 2 for request lengths, 10 otherwise.
        base: f64,
        /// The value at position 0; above 0.
        low: f64,
        /// The value at position 1.
        high: f64,
    },
    /// Shares of all requests. 0, 90 %, 99 %, 99.9 % and so on are at equal distances, so that rare slow
    /// requests receive as much space as common fast ones.
    Nines {
        /// The number of nines at position 1.
        count: f64,
    },
}

impl Scale {
    /// Creates a linear scale from 0 to a round number above all values.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Scale {
        let most = values
            .into_iter()
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max);
        let step = nice_step(if most > 0.0 { most } else { 1.0 }, 5);
        Scale::Linear {
            low: 0.0,
            high: (most / step).ceil().max(1.0) * step,
        }
    }

    /// Creates a linear scale over exactly this range.
    pub(crate) fn over(low: f64, high: f64) -> Scale {
        Scale::Linear {
            low,
            high: if high > low { high } else { low + 1.0 },
        }
    }

    /// Creates a logarithmic scale over all positive values, extended to powers of two.
    pub(crate) fn log2(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = ends(values);
        let (low, high) = (low.log2().floor(), high.log2().ceil());
        Scale::Log {
            base: 2.0,
            low: low.exp2(),
            high: if high > low { high } else { low + 1.0 }.exp2(),
        }
    }

    /// Creates a logarithmic scale over all positive values, extended to 1, 2 or 5 times a power of ten.
    pub(crate) fn log10(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = ends(values);
        let (low, high) = (one_two_five(low, f64::floor), one_two_five(high, f64::ceil));
        Scale::Log {
            base: 10.0,
            low,
            high: if high > low { high } else { low * 10.0 },
        }
    }

    /// Creates a linear scale, or a logarithmic one if a linear axis would compress the small values into one
    /// line.
    pub(crate) fn from_zero_or_log(values: &[f64]) -> Scale {
        let (low, high) = ends(values.iter().copied());
        if high / low > 40.0 {
            Scale::log10([low, high])
        } else {
            Scale::from_zero(values.iter().copied())
        }
    }

    /// Returns the position of a value, clamped to the range from 0 to 1.
    pub(crate) fn at(self, value: f64) -> f64 {
        let at = match self {
            Scale::Linear { low, high } => (value - low) / (high - low),
            Scale::Log { low, high, .. } => {
                if value <= 0.0 {
                    return 0.0;
                }
                (value / low).ln() / (high / low).ln()
            }
            Scale::Nines { count } => nines(value) / count,
        };
        if at.is_finite() {
            at.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Returns values for about `about` tick labels, in ascending order.
    pub(crate) fn ticks(self, about: usize) -> Vec<f64> {
        let about = about.max(2);
        match self {
            Scale::Linear { low, high } => {
                let step = nice_step(high - low, about);
                let first = (low / step).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|index| index as f64 * step).collect()
            }
            Scale::Log { base, low, high } => log_ticks(base, low, high, about),
            Scale::Nines { count } => (0..=count.floor() as i32)
                .map(|nine| 1.0 - 10_f64.powi(-nine))
                .collect(),
        }
    }
}

/// Returns the number of nines of a share: 1 for 90 %, 2 for 99 %.
pub(super) fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-12).log10()
}

/// Returns the smallest and the largest positive value.
fn ends(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let positive = values
        .into_iter()
        .filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = positive.fold((f64::MAX, 0.0_f64), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    if high > 0.0 { (low, high) } else { (1.0, 10.0) }
}

/// Returns the next number below or above the value that is 1, 2 or 5 times a power of ten.
fn one_two_five(value: f64, towards: fn(f64) -> f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let up = towards(0.5) > 0.0;
    // A value that differs from such a number only by rounding counts as equal.
    let slack = 1e-9 * value;
    let found = if up {
        steps.iter().find(|step| **step >= value - slack)
    } else {
        steps.iter().rev().find(|step| **step <= value + slack)
    };
    found.copied().unwrap_or(value)
}

/// Returns 1, 2 or 5 times a power of ten, so that about `about` steps fill the range.
fn nice_step(range: f64, about: usize) -> f64 {
    one_two_five(range / about as f64, f64::ceil)
}

fn log_ticks(base: f64, low: f64, high: f64, about: usize) -> Vec<f64> {
    let powers = |step: f64| {
        let count = ((high / low).log(base) / step).floor() as i32;
        let first = low.log(base).ceil();
        (0..=count)
            .map(|n| base.powf(first + f64::from(n) * step))
            .filter(|v| *v <= high * 1.001)
            .collect()
    };
    let decades = (high / low).log(base);
    if base == 10.0 && decades * 3.0 <= about as f64 * 1.5 {
        let multiples = |power: i32| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power));
        let all = (low.log10().floor() as i32..=high.log10().ceil() as i32).flat_map(multiples);
        return all
            .filter(|value| *value >= low * 0.999 && *value <= high * 1.001)
            .collect();
    }
    powers((decades / about as f64).ceil().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::COLOURS;
    use super::*;

    /// The colours that people with each kind of colour blindness perceive, as complete transformations of
    /// linear RGB. Source: Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of
    /// Color Vision Deficiency", 2009, table of severity 1.
    const EYES: [(&str, [[f64; 3]; 3]); 4] = [
        ("all", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152286, 1.052583, -0.204868],
                [0.114503, 0.786281, 0.099216],
                [-0.003882, -0.048116, 1.051998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367322, 0.860646, -0.227968],
                [0.280085, 0.672501, 0.047413],
                [-0.011820, 0.042940, 0.968881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255528, -0.076749, -0.178779],
                [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900],
            ],
        ),
    ];

    fn times(matrix: &[[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(vector).map(|(one, other)| one * other).sum())
    }

    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let part =
                f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("two digits")) / 255.0;
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    /// Converts to CIE L*a*b*, in which distances are perceived colour differences.
    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        let to_xyz = [
            [0.4124, 0.3576, 0.1805],
            [0.2126, 0.7152, 0.0722],
            [0.0193, 0.1192, 0.9505],
        ];
        let [x, y, z] = times(&to_xyz, rgb.map(|part| part.clamp(0.0, 1.0)));
        let [x, y, z] = [x / 0.9505, y, z / 1.089].map(|part| {
            if part > 0.008856 {
                part.cbrt()
            } else {
                7.787 * part + 16.0 / 116.0
            }
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn colours_are_told_apart_by_every_eye() {
        // A difference of 2.3 is just noticeable between adjacent areas. Lines are thin and far apart, so
        // they need more.
        const LEAST: f64 = 20.0;
        let style = include_str!("../style.css");
        let palettes: Vec<&str> = style
            .lines()
            .filter(|line| line.trim_start().starts_with("--c0:"))
            .collect();
        assert_eq!(palettes.len(), 3, "light, dark, print");
        for palette in palettes {
            let colours: Vec<&str> = palette
                .split(';')
                .filter_map(|part| Some(part.split_once(": ")?.1))
                .collect();
            assert_eq!(colours.len(), COLOURS);
            for (eye, matrix) in &EYES {
                let seen: Vec<[f64; 3]> = colours
                    .iter()
                    .map(|colour| lab(times(matrix, linear(colour))))
                    .collect();
                for (n, one) in seen.iter().enumerate() {
                    for (m, other) in seen.iter().enumerate().take(n) {
                        let apart = one
                            .iter()
                            .zip(other)
                            .map(|(a, b)| (a - b).powi(2))
                            .sum::<f64>()
                            .sqrt();
                        assert!(
                            apart >= LEAST,
                            "{eye}: c{m} {} and c{n} {}: {apart:.1}",
                            colours[m],
                            colours[n]
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn labels_that_would_touch_are_moved_apart_and_stay_inside() {
        let places = spread(&[100.0, 101.0, 99.0, 5.0], 0.0, 104.0);
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(
            sorted.windows(2).all(|pair| pair[1] - pair[0] >= LINE),
            "{places:?}"
        );
        assert!(sorted[0] >= 0.0 && sorted[3] <= 104.0, "{places:?}");
        assert_eq!(places[3], 5.0);
    }

    #[test]
    fn a_label_that_is_too_long_is_cut_where_it_ends() {
        let text = "x".repeat(100);
        let cut = fitted(&text, 80.0);
        assert!(cut.ends_with('…') && width(&cut) <= 81.0, "{cut}");
        assert_eq!(fitted("read", 80.0), "read");
    }

    #[test]
    fn ticks_that_stand_too_close_are_left_out_evenly() {
        let label = |at: u32| (f64::from(at) * 20.0, "512 KiB".to_owned());
        assert_eq!(stride(&(0..10).map(label).collect::<Vec<_>>()), 3);
        assert_eq!(stride(&[]), 1);
    }

    #[test]
    fn a_linear_axis_ends_at_a_round_number() {
        let scale = Scale::from_zero([3.0, 87.0]);
        assert_eq!(
            scale,
            Scale::Linear {
                low: 0.0,
                high: 100.0
            }
        );
        assert_eq!(scale.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(scale.at(50.0), 0.5);
    }

    #[test]
    fn lengths_are_at_powers_of_two() {
        let scale = Scale::log2([512.0, 8_388_608.0]);
        assert_eq!(
            scale.ticks(8),
            [
                512.0, 2048.0, 8192.0, 32768.0, 131072.0, 524288.0, 2097152.0, 8388608.0
            ]
        );
        assert!((scale.at(65536.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn short_logarithmic_axes_have_ticks_between_powers_of_ten() {
        let ticks = Scale::log10([60.0, 900.0]).ticks(6);
        assert_eq!(
            ticks
                .iter()
                .map(|tick| tick.round() as u32)
                .collect::<Vec<_>>(),
            [50, 100, 200, 500, 1000]
        );
        assert_eq!(Scale::log10([1e-3, 1e6]).ticks(5).len(), 5);
    }

    #[test]
    fn each_nine_is_as_long_as_the_one_before() {
        let scale = Scale::Nines { count: 4.0 };
        let places = [0.0, 0.9, 0.99, 0.999, 0.9999].map(|share| (scale.at(share) * 100.0).round());
        assert_eq!(places, [0.0, 25.0, 50.0, 75.0, 100.0]);
    }

    #[test]
    fn values_that_are_no_values_stay_on_the_chart() {
        for scale in [
            Scale::from_zero([]),
            Scale::log10([0.0, f64::NAN]),
            Scale::log2([]),
            Scale::over(5.0, 5.0),
        ] {
            let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300];
            assert!(
                values
                    .iter()
                    .all(|value| (0.0..=1.0).contains(&scale.at(*value))),
                "{scale:?}"
            );
            assert!((2..40).contains(&scale.ticks(5).len()), "{scale:?}");
        }
    }
}
