//! The place of a number in its document.

use derive_more::Display;

use crate::row::{Direction, Row};

/// The column of a table, whose numbers belong to one curve.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("document {document}, {table}, {column}")]
pub struct Source {
    /// The number of the document.
    pub document: String,
    /// The name of the table. For 003, the two figures of a direction.
    pub table: String,
    /// The name of the column.
    pub column: String,
}

impl Row {
    /// Returns the table and column of the number.
    pub fn source(&self) -> Source {
        let table = match (self.document.as_str(), self.direction) {
            ("003", Some(Direction::Read)) => "figures 5 and 8",
            ("003", Some(Direction::Write)) => "figures 6 and 9",
            ("003", Some(Direction::Bidirectional)) => "figures 4 and 7",
            _ => &self.table,
        };
        Source {
            document: self.document.clone(),
            table: table.to_owned(),
            column: self.column(),
        }
    }

    /// Returns the source in words, with the conditions that the document does not state: `document 003,
    /// figures 5 and 8, read (sequential requests assumed)`.
    pub fn citation(&self) -> String {
        let assumed = self
            .class
            .as_ref()
            .map(|class| class.assumed.as_str())
            .filter(|text| !text.is_empty());
        format!(
            "{}{}",
            self.source(),
            assumed.map_or_else(String::new, |text| format!(" ({text} assumed)"))
        )
    }

    fn column(&self) -> String {
        let system = || {
            self.system
                .rsplit_once(", ")
                .map_or(self.system.as_str(), |(_, last)| last)
        };
        let direction = || {
            self.direction
                .map_or_else(String::new, |direction| direction.to_string())
        };
        let depth = || {
            self.depth
                .map_or_else(String::new, |depth| format!(", depth {depth}"))
        };
        match (self.document.as_str(), self.table.as_str()) {
            ("000", "Table 7") => format!("{} disk access", self.pattern),
            ("000", table) if table.starts_with("Table") => self.test.clone(),
            ("000" | "004", _) => format!("{}, {}", system(), self.test),
            ("001", "Super ATTO Clone pattern") | ("003", _) => direction(),
            ("002", table) if table.ends_with("LAN") => format!("{}{}", self.pattern, depth()),
            ("002", _) => format!("{} ms{}", self.rtt_ms.unwrap_or(0.0), depth()),
            _ => self.test.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Source, rows};

    fn sources(document: &str) -> Vec<Source> {
        let mut sources: Vec<Source> = Vec::new();
        let with_class = |row: &&crate::Row| row.document == document && row.class.is_some();
        for source in rows().iter().filter(with_class).map(crate::Row::source) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }

    #[test]
    fn a_source_is_a_column_of_a_table() {
        let shown = |document: &str| {
            sources(document)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let of_000 = shown("000");
        assert_eq!(of_000.len(), 21, "{of_000:?}");
        assert!(
            of_000.contains(&"document 000, Table 3, iSCSI to RAM drive".to_owned()),
            "{of_000:?}"
        );
        assert!(
            of_000.contains(&"document 000, Table 7, random disk access".to_owned()),
            "{of_000:?}"
        );
        let atto: Vec<_> = shown("001")
            .into_iter()
            .filter(|source| source.contains("ATTO"))
            .collect();
        let (read, write) = (
            "document 001, Super ATTO Clone pattern, read",
            "document 001, Super ATTO Clone pattern, write",
        );
        assert_eq!(atto, [read, write]);
        assert_eq!(shown("003").len(), 3);
        // Three kinds of requests with depths of 1 and 32, on a LAN and over four round trips.
        assert_eq!(shown("002").len(), 3 * 2 * (1 + 4));
    }

    #[test]
    fn a_citation_has_the_assumptions() {
        let cited = |document: &str, table: &str| {
            let row = rows()
                .iter()
                .find(|row| row.document == document && row.table == table);
            row.expect("a row").citation()
        };
        let of_003 = "document 003, figures 5 and 8, read (sequential requests assumed)";
        assert_eq!(cited("003", "Figure 5 text"), of_003);
        assert_eq!(
            cited("000", "Table 3"),
            "document 000, Table 3, iSCSI to RAM drive"
        );
    }

    #[test]
    fn a_source_has_one_class_and_one_rate_for_each_length() {
        for row in rows().iter().filter(|row| row.class.is_some()) {
            let same = rows()
                .iter()
                .filter(|other| other.class.is_some() && other.source() == row.source());
            for other in same.clone() {
                assert_eq!(
                    (&other.class, other.direction),
                    (&row.class, row.direction),
                    "{}",
                    row.source()
                );
            }
            let repeats = |other: &&crate::Row| {
                other.metric == row.metric
                    && other.block_bytes == row.block_bytes
                    && row.rate().is_some()
            };
            assert!(same.filter(repeats).count() <= 1, "{}", row.source());
        }
    }
}
