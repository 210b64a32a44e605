//! `buffered:1MiB:[…]`.

use std::ops::RangeInclusive;
use std::slice;
use std::sync::Arc;

use block::{Buffered, Window};

use crate::backend::{Backend, Kind, Opened, Opening, Options};
use crate::spec::{Bytes, Problem, Spec, Written};

/// A buffer that reads ahead and writes back.
pub(super) static BUFFERED: Kind = Kind {
    name: "buffered",
    usage: "buffered:SIZE:[VOLUME]",
    about: "another volume behind a page cache: reads ahead of sequential readers, and gathers what is \
            written, by so much and in requests of 128 KiB. What is written lasts after a flush",
    is_layer: true,
    options: Options::Known(&[]),
    read,
};

#[derive(Debug)]
struct BufferedBackend {
    window: Bytes,
    inner: Spec,
}

/// From a page to what 17 of (for so many readers and writers) a small machine has memory for.
const WINDOW_BYTES: RangeInclusive<u64> = 4 << 10..=64 << 20;

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let size = "a buffered volume wants the size of its window";
    let window: Bytes = written.before_brackets(size, "buffered:1MiB:[ram:1GiB]")?;
    if !WINDOW_BYTES.contains(&window.0) {
        let sentence = "a window has 4KiB to 64MiB: what is read ahead and not wanted is read in vain";
        return Err(Problem::new(written.argument().at.clone(), sentence));
    }
    Ok(Arc::new(BufferedBackend { window, inner: written.member()? }))
}

impl Backend for BufferedBackend {
    fn kind(&self) -> &'static Kind {
        &BUFFERED
    }

    fn argument(&self) -> String {
        self.window.to_string()
    }

    fn members(&self) -> &[Spec] {
        slice::from_ref(&self.inner)
    }

    fn cache_outlives_process(&self) -> bool {
        false
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let inner = self.inner.open(opening).await?;
            let window = Window::new(self.window.0);
            Ok(Arc::new(Buffered::new(inner, window, Arc::clone(&opening.spawner))) as _)
        })
    }
}
