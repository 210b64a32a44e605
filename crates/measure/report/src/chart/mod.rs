//! Charts as values, and their drawing as SVG.
//!
//! A [`Plot`] has two axes and curves, [`Bars`] have one axis, [`Heat`] has squares over two lists of names. All are drawn by hand: no plotting library is small,
//! maintained and free of scripts, and a report has to be readable without any. Nothing here knows what a benchmark is.
//!
//! A drawing keeps these promises, and Chromium checks them in `crates/linerate/tests/it/report.rs`: no two texts touch,
//! nothing leaves the frame, every axis has a unit, curves are told apart by their marks and their dashes as well as by
//! their colour, and have their name beside them instead of in a legend.

mod bars;
mod heat;
mod lettering;
mod plot;
mod scale;

pub(super) use bars::{Bar, Bars, Group};
pub(super) use heat::{Heat, Panel, Square};
pub(super) use plot::{Band, Curve, Look, Plot, Point};
pub(super) use scale::{Scale, nines};

#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// What is on it, with its unit: `block size`, `throughput in MB/s`.
    pub(super) title: &'static str,
    /// How values are spread along it.
    pub(super) scale: Scale,
    /// How a value is written beside it.
    pub(super) tick: fn(f64) -> String,
}

/// The width of every drawing, in its own units; the page makes them as wide as it has room.
const WIDTH: f64 = 780.0;

/// Curves beyond so many take the colours from the first again; their marks go on changing.
const COLOURS: usize = 7;

#[cfg(test)]
mod tests {
    use super::COLOURS;

    /// What is seen with each kind of colour blindness: linear RGB to linear RGB, all of it (Machado, Oliveira and Fernandes,
    /// "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, table of severity 1).
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
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("two digits")) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// CIE L*a*b*, in which differences of colours are distances.
    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        let to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
        let [x, y, z] = times(&to_xyz, rgb.map(|part| part.clamp(0.0, 1.0)));
        let [x, y, z] = [x / 0.9505, y, z / 1.089]
            .map(|part| if part > 0.008856 { part.cbrt() } else { 7.787 * part + 16.0 / 116.0 });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn colours_are_told_apart_by_every_eye() {
        // 2.3 is just seen side by side; lines are thin and far apart.
        const LEAST: f64 = 20.0;
        let style = include_str!("../style.css");
        let palettes: Vec<&str> =
            style.lines().filter(|line| line.trim_start().starts_with("--c0:")).collect();
        assert_eq!(palettes.len(), 3, "light, dark, print");
        for palette in palettes {
            let colours: Vec<&str> =
                palette.split(';').filter_map(|part| Some(part.split_once(": ")?.1)).collect();
            assert_eq!(colours.len(), COLOURS);
            for (eye, matrix) in &EYES {
                let seen: Vec<[f64; 3]> =
                    colours.iter().map(|colour| lab(times(matrix, linear(colour)))).collect();
                for (n, one) in seen.iter().enumerate() {
                    for (m, other) in seen.iter().enumerate().take(n) {
                        let apart = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
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
}
