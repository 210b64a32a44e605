//! One number of a source document, as it is printed there and as it is counted here.

use std::fmt;

use serde::Serialize;

use super::csv::{self, CsvError, Field};
use super::document::megabyte;

/// One number that a source document prints. A field that it says nothing of is empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The document's number, such as `001`.
    pub document: String,
    /// The table it is in, or the part of the text.
    pub table: String,
    /// What was measured.
    pub system: String,
    /// By which test.
    pub test: String,
    /// Which way the data went.
    pub direction: Option<Direction>,
    /// In which order.
    pub pattern: String,
    /// The length of each request, in bytes.
    pub block_bytes: Option<u32>,
    /// Requests under way at once.
    pub depth: Option<u32>,
    /// Delay that was added to the way there and back, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// TCP's window, in bytes.
    pub tcp_window_bytes: Option<u32>,
    /// What the number says: `throughput`, `iops`, `latency_avg`, …
    pub metric: String,
    /// Its unit, in the document's words; [`Row::si`] says what it means.
    pub unit: String,
    /// Exactly as printed.
    pub printed: String,
    /// The same in units without prefix, if it is a number.
    pub si: Option<Quantity>,
    /// What is to be known of it.
    pub note: String,
}

/// Which way the data went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the storage.
    Read,
    /// To the storage.
    Write,
    /// Both, request by request.
    Mixed,
    /// Both at once, as much as goes each way.
    Bidirectional,
    /// From the initiator to the target, plain TCP.
    InitiatorToTarget,
    /// From the target to the initiator, plain TCP.
    TargetToInitiator,
    /// Payload in one direction, in a calculation.
    Unidirectional,
}

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantity {
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: Unit,
}

/// Units without prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Bytes a second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Bits a second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Requests or frames a second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A share or a number: it has no unit.
    #[serde(rename = "1")]
    One,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Mixed => "mixed",
            Direction::Bidirectional => "bidirectional",
            Direction::InitiatorToTarget => "initiator → target",
            Direction::TargetToInitiator => "target → initiator",
            Direction::Unidirectional => "unidirectional",
        })
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::BytesPerSecond => "B/s",
            Unit::BitsPerSecond => "bit/s",
            Unit::PerSecond => "1/s",
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::One => "1",
        })
    }
}

impl Row {
    /// Bytes a second, if that is what the row says.
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.si.filter(|si| si.unit == Unit::BytesPerSecond).map(|si| si.value)
    }
}

/// The columns of a file of rows, in this order.
const COLUMNS: [&str; 14] = [
    "document",
    "table",
    "system",
    "test",
    "direction",
    "pattern",
    "block_size_bytes",
    "queue_depth",
    "rtt_ms",
    "tcp_window_bytes",
    "metric",
    "unit",
    "value",
    "note",
];

/// Reads a file of rows; the first line names its columns.
pub fn parse(text: &str) -> Result<Vec<Row>, CsvError> {
    let records = csv::records(text)?;
    let mut records = records.iter();
    let nothing = CsvError { line: 1, column: 1, why: "the file is empty".to_owned() };
    let header = records.next().ok_or(nothing)?;
    let fields = exactly(header)?;
    if let Some((field, name)) = fields.iter().zip(COLUMNS).find(|(field, name)| field.text != *name) {
        return Err(field.error(format!("expected the column `{name}`")));
    }
    records.map(|record| exactly(record).and_then(row)).collect()
}

fn exactly(record: &[Field]) -> Result<&[Field; COLUMNS.len()], CsvError> {
    record.try_into().map_err(|_| {
        let found = record.len();
        record[0].error(format!("expected {} fields, found {found}", COLUMNS.len()))
    })
}

