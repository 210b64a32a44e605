//! Charts of curves over two axes.

use super::super::markup::{Attribute, Markup, Px};
use super::{Axis, COLOURS, WIDTH};
use crate::chart::{LINE, fitted, spread, stride, width};

/// A chart of curves over two axes.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// The title for screen readers.
    pub(crate) title: String,
    /// The horizontal axis.
    pub(crate) x: Axis,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// The curves, in order of importance.
    pub(crate) curves: Vec<Curve>,
    /// The bands behind the curves.
    pub(crate) bands: Vec<Band>,
}

#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// The label at the right end of the curve.
    pub(crate) name: String,
    /// The style of the curve.
    pub(crate) look: Look,
    /// The index of the colour. Curves with the same colour belong together.
    pub(crate) colour: usize,
    /// The points, in the order in which the line connects them.
    pub(crate) points: Vec<Point>,
}

/// The style of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A line with marks: measurements.
    Measured,
    /// A dashed line with marks: measurements that belong to another curve of the same colour.
    Companion,
    /// A line without marks, for many points. [`Point::low`] and [`Point::high`] are the edges of a band.
    Fine,
    /// A dashed grey line: a limit or a model.
    Limit,
    /// A dotted line with hollow marks: published results.
    Published,
}

/// A point of a curve.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// The position on the horizontal axis.
    pub(crate) x: f64,
    /// The position on the vertical axis.
    pub(crate) y: f64,
    /// The lower end of the uncertainty of `y`; `y` itself if it is exact.
    pub(crate) low: f64,
    /// The upper end.
    pub(crate) high: f64,
    /// The tooltip.
    pub(crate) says: String,
}

/// A highlighted range of the horizontal axis, such as the rounds that count.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    /// The start of the band.
    pub(crate) from: f64,
    /// The end of the band.
    pub(crate) to: f64,
    pub(crate) name: String,
}

impl Point {
    /// Creates a point without uncertainty.
    pub(crate) fn exact(x: f64, y: f64, says: String) -> Point {
        Point {
            x,
            y,
            low: y,
            high: y,
            says,
        }
    }
}

const LEFT: f64 = 66.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
const PLOT_HEIGHT: f64 = 270.0;
/// The maximum width of curve labels.
const NAMES_MAX: f64 = 230.0;

impl Plot {
    pub(crate) fn draw(&self, svg: &mut Markup) {
        let frame = Frame::of(self);
        chart(svg, &self.title, frame.bottom + BOTTOM, |svg| {
            self.draw_bands(svg, &frame);
            self.draw_y(svg, &frame);
            self.draw_x(svg, &frame);
            let names = self.places_of_names(&frame);
            // The most important curve is drawn last, above the others.
            for (curve, name_at) in self.curves.iter().zip(names).rev() {
                draw_curve(curve, name_at, svg, &frame);
            }
        });
    }

    fn draw_bands(&self, svg: &mut Markup, frame: &Frame<'_>) {
        for band in &self.bands {
            let (from, to) = (frame.x(band.from), frame.x(band.to));
            svg.empty(
                "rect",
                &[
                    ("class", &"band"),
                    ("x", &Px(from)),
                    ("y", &Px(TOP)),
                    ("width", &Px((to - from).max(1.0))),
                    ("height", &Px(frame.bottom - TOP)),
                ],
            );
            let name = fitted(&band.name, frame.right - LEFT);
            let at = from.min(frame.right - width(&name));
            label(svg, at, TOP - 6.0, "start", "note", &name);
        }
    }

    fn draw_y(&self, svg: &mut Markup, frame: &Frame<'_>) {
        label(svg, 4.0, 14.0, "start", "title", self.y.title);
        for tick in self.y.scale.ticks(6) {
            let at = frame.y(tick);
            line(svg, "grid", (LEFT, at), (frame.right, at));
            label(
                svg,
                LEFT - 8.0,
                at + 4.0,
                "end",
                "tick",
                &(self.y.tick)(tick),
            );
        }
    }

