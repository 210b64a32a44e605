//! Query config information (AoEr11 section 3.2): what a server is, and a string of the administrator's that it keeps.

/// The longest string.
pub const CONFIG_BYTES_MAX: usize = 1024;

/// What stands between header and string.
const BODY_BYTES: usize = 8;

/// The AoE version that a server says here again.
const VERSION: u8 = 1;

/// A query, or its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config<'a> {
    /// Of an answer: how many messages the server queues, so many may be outstanding.
    pub buffer_count: u16,
    /// Of an answer: the version of its firmware.
    pub firmware: u16,
    /// Of an answer: the sectors that a frame may carry. 0 is 2: of a server before AoEr11.
    pub sectors_max: u8,
    /// What is to be done with the string.
    pub command: ConfigCommand,
    /// Of a query, what is compared or set; of an answer, what the server has.
    pub string: &'a [u8],
}

/// What a query does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigCommand {
    /// 0: returns the string.
    Read,
    /// 1: the same, if it is equal; no answer otherwise.
    Test,
    /// 2: the same, if it begins so; no answer otherwise.
    Prefix,
    /// 3: sets it, unless there is another one.
    Set,
    /// 4: sets it.
    ForceSet,
    /// Any other, of 4 bits.
    Other(u8),
}

impl ConfigCommand {
    fn code(self) -> u8 {
        match self {
            ConfigCommand::Read => 0,
            ConfigCommand::Test => 1,
            ConfigCommand::Prefix => 2,
            ConfigCommand::Set => 3,
            ConfigCommand::ForceSet => 4,
            ConfigCommand::Other(code) => code & 0x0f,
        }
    }

    fn from_code(code: u8) -> ConfigCommand {
        match code {
            0 => ConfigCommand::Read,
            1 => ConfigCommand::Test,
            2 => ConfigCommand::Prefix,
            3 => ConfigCommand::Set,
            4 => ConfigCommand::ForceSet,
            code => ConfigCommand::Other(code),
        }
    }
}

impl<'a> Config<'a> {
    /// A query with this string.
    pub fn query(command: ConfigCommand, string: &'a [u8]) -> Config<'a> {
        Config { buffer_count: 0, firmware: 0, sectors_max: 0, command, string }
    }

    pub(crate) fn parse(body: &'a [u8]) -> Option<Config<'a>> {
        let (head, rest) = body.split_first_chunk::<BODY_BYTES>()?;
        let [a, b, c, d, sectors_max, version_and_command, e, f] = *head;
        let length = usize::from(u16::from_be_bytes([e, f]));
        if length > CONFIG_BYTES_MAX {
            return None;
        }
        Some(Config {
            buffer_count: u16::from_be_bytes([a, b]),
            firmware: u16::from_be_bytes([c, d]),
            sectors_max,
            command: ConfigCommand::from_code(version_and_command & 0x0f),
            string: rest.get(..length)?,
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let string = &self.string[..self.string.len().min(CONFIG_BYTES_MAX)];
        out.extend_from_slice(&self.buffer_count.to_be_bytes());
        out.extend_from_slice(&self.firmware.to_be_bytes());
        out.extend_from_slice(&[self.sectors_max, VERSION << 4 | self.command.code()]);
        out.extend_from_slice(&(string.len() as u16).to_be_bytes());
        out.extend_from_slice(string);
    }
}
