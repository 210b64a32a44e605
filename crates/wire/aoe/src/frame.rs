//! Frames: the common header, and the bodies of all commands.

use std::str::FromStr;

use derive_more::{Display, Error};

use crate::ata::Ata;
use crate::config::{Config, Mask, Reserve};

/// Length of the header.
pub(crate) const HEADER_BYTES: usize = 10;

const VERSION: u8 = 1;
const RESPONSE: u8 = 0x08;
const ERROR: u8 = 0x04;

/// The header (AoEr11 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The R flag: a response.
    pub is_response: bool,
    /// The E flag with its code: the command was rejected.
    pub error: Option<ErrorCode>,
    /// The device, or several devices with parts of [`Address::ALL`].
    pub address: Address,
    /// Chosen by the client, and returned unchanged.
    pub tag: u32,
}

/// Why a command was rejected (AoEr11 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum ErrorCode {
    /// 1.
    #[display("the server does not support the command")]
    BadCommand,
    /// 2.
    #[display("an argument is invalid")]
    BadArgument,
    /// 3.
    #[display("the device is unavailable")]
    Unavailable,
    /// 4.
    #[display("the server already has a configuration string")]
    ConfigPresent,
    /// 5.
    #[display("the server does not support this version of AoE")]
    BadVersion,
    /// 6.
    #[display("the device is reserved by another host")]
    Reserved,
    /// Any other.
    #[display("error {_0}")]
    Other(u8),
}

