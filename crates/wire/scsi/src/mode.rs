//! Mode pages (SPC-4 7.5, SBC-3 6.5): how a logical unit behaves, and which of that may be changed.

use std::fmt;

use crate::fields::{Field, Hex, elements, number, read_all, u16_at};
use crate::mode_pages::{Caching, definition};

/// Which values are asked for: PAGE CONTROL (SPC-4 6.12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeValues {
    /// Those in force.
    Current = 0,
    /// Ones where a bit may be changed.
    Changeable = 1,
    /// Those it was delivered with.
    Default = 2,
    /// Those that will be in force after a reset.
    Saved = 3,
}

impl ModeValues {
    /// By the two bits of PAGE CONTROL.
    pub fn new(bits: u8) -> ModeValues {
        match bits & 3 {
            0 => ModeValues::Current,
            1 => ModeValues::Changeable,
            2 => ModeValues::Default,
            _ => ModeValues::Saved,
        }
    }
}

/// What MODE SENSE tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    /// WP: it cannot be written to.
    pub write_protected: bool,
    /// DPOFUA: it obeys DPO and FUA.
    pub force_unit_access: bool,
    /// The block descriptor, if there is one.
    pub blocks: Option<BlockDescriptor>,
    /// The pages.
    pub pages: Vec<ModePage>,
}

/// How many blocks there are, of which length (SBC-3 6.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDescriptor {
    /// NUMBER OF LOGICAL BLOCKS; all ones if they are more than it can say.
    pub blocks: u64,
    /// LOGICAL BLOCK LENGTH.
    pub block_bytes: u32,
    /// LONGLBA: it is of the form that has eight bytes for the number.
    pub long_lba: bool,
}

/// A mode page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModePage {
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE; zero for a page without.
    pub subpage: u8,
    /// PS: it can be saved.
    pub saveable: bool,
    /// All of it, header included.
    pub bytes: Vec<u8>,
}

/// The short or the long form of MODE SENSE and MODE SELECT: some targets know only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeForm {
    /// Of a header of four bytes (SPC-4 table 418).
    Six,
    /// Of a header of eight bytes (SPC-4 table 419).
    Ten,
}

impl ModeForm {
    /// The length of the header.
    pub fn header_bytes(self) -> usize {
        match self {
            ModeForm::Ten => 8,
            ModeForm::Six => 4,
        }
    }
}

/// The header of mode parameters (SPC-4 7.5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeHeader {
    /// How long all of it is, by MODE DATA LENGTH.
    pub whole_bytes: usize,
    /// DEVICE-SPECIFIC PARAMETER (SBC-3 6.4.1).
    pub device_specific: u8,
    /// LONGLBA.
    pub long_lba: bool,
    /// BLOCK DESCRIPTOR LENGTH.
    pub descriptor_bytes: usize,
}

/// In the device-specific parameter.
const WP: u8 = 0x80;
const DPOFUA: u8 = 0x10;

impl ModeHeader {
    /// `None` if it is cut short.
    pub fn parse(form: ModeForm, bytes: &[u8]) -> Option<ModeHeader> {
        let header = bytes.get(..form.header_bytes())?;
        Some(match form {
            ModeForm::Ten => ModeHeader {
                whole_bytes: 2 + usize::from(u16_at(header, 0)),
                device_specific: header[3],
                long_lba: header[4] & 1 != 0,
                descriptor_bytes: usize::from(u16_at(header, 6)),
            },
            ModeForm::Six => ModeHeader {
                whole_bytes: 1 + usize::from(header[0]),
                device_specific: header[2],
                long_lba: false,
                descriptor_bytes: usize::from(header[3]),
            },
        })
    }
}

impl Modes {
    /// Takes an answer apart; `None` if it is too short for a header.
    pub fn parse(form: ModeForm, answer: &[u8]) -> Option<Modes> {
        let header = ModeHeader::parse(form, answer)?;
        let body = answer.get(form.header_bytes()..header.whole_bytes.min(answer.len())).unwrap_or_default();
        let (descriptors, pages) = body.split_at_checked(header.descriptor_bytes)?;
        Some(Modes {
            write_protected: header.device_specific & WP != 0,
            force_unit_access: header.device_specific & DPOFUA != 0,
            blocks: BlockDescriptor::parse(header.long_lba, descriptors),
            pages: elements(pages, ModePage::length).filter_map(ModePage::parse).collect(),
        })
    }

