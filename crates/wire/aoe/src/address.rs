//! Where a device is: shelf and slot.

use std::fmt;
use std::str::FromStr;

use derive_more::{Display, Error};

/// Shelf and slot, the major and minor address (AoEr11 section 2), written `SHELF.SLOT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The shelf, 0 to 65,534; 65,535 is all.
    pub major: u16,
    /// The slot, 0 to 254; 255 is all.
    pub minor: u8,
}

impl Address {
    /// All devices.
    pub const ALL: Address = Address { major: u16::MAX, minor: u8::MAX };

    /// Whether a frame with this address is for the device at `device`.
    pub fn is_for(self, device: Address) -> bool {
        (self.major == u16::MAX || self.major == device.major)
            && (self.minor == u8::MAX || self.minor == device.minor)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is no address of a device.
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
        for wrong in ["7", "7.", ".1", "65535.1", "7.255", "70000.1", "+7.1", "7.1.2"] {
            assert_eq!(wrong.parse::<Address>(), Err(NotAnAddress), "{wrong}");
        }
    }

    #[test]
    fn all_is_for_each() {
        let device = Address { major: 7, minor: 1 };
        assert!(Address::ALL.is_for(device) && Address { major: u16::MAX, minor: 1 }.is_for(device));
        assert!(!Address { major: u16::MAX, minor: 2 }.is_for(device));
    }
}
