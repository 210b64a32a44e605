//! Command codes and names (SPC-4 annex D.3, SBC-3).
//!
//! REPORT SUPPORTED OPERATION CODES (SPC-4 6.35): the commands that a logical unit supports.

use std::fmt;

use crate::fields::{elements, layout, u8_at, u16_at, u32_at};

/// A command descriptor block in the format of a SCSI Command PDU: 16 bytes; shorter CDBs are padded with
/// zeros.
pub type Cdb = [u8; 16];

/// A command: its codes and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCode {
    /// OPERATION CODE.
    pub opcode: u8,
    /// SERVICE ACTION, for commands that share an operation code.
    pub service_action: Option<u8>,
    /// Name in the standard.
    pub name: &'static str,
}

impl CommandCode {
    /// A CDB with the codes, and all other fields zero. CDBs of 32 bytes (7Fh) do not fit.
    pub fn cdb(self) -> Cdb {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (self.opcode, self.service_action.unwrap_or(0));
        cdb
    }
}

/// The name of a command, if it is a command for disks.
pub fn command_name(opcode: u8, service_action: Option<u16>) -> Option<&'static str> {
    let is_it = |known: &&CommandCode| {
        known.opcode == opcode && known.service_action.map(u16::from) == service_action
    };
    COMMANDS.iter().find(is_it).map(|known| known.name)
}

macro_rules! service_action {
    () => {
        None
    };
    ($action:literal) => {
        Some($action)
    };
}

macro_rules! commands {
    ($($id:ident: $opcode:literal $(/ $action:literal)?, $name:literal;)*) => {
        $(
            #[doc = $name]
            pub const $id: CommandCode = CommandCode {
                opcode: $opcode,
                service_action: service_action!($($action)?),
                name: $name,
            };
        )*

        const COMMANDS: &[CommandCode] = &[$($id),*];
    };
}

