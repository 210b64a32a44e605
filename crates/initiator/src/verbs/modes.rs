//! Mode pages (SPC-4 7.5, SBC-3 6.5): how a logical unit behaves, and which of that may be changed.

use std::fmt;

use block::Buffer;

use super::fields::{Field, FieldAt, Hex, elements, number, read_all, u8_at, u16_at};
use super::{VerbError, parameters};
use crate::cdb;
use crate::unit::Unit;

/// Which values are asked for: PAGE CONTROL (SPC-4 6.12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeValues {
    /// Those in force.
    Current,
    /// Ones where a bit may be changed.
    Changeable,
    /// Those it was delivered with.
    Default,
    /// Those that will be in force after a reset.
    Saved,
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

/// A page and a field of it, by the field's name in any case.
fn find(name: &str) -> Option<(u8, u8, FieldAt)> {
    PAGES.iter().find_map(|(code, subpage, _, layout)| {
        let field = layout.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some((*code, *subpage, *field))
    })
}

fn definition(code: u8, subpage: u8) -> Option<(&'static str, &'static [FieldAt])> {
    let page = PAGES.iter().find(|(of, sub, _, _)| (*of, *sub) == (code, subpage));
    page.map(|(_, _, name, layout)| (*name, *layout))
}

fn layout(code: u8, subpage: u8) -> &'static [FieldAt] {
    definition(code, subpage).map_or(&[], |(_, layout)| layout)
}

type Definition = (u8, u8, &'static str, &'static [FieldAt]);

const PAGES: &[Definition] = &[
    (0x01, 0, "Read-Write Error Recovery", ERROR_RECOVERY),
    (0x02, 0, "Disconnect-Reconnect", DISCONNECT_RECONNECT),
    (0x07, 0, "Verify Error Recovery", VERIFY_ERROR_RECOVERY),
    (0x08, 0, "Caching", CACHING),
    (0x0a, 0, "Control", CONTROL),
    (0x0a, 1, "Control Extension", CONTROL_EXTENSION),
    (0x18, 0, "Protocol Specific Logical Unit", &[]),
    (0x19, 0, "Protocol Specific Port", &[]),
    (0x1a, 0, "Power Condition", POWER_CONDITION),
    (0x1c, 0, "Informational Exceptions Control", INFORMATIONAL_EXCEPTIONS),
    (0x1c, 2, "Logical Block Provisioning", PROVISIONING),
];

/// SBC-3 6.5.8.
const ERROR_RECOVERY: &[FieldAt] = &[
    FieldAt::new(2, 7, 1, "AWRE", "bad blocks are reassigned when written"),
    FieldAt::new(2, 6, 1, "ARRE", "bad blocks are reassigned when read"),
    FieldAt::new(2, 5, 1, "TB", "blocks that cannot be recovered are transferred"),
    FieldAt::new(2, 4, 1, "RC", "reads go on without recovery, that they may not wait"),
    FieldAt::new(2, 3, 1, "EER", "error correction before retries"),
    FieldAt::new(2, 2, 1, "PER", "recovered errors are reported"),
    FieldAt::new(2, 1, 1, "DTE", "transfers end at a recovered error"),
    FieldAt::new(2, 0, 1, "DCR", "no error correction"),
    FieldAt::new(3, 7, 8, "READ_RETRY_COUNT", "retries of a read"),
    FieldAt::new(8, 7, 8, "WRITE_RETRY_COUNT", "retries of a write"),
    FieldAt::new(10, 7, 16, "RECOVERY_TIME_LIMIT", "milliseconds for the recovery of a command"),
];

/// SPC-4 7.5.11.
const DISCONNECT_RECONNECT: &[FieldAt] = &[
    FieldAt::new(2, 7, 8, "BUFFER_FULL_RATIO", "of 256, when data are sent"),
    FieldAt::new(3, 7, 8, "BUFFER_EMPTY_RATIO", "of 256, when data are asked for"),
    FieldAt::new(4, 7, 16, "BUS_INACTIVITY_LIMIT", "in units of 100 microseconds"),
    FieldAt::new(6, 7, 16, "DISCONNECT_TIME_LIMIT", "in units of 100 microseconds"),
    FieldAt::new(8, 7, 16, "CONNECT_TIME_LIMIT", "in units of 100 microseconds"),
    FieldAt::new(10, 7, 16, "MAXIMUM_BURST_SIZE", "in units of 512 bytes"),
    FieldAt::new(14, 7, 16, "FIRST_BURST_SIZE", "in units of 512 bytes"),
];

