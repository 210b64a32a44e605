//! Blocks that were never written: reading them does not access the medium, since zeros are returned from
//! metadata. Thin storage consists of them before its first use.

use bench::plan::Suite;
use block::{Allocation, BlockDevice, Extent as Blocks};

use bench::Extent;
use volume::spec::Bytes;

/// The limit of allocation queries: for a fragmented device its beginning is sufficient.
const QUESTIONS_MAX: usize = 64;
/// Neighbouring blocks of one kind in an answer.
const RUNS: usize = 256;

/// A note for the record if a tenth or more of what `suite` reads is not allocated. `None` if the device does
/// not report allocation, or the suite fills it first.
pub async fn note(device: &dyn BlockDevice, suite: &Suite) -> Option<String> {
    let reads = suite.cells().flat_map(|cell| &cell.roles).any(|role| role.workload.reads());
    let fills = suite.steps.iter().any(|step| matches!(step, bench::plan::Step::Fill { .. }));
    if !reads || fills {
        return None;
    }
    let geometry = device.geometry();
    let spans = suite.cells().flat_map(|cell| &cell.roles).map(|role| role.workload.span);
    let span = spans.map(|span| Extent::of(span, geometry.bytes())).reduce(Extent::around)?.span();
    let block_bytes = u64::from(geometry.block_size.bytes());
    let first = span.start_bytes / block_bytes;
    let blocks = span.bytes.unwrap_or(geometry.bytes()) / block_bytes;
    let (holes, seen) = counted(device, first, blocks.min(geometry.blocks.0.saturating_sub(first))).await?;
    let share = holes * 100 / seen.max(1);
    let of = Bytes(seen * block_bytes);
    (share >= 10).then(|| {
        format!(
            "{share} % of the {of} looked at have never been written: reading them measures no medium; fill \
             the storage first if that is not meant"
        )
    })
}

/// Blocks that take no space, of those that the device has told of; `None` if it fails to.
async fn counted(device: &dyn BlockDevice, first: u64, blocks: u64) -> Option<(u64, u64)> {
    let (mut holes, mut seen) = (0, 0);
    for _ in 0..QUESTIONS_MAX {
        if seen >= blocks {
            break;
        }
        let asked = Blocks::new(first + seen, blocks - seen);
        let runs = device.allocation(asked, RUNS).await.ok()?;
        let before = seen;
        for run in runs {
            seen += run.extent.blocks.0;
            holes += if run.allocation == Allocation::Deallocated { run.extent.blocks.0 } else { 0 };
        }
        // A device that tells nothing is asked nothing more.
        if seen == before {
            break;
        }
    }
    Some((holes.min(seen), seen.min(blocks)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bench::plan::{Cell, Order, Percent, Role, Step, Stop, Workload};
    use block::{Buffer, Durability};
    use host::{RamDevice, RamOptions};

    use super::*;
    use backends::remote;

    fn suite(read: Percent, fill: bool) -> Suite {
        let role = Role::new("reader", 0, Workload::simple(4096, 1, read, Percent::ALL));
        let cell = Cell::new("cell", "cell", vec![role]);
        let measure = Step::Measure { stop: Stop::after(1.0), order: Order::Once, cells: vec![cell] };
        let fill = fill.then_some(Step::Fill { block_bytes: 4096, depth: 1, passes: 1 });
        let steps = fill.into_iter().chain([measure]).collect();
        let (name, title, about) = ("x".to_owned(), String::new(), String::new());
        Suite { name, title, about, document: None, assumed: Vec::new(), steps }
    }

    /// What is said of a MiB of which so much has been written.
    fn said(written: usize, suite: &Suite) -> Option<String> {
        let device = Arc::new(RamDevice::new(RamOptions::new(1 << 20)).expect("memory"));
        let said = remote::run(async {
            if written > 0 {
                let extent = Blocks::new(0, written as u64 / 512);
                let data = Buffer::zeroed(written).share();
                device.write(extent, data, Durability::Cached).await.expect("a write");
            }
            Ok(note(&*device, suite).await)
        });
        said.unwrap_or_else(|failure| panic!("{failure}"))
    }

    #[test]
    fn storage_that_was_never_written_is_told() {
        let reads = suite(Percent::ALL, false);
        assert!(said(0, &reads).is_some_and(|said| said.starts_with("100 % of the 1MiB")));
        assert!(said(768 << 10, &reads).is_some_and(|said| said.starts_with("25 %")));
        assert_eq!(said(1 << 20, &reads), None);
    }

    #[test]
    fn nothing_is_told_where_it_does_not_matter() {
        assert_eq!(said(0, &suite(Percent::NONE, false)), None);
        assert_eq!(said(0, &suite(Percent::ALL, true)), None);
    }
}