    /// The Caching page, if there is one that goes as far as its flags.
    pub fn caching(&self) -> Option<Caching> {
        let page = self.pages.iter().find(|page| (page.code, page.subpage) == (0x08, 0))?;
        page.bytes.get(2).map(|_| Caching::parse(&page.bytes))
    }

    /// The answer as it travels. The medium type is 0, of block devices (SBC-3 6.4.1).
    pub fn write(&self, form: ModeForm) -> Vec<u8> {
        let specific =
            if self.write_protected { WP } else { 0 } | if self.force_unit_access { DPOFUA } else { 0 };
        let descriptor = self.blocks.map(BlockDescriptor::write).unwrap_or_default();
        let long_lba = self.blocks.is_some_and(|blocks| blocks.long_lba);
        let mut data = match form {
            ModeForm::Six => vec![0, 0, specific, descriptor.len() as u8],
            ModeForm::Ten => vec![0, 0, 0, specific, u8::from(long_lba), 0, 0, descriptor.len() as u8],
        };
        data.extend(descriptor);
        self.pages.iter().for_each(|page| data.extend(&page.bytes));
        // MODE DATA LENGTH does not count itself.
        match form {
            ModeForm::Six => data[0] = (data.len() - 1).min(255) as u8,
            ModeForm::Ten => {
                let length = (data.len() - 2).min(usize::from(u16::MAX)) as u16;
                data[..2].copy_from_slice(&length.to_be_bytes());
            }
        }
        data
    }
}

impl BlockDescriptor {
    /// `None` if it is cut short.
    pub fn parse(long_lba: bool, bytes: &[u8]) -> Option<BlockDescriptor> {
        let (blocks, block_bytes) = if long_lba { (0..8, 12..16) } else { (0..4, 5..8) };
        let bytes = bytes.get(..block_bytes.end)?;
        Some(BlockDescriptor {
            blocks: number(bytes, blocks),
            block_bytes: number(bytes, block_bytes) as u32,
            long_lba,
        })
    }

    /// As it travels: FFFF_FFFFh is the number of the short form if they are more than it can say.
    pub fn write(self) -> Vec<u8> {
        let block_bytes = self.block_bytes.to_be_bytes();
        match self.long_lba {
            true => [&self.blocks.to_be_bytes()[..], &[0; 4], &block_bytes].concat(),
            false => {
                let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
                [&blocks.to_be_bytes()[..], &[0], &block_bytes[1..]].concat()
            }
        }
    }
}

/// The header of a mode page (SPC-4 7.5.7), in the page_0 or the sub_page format (SPF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModePageHeader {
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE; zero for a page without.
    pub subpage: u8,
    /// How long the header is.
    pub header_bytes: usize,
    /// How long all of the page is.
    pub bytes: usize,
}

impl ModePageHeader {
    /// `None` if it is cut short. PS is not looked at.
    pub fn parse(page: &[u8]) -> Option<ModePageHeader> {
        let [first, second, ..] = *page else { return None };
        let code = first & 0x3f;
        Some(match first & 0x40 {
            0 => ModePageHeader { code, subpage: 0, header_bytes: 2, bytes: 2 + usize::from(second) },
            _ => {
                let bytes = 4 + usize::from(u16_at(page.get(..4)?, 2));
                ModePageHeader { code, subpage: second, header_bytes: 4, bytes }
            }
        })
    }
}

/// PS: the page can be saved. It is reserved in MODE SELECT.
pub const PS: u8 = 0x80;

impl ModePage {
    fn length(bytes: &[u8]) -> Option<usize> {
        ModePageHeader::parse(bytes).map(|header| header.bytes)
    }

    /// `None` if its header is cut short.
    pub fn parse(bytes: &[u8]) -> Option<ModePage> {
        let ModePageHeader { code, subpage, .. } = ModePageHeader::parse(bytes)?;
        Some(ModePage { code, subpage, saveable: bytes[0] & PS != 0, bytes: bytes.to_vec() })
    }

