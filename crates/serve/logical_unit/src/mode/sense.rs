//! MODE SENSE(6) and (10): pages as mode parameter data (SPC-4 6.11, 6.12, 7.5).

use scsi::{
    BlockDescriptor, Condition, ModeForm, ModePage, ModePageHeader, ModeValues, Modes, PS,
    SenseKey, asc,
};

use super::{Page, Pages};
use crate::command::call::Call;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::state::UnitState;
use crate::unit::LogicalUnit;

/// Properties of the medium for the mode parameter header and the block descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Medium {
    /// The number of logical blocks.
    pub(crate) blocks: u64,
    /// The length of a logical block in bytes.
    pub(crate) block_bytes: u32,
    /// Whether the medium is write protected, by the device, the configuration or SWP.
    pub(crate) write_protected: bool,
    /// Whether DPO and FUA are honoured.
    pub(crate) dpo_fua: bool,
    /// Whether pages can be saved: their PS bit is one.
    pub(crate) can_save: bool,
}

/// A MODE SENSE command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sense {
    /// The form of the command: MODE SENSE(6) or (10).
    pub(crate) form: ModeForm,
    /// DBD: whether the block descriptor is omitted.
    pub(crate) no_block_descriptor: bool,
    /// LLBAA: whether the block descriptor may have 64-bit addresses.
    pub(crate) long_lba: bool,
    /// The requested type of values.
    pub(crate) values: ModeValues,
    /// The page code, or 3Fh for all.
    pub(crate) page: u8,
    /// The subpage code, or FFh for all.
    pub(crate) subpage: u8,
    /// ALLOCATION LENGTH in bytes.
    pub(crate) allocation: usize,
}

const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

impl Sense {
    /// Parses the CDB of MODE SENSE(6), 1Ah, or MODE SENSE(10), 5Ah, of full length.
    pub(crate) fn parse(cdb: &[u8]) -> Option<Sense> {
        let (form, allocation) = match *cdb {
            [0x1a, _, _, _, length, _, ..] => (ModeForm::Six, usize::from(length)),
            [0x5a, _, _, _, _, _, _, high, low, _, ..] => {
                (ModeForm::Ten, usize::from(u16::from_be_bytes([high, low])))
            }
            _ => return None,
        };
        Some(Sense {
            form,
            no_block_descriptor: cdb[1] & 0x08 != 0,
            long_lba: form == ModeForm::Ten && cdb[1] & 0x10 != 0,
            values: ModeValues::new(cdb[2] >> 6),
            page: cdb[2] & 0x3f,
            subpage: cdb[3],
            allocation,
        })
    }

    /// Returns the mode parameter data, cut to the allocation length. The length field in its header covers
    /// the whole data.
    pub(crate) fn data(&self, pages: &Pages, medium: Medium) -> Result<Vec<u8>, Condition> {
        if self.values == ModeValues::Saved && !medium.can_save {
            return Err(Condition::new(
                SenseKey::IllegalRequest,
                asc::SAVING_PARAMETERS_NOT_SUPPORTED,
            ));
        }
        let Medium {
            blocks,
            block_bytes,
            write_protected,
            dpo_fua,
            can_save,
        } = medium;
        let page = |(bytes, header): (&Page, ModePageHeader)| {
            let mut page = ModePage {
                code: header.code,
                subpage: header.subpage,
                saveable: can_save,
                bytes: bytes[..header.bytes].to_vec(),
            };
            page.bytes[0] |= if can_save { PS } else { 0 };
            page
        };
        let all = pages.values(self.values).iter().zip(pages.headers());
        let modes = Modes {
            write_protected,
            force_unit_access: dpo_fua,
            blocks: (!self.no_block_descriptor).then_some(BlockDescriptor {
                blocks,
                block_bytes,
                long_lba: self.long_lba,
            }),
            pages: all
                .filter(|(_, header)| self.wants(*header))
                .map(page)
                .collect(),
        };
        if modes.pages.is_empty() {
            return Err(self.no_such_page(pages));
        }
        let mut data = modes.write(self.form);
        data.truncate(self.allocation);
        Ok(data)
    }

    /// Whether the command requests this page (SPC-4 table 158).
    fn wants(&self, page: ModePageHeader) -> bool {
        match (self.page, self.subpage) {
            (ALL_PAGES, ALL_SUBPAGES) => true,
            (ALL_PAGES, 0) => page.subpage == 0,
            (ALL_PAGES, _) => false,
            (code, ALL_SUBPAGES) => page.code == code,
            code => (page.code, page.subpage) == code,
        }
    }

    /// Returns the error for a wrong page code, or for a wrong subpage code with a valid page code.
    fn no_such_page(&self, pages: &Pages) -> Condition {
        let known = self.page == ALL_PAGES || pages.find((self.page, 0)).is_some();
        if known {
            Condition::invalid_field(3)
        } else {
            Condition::invalid_bit(2, 5)
        }
    }
}

/// Plans MODE SENSE(6) and (10).
pub(crate) fn plan_sense(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let sense = Sense::parse(&call.cdb.full()).ok_or(Condition::invalid_field(0))?;
    let data = call
        .unit
        .look(|state| sense.data(&state.modes, call.unit.mode_medium(state)))?;
    call.parameter_data(data, sense.allocation as u32)
}

