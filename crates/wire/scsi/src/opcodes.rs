//! REPORT SUPPORTED OPERATION CODES (SPC-4 6.35): which commands a logical unit knows.

use std::fmt;

use crate::command_name;
use crate::fields::{elements, layout, u8_at, u16_at, u32_at};

/// A command that a logical unit knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedCommand {
    /// OPERATION CODE.
    pub opcode: u8,
    /// SERVICE ACTION, of those commands that have some.
    pub service_action: Option<u16>,
    /// CDB SIZE, in bytes.
    pub cdb_bytes: u16,
    /// How long it takes, if the target says.
    pub timeouts: Option<CommandTimeouts>,
}

layout! {
    /// How long a command takes (SPC-4 6.35.4), in seconds; zero is not told.
    CommandTimeouts: 12 bytes from [0, 10],
    {
        nominal_s: u32 =
            (4, 7, 32, "NOMINAL COMMAND PROCESSING TIMEOUT", "as long as it may take before anything is wrong"),
        recommended_s: u32 = (8, 7, 32, "RECOMMENDED COMMAND TIMEOUT", "when to begin with error recovery"),
    }
}

/// What a logical unit says of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandSupport {
    /// SUPPORT 0: it cannot say now.
    Unknown,
    /// SUPPORT 1: it does not know it.
    No,
    /// SUPPORT 3 or 5: it knows it, by the standard or in its own way.
    Yes {
        /// 3, and not 5.
        as_in_the_standard: bool,
        /// CDB USAGE DATA: the bits of the CDB that it looks at, behind the operation code.
        usage: Vec<u8>,
        /// How long it takes, if the target says.
        timeouts: Option<CommandTimeouts>,
    },
}

impl SupportedCommand {
    /// The list of all commands; `None` if it is too short for a header.
    pub fn parse_list(answer: &[u8]) -> Option<Vec<SupportedCommand>> {
        let list = answer.get(4..)?;
        let list = &list[..list.len().min(u32_at(answer, 0) as usize)];
        // CTDP: timeouts follow.
        let length = |rest: &[u8]| Some(if rest.get(5)? & 2 != 0 { 8 + CommandTimeouts::BYTES } else { 8 });
        let command = |bytes: &[u8]| SupportedCommand {
            opcode: u8_at(bytes, 0),
            // SERVACTV.
            service_action: (u8_at(bytes, 5) & 1 != 0).then(|| u16_at(bytes, 2)),
            cdb_bytes: u16_at(bytes, 6),
            timeouts: bytes.get(8..8 + CommandTimeouts::BYTES).map(CommandTimeouts::parse),
        };
        Some(elements(list, length).map(command).collect())
    }

    /// The list as it travels.
    pub fn write_list(commands: impl IntoIterator<Item = SupportedCommand>) -> Vec<u8> {
        let mut data = vec![0; 4];
        for command in commands {
            let flags =
                u8::from(command.timeouts.is_some()) << 1 | u8::from(command.service_action.is_some());
            data.extend([command.opcode, 0]);
            data.extend(command.service_action.unwrap_or(0).to_be_bytes());
            data.extend([0, flags]);
            data.extend(command.cdb_bytes.to_be_bytes());
            data.extend(command.timeouts.iter().flat_map(|timeouts| timeouts.write()));
        }
        let length = (data.len() - 4) as u32;
        data[..4].copy_from_slice(&length.to_be_bytes());
        data
    }
}

impl CommandSupport {
    /// The most bytes that it can have: a header, the longest CDB's usage data, timeouts.
    pub const BYTES_MAX: u32 = 4 + 260 + CommandTimeouts::BYTES as u32;

    /// `None` if it is cut short.
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
        let timeouts =
            answer.get(usage_end..usage_end + CommandTimeouts::BYTES).filter(|_| flags & 0x80 != 0);
        Some(CommandSupport::Yes {
            as_in_the_standard,
            usage,
            timeouts: timeouts.map(CommandTimeouts::parse),
        })
    }

    /// As it travels.
    pub fn write(&self) -> Vec<u8> {
        match self {
            CommandSupport::Unknown => vec![0; 4],
            CommandSupport::No => vec![0, 1, 0, 0],
            CommandSupport::Yes { as_in_the_standard, usage, timeouts } => {
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

/// `READ(16)`, or the numbers of a command without a name.
impl fmt::Display for SupportedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (command_name(self.opcode, self.service_action), self.service_action) {
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
        let read = [0x88, 0, 0, 0, 0, 2, 0, 16, 0, 10, 0, 0, 0, 0, 0, 5, 0, 0, 0, 30];
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
        assert_eq!(CommandSupport::parse(&[0, 1, 0, 0]), Some(CommandSupport::No));
        assert_eq!(CommandSupport::parse(&[0, 0, 0, 0]), Some(CommandSupport::Unknown));
        let known = CommandSupport::parse(&[0, 3, 0, 6, 0x12, 1, 0xff, 0xff, 0xff, 0]);
        assert!(matches!(known, Some(CommandSupport::Yes { as_in_the_standard: true, .. })));
        assert_eq!(CommandSupport::parse(&[0, 3, 0, 6, 0x12]), None);
    }

    #[test]
    fn a_command_without_a_name_is_told_by_its_numbers() {
        let command =
            SupportedCommand { opcode: 0xc1, service_action: Some(2), cdb_bytes: 16, timeouts: None };
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
