//! Copies by the target itself (EXTENDED COPY, SPC-4 6.4): the data do not pass through this process.

use std::cell::RefCell;
use std::ops::Range;

use iscsi_client::verbs::ExtendedCopy;

use crate::destination::Destination;
use crate::source::Source;

/// A target that copies, as long as it succeeds.
pub(crate) struct Offload {
    copy: RefCell<Option<ExtendedCopy>>,
    block_bytes: u64,
}

/// The longest copy of one command; if it fails, this much is copied by us.
const COMMAND_BYTES_MAX: u64 = 16 << 20;

impl Offload {
    /// Queries the target if both ends are LUNs; `None`, and the reason, if it does not copy.
    pub(crate) async fn between(
        source: &Source,
        destination: &Destination,
    ) -> Result<Option<Offload>, String> {
        let Some(((from, from_at), (to, to_at))) = source.unit().zip(destination.unit()) else {
            return Ok(None);
        };
        // A copy names LUNs by identifiers, which clones of a machine share: only what is reached at one
        // place is certain to be one.
        if from_at != to_at {
            return Ok(None);
        }
        let copy = ExtendedCopy::between(&from, &to).await;
        let copy = copy.map_err(|error| format!("the data go through this host, as {error}"))?;
        Ok(Some(Offload { copy: RefCell::new(Some(copy)), block_bytes: source.block_bytes() }))
    }

    /// What one command copies, in bytes: a power of two.
    pub(crate) fn request_bytes(&self) -> u64 {
        let most = self.copy.borrow().as_ref().map_or(1, |copy| copy.blocks_max()) * self.block_bytes;
        1 << most.min(COMMAND_BYTES_MAX).ilog2()
    }

    /// Lets the target copy `range`; false if it failed. After a failure it is not asked again: a target that
    /// has only one of the two LUNs reports it only here.
    pub(crate) async fn carries(&self, range: &Range<u64>) -> bool {
        let Some(copy) = self.copy.borrow().clone() else { return false };
        let (first, blocks) = (range.start / self.block_bytes, (range.end - range.start) / self.block_bytes);
        let Err(error) = copy.copy(first, first, blocks).await else { return true };
        if self.copy.take().is_some() {
            tracing::info!("the target does not copy by itself: {error}");
        }
        false
    }
}
