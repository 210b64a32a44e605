//! Where a logical unit keeps its reservations: a small file that is replaced as a whole.

use std::sync::{Arc, Mutex, PoisonError};

use block::Pending;
use scsi::Keep;

use crate::universe;

/// The file. It outlives the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimKeep(Arc<Mutex<Option<Vec<u8>>>>);

impl Keep for SimKeep {
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(async move {
            // It is replaced at some moment between the beginning and the end, whether anybody waits for that or not.
            let times =
                universe::draw(|random| [random.delay(10_000, 50_000_000), random.delay(10_000, 50_000_000)]);
            let place = Arc::clone(&self.0);
            let replace = move || *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
            universe::after(times[0], replace);
            reactor::sleep(std::time::Duration::from_nanos(times[0] + times[1])).await;
            Ok(())
        })
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
