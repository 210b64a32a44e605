//! Mode pages (SPC-4 7.5, SBC-3 6.5): how a logical unit behaves, and which of that may be changed.

use std::fmt;

use block::Buffer;
use scsi::cdb;

use super::fields::{Field, Hex, elements, number, read_all, u8_at, u16_at};
use super::mode_pages::{definition, find, layout};
use super::{VerbError, parameters};
use crate::unit::Unit;

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
enum Form {
    Ten,
    Six,
}

impl Form {
    fn header_bytes(self) -> usize {
        match self {
            Form::Ten => 8,
            Form::Six => 4,
        }
    }
}

impl Modes {
    /// Takes an answer apart; `None` if it is too short for a header.
    fn parse(form: Form, answer: &[u8]) -> Option<Modes> {
        let header = answer.get(..form.header_bytes())?;
        let (length, device_specific, long_lba, descriptor_bytes) = match form {
            Form::Ten => {
                let bytes = usize::from(u16_at(header, 6));
                (2 + usize::from(u16_at(header, 0)), header[3], header[4] & 1 != 0, bytes)
            }
            Form::Six => (1 + usize::from(header[0]), header[2], false, usize::from(header[3])),
        };
        let body = answer.get(header.len()..length.min(answer.len())).unwrap_or_default();
        let (descriptors, pages) = body.split_at_checked(descriptor_bytes)?;
        Some(Modes {
            write_protected: device_specific & 0x80 != 0,
            force_unit_access: device_specific & 0x10 != 0,
            blocks: BlockDescriptor::parse(long_lba, descriptors),
            pages: elements(pages, ModePage::length).filter_map(ModePage::parse).collect(),
        })
    }
}

impl BlockDescriptor {
    fn parse(long_lba: bool, bytes: &[u8]) -> Option<BlockDescriptor> {
        let (blocks, block_bytes) = if long_lba { (0..8, 12..16) } else { (0..4, 5..8) };
        let bytes = bytes.get(..block_bytes.end)?;
        Some(BlockDescriptor {
            blocks: number(bytes, blocks),
            block_bytes: number(bytes, block_bytes) as u32,
        })
    }
}

impl ModePage {
    /// SPF: a page with a subpage has a longer header.
    fn length(bytes: &[u8]) -> Option<usize> {
        match bytes.first()? & 0x40 {
            0 => Some(2 + usize::from(*bytes.get(1)?)),
            _ => Some(4 + usize::from(u16_at(bytes.get(..4)?, 2))),
        }
    }

    fn parse(bytes: &[u8]) -> Option<ModePage> {
        let first = *bytes.first()?;
        let subpage = if first & 0x40 != 0 { u8_at(bytes, 1) } else { 0 };
        Some(ModePage { code: first & 0x3f, subpage, saveable: first & 0x80 != 0, bytes: bytes.to_vec() })
    }

    /// The standard's name of it.
    pub fn name(&self) -> &'static str {
        definition(self.code, self.subpage).map_or("unknown", |(name, _)| name)
    }

    /// Its fields; none if the page is unknown.
    pub fn fields(&self) -> Vec<Field> {
        read_all(layout(self.code, self.subpage), &self.bytes)
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

/// Why a mode field was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeFieldError {
    /// No page that is known has a field of this name.
    Unknown,
    /// The target does not have the page, or its page ends before the field.
    Missing,
    /// The value is too large for the field.
    TooLarge,
    /// The target does not let it be changed.
    Fixed,
    /// A command failed.
    Verb(VerbError),
}

