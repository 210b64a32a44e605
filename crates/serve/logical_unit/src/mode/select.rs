//! MODE SELECT(6) and (10): applies a parameter list to the pages atomically (SPC-4 6.13, 6.14).

use block::Buffer;
use scsi::{BlockDescriptor, Condition, ModeForm, ModeHeader, ModePageHeader};

use super::sense::Medium;
use super::{Page, Pages};
use crate::access::DeviceAccess;
use crate::command::call::Call;
use crate::failure::Failure;
use crate::nexus::{Attention, NexusId};
use crate::plan::{Outcome, Plan};
use crate::state::UnitState;

/// A MODE SELECT command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Select {
    /// The form of the command: MODE SELECT(6) or (10).
    pub(crate) form: ModeForm,
    /// SP: whether the values are saved, so that they survive a reset.
    pub(crate) save: bool,
}

impl Select {
    /// Parses the CDB of MODE SELECT(6), 15h, or MODE SELECT(10), 55h, of full length: the command and its
    /// PARAMETER LIST LENGTH in bytes.
    pub(crate) fn parse(cdb: &[u8], can_save: bool) -> Result<(Select, usize), Condition> {
        let (form, flags, length) = match *cdb {
            [0x15, flags, _, _, length, _, ..] => (ModeForm::Six, flags, usize::from(length)),
            [0x55, flags, _, _, _, _, _, high, low, _, ..] => (
                ModeForm::Ten,
                flags,
                usize::from(u16::from_be_bytes([high, low])),
            ),
            _ => return Err(Condition::invalid_field(0)),
        };
        // PF=0 means pages in a vendor's own format, and RTD discards the saved values; neither is supported.
        if flags & 0x10 == 0 && length > 0 {
            return Err(Condition::invalid_bit(1, 4));
        }
        if flags & 0x02 != 0 {
            return Err(Condition::invalid_bit(1, 1));
        }
        let save = flags & 0x01 != 0;
        if save && !can_save {
            return Err(Condition::invalid_bit(1, 0));
        }
        Ok((Select { form, save }, length))
    }

    /// Applies the parameter list to `pages`. Returns true if any current value has changed. After an error
    /// nothing has changed.
    pub(crate) fn apply(
        &self,
        pages: &mut Pages,
        list: &[u8],
        medium: Medium,
    ) -> Result<bool, Condition> {
        if list.is_empty() {
            return Ok(false); // SPC-4 6.13: not an error, and nothing is transferred.
        }
        let mut next = pages.clone();
        let mut at = self.pages_start(list, medium)?;
        while at < list.len() {
            at += next.change(list, at)?;
        }
        if self.save {
            next.save();
        }
        let changed = next.current != pages.current;
        *pages = next;
        Ok(changed)
    }

    /// Checks the header and the block descriptor, and returns the start of the pages. MODE DATA LENGTH is
    /// reserved here, and initiators send back the device-specific parameter they received: both are ignored.
    fn pages_start(&self, list: &[u8], medium: Medium) -> Result<usize, Condition> {
        let header = ModeHeader::parse(self.form, list).ok_or(Condition::parameter_list_length())?;
        let (start, length) = (self.form.header_bytes(), header.descriptor_bytes);
        let descriptor = list
            .get(start..start + length)
            .ok_or(Condition::parameter_list_length())?;
        if descriptor.is_empty() {
            return Ok(start);
        }
        let whole = descriptor.len() == if header.long_lba { 16 } else { 8 };
        let told = BlockDescriptor::parse(header.long_lba, descriptor).filter(|_| whole);
        let length_at = if self.form == ModeForm::Six { 3 } else { 6 };
        same_medium(
            told.ok_or(Condition::invalid_parameter(length_at))?,
            medium,
            start,
        )?;
        Ok(start + length)
    }
}

/// A block descriptor may repeat the medium's properties, but not change them, which requires FORMAT UNIT.
fn same_medium(told: BlockDescriptor, medium: Medium, at: usize) -> Result<(), Condition> {
    let blocks = if told.long_lba {
        medium.blocks
    } else {
        medium.blocks.min(u64::from(u32::MAX))
    };
    if told.blocks != 0 && told.blocks != blocks {
        return Err(wrong(at));
    }
    if told.block_bytes != medium.block_bytes {
        return Err(wrong(at + 5));
    }
    Ok(())
}

