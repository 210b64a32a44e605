//! Looks up document 002's result for a cell.

use bench::plan::{Part, Setting, Way};
use published::{Direction, Row, rows};

use super::Asked;

/// A number of document 002.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The number as printed, in MB/s.
    pub printed: String,
    /// The number in bytes per second.
    pub bytes_per_s: f64,
    /// The rounding error: half a unit of the last printed digit, in bytes per second.
    pub half_digit_per_s: f64,
}

impl Published {
    /// Returns the published number of a cell, or `None` if the document prints none.
    pub(super) fn of(setting: &Setting, asked: Asked) -> Option<Published> {
        let row = rows()
            .iter()
            .find(|row| row.document == "002" && is_of(row, setting, asked))?;
        let decimals = row
            .printed
            .split_once('.')
            .map_or(0, |(_, digits)| digits.len() as i32);
        let bytes_per_s = row.bytes_per_s()?;
        Some(Published {
            printed: row.printed.clone(),
            bytes_per_s,
            half_digit_per_s: 0.5e6 * 10_f64.powi(-decimals),
        })
    }

    /// Returns the smallest value that rounds to the number.
    pub fn least(&self) -> f64 {
        self.bytes_per_s - self.half_digit_per_s
    }

    /// Returns the largest value that rounds to the number.
    pub fn most(&self) -> f64 {
        self.bytes_per_s + self.half_digit_per_s
    }
}

/// Whether a number of document 002 is the result of a cell with this setting.
pub(crate) fn is_of(row: &Row, setting: &Setting, asked: Asked) -> bool {
    let same_load = row.block_bytes == Some(asked.block_bytes) && row.depth == Some(asked.depth);
    let pattern = match setting.way {
        Way::Tcp { to_target } => {
            let direction = if to_target {
                Direction::InitiatorToTarget
            } else {
                Direction::TargetToInitiator
            };
            return setting.part == Part::Tcp
                && row.direction == Some(direction)
                && row.rtt_ms == Some(setting.rtt_ms)
                && row.tcp_window_bytes == setting.tcp_window_bytes;
        }
        Way::Reads => "read",
        Way::MostSolicited => "most solicited",
        Way::MostUnsolicited => "most unsolicited",
    };
    // The document does not state the round trip of the LAN.
    let rtt_ms = match setting.part {
        Part::Wan => Some(setting.rtt_ms),
        Part::Lan => None,
        Part::Tcp
        | Part::Connections
        | Part::Sessions
        | Part::Mtu
        | Part::CommandWindow
        | Part::Congestion => return false,
    };
    same_load && row.pattern.starts_with(pattern) && row.rtt_ms == rtt_ms
}
