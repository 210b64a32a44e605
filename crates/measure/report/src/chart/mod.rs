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