impl Pages {
    /// Applies the page at `at` of the list to the current values; returns its length in bytes.
    fn change(&mut self, list: &[u8], at: usize) -> Result<usize, Condition> {
        let header = ModePageHeader::parse(&list[at..]).ok_or(Condition::parameter_list_length())?;
        let (index, ours) = self.find((header.code, header.subpage)).ok_or(wrong(at))?;
        let (header_bytes, length) = (ours.header_bytes, ours.bytes);
        if header.bytes != length {
            return Err(wrong(at + header.header_bytes - 1));
        }
        let sent = list
            .get(at..at + length)
            .ok_or(Condition::parameter_list_length())?;
        let (current, mask): (&Page, &Page) = (&self.current[index], &self.changeable[index]);
        // Find the first byte that differs from the current values in a bit that must not change (SPC-4
        // 6.11.3). PS is reserved in MODE SELECT; initiators send back the value they received, so it is
        // ignored.
        if let Some(offset) =
            (header_bytes..length).find(|&at| (sent[at] ^ current[at]) & !mask[at] != 0)
        {
            return Err(wrong(at + offset));
        }
        self.current[index][header_bytes..length].copy_from_slice(&sent[header_bytes..]);
        Ok(length)
    }
}

/// INVALID FIELD IN PARAMETER LIST, pointing at the byte `at` of the list.
fn wrong(at: usize) -> Condition {
    Condition::invalid_parameter(u16::try_from(at).unwrap_or(u16::MAX))
}

/// Plans MODE SELECT(6) and (10).
pub(crate) fn plan_select(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (select, length) = Select::parse(&call.cdb.full(), call.unit.volume().can_save())?;
    let id = call.nexus.id;
    call.receive(length as u32, 0, move |access, list| {
        select_pages(access, id, select, length, list)
    })
}

/// Executes MODE SELECT. Once it has begun to save, it runs to completion.
async fn select_pages(
    unit: DeviceAccess,
    id: NexusId,
    select: Select,
    length: usize,
    list: Buffer,
) -> Result<Outcome, Failure> {
    if list.len() < length {
        return Err(Condition::parameter_list_length().into());
    }
    let change = || {
        let (before, medium) = unit.look(|state| (state.modes.clone(), unit.mode_medium(state)));
        let mut next = before.clone();
        let changed = select.apply(&mut next, &list, medium)?;
        let is_cache_off = before.write_cache() && !next.write_cache();
        Ok::<_, Failure>((next, changed, is_cache_off))
    };
    // Once the write cache is off, an initiator need not flush (SBC-3 6.5.5), and would never receive the
    // report of a loss. The cache therefore stays on until SYNCHRONIZE CACHE has reported the loss.
    if change()?.2 {
        unit.flush_unless_lost().await?;
    }
    let lock = unit.volume().lock_to_save().await;
    let (next, changed, is_cache_off) = change()?;
    if select.save {
        unit.commit();
        unit.volume()
            .save_front_end_state(next.to_bytes(), &lock)
            .await?;
    }
    unit.change(|state| state.take_modes(id, next, changed));
    if is_cache_off {
        unit.flush_unless_lost().await?; // for data cached in the meantime
    }
    Ok(Outcome::default())
}

