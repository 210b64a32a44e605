//! INQUIRY (SPC-4 6.6): standard data, and vital product data.

use scsi::{BlockLimits, Inquiry, Provisioning, Vpd, VpdContent, cdb, fields::u16_at};

use super::VerbError;
use crate::unit::Unit;

const NAME: &str = "INQUIRY";
/// Every page that a disk is likely to have fits; a longer one is asked for again. Targets of old take no
/// more than a byte's worth.
const PAGE_BYTES: u32 = 255;

impl Unit {
    /// Asks what is there. A target answers this for any LUN, and while the unit is not ready.
    pub async fn inquiry(&self) -> Result<Inquiry, VerbError> {
        let data = self.ask(NAME, cdb::inquiry(None, Inquiry::BYTES as u16), Inquiry::BYTES).await?;
        Inquiry::parse(&data).ok_or(VerbError::Nonsense(NAME))
    }

    /// Asks for a page.
    pub async fn vpd(&self, code: u8) -> Result<Vpd, VerbError> {
        let cdb = |bytes| cdb::inquiry(Some(code), bytes as u16);
        let whole = |answer: &[u8]| 4 + u64::from(u16_at(answer, 2));
        let data = self.ask_all(NAME, cdb, PAGE_BYTES, u32::from(u16::MAX), whole).await?;
        Vpd::parse(code, &data).ok_or(VerbError::Nonsense(NAME))
    }

    /// The codes of the pages there are.
    pub async fn vpd_pages(&self) -> Result<Vec<u8>, VerbError> {
        match self.vpd(0).await?.content {
            VpdContent::Pages(pages) => Ok(pages),
            _ => Err(VerbError::Nonsense(NAME)),
        }
    }

    /// The Block Limits page; none of its limits if the target does not have it.
    pub async fn block_limits(&self) -> Result<BlockLimits, VerbError> {
        self.bytes_of(0xb0).await.map(|page| BlockLimits::parse(&page))
    }

    /// The Logical Block Provisioning page; none of its ways if the target does not have it.
    pub async fn provisioning(&self) -> Result<Provisioning, VerbError> {
        self.bytes_of(0xb2).await.map(|page| Provisioning::parse(&page))
    }

    /// A page; empty if there is none.
    async fn bytes_of(&self, code: u8) -> Result<Vec<u8>, VerbError> {
        match self.vpd(code).await {
            Ok(page) => Ok(page.bytes),
            Err(error) if error.is_unsupported() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
