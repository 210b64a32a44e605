//! A cell in a table or a picture: measured, model and published in one.

use crate::diagnosis::term;
use crate::wan::{Met, Row};
use bench::plan::Way;
use readable::figures::{megabytes, size};

/// What stands where there is nothing.
pub(super) const NOTHING: &str = "–";

/// Explains [`all`].
pub(super) const LEGEND: &str = "Each cell is measured / model / published, in MB/s of 10^6 bytes. † less than was published, \
                                 and more cannot be over this way (the reasons are told with the model); ✗ less, for no such reason.";

/// Measured, model and published.
pub(super) fn all(row: &Row) -> String {
    let published = row.published.as_ref().map_or(NOTHING, |published| published.printed.as_str());
    let sign = match row.met {
        Some(Met::CannotBe(_)) => " †",
        Some(Met::No) => " ✗",
        Some(Met::Beaten | Met::Yes) | None => "",
    };
    format!("{} / {published}{sign}", both(row))
}

/// Measured and model.
pub(super) fn both(row: &Row) -> String {
    format!("{} / {}", rate(row.measured), rate(row.model))
}

/// A rate in MB/s, if it is known.
pub(super) fn rate(bytes_per_s: Option<f64>) -> String {
    bytes_per_s.map_or_else(|| NOTHING.to_owned(), megabytes)
}

/// All of a cell, when it is pointed at.
pub(super) fn says(row: &Row) -> String {
    let published = row.published.as_ref().map(|published| format!(", published {}", published.printed));
    let limit = row.binding.map(|term| format!(" ({})", self::term(term)));
    format!(
        "{}: measured {} MB/s, model {}{}{}",
        row.cell,
        rate(row.measured),
        rate(row.model),
        limit.unwrap_or_default(),
        published.unwrap_or_default()
    )
}

/// `64 KiB × 32`
pub(super) fn load(row: &Row) -> String {
    format!("{} × {}", size(f64::from(row.asked.block_bytes)), row.asked.depth)
}

/// How data cross the network, for a heading.
pub(super) fn way(way: Way) -> &'static str {
    match way {
        Way::Reads => "reads",
        Way::MostSolicited => "most solicited writes",
        Way::MostUnsolicited => "most unsolicited writes",
        Way::Tcp { to_target: true } => "to the target",
        Way::Tcp { to_target: false } => "from the target",
    }
}