    fn draw_x(&self, svg: &mut Markup, frame: &Frame<'_>) {
        line(
            svg,
            "axis",
            (LEFT, frame.bottom),
            (frame.right, frame.bottom),
        );
        let ticks = self.x.scale.ticks(9);
        let labels: Vec<_> = ticks
            .iter()
            .map(|tick| (frame.x(*tick), (self.x.tick)(*tick)))
            .collect();
        for (at, text) in labels.iter().step_by(stride(&labels)) {
            line(svg, "axis", (*at, frame.bottom), (*at, frame.bottom + 5.0));
            label(svg, *at, frame.bottom + 19.0, "middle", "tick", text);
        }
        label(
            svg,
            (LEFT + frame.right) / 2.0,
            frame.bottom + 40.0,
            "middle",
            "title",
            self.x.title,
        );
    }

    fn places_of_names(&self, frame: &Frame<'_>) -> Vec<f64> {
        let end = |curve: &Curve| {
            curve
                .points
                .last()
                .map_or(frame.bottom, |point| frame.y(point.y))
        };
        let wanted: Vec<f64> = self.curves.iter().map(end).collect();
        spread(&wanted, TOP + 4.0, frame.bottom)
    }
}

/// The area in which the curves are drawn.
struct Frame<'a> {
    plot: &'a Plot,
    right: f64,
    bottom: f64,
}