commands! {
    TEST_UNIT_READY: 0x00, "TEST UNIT READY";
    REZERO_UNIT: 0x01, "REZERO UNIT";
    REQUEST_SENSE: 0x03, "REQUEST SENSE";
    FORMAT_UNIT: 0x04, "FORMAT UNIT";
    REASSIGN_BLOCKS: 0x07, "REASSIGN BLOCKS";
    READ_6: 0x08, "READ(6)";
    WRITE_6: 0x0a, "WRITE(6)";
    SEEK_6: 0x0b, "SEEK(6)";
    INQUIRY: 0x12, "INQUIRY";
    MODE_SELECT_6: 0x15, "MODE SELECT(6)";
    RESERVE_6: 0x16, "RESERVE(6)";
    RELEASE_6: 0x17, "RELEASE(6)";
    MODE_SENSE_6: 0x1a, "MODE SENSE(6)";
    START_STOP_UNIT: 0x1b, "START STOP UNIT";
    RECEIVE_DIAGNOSTIC_RESULTS: 0x1c, "RECEIVE DIAGNOSTIC RESULTS";
    SEND_DIAGNOSTIC: 0x1d, "SEND DIAGNOSTIC";
    PREVENT_ALLOW_MEDIUM_REMOVAL: 0x1e, "PREVENT ALLOW MEDIUM REMOVAL";
    READ_CAPACITY_10: 0x25, "READ CAPACITY(10)";
    READ_10: 0x28, "READ(10)";
    WRITE_10: 0x2a, "WRITE(10)";
    SEEK_10: 0x2b, "SEEK(10)";
    WRITE_AND_VERIFY_10: 0x2e, "WRITE AND VERIFY(10)";
    VERIFY_10: 0x2f, "VERIFY(10)";
    PRE_FETCH_10: 0x34, "PRE-FETCH(10)";
    SYNCHRONIZE_CACHE_10: 0x35, "SYNCHRONIZE CACHE(10)";
    READ_DEFECT_DATA_10: 0x37, "READ DEFECT DATA(10)";
    WRITE_BUFFER: 0x3b, "WRITE BUFFER";
    READ_BUFFER: 0x3c, "READ BUFFER";
    READ_LONG_10: 0x3e, "READ LONG(10)";
    WRITE_LONG_10: 0x3f, "WRITE LONG(10)";
    WRITE_SAME_10: 0x41, "WRITE SAME(10)";
    UNMAP: 0x42, "UNMAP";
    SANITIZE_OVERWRITE: 0x48 / 0x01, "SANITIZE (OVERWRITE)";
    SANITIZE_BLOCK_ERASE: 0x48 / 0x02, "SANITIZE (BLOCK ERASE)";
    SANITIZE_CRYPTOGRAPHIC_ERASE: 0x48 / 0x03, "SANITIZE (CRYPTOGRAPHIC ERASE)";
    SANITIZE_EXIT_FAILURE_MODE: 0x48 / 0x1f, "SANITIZE (EXIT FAILURE MODE)";
    LOG_SELECT: 0x4c, "LOG SELECT";
    LOG_SENSE: 0x4d, "LOG SENSE";
    XDWRITEREAD_10: 0x53, "XDWRITEREAD(10)";
    MODE_SELECT_10: 0x55, "MODE SELECT(10)";
    RESERVE_10: 0x56, "RESERVE(10)";
    RELEASE_10: 0x57, "RELEASE(10)";
    MODE_SENSE_10: 0x5a, "MODE SENSE(10)";
    PERSISTENT_RESERVE_IN_READ_KEYS: 0x5e / 0x00, "PERSISTENT RESERVE IN (READ KEYS)";
    PERSISTENT_RESERVE_IN_READ_RESERVATION: 0x5e / 0x01, "PERSISTENT RESERVE IN (READ RESERVATION)";
    PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES: 0x5e / 0x02, "PERSISTENT RESERVE IN (REPORT CAPABILITIES)";
    PERSISTENT_RESERVE_IN_READ_FULL_STATUS: 0x5e / 0x03, "PERSISTENT RESERVE IN (READ FULL STATUS)";
    PERSISTENT_RESERVE_OUT_REGISTER: 0x5f / 0x00, "PERSISTENT RESERVE OUT (REGISTER)";
    PERSISTENT_RESERVE_OUT_RESERVE: 0x5f / 0x01, "PERSISTENT RESERVE OUT (RESERVE)";
    PERSISTENT_RESERVE_OUT_RELEASE: 0x5f / 0x02, "PERSISTENT RESERVE OUT (RELEASE)";
    PERSISTENT_RESERVE_OUT_CLEAR: 0x5f / 0x03, "PERSISTENT RESERVE OUT (CLEAR)";
    PERSISTENT_RESERVE_OUT_PREEMPT: 0x5f / 0x04, "PERSISTENT RESERVE OUT (PREEMPT)";
    PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT: 0x5f / 0x05, "PERSISTENT RESERVE OUT (PREEMPT AND ABORT)";
    PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE_EXISTING_KEY:
        0x5f / 0x06, "PERSISTENT RESERVE OUT (REGISTER AND IGNORE EXISTING KEY)";
    PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE: 0x5f / 0x07, "PERSISTENT RESERVE OUT (REGISTER AND MOVE)";
    PERSISTENT_RESERVE_OUT_REPLACE_LOST_RESERVATION:
        0x5f / 0x08, "PERSISTENT RESERVE OUT (REPLACE LOST RESERVATION)";
    READ_32: 0x7f / 0x09, "READ(32)";
    VERIFY_32: 0x7f / 0x0a, "VERIFY(32)";
    WRITE_32: 0x7f / 0x0b, "WRITE(32)";
    WRITE_AND_VERIFY_32: 0x7f / 0x0c, "WRITE AND VERIFY(32)";
    WRITE_SAME_32: 0x7f / 0x0d, "WRITE SAME(32)";
    EXTENDED_COPY_LID1: 0x83 / 0x00, "EXTENDED COPY(LID1)";
    EXTENDED_COPY_LID4: 0x83 / 0x01, "EXTENDED COPY(LID4)";
    POPULATE_TOKEN: 0x83 / 0x10, "POPULATE TOKEN";
    WRITE_USING_TOKEN: 0x83 / 0x11, "WRITE USING TOKEN";
    COPY_OPERATION_ABORT: 0x83 / 0x1c, "COPY OPERATION ABORT";
    RECEIVE_COPY_STATUS_LID1: 0x84 / 0x00, "RECEIVE COPY STATUS(LID1)";
    RECEIVE_COPY_DATA_LID1: 0x84 / 0x01, "RECEIVE COPY DATA(LID1)";
    RECEIVE_COPY_OPERATING_PARAMETERS: 0x84 / 0x03, "RECEIVE COPY OPERATING PARAMETERS";
    RECEIVE_COPY_FAILURE_DETAILS_LID1: 0x84 / 0x04, "RECEIVE COPY FAILURE DETAILS(LID1)";
    RECEIVE_COPY_STATUS_LID4: 0x84 / 0x05, "RECEIVE COPY STATUS(LID4)";
    RECEIVE_ROD_TOKEN_INFORMATION: 0x84 / 0x07, "RECEIVE ROD TOKEN INFORMATION";
    ATA_PASS_THROUGH_16: 0x85, "ATA PASS-THROUGH(16)";
    READ_16: 0x88, "READ(16)";
    COMPARE_AND_WRITE: 0x89, "COMPARE AND WRITE";
    WRITE_16: 0x8a, "WRITE(16)";
    ORWRITE_16: 0x8b, "ORWRITE(16)";
    WRITE_AND_VERIFY_16: 0x8e, "WRITE AND VERIFY(16)";
    VERIFY_16: 0x8f, "VERIFY(16)";
    PRE_FETCH_16: 0x90, "PRE-FETCH(16)";
    SYNCHRONIZE_CACHE_16: 0x91, "SYNCHRONIZE CACHE(16)";
    WRITE_SAME_16: 0x93, "WRITE SAME(16)";
    WRITE_ATOMIC_16: 0x9c, "WRITE ATOMIC(16)";
    REPORT_DEVICE_CAPABILITIES: 0x9d / 0x00, "REPORT DEVICE CAPABILITIES";
    READ_CAPACITY_16: 0x9e / 0x10, "READ CAPACITY(16)";
    READ_LONG_16: 0x9e / 0x11, "READ LONG(16)";
    GET_LBA_STATUS: 0x9e / 0x12, "GET LBA STATUS";
    REPORT_REFERRALS: 0x9e / 0x13, "REPORT REFERRALS";
    WRITE_LONG_16: 0x9f / 0x11, "WRITE LONG(16)";
    REPORT_LUNS: 0xa0, "REPORT LUNS";
    ATA_PASS_THROUGH_12: 0xa1, "ATA PASS-THROUGH(12)";
    SECURITY_PROTOCOL_IN: 0xa2, "SECURITY PROTOCOL IN";
    REPORT_IDENTIFYING_INFORMATION: 0xa3 / 0x05, "REPORT IDENTIFYING INFORMATION";
    REPORT_TARGET_PORT_GROUPS: 0xa3 / 0x0a, "REPORT TARGET PORT GROUPS";
    REPORT_ALIASES: 0xa3 / 0x0b, "REPORT ALIASES";
    REPORT_SUPPORTED_OPERATION_CODES: 0xa3 / 0x0c, "REPORT SUPPORTED OPERATION CODES";
    REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS: 0xa3 / 0x0d, "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS";
    REPORT_PRIORITY: 0xa3 / 0x0e, "REPORT PRIORITY";
    REPORT_TIMESTAMP: 0xa3 / 0x0f, "REPORT TIMESTAMP";
    SET_IDENTIFYING_INFORMATION: 0xa4 / 0x06, "SET IDENTIFYING INFORMATION";
    SET_TARGET_PORT_GROUPS: 0xa4 / 0x0a, "SET TARGET PORT GROUPS";
    SET_TIMESTAMP: 0xa4 / 0x0f, "SET TIMESTAMP";
    READ_12: 0xa8, "READ(12)";
    WRITE_12: 0xaa, "WRITE(12)";
    WRITE_AND_VERIFY_12: 0xae, "WRITE AND VERIFY(12)";
    VERIFY_12: 0xaf, "VERIFY(12)";
    SECURITY_PROTOCOL_OUT: 0xb5, "SECURITY PROTOCOL OUT";
    READ_DEFECT_DATA_12: 0xb7, "READ DEFECT DATA(12)";
}

