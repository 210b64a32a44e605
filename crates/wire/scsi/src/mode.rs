//! The mode pages of disks (SPC-4 7.5, SBC-3 6.5), field by field: the settings of a logical unit, and which
//! of them can be changed.

use std::fmt;

use crate::fields::{Field, FieldAt, Hex, elements, layout, number, read_all, u16_at};

/// The requested values: PAGE CONTROL (SPC-4 6.12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeValues {
    /// The values in force.
    Current = 0,
    /// A mask of the bits that may be changed.
    Changeable = 1,
    /// The factory defaults.
    Default = 2,
    /// The values that take effect after a reset.
    Saved = 3,
}

impl ModeValues {
    /// From the two bits of PAGE CONTROL.
    pub fn new(bits: u8) -> ModeValues {
        match bits & 3 {
            0 => ModeValues::Current,
            1 => ModeValues::Changeable,
            2 => ModeValues::Default,
            _ => ModeValues::Saved,
        }
    }
}

/// The parameter data of MODE SENSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    /// WP: write-protected.
    pub write_protected: bool,
    /// DPOFUA: DPO and FUA are supported.
    pub force_unit_access: bool,
    /// The block descriptor, if there is one.
    pub blocks: Option<BlockDescriptor>,
    /// The pages.
    pub pages: Vec<ModePage>,
}

/// The number and size of blocks (SBC-3 6.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDescriptor {
    /// NUMBER OF LOGICAL BLOCKS; all ones if the number does not fit.
    pub blocks: u64,
    /// LOGICAL BLOCK LENGTH.
    pub block_bytes: u32,
    /// LONGLBA: the long form, with eight bytes for the number.
    pub long_lba: bool,
}

/// A mode page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModePage {
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE; zero for a page without subpage.
    pub subpage: u8,
    /// PS: the page can be saved.
    pub saveable: bool,
    /// The whole page, header included.
    pub bytes: Vec<u8>,
}

/// The 6-byte or 10-byte form of MODE SENSE and MODE SELECT: some targets support only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeForm {
    /// With a header of four bytes (SPC-4 table 418).
    Six,
    /// With a header of eight bytes (SPC-4 table 419).
    Ten,
}

impl ModeForm {
    /// Length of the header.
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
    /// Total length, according to MODE DATA LENGTH.
    pub whole_bytes: usize,
    /// DEVICE-SPECIFIC PARAMETER (SBC-3 6.4.1).
    pub device_specific: u8,
    /// LONGLBA.
    pub long_lba: bool,
    /// BLOCK DESCRIPTOR LENGTH.
    pub descriptor_bytes: usize,
}

/// Bits of DEVICE-SPECIFIC PARAMETER.
const WP: u8 = 0x80;
const DPOFUA: u8 = 0x10;

impl ModeHeader {
    /// Parses the header; `None` if it is truncated.
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
    /// Parses the parameter data; `None` if it is too short for a header.
    pub fn parse(form: ModeForm, answer: &[u8]) -> Option<Modes> {
        let header = ModeHeader::parse(form, answer)?;
        let body = answer
            .get(form.header_bytes()..header.whole_bytes.min(answer.len()))
            .unwrap_or_default();
        let (descriptors, pages) = body.split_at_checked(header.descriptor_bytes)?;
        Some(Modes {
            write_protected: header.device_specific & WP != 0,
            force_unit_access: header.device_specific & DPOFUA != 0,
            blocks: BlockDescriptor::parse(header.long_lba, descriptors),
            pages: elements(pages, ModePage::length)
                .filter_map(ModePage::parse)
                .collect(),
        })
    }

    /// The Caching page, if it is present and includes the flags.
    pub fn caching(&self) -> Option<Caching> {
        let page = self
            .pages
            .iter()
            .find(|page| (page.code, page.subpage) == (0x08, 0))?;
        page.bytes.get(2).map(|_| Caching::parse(&page.bytes))
    }

