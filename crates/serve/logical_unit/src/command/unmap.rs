//! UNMAP (SBC-3 5.28): deallocates blocks.

use block::{Durability, Extent, Geometry};
use scsi::{Condition, SenseKey, UnmapDescriptor, asc};

use super::{Call, transfer, vpd};
use crate::failure::Failure;
use crate::plan::{Outcome, Plan};

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    if call.cdb.bit(1, ANCHOR) {
        return Err(Condition::invalid_bit(1, ANCHOR).into());
    }
    let length = call.cdb.u16(7);
    if length == 0 {
        return call.good();
    }
    let geometry = call.geometry();
    let stable = transfer::durability(&call.view, false) == Durability::Stable;
    // The list once more, as extents.
    call.receive(u32::from(length), usize::from(length), move |access, list| async move {
        for extent in extents(&list, geometry)? {
            let _shared = access.locks().share(extent).await;
            access.unmap(extent).await?;
        }
        if stable {
            access.flush().await?;
        }
        Ok(Outcome::default())
    })
}

/// The extents of the parameter list. All are checked before any is obeyed.
fn extents(list: &[u8], geometry: Geometry) -> Result<Vec<Extent>, Condition> {
    let descriptors = UnmapDescriptor::parse_list(list).ok_or(Condition::parameter_list_length())?;
    if descriptors.len() > vpd::UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Condition::invalid_parameter(2));
    }
    let extents: Vec<Extent> = descriptors.map(|one| Extent::new(one.lba, u64::from(one.blocks))).collect();
    if extents.iter().any(|extent| !geometry.contains(*extent)) {
        return Err(Condition::new(SenseKey::IllegalRequest, asc::LBA_OUT_OF_RANGE));
    }
    if extents.iter().map(|extent| extent.blocks.0).sum::<u64>() > u64::from(vpd::UNMAP_BLOCKS_MAX) {
        return Err(Condition::invalid_parameter(UnmapDescriptor::HEADER_BYTES as u16 + 8));
    }
    Ok(extents)
}

const ANCHOR: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use block::{BlockSize, Blocks};

    const GEOMETRY: Geometry =
        Geometry { block_size: BlockSize::B512, blocks: Blocks(4096), physical_exponent: 0 };

    fn list(announced: u16, extents: &[(u64, u32)]) -> Vec<u8> {
        let mut list = vec![0; 2];
        list.extend(announced.to_be_bytes());
        list.extend([0; 4]);
        for (lba, blocks) in extents {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }

    #[test]
    fn an_incomplete_last_descriptor_is_ignored() {
        let mut cut = list(32, &[(1, 2), (3, 4)]);
        cut.pop();
        assert_eq!(extents(&cut, GEOMETRY), Ok(vec![Extent::new(1, 2)]));
        assert_eq!(extents(&list(31, &[(1, 2), (3, 4)]), GEOMETRY), Ok(vec![Extent::new(1, 2)]));
    }

    #[test]
    fn no_block_after_the_last_is_no_error_and_one_is() {
        assert_eq!(extents(&list(16, &[(4096, 0)]), GEOMETRY), Ok(vec![Extent::new(4096, 0)]));
        let beyond = extents(&list(16, &[(4096, 1)]), GEOMETRY).expect_err("outside");
        assert_eq!(beyond.asc, asc::LBA_OUT_OF_RANGE);
        assert!(extents(&list(16, &[(u64::MAX, u32::MAX)]), GEOMETRY).is_err());
    }

    #[test]
    fn a_list_without_header_is_too_short() {
        assert_eq!(extents(&[0; 7], GEOMETRY), Err(Condition::parameter_list_length()));
        assert_eq!(extents(&[0; 8], GEOMETRY), Ok(vec![]));
    }
}