    /// The standard's name of it.
    pub fn name(&self) -> &'static str {
        definition(self.code, self.subpage).map_or("unknown", |(name, _)| name)
    }

    /// Its fields; none if the page is unknown.
    pub fn fields(&self) -> Vec<Field> {
        definition(self.code, self.subpage).map_or(Vec::new(), |(_, layout)| read_all(layout, &self.bytes))
    }
}

/// The page's name and code, and a line for each field.
impl fmt::Display for ModePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:02x}h", self.name(), self.code)?;
        match self.subpage {
            0 => write!(f, ")")?,
            subpage => write!(f, "/{subpage:02x}h)")?,
        }
        let fields = self.fields();
        if fields.is_empty() {
            return self.bytes.chunks(32).try_for_each(|row| write!(f, "\n  {}", Hex(row)));
        }
        fields.iter().try_for_each(|field| write!(f, "\n  {field}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn caching() -> Vec<u8> {
        let mut page = vec![0x88, 18, 0x04];
        page.resize(20, 0);
        page
    }

    #[test]
    fn a_page_is_found_behind_block_descriptors() {
        let header = [0, 34, 0, 0x90, 0, 0, 0, 8, 0, 0x20, 0, 0, 0, 0, 2, 0];
        let modes = Modes::parse(ModeForm::Ten, &[&header[..], &caching()].concat()).unwrap();
        assert!(modes.write_protected && modes.force_unit_access);
        assert_eq!(
            modes.blocks,
            Some(BlockDescriptor { blocks: 0x0020_0000, block_bytes: 512, long_lba: false })
        );
        let fields = modes.pages[0].fields();
        assert_eq!(fields.iter().find(|field| field.name == "WCE").unwrap().value, 1);
        assert!(modes.pages[0].saveable);
    }

    #[test]
    fn the_short_form_says_the_same() {
        let modes = Modes::parse(ModeForm::Six, &[&[23, 0, 0, 0][..], &caching()].concat()).unwrap();
        assert_eq!((modes.pages.len(), modes.pages[0].name()), (1, "Caching"));
        assert!(!modes.write_protected);
    }

    #[test]
    fn a_subpage_has_a_header_of_its_own() {
        let page = [&[0x4a, 1, 0, 28, 0x02][..], &[0; 27]].concat();
        let modes = Modes::parse(ModeForm::Six, &[&[35, 0, 0, 0][..], &page].concat()).unwrap();
        assert!(modes.pages[0].to_string().starts_with("Control Extension (0ah/01h)\n  TCMOS = 0"));
    }

    #[test]
    fn an_unknown_page_is_shown_as_it_is() {
        let modes = Modes::parse(ModeForm::Six, &[5, 0, 0, 0, 0x20, 0xaa]).unwrap();
        assert!(modes.pages.is_empty(), "it is cut short");
        let modes = Modes::parse(ModeForm::Six, &[5, 0, 0, 0, 0x20, 0]).unwrap();
        assert_eq!(modes.pages[0].to_string(), "unknown (20h)\n  2000");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            flags: [bool; 2], blocks in prop::option::of((any::<u32>(), 0u32..1 << 24)), long_lba: bool, pages: bool,
        ) {
            let [write_protected, force_unit_access] = flags;
            let blocks = blocks.map(|(blocks, block_bytes)| BlockDescriptor { blocks: blocks.into(), block_bytes, long_lba });
            let pages = if pages { vec![ModePage::parse(&caching()).unwrap()] } else { vec![] };
            let modes = Modes { write_protected, force_unit_access, blocks, pages };
            prop_assert_eq!(Modes::parse(ModeForm::Ten, &modes.write(ModeForm::Ten)), Some(modes.clone()));
            if !long_lba {
                prop_assert_eq!(Modes::parse(ModeForm::Six, &modes.write(ModeForm::Six)), Some(modes));
            }
        }

        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128), ten: bool) {
            let form = if ten { ModeForm::Ten } else { ModeForm::Six };
            for page in Modes::parse(form, &bytes).into_iter().flat_map(|modes| modes.pages) {
                prop_assert!(!page.to_string().is_empty());
            }
        }
    }
}
