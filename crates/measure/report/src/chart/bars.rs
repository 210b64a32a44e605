//! Bars in groups, one below the other: each from the axis, or, as a waterfall does, from where the one above it ends.

use super::super::markup::{Markup, Px};
use super::lettering::{LINE, fitted, stride, width};
use super::plot::{chart, label, line};
use super::{Axis, COLOURS, WIDTH};

/// Bars in groups, from one axis to the right.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// What a person who cannot see it is told.
    pub(crate) title: String,
    /// To the right, from 0.
    pub(crate) axis: Axis,
    /// From the top.
    pub(crate) groups: Vec<Group>,
}

/// Bars that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// What they have in common; a heading above them, unless it is empty.
    pub(crate) name: String,
    /// From the top.
    pub(crate) bars: Vec<Bar>,
}

#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// To its left.
    pub(crate) name: String,
    /// Where it begins: 0, or in a waterfall the end of the one above it.
    pub(crate) from: f64,
    /// Its length.
    pub(crate) value: f64,
    /// To its right.
    pub(crate) says: String,
    /// Bars of one colour mean the same.
    pub(crate) colour: usize,
}

const TOP: f64 = 10.0;
const BOTTOM: f64 = 46.0;
const ROW: f64 = 22.0;
const GAP: f64 = 8.0;
/// No more of the width than this goes to the names, and to what stands beside the bars.
const TEXT_MAX: f64 = 220.0;

impl Bar {
    /// One from the axis.
    pub(crate) fn new(name: String, value: f64, says: String, colour: usize) -> Bar {
        Bar { name, from: 0.0, value, says, colour }
    }
}

impl Group {
    /// What adds up to a whole, as layers do to a latency, each part from where the one above it ends.
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
        let widest = |text: fn(&Bar) -> &str| self.bars().map(|bar| width(text(bar))).fold(0.0, f64::max);
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
        let labels: Vec<_> =
            self.axis.scale.ticks(6).into_iter().map(|tick| (x(tick), (self.axis.tick)(tick))).collect();
        for (at, text) in labels.iter().step_by(stride(&labels)) {
            line(svg, "grid", (*at, TOP), (*at, bottom));
            label(svg, *at, bottom + 17.0, "middle", "tick", text);
        }
        let middle = labels.first().zip(labels.last()).map_or(WIDTH / 2.0, |(a, b)| (a.0 + b.0) / 2.0);
        label(svg, middle, bottom + 38.0, "middle", "title", self.axis.title);
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
            label(svg, left - 7.0, y + 14.0, "end", "name", &fitted(&bar.name, TEXT_MAX));
            if index > 0 && bar.from > 0.0 {
                // Down from the end of the one above.
                line(svg, "axis", (begin, y - 3.0), (begin, y + 2.0));
            }
            let path = format!("M{} {}H{}v{}H{}z", Px(begin), Px(y + 2.0), Px(end), Px(ROW - 5.0), Px(begin));
            svg.element("path", &[("class", &"mark"), ("d", &path)], |mark| {
                mark.with_text("title", &[], &format!("{}: {}", bar.name, bar.says));
            });
            label(svg, end + 7.0, y + 14.0, "start", "says", &fitted(&bar.says, TEXT_MAX));
        });
        y += ROW;
    }
}

fn height(group: &Group) -> f64 {
    let heading = if group.name.is_empty() { 0.0 } else { LINE + 4.0 };
    heading + group.bars.len() as f64 * ROW + GAP
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;

    #[test]
    fn the_parts_of_a_waterfall_add_up() {
        let part = |name: &str, value: f64| Bar::new(name.to_owned(), value, format!("{value} µs"), 0);
        let parts =
            vec![part("round trip", 40.0), part("lost", -1.0), part("target", 25.0), part("medium", 35.0)];
        let group = Group::waterfall("read".to_owned(), parts);
        let from: Vec<f64> = group.bars.iter().map(|bar| bar.from).collect();
        assert_eq!(from, [0.0, 40.0, 40.0, 65.0]);
        let axis =
            Axis { title: "time in µs", scale: Scale::from_zero([100.0]), tick: |us| format!("{us}") };
        let mut svg = Markup::default();
        Bars { title: "Layers".to_owned(), axis, groups: vec![group] }.draw(&mut svg);
        let svg = svg.into_string();
        assert_eq!(svg.matches("class=\"mark\"").count(), 4, "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
