//! Captures the log of a test.

use std::io::{Result, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level};

/// A second subscriber, without which tests on several threads would lose lines. With only one subscriber,
/// tracing decides whether a log statement is enabled when a thread first executes it, and caches the
/// decision for all threads. With two, it checks the subscriber of each thread.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

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

/// Runs `work`. Returns its result, and everything that this thread logged meanwhile at level INFO or above.
pub fn logged<T>(work: impl FnOnce() -> T) -> (T, String) {
    LazyLock::force(&SECOND);
    let written = Written::default();
    let writer = written.clone();
    let lines = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_ansi(false);
    let lines = lines.with_writer(move || writer.clone()).finish();
    let result = tracing::subscriber::with_default(lines, work);
    let log = written.0.lock().expect("no panic").clone();
    (result, String::from_utf8(log).expect("text"))
}