/// A command that a logical unit supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedCommand {
    /// OPERATION CODE.
    pub opcode: u8,
    /// SERVICE ACTION, if the command has one.
    pub service_action: Option<u16>,
    /// CDB SIZE, in bytes.
    pub cdb_bytes: u16,
    /// Timeouts, if the target reports them.
    pub timeouts: Option<CommandTimeouts>,
}

layout! {
    /// Timeouts of a command (SPC-4 6.35.4), in seconds; zero means that a timeout is not reported.
    CommandTimeouts: 12 bytes from [0, 10],
    {
        nominal_s: u32 =
            (4, 7, 32, "NOMINAL COMMAND PROCESSING TIMEOUT", "usual maximum execution time"),
        recommended_s: u32 = (8, 7, 32, "RECOMMENDED COMMAND TIMEOUT", "time until error recovery"),
    }
}

/// Support for one command, as reported by a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandSupport {
    /// SUPPORT 0: the information is not available at present.
    Unknown,
    /// SUPPORT 1: not supported.
    No,
    /// SUPPORT 3 or 5: supported, according to the standard or in a vendor-specific way.
    Yes {
        /// SUPPORT is 3.
        as_in_the_standard: bool,
        /// CDB USAGE DATA: the bits of the CDB that the logical unit evaluates, after the operation code.
        usage: Vec<u8>,
        /// Timeouts, if the target reports them.
        timeouts: Option<CommandTimeouts>,
    },
}

