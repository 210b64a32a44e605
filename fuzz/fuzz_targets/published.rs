//! Rows of published numbers: what is read is finite, or the mistake has a place in the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use script::assert_in_text;

const HEADER: &str = "document,table,system,test,direction,pattern,block_size_bytes,queue_depth,rtt_ms,tcp_window_bytes,\
                      metric,unit,value,note\n";

fuzz_target!(|bytes: &[u8]| {
    let Ok(rest) = std::str::from_utf8(bytes) else { return };
    for text in [rest.to_owned(), format!("{HEADER}{rest}")] {
        match published::parse(&text) {
            Ok(rows) => assert!(rows.iter().filter_map(|row| row.si).all(|si| si.value.is_finite())),
            Err(error) => assert_in_text(&text, error.line, error.column),
        }
    }
});