/// SBC-3 6.5.9.
const VERIFY_ERROR_RECOVERY: &[FieldAt] = &[
    FieldAt::new(3, 7, 8, "VERIFY_RETRY_COUNT", "retries of a verification"),
    FieldAt::new(10, 7, 16, "VERIFY_RECOVERY_TIME_LIMIT", "milliseconds for the recovery of a command"),
];

/// SBC-3 6.5.5.
const CACHING: &[FieldAt] = &[
    FieldAt::new(2, 7, 1, "IC", "the cache is controlled by its segments"),
    FieldAt::new(2, 6, 1, "ABPF", "a prefetch is aborted by a command"),
    FieldAt::new(2, 5, 1, "CAP", "the cache analyses what is asked for"),
    FieldAt::new(2, 4, 1, "DISC", "prefetches across discontinuities"),
    FieldAt::new(2, 3, 1, "SIZE", "the cache's segments are given by their size"),
    FieldAt::new(2, 2, 1, "WCE", "writes are answered from a cache that is lost with the power"),
    FieldAt::new(2, 1, 1, "MF", "prefetches are given as multiples"),
    FieldAt::new(2, 0, 1, "RCD", "reads do not come from the cache"),
    FieldAt::new(3, 7, 4, "DEMAND_READ_RETENTION", "how long what was read is kept"),
    FieldAt::new(3, 3, 4, "WRITE_RETENTION", "how long what was written is kept"),
    FieldAt::new(4, 7, 16, "DISABLE_PREFETCH_LENGTH", "blocks from which on nothing is prefetched"),
    FieldAt::new(6, 7, 16, "MINIMUM_PREFETCH", "blocks"),
    FieldAt::new(8, 7, 16, "MAXIMUM_PREFETCH", "blocks"),
    FieldAt::new(10, 7, 16, "MAXIMUM_PREFETCH_CEILING", "blocks"),
    FieldAt::new(12, 7, 1, "FSW", "blocks that follow each other are written in their order"),
    FieldAt::new(12, 6, 1, "LBCSS", "segments are given in blocks"),
    FieldAt::new(12, 5, 1, "DRA", "nothing is read ahead"),
    FieldAt::new(12, 2, 2, "SYNC_PROG", "progress of SYNCHRONIZE CACHE"),
    FieldAt::new(12, 0, 1, "NV_DIS", "the non-volatile cache is off"),
    FieldAt::new(13, 7, 8, "CACHE_SEGMENTS", "number of segments"),
    FieldAt::new(14, 7, 16, "CACHE_SEGMENT_SIZE", "bytes or blocks"),
];

/// SPC-4 7.5.8.
const CONTROL: &[FieldAt] = &[
    FieldAt::new(2, 7, 3, "TST", "0: one task set for all; 1: one for each I_T nexus"),
    FieldAt::new(2, 4, 1, "TMF_ONLY", "ACA conditions end by task management only"),
    FieldAt::new(2, 3, 1, "DPICZ", "no checks of protection information without RDPROTECT"),
    FieldAt::new(2, 2, 1, "D_SENSE", "sense data in descriptor format"),
    FieldAt::new(2, 1, 1, "GLTSD", "log parameters are not saved by themselves"),
    FieldAt::new(2, 0, 1, "RLEC", "exceptions of the log are reported"),
    FieldAt::new(3, 7, 4, "QUEUE_ALGORITHM", "0: simple commands in order; 1: in any order"),
    FieldAt::new(3, 3, 1, "NUAR", "no unit attention on release"),
    FieldAt::new(3, 2, 2, "QERR", "what becomes of other commands after a CHECK CONDITION"),
    FieldAt::new(4, 6, 1, "RAC", "a check is reported even if retries take long"),
    FieldAt::new(4, 5, 2, "UA_INTLCK", "unit attentions are cleared by REQUEST SENSE only"),
    FieldAt::new(4, 3, 1, "SWP", "write protected by software"),
    FieldAt::new(5, 7, 1, "ATO", "application tags are the initiator's"),
    FieldAt::new(5, 6, 1, "TAS", "commands that others abort end with TASK ABORTED"),
    FieldAt::new(5, 5, 1, "ATMPE", "application tag mode page is in force"),
    FieldAt::new(5, 4, 1, "RWWP", "writes without protection information are refused"),
    FieldAt::new(5, 2, 3, "AUTOLOAD_MODE", "what becomes of a medium that is put in"),
    FieldAt::new(8, 7, 16, "BUSY_TIMEOUT_PERIOD", "longest time of BUSY, in units of 100 milliseconds"),
    FieldAt::new(10, 7, 16, "EXTENDED_SELF_TEST_TIME", "seconds"),
];