impl<'a> Frame<'a> {
    /// Returns a frame as wide as the labels on the right allow, and at least as high as they require.
    fn of(plot: &'a Plot) -> Frame<'a> {
        let names = plot
            .curves
            .iter()
            .map(|curve| width(&curve.name))
            .fold(0.0, f64::max)
            .min(NAMES_MAX);
        let height = PLOT_HEIGHT.max(plot.curves.len() as f64 * LINE);
        Frame {
            plot,
            right: WIDTH - names - 26.0,
            bottom: TOP + height,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.plot.x.scale.at(value) * (self.right - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.plot.y.scale.at(value) * (self.bottom - TOP)
    }

    fn at(&self, point: &Point) -> (f64, f64) {
        (self.x(point.x), self.y(point.y))
    }
}

fn draw_curve(curve: &Curve, name_at: f64, svg: &mut Markup, frame: &Frame<'_>) {
    let class = format!("curve {} c{}", class_of(curve.look), curve.colour % COLOURS);
    svg.element("g", &[("class", &class)], |svg| {
        if curve.look == Look::Fine {
            draw_spread(curve, svg, frame);
        } else {
            curve
                .points
                .iter()
                .for_each(|point| draw_error_bar(point, svg, frame));
        }
        let path = path(curve.points.iter().map(|point| frame.at(point)));
        svg.empty("path", &[("class", &"line"), ("d", &path)]);
        draw_marks(curve, svg, frame);
        draw_name(curve, name_at, svg, frame);
    });
}

/// Draws the label at the right end of a curve. If the label had to be moved, a thin line connects it to the
/// curve.
fn draw_name(curve: &Curve, name_at: f64, svg: &mut Markup, frame: &Frame<'_>) {
    let Some(last) = curve.points.last() else {
        return;
    };
    let (x, y) = frame.at(last);
    if (y - name_at).abs() > 3.0 || frame.right - x > 3.0 {
        let path = path([
            (x + 5.0, y),
            (frame.right + 6.0, name_at),
            (frame.right + 14.0, name_at),
        ]);
        svg.empty("path", &[("class", &"leader"), ("d", &path)]);
    }
    let name = fitted(&curve.name, NAMES_MAX);
    label(
        svg,
        frame.right + 18.0,
        name_at + 4.0,
        "start",
        "name",
        &name,
    );
}

fn draw_error_bar(point: &Point, svg: &mut Markup, frame: &Frame<'_>) {
    let (x, high, low) = (frame.x(point.x), frame.y(point.high), frame.y(point.low));
    if low - high < 3.0 {
        return; // hidden by the mark
    }
    let path = format!(
        "M{0} {2}H{1}M{3} {2}V{4}M{0} {4}H{1}",
        Px(x - 4.0),
        Px(x + 4.0),
        Px(high),
        Px(x),
        Px(low)
    );
    svg.empty("path", &[("class", &"error"), ("d", &path)]);
}

fn draw_spread(curve: &Curve, svg: &mut Markup, frame: &Frame<'_>) {
    let high = curve
        .points
        .iter()
        .map(|point| (frame.x(point.x), frame.y(point.high)));
    let low = curve
        .points
        .iter()
        .rev()
        .map(|point| (frame.x(point.x), frame.y(point.low)));
    svg.empty(
        "path",
        &[("class", &"spread"), ("d", &path(high.chain(low)))],
    );
}

fn draw_marks(curve: &Curve, svg: &mut Markup, frame: &Frame<'_>) {
    // This number is enough for tooltips. More tooltips would make up most of the file.
    const MARKS_MAX: usize = 60;
    let every = curve.points.len().div_ceil(MARKS_MAX).max(1);
    for point in curve.points.iter().step_by(every) {
        let (x, y) = frame.at(point);
        let shape = match curve.look {
            Look::Fine => mark(usize::MAX, x, y),
            Look::Limit => continue,
            Look::Measured | Look::Companion | Look::Published => mark(curve.colour, x, y),
        };
        svg.element("path", &[("class", &"mark"), ("d", &shape)], |mark| {
            mark.with_text("title", &[], &point.says);
        });
    }
}

/// Returns the outline of a mark. Each colour has its own shape, so that curves can be distinguished without
/// colours.
fn mark(shape: usize, x: f64, y: f64) -> String {
    let corner = |dx: f64, dy: f64| format!("{} {}", Px(x + dx), Px(y + dy));
    match shape % 6 {
        _ if shape == usize::MAX => format!("M{}a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", corner(-3.0, 0.0)),
        0 => format!("M{}a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", corner(-4.0, 0.0)),
        1 => format!("M{}h7v7h-7z", corner(-3.5, -3.5)),
        2 => format!("M{}l4.5 8h-9z", corner(0.0, -5.0)),
        3 => format!("M{}l5 5l-5 5l-5-5z", corner(0.0, -5.0)),
        4 => format!("M{}l-4.5-8h9z", corner(0.0, 5.0)),
        _ => format!("M{}h3v-3h3v3h3v3h-3v3h-3v-3h-3z", corner(-4.5, -1.5)),
    }
}

fn class_of(look: Look) -> &'static str {
    match look {
        Look::Measured => "measured",
        Look::Companion => "companion",
        Look::Fine => "fine",
        Look::Limit => "limit",
        Look::Published => "published",
    }
}

fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        path.push(if path.is_empty() { 'M' } else { 'L' });
        path.push_str(&format!("{} {}", Px(x), Px(y)));
    }
    path
}

/// Adds a drawing of this height, with its content.
pub(super) fn chart(svg: &mut Markup, title: &str, height: f64, draw: impl FnOnce(&mut Markup)) {
    let view = format!("0 0 {} {}", Px(WIDTH), Px(height));
    let attributes: [Attribute<'_>; 4] = [
        ("class", &"chart"),
        ("viewBox", &view),
        ("role", &"img"),
        ("aria-label", &title),
    ];
    svg.element("svg", &attributes, draw);
}

pub(super) fn label(svg: &mut Markup, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
    svg.with_text(
        "text",
        &[
            ("class", &class),
            ("x", &Px(x)),
            ("y", &Px(y)),
            ("text-anchor", &anchor),
        ],
        text,
    );
}

pub(super) fn line(svg: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let path = path([from, to]);
    svg.empty("path", &[("class", &class), ("d", &path)]);
}
