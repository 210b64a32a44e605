//! Query config information (AoEr11 section 3.2): what a server is, and a string of the administrator's that it keeps.
//!
//! Lists of stations: whose frames a server takes (AoEr11 section 3.3, the MAC mask list), and who holds a reservation
//! (section 3.4).

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
        debug_assert!(string.len() <= usize::from(u16::MAX), "a string beyond its length");
        out.extend_from_slice(&self.buffer_count.to_be_bytes());
        out.extend_from_slice(&self.firmware.to_be_bytes());
        out.extend_from_slice(&[self.sectors_max, VERSION << 4 | self.command.code()]);
        out.extend_from_slice(&(string.len() as u16).to_be_bytes());
        out.extend_from_slice(string);
    }
}

/// Addresses of stations. A frame counts them in 8 bits.
pub type MacList = Vec<[u8; 6]>;

/// A command on the mask list, or its answer with the whole list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// 0 reads the list, 1 edits it.
    pub command: u8,
    /// Of an answer: why the list was not edited.
    pub error: Option<MaskError>,
    /// What is to be done, in order; of an answer each station of the list.
    pub directives: Vec<MaskDirective>,
}

/// Why a mask list was not edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError {
    /// 1, and any other.
    Unspecified,
    /// 2: a directive is unknown.
    BadDirective,
    /// 3: it has no more room.
    Full,
}

/// A line of a mask list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskDirective {
    /// 0 is nothing, 1 adds the station, 2 removes it.
    pub command: u8,
    /// The station.
    pub station: [u8; 6],
}

impl Mask {
    pub(crate) fn parse(body: &[u8]) -> Option<Mask> {
        let ([_, command, error, count], rest) = body.split_first_chunk::<4>()?;
        let directives = rest.get(..usize::from(*count) * 8)?.as_chunks::<8>().0;
        let directive =
            |[_, command, station @ ..]: &[u8; 8]| MaskDirective { command: *command, station: *station };
        let error = match error {
            0 => None,
            2 => Some(MaskError::BadDirective),
            3 => Some(MaskError::Full),
            _ => Some(MaskError::Unspecified),
        };
        Some(Mask { command: *command, error, directives: directives.iter().map(directive).collect() })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let error = match self.error {
            None => 0,
            Some(MaskError::Unspecified) => 1,
            Some(MaskError::BadDirective) => 2,
            Some(MaskError::Full) => 3,
        };
        let directives = &self.directives[..self.directives.len().min(usize::from(u8::MAX))];
        out.extend_from_slice(&[0, self.command, error, directives.len() as u8]);
        for directive in directives {
            out.extend_from_slice(&[0, directive.command]);
            out.extend_from_slice(&directive.station);
        }
    }
}

/// A command on the reservation, or its answer with who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// What is to be done.
    pub command: ReserveCommand,
    /// Who is to hold it, nobody to release it; of an answer who does.
    pub stations: MacList,
}

/// What is done to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveCommand {
    /// 0: returns who holds it.
    Read,
    /// 1: sets who holds it, if the sender does or nobody does.
    Set,
    /// 2: sets who holds it.
    ForceSet,
    /// Any other.
    Other(u8),
}

impl Reserve {
    pub(crate) fn parse(body: &[u8]) -> Option<Reserve> {
        let ([command, count], rest) = body.split_first_chunk::<2>()?;
        let command = match command {
            0 => ReserveCommand::Read,
            1 => ReserveCommand::Set,
            2 => ReserveCommand::ForceSet,
            code => ReserveCommand::Other(*code),
        };
        Some(Reserve { command, stations: rest.get(..usize::from(*count) * 6)?.as_chunks::<6>().0.to_vec() })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let command = match self.command {
            ReserveCommand::Read => 0,
            ReserveCommand::Set => 1,
            ReserveCommand::ForceSet => 2,
            ReserveCommand::Other(code) => code,
        };
        let stations = &self.stations[..self.stations.len().min(usize::from(u8::MAX))];
        out.extend_from_slice(&[command, stations.len() as u8]);
        let begin = out.len();
        stations.iter().for_each(|station| out.extend_from_slice(station));
        debug_assert_eq!(out.len() - begin, 6 * stations.len(), "six bytes a station");
    }
}