/// SPC-4 7.5.9.
const CONTROL_EXTENSION: &[FieldAt] = &[
    FieldAt::new(4, 2, 1, "TCMOS", "the clock may be set by other means"),
    FieldAt::new(4, 1, 1, "SCSIP", "the clock is SET TIMESTAMP's first"),
    FieldAt::new(4, 0, 1, "IALUAE", "implicit changes of access states"),
    FieldAt::new(5, 3, 4, "INITIAL_COMMAND_PRIORITY", "priority of commands without one"),
    FieldAt::new(6, 7, 8, "MAXIMUM_SENSE_LENGTH", "bytes of sense data; 0: no limit"),
];

/// SPC-4 7.5.13.
const POWER_CONDITION: &[FieldAt] = &[
    FieldAt::new(2, 0, 1, "STANDBY_Y", "the timer of standby_y runs"),
    FieldAt::new(3, 3, 1, "IDLE_C", "the timer of idle_c runs"),
    FieldAt::new(3, 2, 1, "IDLE_B", "the timer of idle_b runs"),
    FieldAt::new(3, 1, 1, "IDLE_A", "the timer of idle_a runs"),
    FieldAt::new(3, 0, 1, "STANDBY_Z", "the timer of standby_z runs"),
    FieldAt::new(4, 7, 32, "IDLE_A_TIMER", "in units of 100 milliseconds"),
    FieldAt::new(8, 7, 32, "STANDBY_Z_TIMER", "in units of 100 milliseconds"),
];

/// SBC-3 6.5.7.
const INFORMATIONAL_EXCEPTIONS: &[FieldAt] = &[
    FieldAt::new(2, 7, 1, "PERF", "no delays for informational exceptions"),
    FieldAt::new(2, 5, 1, "EBF", "background functions are on"),
    FieldAt::new(2, 4, 1, "EWASC", "warnings are reported"),
    FieldAt::new(2, 3, 1, "DEXCPT", "informational exceptions are off"),
    FieldAt::new(2, 2, 1, "TEST", "a failure is made up, for tests"),
    FieldAt::new(2, 1, 1, "EBACKERR", "errors of background functions are reported"),
    FieldAt::new(2, 0, 1, "LOGERR", "informational exceptions are logged"),
    FieldAt::new(3, 3, 4, "MRIE", "by which means they are reported"),
    FieldAt::new(4, 7, 32, "INTERVAL_TIMER", "between reports, in units of 100 milliseconds"),
    FieldAt::new(8, 7, 32, "REPORT_COUNT", "reports of one event; 0: no limit"),
];

/// SBC-3 6.5.6.
const PROVISIONING: &[FieldAt] =
    &[FieldAt::new(4, 0, 1, "SITUA", "thresholds are reported to a single initiator")];

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

    #[test]
    fn fields_have_names_of_their_own() {
        let names: Vec<_> = PAGES.iter().flat_map(|page| page.3).map(|field| field.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
        assert!(find("wce").is_some_and(|(page, _, _)| page == 8));
        assert!(find("xyz").is_none());
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