impl LogicalUnit {
    pub(super) fn mode_medium(&self, state: &UnitState) -> Medium {
        let geometry = self.device().geometry();
        Medium {
            blocks: geometry.blocks.0,
            block_bytes: geometry.block_size.bytes(),
            write_protected: state.writable().is_err(),
            dpo_fua: true,
            can_save: self.volume().can_save(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::mode::Facts;

    pub(in crate::mode) const MEDIUM: Medium = Medium {
        blocks: 0x1000,
        block_bytes: 512,
        write_protected: false,
        dpo_fua: true,
        can_save: true,
    };

    fn pages() -> Pages {
        Pages::new(Facts {
            volatile_cache: true,
        })
    }

    fn ask(cdb: &[u8]) -> Result<Vec<u8>, Condition> {
        Sense::parse(cdb)
            .expect("a MODE SENSE")
            .data(&pages(), MEDIUM)
    }

    #[test]
    fn all_pages_come_in_ascending_order() {
        let data = ask(&[0x1a, 0x08, 0x3f, 0, 255, 0]).unwrap();
        assert_eq!(usize::from(data[0]), data.len() - 1);
        assert_eq!(
            codes(&data[4..]),
            [(1, 0), (2, 0), (8, 0), (0x0a, 0), (0x1c, 0)]
        );
    }

    #[test]
    fn all_pages_with_all_subpages_include_the_control_extension() {
        let data = ask(&[0x1a, 0x08, 0x3f, 0xff, 255, 0]).unwrap();
        assert_eq!(
            codes(&data[4..]),
            [(1, 0), (2, 0), (8, 0), (0x0a, 0), (0x0a, 1), (0x1c, 0)]
        );
    }

    #[test]
    fn one_page_with_all_its_subpages() {
        let data = ask(&[0x5a, 0x08, 0x0a, 0xff, 0, 0, 0, 1, 0, 0]).unwrap();
        assert_eq!(codes(&data[8..]), [(0x0a, 0), (0x0a, 1)]);
    }

    fn codes(mut pages: &[u8]) -> Vec<(u8, u8)> {
        let mut codes = Vec::new();
        while !pages.is_empty() {
            let (code, subpage, length) = match pages[0] & 0x40 {
                0 => (pages[0] & 0x3f, 0, 2 + usize::from(pages[1])),
                _ => (pages[0] & 0x3f, pages[1], 4 + usize::from(pages[3])),
            };
            codes.push((code, subpage));
            pages = &pages[length..];
        }
        codes
    }

    #[test]
    fn the_block_descriptor_is_short_long_or_absent() {
        let short = ask(&[0x5a, 0, 0x08, 0, 0, 0, 0, 1, 0, 0]).unwrap();
        assert_eq!(short[4..16], [0, 0, 0, 8, 0, 0, 0x10, 0, 0, 0, 2, 0]);
        let long = ask(&[0x5a, 0x10, 0x08, 0, 0, 0, 0, 1, 0, 0]).unwrap();
        assert_eq!(
            long[4..24],
            [
                1, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0
            ]
        );
        let none = ask(&[0x5a, 0x18, 0x08, 0, 0, 0, 0, 1, 0, 0]).unwrap();
        assert_eq!(none[4..8], [0, 0, 0, 0]);
    }

    #[test]
    fn a_medium_too_large_for_a_short_descriptor_says_so() {
        let medium = Medium {
            blocks: 1 << 32,
            ..MEDIUM
        };
        let sense = Sense::parse(&[0x1a, 0, 0x08, 0, 255, 0]).unwrap();
        assert_eq!(sense.data(&pages(), medium).unwrap()[4..8], [0xff; 4]);
    }

    #[test]
    fn the_allocation_length_cuts_the_data_but_not_the_length_it_tells() {
        let whole = ask(&[0x1a, 0, 0x3f, 0, 255, 0]).unwrap();
        for allocation in 0..=whole.len() {
            let cut = ask(&[0x1a, 0, 0x3f, 0, allocation as u8, 0]).unwrap();
            assert_eq!(cut, whole[..allocation]);
        }
    }

    #[test]
    fn the_header_tells_of_write_protection() {
        let medium = Medium {
            write_protected: true,
            ..MEDIUM
        };
        let data = Sense::parse(&[0x1a, 0, 0x08, 0, 255, 0])
            .unwrap()
            .data(&pages(), medium)
            .unwrap();
        assert_eq!(data[2], 0x90);
    }

    #[test]
    fn changeable_values_are_a_mask_under_the_pages_header() {
        let data = ask(&[0x1a, 0x08, 0x4a, 0, 255, 0]).unwrap();
        assert_eq!(data[4..], [0x8a, 0x0a, 0x04, 0, 0x08, 0, 0, 0, 0, 0, 0, 0]);
        let caching = ask(&[0x1a, 0x08, 0x48, 0, 255, 0]).unwrap();
        assert_eq!(caching[4..8], [0x88, 0x12, 0x04, 0]);
    }

    #[test]
    fn without_a_place_to_save_nothing_is_saveable() {
        let medium = Medium {
            can_save: false,
            ..MEDIUM
        };
        let saved = Sense::parse(&[0x1a, 0, 0xc8, 0, 255, 0]).unwrap();
        assert_eq!(
            saved.data(&pages(), medium),
            Err(Condition::new(
                SenseKey::IllegalRequest,
                asc::SAVING_PARAMETERS_NOT_SUPPORTED
            ))
        );
        let current = Sense::parse(&[0x1a, 0x08, 0x08, 0, 255, 0]).unwrap();
        assert_eq!(current.data(&pages(), medium).unwrap()[4], 0x08);
    }

    #[test]
    fn an_unknown_page_or_subpage_is_pointed_at() {
        assert_eq!(
            ask(&[0x1a, 0, 0x19, 0, 255, 0]),
            Err(Condition::invalid_bit(2, 5))
        );
        assert_eq!(
            ask(&[0x1a, 0, 0x0a, 2, 255, 0]),
            Err(Condition::invalid_field(3))
        );
        assert_eq!(
            ask(&[0x1a, 0, 0x3f, 1, 255, 0]),
            Err(Condition::invalid_field(3))
        );
    }
}
