//! A cell: one workload, specified by its name.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::figures::Figure;

/// One workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) block_bytes: u64,
    /// Outstanding requests of each session.
    pub(crate) depth: u32,
    /// Sessions of each client thread.
    pub(crate) sessions: u32,
    pub(crate) clients: u32,
    /// The percentage of reads: 0, 50 or 100.
    pub(crate) reads: u8,
    pub(crate) is_random: bool,
    /// Requests per second in total, if limited.
    pub(crate) rate: Option<f64>,
}

impl Cell {
    /// Returns the arguments of `linerate bench`.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let random = if self.is_random { 100 } else { 0 };
        format!(
            "--block {} --depth {} --sessions {} --clients {} --read {} --random {random}",
            self.block_bytes, self.depth, self.sessions, self.clients, self.reads
        )
        .split(' ')
        .map(str::to_owned)
        .collect()
    }

    pub(crate) fn is_read(&self) -> bool {
        self.reads == 100
    }
}

impl TryFrom<String> for Cell {
    type Error = anyhow::Error;

    /// Parses `LENGTH [random|sequential read|write|mixed], depth N, N sessions, N sessions of depth N, N
    /// clients, N/s`, in any order after the first part. Omitted numbers are 1; the default is a sequential
    /// read at an unlimited rate.
    fn try_from(name: String) -> Result<Cell> {
        let mut parts = name.split(", ");
        let words: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
        let (number, unit, pattern) = match words[..] {
            [number, unit] => (number, unit, ["sequential", "read"]),
            [number, unit, places, direction] => (number, unit, [places, direction]),
            _ => bail!("`{name}` does not start like `4 KiB random read`"),
        };
        let unit_bytes = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => bail!("`{unit}` in `{name}` is not B, KiB or MiB"),
        };
        let is_random = match pattern[0] {
            "random" => true,
            "sequential" => false,
            word => bail!("`{word}` in `{name}` is neither `random` nor `sequential`"),
        };
        let reads = match pattern[1] {
            "read" => 100,
            "mixed" => 50,
            "write" => 0,
            word => bail!("`{word}` in `{name}` is not read, write or mixed"),
        };
        let block_bytes = number.parse::<u64>().with_context(|| name.clone())? * unit_bytes;
        let (mut depth, mut sessions, mut clients, mut rate) = (1, 1, 1, None);
        for part in parts {
            let number = |text: &str| {
                text.parse::<u32>()
                    .with_context(|| format!("`{part}` in `{name}`"))
            };
            match part.split(' ').collect::<Vec<_>>()[..] {
                ["depth", count] => depth = number(count)?,
                [count, "clients"] => clients = number(count)?,
                [count, "sessions"] => sessions = number(count)?,
                [count, "sessions", "of", "depth", each] => {
                    (sessions, depth) = (number(count)?, number(each)?);
                }
                [word] if word.ends_with("/s") => {
                    rate = Some(f64::from(number(&word[..word.len() - 2])?))
                }
                _ => bail!("`{part}` in `{name}` is not a depth, sessions, clients or a rate"),
            }
        }
        Ok(Cell {
            block_bytes,
            depth,
            sessions,
            clients,
            reads,
            is_random,
            rate,
            name,
        })
    }
}

/// Identifies a run to compare with. A missing field has the same value as in the compared run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Beside {
    pub(crate) server: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) cell: Option<String>,
    pub(crate) figure: Option<Figure>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_what_its_name_says() {
        let cell = |name: &str| Cell::try_from(name.to_owned());
        let found =
            cell("4 KiB random write, 8 sessions of depth 32, 2 clients, 1000/s").expect("a cell");
        assert_eq!(
            (found.block_bytes, found.is_random, found.reads),
            (4096, true, 0)
        );
        assert_eq!(
            (found.sessions, found.depth, found.clients, found.rate),
            (8, 32, 2, Some(1000.0))
        );
        let short = cell("48 B").expect("a cell");
        assert_eq!(
            (short.block_bytes, short.depth, short.reads, short.rate),
            (48, 1, 100, None)
        );
        for wrong in [
            "",
            "4 KB random read",
            "4 KiB wild read",
            "4 KiB random read, deep",
            "4 KiB random read, depth x",
        ] {
            assert!(cell(wrong).is_err(), "{wrong}");
        }
    }
}
