//! Grouped horizontal bar charts. Each bar starts at the axis or, in a waterfall chart, where the previous bar
//! ends.

use crate::chart::plot::{chart, label, line};
use crate::chart::{Axis, COLOURS, LINE, WIDTH, fitted, stride, width};
use crate::markup::{Markup, Px};

/// A grouped horizontal bar chart. Bars extend to the right of a vertical axis.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// The title for screen readers.
    pub(crate) title: String,
    /// The horizontal axis, from 0.
    pub(crate) axis: Axis,
    /// The groups, from the top.
    pub(crate) groups: Vec<Group>,
}

/// A group of bars with a common heading.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The heading above the bars; none if empty.
    pub(crate) name: String,
    /// The bars, from the top.
    pub(crate) bars: Vec<Bar>,
}

#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// The label on the left.
    pub(crate) name: String,
    /// The start of the bar: 0, or in a waterfall the end of the previous bar.
    pub(crate) from: f64,
    /// The length of the bar.
    pub(crate) value: f64,
    /// The text on the right.
    pub(crate) says: String,
    /// The index of the colour. Bars with the same colour have the same meaning.
    pub(crate) colour: usize,
}

const TOP: f64 = 10.0;
const BOTTOM: f64 = 46.0;
const ROW: f64 = 22.0;
const GAP: f64 = 8.0;
/// The maximum width of names, and of the text next to the bars.
const TEXT_MAX: f64 = 220.0;

impl Bar {
    /// Creates a bar that starts at the axis.
    pub(crate) fn new(name: String, value: f64, says: String, colour: usize) -> Bar {
        Bar {
            name,
            from: 0.0,
            value,
            says,
            colour,
        }
    }
}

impl Group {
    /// Creates a group of the parts of a whole, such as the layers of a latency. Each part starts where the
    /// previous one ends.
    pub(crate) fn waterfall(name: String, mut parts: Vec<Bar>) -> Group {
        let mut end = 0.0;
        for part in &mut parts {
            part.from = end;
            end += part.value.max(0.0);
        }
        Group { name, bars: parts }
    }
}

impl Bars {
    pub(crate) fn draw(&self, svg: &mut Markup) {
        let bottom = TOP + self.groups.iter().map(height).sum::<f64>();
        let widest =
            |text: fn(&Bar) -> &str| self.bars().map(|bar| width(text(bar))).fold(0.0, f64::max);
        let left = 12.0 + widest(|bar| &bar.name).min(TEXT_MAX);
        let right = WIDTH - 16.0 - widest(|bar| &bar.says).min(TEXT_MAX);
        let x = |value: f64| left + self.axis.scale.at(value) * (right - left);
        chart(svg, &self.title, bottom + BOTTOM, |svg| {
            self.draw_axis(svg, bottom, x);
            let mut top = TOP;
            for group in &self.groups {
                draw_group(group, svg, top, x);
                top += height(group);
            }
            line(svg, "axis", (left, TOP), (left, bottom));
        });
    }

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|group| &group.bars)
    }

    fn draw_axis(&self, svg: &mut Markup, bottom: f64, x: impl Fn(f64) -> f64) {
        let labels: Vec<_> = self
            .axis
            .scale
            .ticks(6)
            .into_iter()
            .map(|tick| (x(tick), (self.axis.tick)(tick)))
            .collect();
        for (at, text) in labels.iter().step_by(stride(&labels)) {
            line(svg, "grid", (*at, TOP), (*at, bottom));
            label(svg, *at, bottom + 17.0, "middle", "tick", text);
        }
        let middle = labels
            .first()
            .zip(labels.last())
            .map_or(WIDTH / 2.0, |(a, b)| (a.0 + b.0) / 2.0);
        label(
            svg,
            middle,
            bottom + 38.0,
            "middle",
            "title",
            self.axis.title,
        );
    }
}

