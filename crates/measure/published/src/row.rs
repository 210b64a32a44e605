//! One number of a source document, as printed and in base units.

use derive_more::Display;
use std::error::Error;

use serde::{Deserialize, Serialize};

use super::class::Class;
use super::document::megabyte;

/// One number of a source document. A field is empty if the document does not contain the information.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Row {
    /// The number of the document, such as `001`.
    pub document: String,
    /// The name of the table, or of the part of the text.
    pub table: String,
    /// The measured system.
    pub system: String,
    /// The name of the test.
    pub test: String,
    /// The direction of the data.
    pub direction: Option<Direction>,
    /// The access pattern.
    pub pattern: String,
    /// The length of each request, in bytes; the shortest one if the number is about several lengths.
    #[serde(rename(deserialize = "block_size_bytes"))]
    pub block_bytes: Option<u32>,
    /// The longest request, in bytes, if the number is about a range of lengths: `64 KB and larger`.
    #[serde(rename(deserialize = "block_size_max_bytes"))]
    pub block_bytes_max: Option<u32>,
    /// The queue depth.
    #[serde(rename(deserialize = "queue_depth"))]
    pub depth: Option<u32>,
    /// The delay added to the round trip, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// TCP's window, in bytes.
    pub tcp_window_bytes: Option<u32>,
    /// The measured quantity: `throughput`, `iops`, `latency_avg`, …
    pub metric: String,
    /// The unit in the document's words; [`Row::si`] contains its meaning.
    pub unit: String,
    /// The number exactly as printed.
    #[serde(rename(deserialize = "value"))]
    pub printed: String,
    /// The number in base units, if it is a number.
    #[serde(skip_deserializing)]
    pub si: Option<Quantity>,
    /// Notes.
    pub note: String,
    /// The conditions of the measurement; `None` for settings, sums and calculated numbers.
    #[serde(skip_deserializing)]
    pub class: Option<Class>,
}

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, Display)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the storage.
    #[display("read")]
    Read,
    /// To the storage.
    #[display("write")]
    Write,
    /// Both directions: each request is either a read or a write.
    #[display("mixed")]
    Mixed,
    /// Both directions concurrently, at full speed.
    #[display("bidirectional")]
    Bidirectional,
    /// From the initiator to the target, over plain TCP.
    #[serde(rename(deserialize = "I->T"))]
    #[display("initiator → target")]
    InitiatorToTarget,
    /// From the target to the initiator, over plain TCP.
    #[serde(rename(deserialize = "T->I"))]
    #[display("target → initiator")]
    TargetToInitiator,
    /// Payload in one direction, as calculated.
    #[display("unidirectional")]
    Unidirectional,
}

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantity {
    /// The numeric value.
    pub value: f64,
    /// The unit of the value.
    pub unit: Unit,
}

/// Units without prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
pub enum Unit {
    /// Bytes per second.
    #[serde(rename = "B/s")]
    #[display("B/s")]
    BytesPerSecond,
    /// Bits per second.
    #[serde(rename = "bit/s")]
    #[display("bit/s")]
    BitsPerSecond,
    /// Requests or frames per second.
    #[serde(rename = "1/s")]
    #[display("1/s")]
    PerSecond,
    /// Seconds.
    #[serde(rename = "s")]
    #[display("s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "B")]
    #[display("B")]
    Bytes,
    /// No unit: a share or a count.
    #[serde(rename = "1")]
    #[display("1")]
    One,
}

impl Row {
    /// Returns bytes per second, if that is the measured quantity.
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.si
            .filter(|si| si.unit == Unit::BytesPerSecond)
            .map(|si| si.value)
    }

    /// Returns whether the number is about requests of this length, or about no length if there is none.
    pub(super) fn has_length(&self, block_bytes: Option<u32>) -> bool {
        match (self.block_bytes, block_bytes) {
            (Some(least), Some(length)) => {
                (least..=self.block_bytes_max.unwrap_or(least)).contains(&length)
            }
            (known, length) => known == length,
        }
    }

    /// Returns the rate in bytes per second, if that or requests per second is the measured quantity.
    pub fn rate(&self) -> Option<f64> {
        match self.metric.as_str() {
            "throughput" => self.bytes_per_s(),
            "iops" => Some(self.si?.value * f64::from(self.block_bytes?)),
            _ => None,
        }
    }
}

/// Parses a file of rows. The first line contains the names of the columns.
pub(super) fn parse(text: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers()?.clone();
    let path = heads.iter().position(|head| head == "path");
    let parsed = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record?;
        let mut row: Row = record.deserialize(Some(&heads))?;
        // A row without a path has no class.
        if path.is_some_and(|path| record.get(path).is_some_and(|path| !path.is_empty())) {
            row.class = Some(record.deserialize(Some(&heads))?);
        }
        row.counted()
    };
    reader.records().map(parsed).collect()
}

impl Row {
    /// Adds the values that are derived from the columns.
    fn counted(mut self) -> Result<Row, Box<dyn Error>> {
        self.document = self
            .document
            .split('_')
            .next()
            .unwrap_or_default()
            .to_owned();
        let (factor, unit) = match self.unit.as_str() {
            "" => return Ok(self),
            "MB/s" => (
                megabyte(&self.document, &self.table).bytes(),
                Unit::BytesPerSecond,
            ),
            "MiB/s" => (1_048_576.0, Unit::BytesPerSecond),
            "B/s" => (1.0, Unit::BytesPerSecond),
            "Gbit/s" => (1e9, Unit::BitsPerSecond),
            "Mbit/s" => (1e6, Unit::BitsPerSecond),
            "bit/s" => (1.0, Unit::BitsPerSecond),
            "1/s" => (1.0, Unit::PerSecond),
            "ms" => (1e-3, Unit::Seconds),
            "bytes" => (1.0, Unit::Bytes),
            "%" => (1e-2, Unit::One),
            "count" => (1.0, Unit::One),
            other => return Err(format!("`{other}` is an unknown unit").into()),
        };
        self.si = Some(Quantity {
            value: self.printed.parse::<f64>()? * factor,
            unit,
        });
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "document,table,system,test,direction,pattern,block_size_bytes,block_size_max_bytes,queue_depth,rtt_ms,\
                          tcp_window_bytes,metric,unit,value,note\n";

    #[test]
    fn what_is_no_row_is_refused() {
        let is_refused = |row: &str| parse(&format!("{HEADER}{row}\n")).is_err();
        assert!(!is_refused("9,t,s,x,read,,,,,,,m,ms,1,"));
        for wrong in [
            "a,b",
            "9,t,s,x,up,,,,,,,m,ms,1,",
            "9,t,s,x,read,,4K,,,,,m,ms,1,",
            "9,t,s,x,read,,,,,,,m,mph,1,",
            "9,t,s,x,read,,,,,,,m,ms,one,",
        ] {
            assert!(is_refused(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_number_is_kept_as_printed_and_counted_without_prefix() {
        let rows = parse(&format!(
            "{HEADER}001_x,t,s,x,read,,32768,,,,,throughput,MiB/s,55.0,n\n"
        ));
        let row = &rows.expect("a row")[0];
        assert_eq!(
            (row.document.as_str(), row.printed.as_str()),
            ("001", "55.0")
        );
        assert_eq!(row.bytes_per_s(), Some(55.0 * 1_048_576.0));
        assert_eq!(row.block_bytes, Some(32_768));
    }
}
