//! Query config information (AoEr11 section 3.2): properties of a server, and a string that the administrator
//! stores on it.
//!
//! The module also contains the lists of MAC addresses: hosts from which a server accepts frames (AoEr11
//! section 3.3, the MAC mask list), and holders of a reservation (section 3.4).

/// Maximum length of the string.
pub const CONFIG_BYTES_MAX: usize = 1024;

/// Length of the part between header and string.
const BODY_BYTES: usize = 8;

/// The AoE version, which a server repeats here.
const VERSION: u8 = 1;

/// A query, or its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config<'a> {
    /// In a response: the number of messages that the server can queue, which limits the number of
    /// outstanding messages.
    pub buffer_count: u16,
    /// In a response: the firmware version.
    pub firmware: u16,
    /// In a response: the maximum number of sectors in a frame. 0, from a server before AoEr11, means 2.
    pub sectors_max: u8,
    /// The operation on the string.
    pub command: ConfigCommand,
    /// In a query, the string to compare or set; in a response, the server's string.
    pub string: &'a [u8],
}

/// The operation of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigCommand {
    /// 0: returns the string.
    Read,
    /// 1: returns the string if it equals the given one; otherwise, there is no response.
    Test,
    /// 2: returns the string if it starts with the given prefix; otherwise, there is no response.
    Prefix,
    /// 3: sets the string, unless a different one is already set.
    Set,
    /// 4: sets the string, even if a different one is already set.
    ForceSet,
    /// Any other value of 4 bits.
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
        Config {
            buffer_count: 0,
            firmware: 0,
            sectors_max: 0,
            command,
            string,
        }
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
        debug_assert!(
            string.len() <= usize::from(u16::MAX),
            "a string beyond its length"
        );
        out.extend_from_slice(&self.buffer_count.to_be_bytes());
        out.extend_from_slice(&self.firmware.to_be_bytes());
        out.extend_from_slice(&[self.sectors_max, VERSION << 4 | self.command.code()]);
        out.extend_from_slice(&(string.len() as u16).to_be_bytes());
        out.extend_from_slice(string);
    }
}

/// MAC addresses of hosts. A frame has an 8-bit count.
pub type MacList = Vec<[u8; 6]>;

/// A command that reads or edits the mask list, or the response with the whole list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// 0 reads the list, 1 edits it.
    pub command: u8,
    /// In a response: why the list was not edited.
    pub error: Option<MaskError>,
    /// The edits, in order; in a response, each address in the list.
    pub directives: Vec<MaskDirective>,
}

/// Why a mask list was not edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError {
    /// 1, and any other.
    Unspecified,
    /// 2: a directive is unknown.
    BadDirective,
    /// 3: the list is full.
    Full,
}

/// An edit or entry of a mask list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskDirective {
    /// 0 does nothing, 1 adds the address, 2 removes it.
    pub command: u8,
    /// The MAC address.
    pub station: [u8; 6],
}

impl Mask {
    pub(crate) fn parse(body: &[u8]) -> Option<Mask> {
        let ([_, command, error, count], rest) = body.split_first_chunk::<4>()?;
        let directives = rest.get(..usize::from(*count) * 8)?.as_chunks::<8>().0;
        let directive = |[_, command, station @ ..]: &[u8; 8]| MaskDirective {
            command: *command,
            station: *station,
        };
        let error = match error {
            0 => None,
            2 => Some(MaskError::BadDirective),
            3 => Some(MaskError::Full),
            _ => Some(MaskError::Unspecified),
        };
        Some(Mask {
            command: *command,
            error,
            directives: directives.iter().map(directive).collect(),
        })
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

/// A command that reads or changes the reservation, or the response with the holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The operation.
    pub command: ReserveCommand,
    /// The new holders, or an empty list to release the reservation; in a response, the holders.
    pub stations: MacList,
}

/// The operation on a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveCommand {
    /// 0: returns the holders.
    Read,
    /// 1: sets the holders, if the sender is a holder or there is none.
    Set,
    /// 2: sets the holders.
    ForceSet,
    /// Any other operation.
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
        Some(Reserve {
            command,
            stations: rest
                .get(..usize::from(*count) * 6)?
                .as_chunks::<6>()
                .0
                .to_vec(),
        })
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
        stations
            .iter()
            .for_each(|station| out.extend_from_slice(station));
        debug_assert_eq!(out.len() - begin, 6 * stations.len(), "six bytes a station");
    }
}
