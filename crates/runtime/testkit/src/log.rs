//! The log of a test.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex};

use tracing::Level;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The result of `work`, and what this thread logs meanwhile, except for DEBUG and TRACE.
pub fn logged<T>(work: impl FnOnce() -> T) -> (T, String) {
    let written = Written::default();
    let writer = written.clone();
    let lines = tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false);
    let lines = lines.with_writer(move || writer.clone()).finish();
    let result = tracing::subscriber::with_default(lines, work);
    let log = written.0.lock().expect("no panic").clone();
    (result, String::from_utf8(log).expect("text"))
}
