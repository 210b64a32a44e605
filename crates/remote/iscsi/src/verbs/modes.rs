//! MODE SENSE and MODE SELECT (SPC-4 6.10 to 6.13).

use derive_more::Display;

use block::Buffer;
use scsi::{ModeForm, ModePage, ModeValues, Modes, PS, cdb, mode_field};

use super::{VerbError, parameters};
use crate::unit::Unit;

/// Why a mode field was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum ModeFieldError {
    /// No page that is known has a field of this name.
    #[display("no mode page that we know has such a field")]
    Unknown,
    /// The target does not have the page, or its page ends before the field.
    #[display("the target does not have this field")]
    Missing,
    /// The value is too large for the field.
    #[display("the value is too large for the field")]
    TooLarge,
    /// The target does not let it be changed.
    #[display("the target does not let this field be changed")]
    Fixed,
    /// A command failed.
    Verb(VerbError),
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

    /// Sets a field by its name, such as `WCE` or `SWP`; `save` keeps it beyond a reset. The page's other
    /// fields keep their values.
    pub async fn set_mode_field(&self, name: &str, value: u64, save: bool) -> Result<(), ModeFieldError> {
        let (code, subpage, at) = mode_field(name).ok_or(ModeFieldError::Unknown)?;
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
        match self.select_by(ModeForm::Ten, page, save).await {
            Err(error) if error.is_unsupported() => self.select_by(ModeForm::Six, page, save).await,
            other => other,
        }
    }

    async fn select_by(&self, form: ModeForm, page: &ModePage, save: bool) -> Result<(), VerbError> {
        // The header is all zeros: MODE DATA LENGTH is reserved here, and no block descriptor follows.
        let mut list = vec![0; form.header_bytes()];
        list.extend(&page.bytes);
        // PS is reserved here.
        list[form.header_bytes()] &= !PS;
        let too_long = VerbError::OutOfRange(SELECT);
        let cdb = match form {
            ModeForm::Ten => u16::try_from(list.len()).map(|bytes| cdb::mode_select_10(save, bytes)),
            ModeForm::Six => u8::try_from(list.len()).map(|bytes| cdb::mode_select_6(save, bytes)),
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
    ) -> Result<(ModeForm, Buffer), VerbError> {
        let page = page | (values as u8) << 6;
        match self.ask(SENSE, cdb::mode_sense_10(page, subpage, BYTES), usize::from(BYTES)).await {
            Ok(answer) => Ok((ModeForm::Ten, answer)),
            // Whatever its reason: istgt gives none.
            Err(VerbError::Refused { .. }) => {
                let answer = self.ask(SENSE, cdb::mode_sense_6(page, subpage, u8::MAX), 255).await?;
                Ok((ModeForm::Six, answer))
            }
            Err(error) => Err(error),
        }
    }
}