fn draw_group(group: &Group, svg: &mut Markup, top: f64, x: impl Fn(f64) -> f64) {
    let left = x(0.0);
    let mut y = top;
    if !group.name.is_empty() {
        let name = fitted(&group.name, WIDTH - left - 10.0);
        label(svg, left + 4.0, y + 13.0, "start", "title", &name);
        y += LINE + 4.0;
    }
    for (index, bar) in group.bars.iter().enumerate() {
        let (begin, end) = (x(bar.from), x(bar.from + bar.value));
        let class = format!("bar c{}", bar.colour % COLOURS);
        svg.element("g", &[("class", &class)], |svg| {
            label(
                svg,
                left - 7.0,
                y + 14.0,
                "end",
                "name",
                &fitted(&bar.name, TEXT_MAX),
            );
            if index > 0 && bar.from > 0.0 {
                // A line down from the end of the previous bar.
                line(svg, "axis", (begin, y - 3.0), (begin, y + 2.0));
            }
            let path = format!(
                "M{} {}H{}v{}H{}z",
                Px(begin),
                Px(y + 2.0),
                Px(end),
                Px(ROW - 5.0),
                Px(begin)
            );
            svg.element("path", &[("class", &"mark"), ("d", &path)], |mark| {
                mark.with_text("title", &[], &format!("{}: {}", bar.name, bar.says));
            });
            label(
                svg,
                end + 7.0,
                y + 14.0,
                "start",
                "says",
                &fitted(&bar.says, TEXT_MAX),
            );
        });
        y += ROW;
    }
}

fn height(group: &Group) -> f64 {
    let heading = if group.name.is_empty() {
        0.0
    } else {
        LINE + 4.0
    };
    heading + group.bars.len() as f64 * ROW + GAP
}

// Heat maps with two categorical axes, in panels side by side. The shade of a square gives an overview, and the
// number in it the exact value.

/// A heat map with several panels, which share their axes.
#[derive(Clone, Debug)]
pub(crate) struct Heat {
    /// The title for screen readers.
    pub(crate) title: String,
    /// The title of the columns, with its unit.
    pub(crate) x_title: &'static str,
    /// The title of the rows.
    pub(crate) y_title: &'static str,
    /// The labels under the columns of every panel.
    pub(crate) columns: Vec<String>,
    /// The labels on the left of the rows, from the top.
    pub(crate) rows: Vec<String>,
    /// The panels, from the left.
    pub(crate) panels: Vec<Panel>,
}

/// A panel of squares.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// The heading above the panel.
    pub(crate) name: String,
    /// The squares by row, then by column; `None` for an unknown value.
    pub(crate) squares: Vec<Vec<Option<Square>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Square {
    pub(crate) text: String,
    /// The tooltip.
    pub(crate) says: String,
    /// The shade, from -1 to 1. Negative values have one colour, positive values another.
    pub(crate) shade: f64,
}

const HEAT_TOP: f64 = 42.0;
const HEAT_BOTTOM: f64 = 46.0;
const HEAT_ROW: f64 = 23.0;
const HEAT_GAP: f64 = 12.0;
/// The maximum width of the row labels.
const NAMES_MAX: f64 = 150.0;
/// The maximum opacity of a shade: half, so that the text on it stays readable.
const FULL: f64 = 0.5;
/// The indices of the colours of negative and of positive shades.
const BELOW: usize = 1;
const ABOVE: usize = 0;

impl Heat {
    pub(crate) fn draw(&self, svg: &mut Markup) {
        let bottom = HEAT_TOP + self.rows.len() as f64 * HEAT_ROW;
        chart(svg, &self.title, bottom + HEAT_BOTTOM, |svg| {
            label(svg, 4.0, 14.0, "start", "title", self.y_title);
            let left = self.left();
            for (index, row) in self.rows.iter().enumerate() {
                let middle = HEAT_TOP + (index as f64 + 0.5) * HEAT_ROW;
                label(
                    svg,
                    left - 7.0,
                    middle + 4.0,
                    "end",
                    "tick",
                    &fitted(row, NAMES_MAX),
                );
            }
            let width = self.panel_width();
            for (index, panel) in self.panels.iter().enumerate() {
                self.draw_panel(panel, svg, left + index as f64 * (width + HEAT_GAP), bottom);
            }
            label(
                svg,
                f64::midpoint(left, WIDTH),
                bottom + 38.0,
                "middle",
                "title",
                self.x_title,
            );
        });
    }

    fn left(&self) -> f64 {
        12.0 + self
            .rows
            .iter()
            .map(|row| width(row))
            .fold(0.0, f64::max)
            .min(NAMES_MAX)
    }

    fn panel_width(&self) -> f64 {
        let panels = self.panels.len().max(1) as f64;
        (WIDTH - 6.0 - self.left() - (panels - 1.0) * HEAT_GAP) / panels
    }

