//! TransportIDs (SPC-4 7.6.4): the names of initiator ports, in reservations.

use std::fmt;

use super::fields::{Hex, u8_at, u16_at, utf8};

/// An initiator port's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportId {
    /// iSCSI (SPC-4 7.6.4.6).
    Iscsi {
        /// The initiator's iSCSI name.
        name: String,
        /// The session's ISID, for the format that names a port and not all of the initiator's.
        isid: Option<String>,
    },
    /// Of any other protocol.
    Other {
        /// PROTOCOL IDENTIFIER (SPC-4 table 468): 0 Fibre Channel, 4 SRP, 6 SAS.
        protocol: u8,
        /// All of it.
        bytes: Vec<u8>,
    },
}

/// Between name and ISID in a port's name.
const ISID_MARK: &str = ",i,0x";

impl TransportId {
    /// How long the one is that `bytes` begin with: 24 bytes, but for iSCSI's.
    pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
        let is_iscsi = bytes.first()? & 0x0f == 5;
        Some(if is_iscsi { 4 + usize::from(u16_at(bytes, 2)) } else { 24 })
    }

    /// Takes one apart; `None` if it is cut short.
    pub fn parse(bytes: &[u8]) -> Option<TransportId> {
        let whole = bytes.get(..TransportId::length(bytes)?)?;
        let (format, protocol) = (u8_at(whole, 0) >> 6, u8_at(whole, 0) & 0x0f);
        if protocol != 5 {
            return Some(TransportId::Other { protocol, bytes: whole.to_vec() });
        }
        let text = utf8(&whole[4..]);
        Some(match text.split_once(ISID_MARK) {
            Some((name, isid)) if format == 1 => {
                TransportId::Iscsi { name: name.to_owned(), isid: Some(isid.to_owned()) }
            }
            _ => TransportId::Iscsi { name: text, isid: None },
        })
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransportId::Iscsi { name, isid: None } => f.write_str(name),
            TransportId::Iscsi { name, isid: Some(isid) } => write!(f, "{name}{ISID_MARK}{isid}"),
            TransportId::Other { protocol, bytes } => {
                let protocol = match protocol {
                    0 => "Fibre Channel",
                    3 => "IEEE 1394",
                    4 => "SRP",
                    6 => "SAS",
                    10 => "PCIe",
                    _ => "unknown protocol",
                };
                write!(f, "{protocol} {}", Hex(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iscsi(format: u8, name: &[u8]) -> Vec<u8> {
        [&[format << 6 | 5, 0, 0, name.len() as u8][..], name].concat()
    }

    #[test]
    fn an_iscsi_port_is_a_name_and_an_isid() {
        let port = TransportId::parse(&iscsi(1, b"iqn.2026-01.io:a,i,0x800102030405\0\0\0")).unwrap();
        let expected =
            TransportId::Iscsi { name: "iqn.2026-01.io:a".into(), isid: Some("800102030405".into()) };
        assert_eq!(port, expected);
        let device = TransportId::parse(&iscsi(0, b"iqn.2026-01.io:a\0\0\0\0")).unwrap();
        assert_eq!(device.to_string(), "iqn.2026-01.io:a");
    }

    #[test]
    fn one_that_is_cut_short_is_none() {
        assert!(TransportId::parse(&[]).is_none());
        assert!(TransportId::parse(&[5, 0, 0, 20, b'i']).is_none());
        assert!(TransportId::parse(&[0; 23]).is_none());
        assert!(TransportId::parse(&[5]).is_none());
    }
}