impl ErrorCode {
    fn code(self) -> u8 {
        match self {
            ErrorCode::BadCommand => 1,
            ErrorCode::BadArgument => 2,
            ErrorCode::Unavailable => 3,
            ErrorCode::ConfigPresent => 4,
            ErrorCode::BadVersion => 5,
            ErrorCode::Reserved => 6,
            ErrorCode::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> ErrorCode {
        match code {
            1 => ErrorCode::BadCommand,
            2 => ErrorCode::BadArgument,
            3 => ErrorCode::Unavailable,
            4 => ErrorCode::ConfigPresent,
            5 => ErrorCode::BadVersion,
            6 => ErrorCode::Reserved,
            code => ErrorCode::Other(code),
        }
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// The body.
    pub body: Body<'a>,
}

/// The commands (AoEr11 section 3), as requests and responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// 0: an ATA command, and the bytes after it: data, and possibly padding of the Ethernet frame. The
    /// sector count gives the length of the data.
    Ata(Ata, &'a [u8]),
    /// 1: query config information.
    Config(Config<'a>),
    /// 2: the MAC mask list.
    Mask(Mask),
    /// 3: reserve and release.
    Reserve(Reserve),
}

/// A malformed frame. A request with a complete header can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum Malformed {
    /// It is shorter than a header.
    #[display("shorter than a header")]
    NoHeader,
    /// It has another version of AoE.
    #[display("of version {version}")]
    Version {
        /// Its header.
        header: Header,
        /// The command, which the response repeats.
        command: u8,
        /// The version.
        version: u8,
    },
    /// Its command is not in AoEr11.
    #[display("of command {command}")]
    Command {
        /// Its header.
        header: Header,
        /// The command.
        command: u8,
    },
    /// The body is shorter than its stated length, or invalid for the command.
    #[display("of command {command}, and cut short or contradictory")]
    Body {
        /// Its header.
        header: Header,
        /// The command.
        command: u8,
    },
}

impl Malformed {
    /// The header, if it is complete.
    pub fn header(&self) -> Option<Header> {
        match *self {
            Malformed::NoHeader => None,
            Malformed::Version { header, .. }
            | Malformed::Command { header, .. }
            | Malformed::Body { header, .. } => Some(header),
        }
    }

    /// The response to such a request; `None` if the frame has no header, or is itself a response. It has the
    /// address of the request, which can match several devices.
    pub fn answer(&self) -> Option<Vec<u8>> {
        let (header, command, error) = match *self {
            Malformed::NoHeader => return None,
            Malformed::Version {
                header, command, ..
            } => (header, command, ErrorCode::BadVersion),
            Malformed::Command { header, command } => (header, command, ErrorCode::BadCommand),
            Malformed::Body { header, command } => (header, command, ErrorCode::BadArgument),
        };
        let answer = Header {
            is_response: true,
            error: Some(error),
            ..header
        };
        (!header.is_response).then(|| answer.bytes(command).to_vec())
    }
}

impl Header {
    /// The header of a response from one of the addressed devices.
    pub fn answer(&self, device: Address, error: Option<ErrorCode>) -> Header {
        Header {
            is_response: true,
            error,
            address: device,
            tag: self.tag,
        }
    }

    pub(crate) fn bytes(&self, command: u8) -> [u8; HEADER_BYTES] {
        let [major, minor_of_major] = self.address.major.to_be_bytes();
        let [a, b, c, d] = self.tag.to_be_bytes();
        let flags = (if self.is_response { RESPONSE } else { 0 })
            | if self.error.is_some() { ERROR } else { 0 };
        let error = self.error.map_or(0, ErrorCode::code);
        [
            VERSION << 4 | flags,
            error,
            major,
            minor_of_major,
            self.address.minor,
            command,
            a,
            b,
            c,
            d,
        ]
    }
}

impl<'a> Frame<'a> {
    /// Parses the payload of an Ethernet frame.
    ///
    /// # Errors
    /// The payload is not a frame of AoE version 1, its command is unknown, or its body is truncated or
    /// contradictory.
    pub fn parse(payload: &'a [u8]) -> Result<Frame<'a>, Malformed> {
        let (head, rest) = payload
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(Malformed::NoHeader)?;
        let [flags, error, major, major_low, minor, command, a, b, c, d] = *head;
        let address = Address {
            major: u16::from_be_bytes([major, major_low]),
            minor,
        };
        let header = Header {
            is_response: flags & RESPONSE != 0,
            error: (flags & ERROR != 0).then(|| ErrorCode::from_code(error)),
            address,
            tag: u32::from_be_bytes([a, b, c, d]),
        };
        if flags >> 4 != VERSION {
            return Err(Malformed::Version {
                header,
                command,
                version: flags >> 4,
            });
        }
        let body = match command {
            0 => Ata::parse(rest).map(|(ata, data)| Body::Ata(ata, data)),
            1 => Config::parse(rest).map(Body::Config),
            2 => Mask::parse(rest).map(Body::Mask),
            3 => Reserve::parse(rest).map(Body::Reserve),
            _ => return Err(Malformed::Command { header, command }),
        };
        Ok(Frame {
            header,
            body: body.ok_or(Malformed::Body { header, command })?,
        })
    }

    /// Encodes the payload of an Ethernet frame.
    pub fn write(&self) -> Vec<u8> {
        let command = match self.body {
            Body::Ata(..) => 0,
            Body::Config(_) => 1,
            Body::Mask(_) => 2,
            Body::Reserve(_) => 3,
        };
        let mut out = self.header.bytes(command).to_vec();
        match &self.body {
            Body::Ata(ata, data) => {
                ata.write(&mut out);
                out.extend_from_slice(data);
            }
            Body::Config(config) => config.write(&mut out),
            Body::Mask(mask) => mask.write(&mut out),
            Body::Reserve(reserve) => reserve.write(&mut out),
        }
        out
    }
}

/// Shelf and slot, the major and minor address (AoEr11 section 2), with the notation `SHELF.SLOT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{major}.{minor}")]
pub struct Address {
    /// The shelf, 0 to 65,534; 65,535 is all.
    pub major: u16,
    /// The slot, 0 to 254; 255 is all.
    pub minor: u8,
}

impl Address {
    /// All devices.
    pub const ALL: Address = Address {
        major: u16::MAX,
        minor: u8::MAX,
    };

    /// Whether a frame with this address is addressed to `device`.
    pub fn is_for(self, device: Address) -> bool {
        (self.major == u16::MAX || self.major == device.major)
            && (self.minor == u8::MAX || self.minor == device.minor)
    }
}

/// A text that is not an address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
#[display("an AoE address is SHELF.SLOT, 0 to 65534 and 0 to 254, such as 7.1")]
pub struct NotAnAddress;

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Address, NotAnAddress> {
        let (shelf, slot) = text.split_once('.').ok_or(NotAnAddress)?;
        if !(shelf.bytes().chain(slot.bytes())).all(|byte| byte.is_ascii_digit()) {
            return Err(NotAnAddress);
        }
        let major = shelf.parse().map_err(|_| NotAnAddress)?;
        let minor = slot.parse().map_err(|_| NotAnAddress)?;
        match (major, minor) {
            (u16::MAX, _) | (_, u8::MAX) => Err(NotAnAddress),
            _ => Ok(Address { major, minor }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let address = Address { major: 7, minor: 1 };
        assert_eq!("7.1".parse(), Ok(address));
        assert_eq!(address.to_string(), "7.1");
        for wrong in [
            "7", "7.", ".1", "65535.1", "7.255", "70000.1", "+7.1", "7.1.2",
        ] {
            assert_eq!(wrong.parse::<Address>(), Err(NotAnAddress), "{wrong}");
        }
    }

    #[test]
    fn all_is_for_each() {
        let device = Address { major: 7, minor: 1 };
        assert!(
            Address::ALL.is_for(device)
                && Address {
                    major: u16::MAX,
                    minor: 1
                }
                .is_for(device)
        );
        assert!(
            !Address {
                major: u16::MAX,
                minor: 2
            }
            .is_for(device)
        );
    }
}