impl SupportedCommand {
    /// Parses the list of all commands; `None` if it is too short for a header.
    pub fn parse_list(answer: &[u8]) -> Option<Vec<SupportedCommand>> {
        let list = answer.get(4..)?;
        let list = &list[..list.len().min(u32_at(answer, 0) as usize)];
        // CTDP: timeouts follow.
        let length = |rest: &[u8]| {
            Some(if rest.get(5)? & 2 != 0 {
                8 + CommandTimeouts::BYTES
            } else {
                8
            })
        };
        let command = |bytes: &[u8]| SupportedCommand {
            opcode: u8_at(bytes, 0),
            // SERVACTV.
            service_action: (u8_at(bytes, 5) & 1 != 0).then(|| u16_at(bytes, 2)),
            cdb_bytes: u16_at(bytes, 6),
            timeouts: bytes
                .get(8..8 + CommandTimeouts::BYTES)
                .map(CommandTimeouts::parse),
        };
        Some(elements(list, length).map(command).collect())
    }

    /// Encodes the list.
    pub fn write_list(commands: impl IntoIterator<Item = SupportedCommand>) -> Vec<u8> {
        let mut data = vec![0; 4];
        for command in commands {
            let flags = u8::from(command.timeouts.is_some()) << 1
                | u8::from(command.service_action.is_some());
            data.extend([command.opcode, 0]);
            data.extend(command.service_action.unwrap_or(0).to_be_bytes());
            data.extend([0, flags]);
            data.extend(command.cdb_bytes.to_be_bytes());
            data.extend(
                command
                    .timeouts
                    .iter()
                    .flat_map(|timeouts| timeouts.write()),
            );
        }
        let length = (data.len() - 4) as u32;
        data[..4].copy_from_slice(&length.to_be_bytes());
        data
    }
}

impl CommandSupport {
    /// Maximum length: a header, usage data for the longest CDB, and timeouts.
    pub const BYTES_MAX: u32 = 4 + 260 + CommandTimeouts::BYTES as u32;

    /// Parses the parameter data; `None` if it is truncated.
    pub fn parse(answer: &[u8]) -> Option<CommandSupport> {
        let [_, flags, ..] = *answer else { return None };
        let as_in_the_standard = match flags & 7 {
            0 => return Some(CommandSupport::Unknown),
            3 => true,
            5 => false,
            _ => return Some(CommandSupport::No),
        };
        let usage_end = 4 + usize::from(u16_at(answer, 2));
        let usage = answer.get(4..usage_end)?.to_vec();
        let timeouts = answer
            .get(usage_end..usage_end + CommandTimeouts::BYTES)
            .filter(|_| flags & 0x80 != 0);
        Some(CommandSupport::Yes {
            as_in_the_standard,
            usage,
            timeouts: timeouts.map(CommandTimeouts::parse),
        })
    }