    /// Encodes the parameter data. The medium type is 0, for block devices (SBC-3 6.4.1).
    pub fn write(&self, form: ModeForm) -> Vec<u8> {
        let specific = if self.write_protected { WP } else { 0 }
            | if self.force_unit_access { DPOFUA } else { 0 };
        let descriptor = self.blocks.map(BlockDescriptor::write).unwrap_or_default();
        let long_lba = self.blocks.is_some_and(|blocks| blocks.long_lba);
        let mut data = match form {
            ModeForm::Six => vec![0, 0, specific, descriptor.len() as u8],
            ModeForm::Ten => vec![
                0,
                0,
                0,
                specific,
                u8::from(long_lba),
                0,
                0,
                descriptor.len() as u8,
            ],
        };
        debug_assert!(descriptor.len() <= 16, "one block descriptor at most");
        data.extend(descriptor);
        self.pages.iter().for_each(|page| data.extend(&page.bytes));
        // MODE DATA LENGTH does not include itself.
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
    /// Parses the descriptor; `None` if it is truncated.
    pub fn parse(long_lba: bool, bytes: &[u8]) -> Option<BlockDescriptor> {
        let (blocks, block_bytes) = if long_lba {
            (0..8, 12..16)
        } else {
            (0..4, 5..8)
        };
        let bytes = bytes.get(..block_bytes.end)?;
        Some(BlockDescriptor {
            blocks: number(bytes, blocks),
            block_bytes: number(bytes, block_bytes) as u32,
            long_lba,
        })
    }

    /// Encodes the descriptor. In the short form, a number that does not fit becomes FFFF_FFFFh.
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
    /// SUBPAGE CODE; zero for a page without subpage.
    pub subpage: u8,
    /// Length of the header.
    pub header_bytes: usize,
    /// Length of the whole page.
    pub bytes: usize,
}

impl ModePageHeader {
    /// Parses the header; `None` if it is truncated. PS is ignored.
    pub fn parse(page: &[u8]) -> Option<ModePageHeader> {
        let [first, second, ..] = *page else {
            return None;
        };
        let code = first & 0x3f;
        Some(match first & 0x40 {
            0 => ModePageHeader {
                code,
                subpage: 0,
                header_bytes: 2,
                bytes: 2 + usize::from(second),
            },
            _ => {
                let bytes = 4 + usize::from(u16_at(page.get(..4)?, 2));
                ModePageHeader {
                    code,
                    subpage: second,
                    header_bytes: 4,
                    bytes,
                }
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

    /// Parses a page; `None` if its header is truncated.
    pub fn parse(bytes: &[u8]) -> Option<ModePage> {
        let ModePageHeader { code, subpage, .. } = ModePageHeader::parse(bytes)?;
        Some(ModePage {
            code,
            subpage,
            saveable: bytes[0] & PS != 0,
            bytes: bytes.to_vec(),
        })
    }

    /// The name in the standard.
    pub fn name(&self) -> &'static str {
        definition(self.code, self.subpage).map_or("unknown", |(name, _)| name)
    }

    /// The fields; none if the page is unknown.
    pub fn fields(&self) -> Vec<Field> {
        definition(self.code, self.subpage)
            .map_or(Vec::new(), |(_, layout)| read_all(layout, &self.bytes))
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
            return self
                .bytes
                .chunks(32)
                .try_for_each(|row| write!(f, "\n  {}", Hex(row)));
        }
        fields.iter().try_for_each(|field| write!(f, "\n  {field}"))
    }
}

/// Finds a field by name, ignoring case. Returns the page code, the subpage code and the field.
pub fn mode_field(name: &str) -> Option<(u8, u8, FieldAt)> {
    PAGES.iter().find_map(|(code, subpage, _, layout)| {
        let field = layout
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some((*code, *subpage, *field))
    })
}

pub(crate) fn definition(code: u8, subpage: u8) -> Option<(&'static str, &'static [FieldAt])> {
    let page = PAGES
        .iter()
        .find(|(of, sub, _, _)| (*of, *sub) == (code, subpage));
    page.map(|(_, _, name, layout)| (*name, *layout))
}

type Definition = (u8, u8, &'static str, &'static [FieldAt]);

const PAGES: &[Definition] = &[
    (0x01, 0, "Read-Write Error Recovery", ErrorRecovery::FIELDS),
    (0x02, 0, "Disconnect-Reconnect", DisconnectReconnect::FIELDS),
    (
        0x07,
        0,
        "Verify Error Recovery",
        VerifyErrorRecovery::FIELDS,
    ),
    (0x08, 0, "Caching", Caching::FIELDS),
    (0x0a, 0, "Control", Control::FIELDS),
    (0x0a, 1, "Control Extension", ControlExtension::FIELDS),
    (0x18, 0, "Protocol Specific Logical Unit", &[]),
    (0x19, 0, "Protocol Specific Port", &[]),
    (0x1a, 0, "Power Condition", PowerCondition::FIELDS),
    (
        0x1c,
        0,
        "Informational Exceptions Control",
        InformationalExceptions::FIELDS,
    ),
    (
        0x1c,
        2,
        "Logical Block Provisioning",
        ProvisioningThresholds::FIELDS,
    ),
];

/// The header of a page of `bytes` in total, in the page_0 format (SPC-4 7.5.7).
const fn mode_header(code: u8, bytes: u8) -> [u8; 2] {
    [code, bytes - 2]
}

/// The header of a page of `bytes` in total, in the sub_page format.
const fn subpage_header(code: u8, subpage: u8, bytes: u8) -> [u8; 4] {
    [0x40 | code, subpage, 0, bytes - 4]
}

layout! {
    /// Read-write error recovery (SBC-3 6.5.8).
    ErrorRecovery: 12 bytes from mode_header(0x01, 12),
    {
        awre: bool = (2, 7, 1, "AWRE", "bad blocks are reassigned when written"),
        arre: bool = (2, 6, 1, "ARRE", "bad blocks are reassigned when read"),
        tb: bool = (2, 5, 1, "TB", "blocks that cannot be recovered are transferred"),
        rc: bool = (2, 4, 1, "RC", "reads continue without recovery, to avoid delays"),
        eer: bool = (2, 3, 1, "EER", "error correction before retries"),
        per: bool = (2, 2, 1, "PER", "recovered errors are reported"),
        dte: bool = (2, 1, 1, "DTE", "transfers stop at a recovered error"),
        dcr: bool = (2, 0, 1, "DCR", "no error correction"),
        read_retry_count: u8 = (3, 7, 8, "READ_RETRY_COUNT", "retries of a read"),
        write_retry_count: u8 = (8, 7, 8, "WRITE_RETRY_COUNT", "retries of a write"),
        recovery_time_limit: u16 =
            (10, 7, 16, "RECOVERY_TIME_LIMIT", "maximum recovery time of a command, in ms"),
    }

    /// Disconnect-reconnect (SPC-4 7.5.11).
    DisconnectReconnect: 16 bytes from mode_header(0x02, 16),
    {
        buffer_full_ratio: u8 = (2, 7, 8, "BUFFER_FULL_RATIO", "threshold for sending data, of 256"),
        buffer_empty_ratio: u8 = (3, 7, 8, "BUFFER_EMPTY_RATIO", "threshold for requesting data, of 256"),
        bus_inactivity_limit: u16 = (4, 7, 16, "BUS_INACTIVITY_LIMIT", "in units of 100 microseconds"),
        disconnect_time_limit: u16 = (6, 7, 16, "DISCONNECT_TIME_LIMIT", "in units of 100 microseconds"),
        connect_time_limit: u16 = (8, 7, 16, "CONNECT_TIME_LIMIT", "in units of 100 microseconds"),
        maximum_burst_size: u16 = (10, 7, 16, "MAXIMUM_BURST_SIZE", "in units of 512 bytes"),
        first_burst_size: u16 = (14, 7, 16, "FIRST_BURST_SIZE", "in units of 512 bytes"),
    }

    /// Verify error recovery (SBC-3 6.5.9).
    VerifyErrorRecovery: 12 bytes from mode_header(0x07, 12),
    {
        verify_retry_count: u8 = (3, 7, 8, "VERIFY_RETRY_COUNT", "retries of a verification"),
        verify_recovery_time_limit: u16 =
            (10, 7, 16, "VERIFY_RECOVERY_TIME_LIMIT", "maximum recovery time of a command, in ms"),
    }

    /// Caching (SBC-3 6.5.5).
    Caching: 20 bytes from mode_header(0x08, 20),
    {
        ic: bool = (2, 7, 1, "IC", "the cache is controlled by its segments"),
        abpf: bool = (2, 6, 1, "ABPF", "a new command aborts a prefetch"),
        cap: bool = (2, 5, 1, "CAP", "the cache analyses access patterns"),
        disc: bool = (2, 4, 1, "DISC", "prefetches across discontinuities"),
        size: bool = (2, 3, 1, "SIZE", "the cache's segments are defined by their size"),
        wce: bool = (2, 2, 1, "WCE", "the volatile write cache is enabled"),
        mf: bool = (2, 1, 1, "MF", "prefetch lengths are multiples of the request length"),
        rcd: bool = (2, 0, 1, "RCD", "reads bypass the cache"),
        demand_read_retention: u8 = (3, 7, 4, "DEMAND_READ_RETENTION", "retention priority of read data"),
        write_retention: u8 = (3, 3, 4, "WRITE_RETENTION", "retention priority of written data"),
        disable_prefetch_length: u16 =
            (4, 7, 16, "DISABLE_PREFETCH_LENGTH", "request length in blocks from which prefetch is disabled"),
        minimum_prefetch: u16 = (6, 7, 16, "MINIMUM_PREFETCH", "blocks"),
        maximum_prefetch: u16 = (8, 7, 16, "MAXIMUM_PREFETCH", "blocks"),
        maximum_prefetch_ceiling: u16 = (10, 7, 16, "MAXIMUM_PREFETCH_CEILING", "blocks"),
        fsw: bool = (12, 7, 1, "FSW", "sequential blocks are written in order"),
        lbcss: bool = (12, 6, 1, "LBCSS", "segment size in blocks"),
        dra: bool = (12, 5, 1, "DRA", "read-ahead is disabled"),
        sync_prog: u8 = (12, 2, 2, "SYNC_PROG", "progress of SYNCHRONIZE CACHE"),
        nv_dis: bool = (12, 0, 1, "NV_DIS", "the non-volatile cache is disabled"),
        cache_segments: u8 = (13, 7, 8, "CACHE_SEGMENTS", "number of segments"),
        cache_segment_size: u16 = (14, 7, 16, "CACHE_SEGMENT_SIZE", "bytes or blocks"),
    }

    /// Control (SPC-4 7.5.8).
    Control: 12 bytes from mode_header(0x0a, 12),
    {
        tst: u8 = (2, 7, 3, "TST", "0: one task set for all; 1: one for each I_T nexus"),
        tmf_only: bool = (2, 4, 1, "TMF_ONLY", "ACA conditions are cleared only by task management"),
        dpicz: bool = (2, 3, 1, "DPICZ", "no checks of protection information without RDPROTECT"),
        d_sense: bool = (2, 2, 1, "D_SENSE", "sense data in descriptor format"),
        gltsd: bool = (2, 1, 1, "GLTSD", "log parameters are not saved automatically"),
        rlec: bool = (2, 0, 1, "RLEC", "log exceptions are reported"),
        queue_algorithm: u8 = (3, 7, 4, "QUEUE_ALGORITHM", "0: simple commands in order; 1: in any order"),
        nuar: bool = (3, 3, 1, "NUAR", "no unit attention on release"),
        qerr: u8 = (3, 2, 2, "QERR", "handling of other commands after a CHECK CONDITION"),
        rac: bool = (4, 6, 1, "RAC", "an error is reported even if retries take long"),
        ua_intlck: u8 = (4, 5, 2, "UA_INTLCK", "only REQUEST SENSE clears unit attentions"),
        swp: bool = (4, 3, 1, "SWP", "write protected by software"),
        ato: bool = (5, 7, 1, "ATO", "application tags are the initiator's"),
        tas: bool = (5, 6, 1, "TAS", "commands aborted by other initiators end with TASK ABORTED"),
        atmpe: bool = (5, 5, 1, "ATMPE", "the application tag mode page is enabled"),
        rwwp: bool = (5, 4, 1, "RWWP", "writes without protection information are rejected"),
        autoload_mode: u8 = (5, 2, 3, "AUTOLOAD_MODE", "handling of an inserted medium"),
        busy_timeout_period: u16 =
            (8, 7, 16, "BUSY_TIMEOUT_PERIOD", "maximum duration of BUSY, in units of 100 ms"),
        extended_self_test_time: u16 = (10, 7, 16, "EXTENDED_SELF_TEST_TIME", "seconds"),
    }

    /// Control extension (SPC-4 7.5.9).
    ControlExtension: 32 bytes from subpage_header(0x0a, 1, 32),
    {
        tcmos: bool = (4, 2, 1, "TCMOS", "the clock can also be set by other means"),
        scsip: bool = (4, 1, 1, "SCSIP", "SET TIMESTAMP takes precedence for the clock"),
        ialuae: bool = (4, 0, 1, "IALUAE", "implicit access state changes"),
        initial_command_priority: u8 =
            (5, 3, 4, "INITIAL_COMMAND_PRIORITY", "default command priority"),
        maximum_sense_length: u8 = (6, 7, 8, "MAXIMUM_SENSE_LENGTH", "maximum sense data; 0: no limit"),
    }

    /// Power condition (SPC-4 7.5.13).
    PowerCondition: 40 bytes from mode_header(0x1a, 40),
    {
        standby_y: bool = (2, 0, 1, "STANDBY_Y", "the timer of standby_y runs"),
        idle_c: bool = (3, 3, 1, "IDLE_C", "the timer of idle_c runs"),
        idle_b: bool = (3, 2, 1, "IDLE_B", "the timer of idle_b runs"),
        idle_a: bool = (3, 1, 1, "IDLE_A", "the timer of idle_a runs"),
        standby_z: bool = (3, 0, 1, "STANDBY_Z", "the timer of standby_z runs"),
        idle_a_timer: u32 = (4, 7, 32, "IDLE_A_TIMER", "in units of 100 milliseconds"),
        standby_z_timer: u32 = (8, 7, 32, "STANDBY_Z_TIMER", "in units of 100 milliseconds"),
    }

    /// Informational exceptions control (SBC-3 6.5.7).
    InformationalExceptions: 12 bytes from mode_header(0x1c, 12),
    {
        perf: bool = (2, 7, 1, "PERF", "informational exceptions cause no delays"),
        ebf: bool = (2, 5, 1, "EBF", "background functions are enabled"),
        ewasc: bool = (2, 4, 1, "EWASC", "warnings are reported"),
        dexcpt: bool = (2, 3, 1, "DEXCPT", "informational exceptions are disabled"),
        test: bool = (2, 2, 1, "TEST", "a test failure is generated"),
        ebackerr: bool = (2, 1, 1, "EBACKERR", "errors of background functions are reported"),
        logerr: bool = (2, 0, 1, "LOGERR", "informational exceptions are logged"),
        mrie: u8 = (3, 3, 4, "MRIE", "method of reporting"),
        interval_timer: u32 = (4, 7, 32, "INTERVAL_TIMER", "interval between reports, in units of 100 ms"),
        report_count: u32 = (8, 7, 32, "REPORT_COUNT", "maximum reports of one event; 0: no limit"),
    }

    /// Logical block provisioning (SBC-3 6.5.6).
    ProvisioningThresholds: 16 bytes from subpage_header(0x1c, 2, 16),
    {
        situa: bool = (4, 0, 1, "SITUA", "thresholds are reported to a single initiator"),
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
            Some(BlockDescriptor {
                blocks: 0x0020_0000,
                block_bytes: 512,
                long_lba: false
            })
        );
        let fields = modes.pages[0].fields();
        assert_eq!(
            fields
                .iter()
                .find(|field| field.name == "WCE")
                .unwrap()
                .value,
            1
        );
        assert!(modes.pages[0].saveable);
    }

    #[test]
    fn the_short_form_says_the_same() {
        let modes =
            Modes::parse(ModeForm::Six, &[&[23, 0, 0, 0][..], &caching()].concat()).unwrap();
        assert_eq!((modes.pages.len(), modes.pages[0].name()), (1, "Caching"));
        assert!(!modes.write_protected);
    }

    #[test]
    fn a_subpage_has_a_header_of_its_own() {
        let page = [&[0x4a, 1, 0, 28, 0x02][..], &[0; 27]].concat();
        let modes = Modes::parse(ModeForm::Six, &[&[35, 0, 0, 0][..], &page].concat()).unwrap();
        assert!(
            modes.pages[0]
                .to_string()
                .starts_with("Control Extension (0ah/01h)\n  TCMOS = 0")
        );
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

    #[test]
    fn a_page_is_written_where_it_is_read() {
        let page = Control {
            gltsd: true,
            queue_algorithm: 1,
            tas: true,
            busy_timeout_period: 0xffff,
            ..Control::default()
        };
        assert_eq!(
            page.write(),
            [0x0a, 0x0a, 0x02, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0]
        );
        assert_eq!(Control::parse(&page.write()), page);
        assert_eq!(
            ControlExtension::default().write()[..5],
            [0x4a, 1, 0, 0x1c, 0]
        );
        let small = Control {
            queue_algorithm: 0x1f,
            ..Control::default()
        };
        assert_eq!(small.write()[3], 0xf0, "it has no room for more");
    }

    #[test]
    fn fields_have_names_of_their_own() {
        let names: Vec<_> = PAGES
            .iter()
            .flat_map(|page| page.3)
            .map(|field| field.name)
            .collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
        assert!(mode_field("wce").is_some_and(|(page, _, _)| page == 8));
        assert!(mode_field("xyz").is_none());
    }
}