impl UnitState {
    fn take_modes(&mut self, by: NexusId, next: Pages, changed: bool) {
        self.volume.set_write_protected(next.write_protect());
        self.modes = next;
        if changed {
            self.raise_others(by, Attention::ModeParametersChanged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Facts;
    use crate::mode::sense::tests::MEDIUM;

    const CONTROL: [u8; 12] = [0x0a, 0x0a, 0x02, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0];
    const CACHING: [u8; 20] = [
        0x08, 0x12, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn pages() -> Pages {
        Pages::new(Facts {
            volatile_cache: true,
        })
    }

    fn with(mut page: [u8; 12], at: usize, value: u8) -> Vec<u8> {
        page[at] = value;
        [&[0; 4][..], &page].concat()
    }

    fn six(pages: &mut Pages, list: &[u8]) -> Result<bool, Condition> {
        Select {
            form: ModeForm::Six,
            save: false,
        }
        .apply(pages, list, MEDIUM)
    }

    #[test]
    fn software_write_protect_can_be_set_and_cleared() {
        let mut pages = pages();
        assert_eq!(six(&mut pages, &with(CONTROL, 4, 0x08)), Ok(true));
        assert!(pages.write_protect());
        assert_eq!(six(&mut pages, &with(CONTROL, 4, 0)), Ok(true));
        assert!(!pages.write_protect());
    }

    #[test]
    fn selecting_what_is_already_so_changes_nothing() {
        assert_eq!(six(&mut pages(), &with(CONTROL, 4, 0)), Ok(false));
        assert_eq!(six(&mut pages(), &[]), Ok(false));
    }

    #[test]
    fn a_page_sent_back_with_its_ps_bit_is_taken() {
        assert_eq!(six(&mut pages(), &with(CONTROL, 0, 0x8a)), Ok(false));
    }

    #[test]
    fn a_field_that_may_not_change_is_pointed_at() {
        let mut pages = pages();
        let list = with(CONTROL, 5, 0);
        assert_eq!(six(&mut pages, &list), Err(Condition::invalid_parameter(9)));
    }

    #[test]
    fn one_wrong_page_leaves_the_right_one_before_it_alone() {
        let mut pages = pages();
        let list = [&with(CONTROL, 4, 0x08)[..], &with(CONTROL, 3, 0)[4..]].concat();
        assert_eq!(
            six(&mut pages, &list),
            Err(Condition::invalid_parameter(19))
        );
        assert!(!pages.write_protect());
    }

    #[test]
    fn the_write_cache_of_a_medium_without_one_cannot_be_switched_on() {
        let mut pages = Pages::new(Facts {
            volatile_cache: false,
        });
        let list = [&[0; 4][..], &CACHING].concat();
        assert_eq!(six(&mut pages, &list), Err(Condition::invalid_parameter(6)));
    }

    #[test]
    fn a_list_cut_within_a_header_or_a_page_has_a_wrong_length() {
        let list = with(CONTROL, 4, 0x08);
        for length in 1..list.len() {
            let expected = if length == 4 {
                Ok(false)
            } else {
                Err(Condition::parameter_list_length())
            };
            assert_eq!(six(&mut pages(), &list[..length]), expected, "{length}");
        }
    }

    #[test]
    fn a_page_of_another_length_is_refused() {
        let list = with(CONTROL, 1, 0x0b);
        assert_eq!(
            six(&mut pages(), &list),
            Err(Condition::invalid_parameter(5))
        );
    }

    #[test]
    fn an_unknown_page_is_refused() {
        let list = with(CONTROL, 0, 0x19);
        assert_eq!(
            six(&mut pages(), &list),
            Err(Condition::invalid_parameter(4))
        );
    }

    #[test]
    fn a_block_descriptor_may_repeat_the_shape_but_not_change_it() {
        let list = |count: u32, block: u32| {
            let mut list = vec![0, 0, 0, 8];
            list.extend(count.to_be_bytes());
            list.extend(block.to_be_bytes());
            list.extend(CONTROL);
            list
        };
        for count in [0, 0x1000] {
            assert_eq!(six(&mut pages(), &list(count, 512)), Ok(false));
        }
        assert_eq!(
            six(&mut pages(), &list(7, 512)),
            Err(Condition::invalid_parameter(4))
        );
        assert_eq!(
            six(&mut pages(), &list(0, 4096)),
            Err(Condition::invalid_parameter(9))
        );
    }

    #[test]
    fn a_long_block_descriptor_is_understood() {
        let mut list = vec![0, 0, 0, 0, 1, 0, 0, 16];
        list.extend(0x1000u64.to_be_bytes());
        list.extend([0, 0, 0, 0, 0, 0, 2, 0]);
        list.extend(CACHING);
        list[8 + 16 + 2] = 0;
        let mut pages = pages();
        assert_eq!(
            Select {
                form: ModeForm::Ten,
                save: false
            }
            .apply(&mut pages, &list, MEDIUM),
            Ok(true)
        );
        assert!(!pages.write_cache());
    }

    #[test]
    fn the_cdb_says_what_we_do_not_do() {
        let parse =
            |flags| Select::parse(&[0x15, flags, 0, 0, 16, 0], false).map(|(_, length)| length);
        assert_eq!(parse(0x10), Ok(16));
        assert_eq!(parse(0x00), Err(Condition::invalid_bit(1, 4)));
        assert_eq!(parse(0x12), Err(Condition::invalid_bit(1, 1)));
        assert_eq!(parse(0x11), Err(Condition::invalid_bit(1, 0)));
        assert_eq!(
            Select::parse(&[0x15, 0x11, 0, 0, 16, 0], true).map(|(select, _)| select.save),
            Ok(true)
        );
    }

    proptest::proptest! {
        #[test]
        fn no_list_makes_it_panic_or_change_what_may_not_change(
            list in proptest::collection::vec(proptest::num::u8::ANY, 0..80), ten: bool,
        ) {
            let mut after = pages();
            let form = if ten { ModeForm::Ten } else { ModeForm::Six };
            let _ = Select { form, save: false }.apply(&mut after, &list, MEDIUM);
            let before = pages();
            for index in 0..crate::mode::COUNT {
                for at in 0..crate::mode::BYTES_MAX {
                    let different = after.current[index][at] ^ before.current[index][at];
                    proptest::prop_assert_eq!(different & !after.changeable[index][at], 0);
                }
            }
        }
    }
}
