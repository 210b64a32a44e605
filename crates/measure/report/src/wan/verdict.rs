//! What a WAN record comes to, in a few numbers.

use bench::plan::{Part, Way};

use super::{Met, Row, Wan};

/// What a WAN record comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Cells that were measured and that the document prints.
    pub published: usize,
    /// Those that came to more than is printed.
    pub beaten: usize,
    /// Those that round to what is printed.
    pub met: usize,
    /// Those that nobody could reach over this way.
    pub cannot_be: usize,
    /// The names of those that were missed for no such reason.
    pub missed: Vec<String>,
    /// How far the model is from the cells that its constants were found in.
    pub fitted: Option<Off>,
    /// And from the others, which it had to predict.
    pub predicted: Option<Off>,
    /// What was reached of the link at the longest round trip, with long requests, many at once.
    pub shares: Vec<Share>,
}

/// How far a model is from measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Off {
    /// How many they are.
    pub cells: usize,
    /// The median of the sizes of the errors: 0.02 is 2 %.
    pub median: f64,
    /// The largest of them, with its sign.
    pub worst: f64,
    /// In which cell.
    pub worst_cell: String,
}

/// What was reached of the link in a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The cell.
    pub cell: String,
    /// How the data went.
    pub way: Way,
    /// The length of the requests, in bytes.
    pub block_bytes: u32,
    /// Of what the link alone would allow: 0.95 is 95 %.
    pub of_link: f64,
    /// Of what anything could reach with so many at once.
    pub of_most: f64,
}

/// The round trip, the lengths and the number at once at which the share of the link is asked for.
const FAR_MS: f64 = 50.0;
const LONG_BYTES: u32 = 64 << 10;
const MANY: u32 = 32;

impl Wan {
    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        let count = |is: fn(&Met) -> bool| {
            self.rows.iter().filter_map(|row| row.met.as_ref()).filter(|met| is(met)).count()
        };
        let is_of_document = |row: &&Row| matches!(row.setting.part, Part::Wan | Part::Lan | Part::Tcp);
        Verdict {
            published: count(|_| true),
            beaten: count(|met| *met == Met::Beaten),
            met: count(|met| *met == Met::Yes),
            cannot_be: count(|met| matches!(met, Met::CannotBe(_))),
            missed: self
                .rows
                .iter()
                .filter(|row| row.met == Some(Met::No))
                .map(|row| row.cell.clone())
                .collect(),
            fitted: Off::of(self.rows.iter().filter(is_of_document)),
            predicted: Off::of(self.rows.iter().filter(|row| !is_of_document(row))),
            shares: self.part(Part::Wan).filter_map(share).collect(),
        }
    }
}

fn share(row: &Row) -> Option<Share> {
    let (setting, asked) = (&row.setting, row.asked);
    let is_asked_for = setting.rtt_ms == FAR_MS && asked.depth == MANY && asked.block_bytes >= LONG_BYTES;
    let measured = row.measured.filter(|_| is_asked_for)?;
    Some(Share {
        cell: row.cell.clone(),
        way: setting.way,
        block_bytes: asked.block_bytes,
        of_link: measured / row.of_link,
        of_most: measured / row.most,
    })
}

impl Off {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<Off> {
        let mut off: Vec<(f64, &str)> = rows
            .filter_map(|row| Some((row.off().filter(|off| off.is_finite())?, row.cell.as_str())))
            .collect();
        off.sort_by(|one, other| one.0.abs().total_cmp(&other.0.abs()));
        let (worst, worst_cell) = *off.last()?;
        let sizes: Vec<f64> = off.iter().map(|(off, _)| off.abs()).collect();
        Some(Off {
            cells: off.len(),
            median: stats::median(&sizes),
            worst,
            worst_cell: worst_cell.to_owned(),
        })
    }
}