fn row(fields: &[Field; COLUMNS.len()]) -> Result<Row, CsvError> {
    let [
        source,
        table,
        system,
        test,
        direction,
        pattern,
        block,
        depth,
        rtt,
        window,
        metric,
        unit,
        printed,
        note,
    ] = fields;
    let document = source.text.split('_').next().unwrap_or_default().to_owned();
    let si = quantity(&document, &table.text, unit, printed)?;
    Ok(Row {
        document,
        table: table.text.clone(),
        system: system.text.clone(),
        test: test.text.clone(),
        direction: self::direction(direction)?,
        pattern: pattern.text.clone(),
        block_bytes: whole(block)?,
        depth: whole(depth)?,
        rtt_ms: if rtt.text.is_empty() { None } else { Some(number(rtt)?) },
        tcp_window_bytes: whole(window)?,
        metric: metric.text.clone(),
        unit: unit.text.clone(),
        printed: printed.text.clone(),
        si,
        note: note.text.clone(),
    })
}

fn direction(field: &Field) -> Result<Option<Direction>, CsvError> {
    Ok(Some(match field.text.as_str() {
        "" => return Ok(None),
        "read" => Direction::Read,
        "write" => Direction::Write,
        "mixed" => Direction::Mixed,
        "bidirectional" => Direction::Bidirectional,
        "unidirectional" => Direction::Unidirectional,
        "I->T" => Direction::InitiatorToTarget,
        "T->I" => Direction::TargetToInitiator,
        other => return Err(field.error(format!("`{other}` is no direction"))),
    }))
}

fn quantity(
    document: &str,
    table: &str,
    unit: &Field,
    printed: &Field,
) -> Result<Option<Quantity>, CsvError> {
    let (factor, si) = match unit.text.as_str() {
        "" => return Ok(None),
        "MB/s" => (megabyte(document, table).bytes(), Unit::BytesPerSecond),
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
        other => return Err(unit.error(format!("`{other}` is no known unit"))),
    };
    Ok(Some(Quantity { value: number(printed)? * factor, unit: si }))
}

fn whole(field: &Field) -> Result<Option<u32>, CsvError> {
    match field.text.as_str() {
        "" => Ok(None),
        digits => {
            let number = digits.parse().map_err(|_| field.error(format!("`{digits}` is no whole number")))?;
            Ok(Some(number))
        }
    }
}

fn number(field: &Field) -> Result<f64, CsvError> {
    let number = field.text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| field.error(format!("`{}` is no number", field.text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "document,table,system,test,direction,pattern,block_size_bytes,queue_depth,rtt_ms,\
                          tcp_window_bytes,metric,unit,value,note\n";

    fn mistake(row: &str) -> String {
        parse(&format!("{HEADER}{row}\n")).expect_err("a mistake").to_string()
    }

    #[test]
    fn what_is_no_row_is_refused_with_its_place() {
        assert_eq!(parse("").expect_err("empty").to_string(), "line 1, column 1: the file is empty");
        assert_eq!(mistake("a,b"), "line 2, column 1: expected 14 fields, found 2");
        assert_eq!(mistake("9,t,s,x,up,,,,,,m,ms,1,"), "line 2, column 9: `up` is no direction");
        assert_eq!(mistake("9,t,s,x,read,,4K,,,,m,ms,1,"), "line 2, column 15: `4K` is no whole number");
        assert_eq!(mistake("9,t,s,x,read,,,,,,m,mph,1,"), "line 2, column 21: `mph` is no known unit");
        assert_eq!(mistake("9,t,s,x,read,,,,,,m,ms,NaN,"), "line 2, column 24: `NaN` is no number");
        let swapped = HEADER.replace("table,system", "system,table");
        assert_eq!(
            parse(&swapped).expect_err("swapped").to_string(),
            "line 1, column 10: expected the column `table`"
        );
    }

    #[test]
    fn a_number_is_kept_as_printed_and_counted_without_prefix() {
        let rows = parse(&format!("{HEADER}001_x,t,s,x,read,,32768,,,,throughput,MiB/s,55.0,n\n"));
        let row = &rows.expect("a row")[0];
        assert_eq!((row.document.as_str(), row.printed.as_str()), ("001", "55.0"));
        assert_eq!(row.bytes_per_s(), Some(55.0 * 1_048_576.0));
        assert_eq!(row.block_bytes, Some(32_768));
    }
}