impl fmt::Display for ModeFieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModeFieldError::Unknown => write!(f, "no mode page that we know has such a field"),
            ModeFieldError::Missing => write!(f, "the target does not have this field"),
            ModeFieldError::TooLarge => write!(f, "the value is too large for the field"),
            ModeFieldError::Fixed => write!(f, "the target does not let this field be changed"),
            ModeFieldError::Verb(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ModeFieldError {}

impl From<VerbError> for ModeFieldError {
    fn from(error: VerbError) -> ModeFieldError {
        ModeFieldError::Verb(error)
    }
}

const SENSE: &str = "MODE SENSE";
const SELECT: &str = "MODE SELECT";
/// All pages of a disk are a few hundred bytes.
const BYTES: u16 = 4096;
/// What asks for all pages, or all subpages.
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

impl Unit {
    /// MODE SENSE of all pages and subpages; of all pages where the target does not know subpages.
    pub async fn modes(&self, values: ModeValues) -> Result<Modes, VerbError> {
        match self.mode_sense(ALL, ALL_SUBPAGES, values).await {
            Err(error) if error.is_unsupported() => self.mode_sense(ALL, 0, values).await,
            other => other,
        }
    }

    /// MODE SENSE of a page.
    pub async fn mode_sense(&self, page: u8, subpage: u8, values: ModeValues) -> Result<Modes, VerbError> {
        let (form, answer) = self.mode_bytes(page, subpage, values).await?;
        Modes::parse(form, &answer).ok_or(VerbError::Nonsense(SENSE))
    }

    /// Sets a field by its name, such as `WCE` or `SWP`; `save` keeps it beyond a reset. The page's other fields keep
    /// their values.
    pub async fn set_mode_field(&self, name: &str, value: u64, save: bool) -> Result<(), ModeFieldError> {
        let (code, subpage, at) = find(name).ok_or(ModeFieldError::Unknown)?;
        let mut changeable = self.one_page(code, subpage, ModeValues::Changeable).await?;
        if at.read(&changeable.bytes).ok_or(ModeFieldError::Missing)? == 0 {
            return Err(ModeFieldError::Fixed);
        }
        at.write(&mut changeable.bytes, value).ok_or(ModeFieldError::TooLarge)?;
        let mut page = self.one_page(code, subpage, ModeValues::Current).await?;
        at.write(&mut page.bytes, value).ok_or(ModeFieldError::Missing)?;
        Ok(self.mode_select(&page, save).await?)
    }

    /// MODE SELECT of a page as it is.
    pub async fn mode_select(&self, page: &ModePage, save: bool) -> Result<(), VerbError> {
        match self.select_by(Form::Ten, page, save).await {
            Err(error) if error.is_unsupported() => self.select_by(Form::Six, page, save).await,
            other => other,
        }
    }

    async fn select_by(&self, form: Form, page: &ModePage, save: bool) -> Result<(), VerbError> {
        // The header is all zeros: MODE DATA LENGTH is reserved here, and no block descriptor follows.
        let mut list = vec![0; form.header_bytes()];
        list.extend(&page.bytes);
        // PS is reserved here.
        list[form.header_bytes()] &= 0x7f;
        let too_long = VerbError::OutOfRange(SELECT);
        let cdb = match form {
            Form::Ten => u16::try_from(list.len()).map(|bytes| cdb::mode_select_10(save, bytes)),
            Form::Six => u8::try_from(list.len()).map(|bytes| cdb::mode_select_6(save, bytes)),
        };
        self.tell(SELECT, cdb.map_err(|_| too_long)?, parameters(&list)).await
    }

    async fn one_page(&self, code: u8, subpage: u8, values: ModeValues) -> Result<ModePage, ModeFieldError> {
        let modes = match self.mode_sense(code, subpage, values).await {
            Err(error) if error.is_unsupported() => return Err(ModeFieldError::Missing),
            modes => modes?,
        };
        let wanted = |page: &ModePage| (page.code, page.subpage) == (code, subpage);
        modes.pages.into_iter().find(wanted).ok_or(ModeFieldError::Missing)
    }

    async fn mode_bytes(
        &self,
        page: u8,
        subpage: u8,
        values: ModeValues,
    ) -> Result<(Form, Buffer), VerbError> {
        let page = page | (values as u8) << 6;
        match self.ask(SENSE, cdb::mode_sense_10(page, subpage, BYTES), usize::from(BYTES)).await {
            Ok(answer) => Ok((Form::Ten, answer)),
            // Whatever its reason: istgt gives none.
            Err(VerbError::Refused { .. }) => {
                let answer = self.ask(SENSE, cdb::mode_sense_6(page, subpage, u8::MAX), 255).await?;
                Ok((Form::Six, answer))
            }
            Err(error) => Err(error),
        }
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
        let modes = Modes::parse(Form::Ten, &[&header[..], &caching()].concat()).unwrap();
        assert!(modes.write_protected && modes.force_unit_access);
        assert_eq!(modes.blocks, Some(BlockDescriptor { blocks: 0x0020_0000, block_bytes: 512 }));
        let fields = modes.pages[0].fields();
        assert_eq!(fields.iter().find(|field| field.name == "WCE").unwrap().value, 1);
        assert!(modes.pages[0].saveable);
    }

    #[test]
    fn the_short_form_says_the_same() {
        let modes = Modes::parse(Form::Six, &[&[23, 0, 0, 0][..], &caching()].concat()).unwrap();
        assert_eq!((modes.pages.len(), modes.pages[0].name()), (1, "Caching"));
        assert!(!modes.write_protected);
    }

    #[test]
    fn a_subpage_has_a_header_of_its_own() {
        let page = [&[0x4a, 1, 0, 28, 0x02][..], &[0; 27]].concat();
        let modes = Modes::parse(Form::Six, &[&[35, 0, 0, 0][..], &page].concat()).unwrap();
        assert!(modes.pages[0].to_string().starts_with("Control Extension (0ah/01h)\n  TCMOS = 0"));
    }

    #[test]
    fn an_unknown_page_is_shown_as_it_is() {
        let modes = Modes::parse(Form::Six, &[5, 0, 0, 0, 0x20, 0xaa]).unwrap();
        assert!(modes.pages.is_empty(), "it is cut short");
        let modes = Modes::parse(Form::Six, &[5, 0, 0, 0, 0x20, 0]).unwrap();
        assert_eq!(modes.pages[0].to_string(), "unknown (20h)\n  2000");
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128), ten: bool) {
            let form = if ten { Form::Ten } else { Form::Six };
            for page in Modes::parse(form, &bytes).into_iter().flat_map(|modes| modes.pages) {
                prop_assert!(!page.to_string().is_empty());
            }
        }
    }
}