    /// Encodes the parameter data.
    pub fn write(&self) -> Vec<u8> {
        match self {
            CommandSupport::Unknown => vec![0; 4],
            CommandSupport::No => vec![0, 1, 0, 0],
            CommandSupport::Yes {
                as_in_the_standard,
                usage,
                timeouts,
            } => {
                let support = if *as_in_the_standard { 3 } else { 5 };
                let mut data = vec![0, u8::from(timeouts.is_some()) << 7 | support];
                data.extend((usage.len() as u16).to_be_bytes());
                data.extend(usage);
                data.extend(timeouts.iter().flat_map(|timeouts| timeouts.write()));
                data
            }
        }
    }
}

/// `READ(16)`, or the codes of a command without a name.
impl fmt::Display for SupportedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (
            command_name(self.opcode, self.service_action),
            self.service_action,
        ) {
            (Some(name), _) => f.write_str(name),
            (None, None) => write!(f, "operation {:02x}h", self.opcode),
            (None, Some(action)) => write!(f, "operation {:02x}h/{action:02x}h", self.opcode),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_are_told_with_their_names_and_times() {
        let read = [
            0x88, 0, 0, 0, 0, 2, 0, 16, 0, 10, 0, 0, 0, 0, 0, 5, 0, 0, 0, 30,
        ];
        let capacity = [0x9e, 0, 0, 0x10, 0, 1, 0, 16];
        let answer = [&[0, 0, 0, 28][..], &read, &capacity].concat();
        let commands = SupportedCommand::parse_list(&answer).unwrap();
        assert_eq!(
            commands.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["READ(16)", "READ CAPACITY(16)"]
        );
        let timeouts = commands[0].timeouts.unwrap();
        assert_eq!((timeouts.nominal_s, timeouts.recommended_s), (5, 30));
    }

    #[test]
    fn one_command_is_known_or_not() {
        assert_eq!(
            CommandSupport::parse(&[0, 1, 0, 0]),
            Some(CommandSupport::No)
        );
        assert_eq!(
            CommandSupport::parse(&[0, 0, 0, 0]),
            Some(CommandSupport::Unknown)
        );
        let known = CommandSupport::parse(&[0, 3, 0, 6, 0x12, 1, 0xff, 0xff, 0xff, 0]);
        assert!(matches!(
            known,
            Some(CommandSupport::Yes {
                as_in_the_standard: true,
                ..
            })
        ));
        assert_eq!(CommandSupport::parse(&[0, 3, 0, 6, 0x12]), None);
    }

    #[test]
    fn a_command_without_a_name_is_told_by_its_numbers() {
        let command = SupportedCommand {
            opcode: 0xc1,
            service_action: Some(2),
            cdb_bytes: 16,
            timeouts: None,
        };
        assert_eq!(command.to_string(), "operation c1h/02h");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            opcode: u8, service_action: Option<u16>, times: Option<(u32, u32)>,
            usage in prop::collection::vec(any::<u8>(), 6..17),
        ) {
            let timeouts = times.map(|(nominal_s, recommended_s)| CommandTimeouts { nominal_s, recommended_s });
            let command = SupportedCommand { opcode, service_action, cdb_bytes: usage.len() as u16, timeouts };
            let all = vec![command; 2];
            prop_assert_eq!(SupportedCommand::parse_list(&SupportedCommand::write_list(all.clone())), Some(all));
            let one = CommandSupport::Yes { as_in_the_standard: true, usage, timeouts };
            for support in [one, CommandSupport::No, CommandSupport::Unknown] {
                prop_assert_eq!(CommandSupport::parse(&support.write()), Some(support));
            }
        }

        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            SupportedCommand::parse_list(&bytes);
            CommandSupport::parse(&bytes);
        }
    }
}
