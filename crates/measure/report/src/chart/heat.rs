//! Squares over two axes of names, several panels of them side by side, each with its number written in it: the shade says at
//! a glance what the number says exactly.

use super::super::markup::{Markup, Px};
use super::lettering::{fitted, width};
use super::plot::{chart, label};
use super::{COLOURS, WIDTH};

/// Panels of squares that share their axes.
#[derive(Clone, Debug)]
pub(crate) struct Heat {
    /// What a person who cannot see it is told.
    pub(crate) title: String,
    /// What the columns are, with its unit.
    pub(crate) x_title: &'static str,
    /// What the rows are.
    pub(crate) y_title: &'static str,
    /// Under the columns of every panel.
    pub(crate) columns: Vec<String>,
    /// To the left, from the top.
    pub(crate) rows: Vec<String>,
    /// From the left.
    pub(crate) panels: Vec<Panel>,
}

/// A field of squares.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Above it.
    pub(crate) name: String,
    /// By row, then by column; nothing where nothing is known.
    pub(crate) squares: Vec<Vec<Option<Square>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Square {
    pub(crate) text: String,
    /// Shown when it is pointed at.
    pub(crate) says: String,
    /// From -1 to 1: how much of a colour it has, of one colour below 0 and of another above.
    pub(crate) shade: f64,
}

const TOP: f64 = 42.0;
const BOTTOM: f64 = 46.0;
const ROW: f64 = 23.0;
const GAP: f64 = 12.0;
/// No more of the width than this goes to the names of the rows.
const NAMES_MAX: f64 = 150.0;
/// What the fullest shade has of its colour: half, so that the ink on it can still be read.
const FULL: f64 = 0.5;
/// The colours below 0 and above.
const BELOW: usize = 1;
const ABOVE: usize = 0;

impl Heat {
    pub(crate) fn draw(&self, svg: &mut Markup) {
        let bottom = TOP + self.rows.len() as f64 * ROW;
        chart(svg, &self.title, bottom + BOTTOM, |svg| {
            label(svg, 4.0, 14.0, "start", "title", self.y_title);
            let left = self.left();
            for (index, row) in self.rows.iter().enumerate() {
                let middle = TOP + (index as f64 + 0.5) * ROW;
                label(svg, left - 7.0, middle + 4.0, "end", "tick", &fitted(row, NAMES_MAX));
            }
            let width = self.panel_width();
            for (index, panel) in self.panels.iter().enumerate() {
                self.draw_panel(panel, svg, left + index as f64 * (width + GAP), bottom);
            }
            label(svg, f64::midpoint(left, WIDTH), bottom + 38.0, "middle", "title", self.x_title);
        });
    }

    fn left(&self) -> f64 {
        12.0 + self.rows.iter().map(|row| width(row)).fold(0.0, f64::max).min(NAMES_MAX)
    }

    fn panel_width(&self) -> f64 {
        let panels = self.panels.len().max(1) as f64;
        (WIDTH - 6.0 - self.left() - (panels - 1.0) * GAP) / panels
    }

    fn draw_panel(&self, panel: &Panel, svg: &mut Markup, left: f64, bottom: f64) {
        let wide = self.panel_width() / self.columns.len().max(1) as f64;
        let name = fitted(&panel.name, self.panel_width());
        label(svg, left, TOP - 8.0, "start", "name", &name);
        for (row, squares) in panel.squares.iter().enumerate() {
            for (column, square) in squares.iter().enumerate() {
                let Some(square) = square else { continue };
                draw_square(square, svg, (left + column as f64 * wide, TOP + row as f64 * ROW), wide);
            }
        }
        for (index, column) in self.columns.iter().enumerate() {
            let middle = left + (index as f64 + 0.5) * wide;
            label(svg, middle, bottom + 16.0, "middle", "tick", &fitted(column, wide - 4.0));
        }
    }
}

fn draw_square(square: &Square, svg: &mut Markup, (x, y): (f64, f64), wide: f64) {
    let shade = if square.shade.is_finite() { square.shade.clamp(-1.0, 1.0) } else { 0.0 };
    let class = format!("heat c{}", if shade < 0.0 { BELOW } else { ABOVE } % COLOURS);
    let hundredths = (shade.abs() * FULL * 100.0).round() / 100.0;
    svg.element("g", &[("class", &class)], |svg| {
        let path = format!("M{} {}h{}v{}h-{}z", Px(x), Px(y), Px(wide - 1.0), Px(ROW - 1.0), Px(wide - 1.0));
        svg.element("path", &[("class", &"mark"), ("d", &path), ("fill-opacity", &hundredths)], |mark| {
            mark.with_text("title", &[], &square.says);
        });
        let text = fitted(&square.text, wide - 4.0);
        label(svg, x + (wide - 1.0) / 2.0, y + ROW / 2.0 + 4.0, "middle", "value", &text);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat(shade: f64) -> String {
        let square = |text: &str| Some(Square { text: text.to_owned(), says: format!("{text} MB/s"), shade });
        let panel = |name: &str| Panel {
            name: name.to_owned(),
            squares: vec![vec![square("18.8"), None], vec![square("0.020"), square("1")]],
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
        assert!(svg.contains("heat c0") && !svg.contains("heat c1") && svg.contains(">0.020<"), "{svg}");
        assert!(heat(-0.1).contains("heat c1") && heat(-0.1).contains("fill-opacity=\"0.05\""));
    }

    #[test]
    fn what_is_no_number_has_no_colour() {
        assert!(heat(f64::NAN).contains("fill-opacity=\"0\""));
        assert!(heat(f64::INFINITY).contains("fill-opacity=\"0\""));
        assert!(heat(7.0).contains("fill-opacity=\"0.5\""));
    }
}