    fn draw_panel(&self, panel: &Panel, svg: &mut Markup, left: f64, bottom: f64) {
        let wide = self.panel_width() / self.columns.len().max(1) as f64;
        let name = fitted(&panel.name, self.panel_width());
        label(svg, left, HEAT_TOP - 8.0, "start", "name", &name);
        for (row, squares) in panel.squares.iter().enumerate() {
            for (column, square) in squares.iter().enumerate() {
                let Some(square) = square else { continue };
                draw_square(
                    square,
                    svg,
                    (
                        left + column as f64 * wide,
                        HEAT_TOP + row as f64 * HEAT_ROW,
                    ),
                    wide,
                );
            }
        }
        for (index, column) in self.columns.iter().enumerate() {
            let middle = left + (index as f64 + 0.5) * wide;
            label(
                svg,
                middle,
                bottom + 16.0,
                "middle",
                "tick",
                &fitted(column, wide - 4.0),
            );
        }
    }
}

fn draw_square(square: &Square, svg: &mut Markup, (x, y): (f64, f64), wide: f64) {
    let shade = if square.shade.is_finite() {
        square.shade.clamp(-1.0, 1.0)
    } else {
        0.0
    };
    let class = format!(
        "heat c{}",
        if shade < 0.0 { BELOW } else { ABOVE } % COLOURS
    );
    let hundredths = (shade.abs() * FULL * 100.0).round() / 100.0;
    svg.element("g", &[("class", &class)], |svg| {
        let path = format!(
            "M{} {}h{}v{}h-{}z",
            Px(x),
            Px(y),
            Px(wide - 1.0),
            Px(HEAT_ROW - 1.0),
            Px(wide - 1.0)
        );
        svg.element(
            "path",
            &[
                ("class", &"mark"),
                ("d", &path),
                ("fill-opacity", &hundredths),
            ],
            |mark| {
                mark.with_text("title", &[], &square.says);
            },
        );
        let text = fitted(&square.text, wide - 4.0);
        label(
            svg,
            x + (wide - 1.0) / 2.0,
            y + HEAT_ROW / 2.0 + 4.0,
            "middle",
            "value",
            &text,
        );
    });
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn the_parts_of_a_waterfall_add_up() {
        let part =
            |name: &str, value: f64| Bar::new(name.to_owned(), value, format!("{value} µs"), 0);
        let parts = vec![
            part("round trip", 40.0),
            part("lost", -1.0),
            part("target", 25.0),
            part("medium", 35.0),
        ];
        let group = Group::waterfall("read".to_owned(), parts);
        let from: Vec<f64> = group.bars.iter().map(|bar| bar.from).collect();
        assert_eq!(from, [0.0, 40.0, 40.0, 65.0]);
        let axis = Axis {
            title: "time in µs",
            scale: Scale::from_zero([100.0]),
            tick: |us| format!("{us}"),
        };
        let mut svg = Markup::default();
        Bars {
            title: "Layers".to_owned(),
            axis,
            groups: vec![group],
        }
        .draw(&mut svg);
        let svg = svg.into_string();
        assert_eq!(svg.matches("class=\"mark\"").count(), 4, "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    fn heat(shade: f64) -> String {
        let square = |text: &str| {
            Some(Square {
                text: text.to_owned(),
                says: format!("{text} MB/s"),
                shade,
            })
        };
        let panel = |name: &str| Panel {
            name: name.to_owned(),
            squares: vec![
                vec![square("18.8"), None],
                vec![square("0.020"), square("1")],
            ],
        };
        let heat = Heat {
            title: "Heat".to_owned(),
            x_title: "round trip in ms",
            y_title: "requests",
            columns: vec!["0".to_owned(), "50".to_owned()],
            rows: vec!["1 KiB × 1".to_owned(), "1 KiB × 32".to_owned()],
            panels: vec![panel("reads"), panel("writes")],
        };
        let mut svg = Markup::default();
        heat.draw(&mut svg);
        svg.into_string()
    }

    #[test]
    fn a_square_has_its_number_and_more_of_its_colour_the_more_it_is() {
        let svg = heat(1.0);
        assert_eq!(svg.matches("class=\"mark\"").count(), 6, "{svg}");
        assert_eq!(svg.matches("fill-opacity=\"0.5\"").count(), 6, "{svg}");
        assert!(
            svg.contains("heat c0") && !svg.contains("heat c1") && svg.contains(">0.020<"),
            "{svg}"
        );
        assert!(heat(-0.1).contains("heat c1") && heat(-0.1).contains("fill-opacity=\"0.05\""));
    }

    #[test]
    fn what_is_no_number_has_no_colour() {
        assert!(heat(f64::NAN).contains("fill-opacity=\"0\""));
        assert!(heat(f64::INFINITY).contains("fill-opacity=\"0\""));
        assert!(heat(7.0).contains("fill-opacity=\"0.5\""));
    }
}
