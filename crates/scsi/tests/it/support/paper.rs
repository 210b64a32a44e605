use std::sync::Mutex;

use block::{DeviceError, Pending};
use scsi::Keep;

/// Where a logical unit writes down what must survive a restart.
#[derive(Default)]
pub struct Paper {
    text: Mutex<Option<Vec<u8>>>,
    full: Mutex<bool>,
}

impl Paper {
    pub fn of(text: Vec<u8>) -> Paper {
        Paper { text: Mutex::new(Some(text)), full: Mutex::default() }
    }

    pub fn text(&self) -> Option<Vec<u8>> {
        self.text.lock().expect("no test panics while it writes").clone()
    }

    /// From now on, nothing more can be written.
    pub fn fill(&self) {
        *self.full.lock().expect("no test panics while it writes") = true;
    }
}

impl Keep for Paper {
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(async move {
            if *self.full.lock().expect("no test panics while it writes") {
                return Err(DeviceError::NoSpace);
            }
            *self.text.lock().expect("no test panics while it writes") = Some(bytes);
            Ok(())
        })
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.text()
    }
}
