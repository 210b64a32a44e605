//! TransportIDs (SPC-4 7.6.4): the names of initiator ports, in reservations.
//!
//! ```text
//!  0      FORMAT CODE (7-6) · PROTOCOL IDENTIFIER (3-0)
//!  2..4   ADDITIONAL LENGTH, iSCSI only: a multiple of 4, at least 20
//!  4..    00b: name NUL...            an initiator device
//!         01b: name ",i,0x" isid NUL... an initiator port
//! ```

use std::fmt;

use crate::fields::{Hex, u8_at, u16_at, utf8};

/// The name of an initiator port. iSCSI names are compared case-insensitively (RFC 7143 4.2.7.1).
#[derive(Clone, Debug)]
pub enum TransportId {
    /// iSCSI (SPC-4 7.6.4.6).
    Iscsi {
        /// The initiator's iSCSI name.
        name: String,
        /// The session's ISID, if the TransportID names one port; `None` if it names all ports of the
        /// initiator.
        isid: Option<[u8; 6]>,
    },
    /// Any other protocol.
    Other {
        /// PROTOCOL IDENTIFIER (SPC-4 table 468): 0 Fibre Channel, 4 SRP, 6 SAS.
        protocol: u8,
        /// The whole TransportID.
        bytes: Vec<u8>,
    },
}

impl PartialEq for TransportId {
    fn eq(&self, other: &TransportId) -> bool {
        use TransportId::{Iscsi, Other};
        match (self, other) {
            (
                Iscsi { name, isid },
                Iscsi {
                    name: other,
                    isid: of_other,
                },
            ) => name.eq_ignore_ascii_case(other) && isid == of_other,
            (
                Other { protocol, bytes },
                Other {
                    protocol: other,
                    bytes: of_other,
                },
            ) => (protocol, bytes) == (other, of_other),
            (Iscsi { .. }, Other { .. }) | (Other { .. }, Iscsi { .. }) => false,
        }
    }
}

impl Eq for TransportId {}

const ISCSI: u8 = 5;
/// Separates the name and the ISID in the name of a port.
const ISID_MARK: &str = ",i,0x";
/// RFC 7143 4.2.7.1.
const NAME_BYTES_MAX: usize = 223;
const ADDITIONAL_BYTES_MIN: usize = 20;

impl TransportId {
    /// The length of the TransportID at the start of `bytes`: 24 bytes, except for iSCSI.
    fn length(bytes: &[u8]) -> Option<usize> {
        let is_iscsi = bytes.first()? & 0x0f == ISCSI;
        Some(if is_iscsi {
            4 + usize::from(u16_at(bytes, 2))
        } else {
            24
        })
    }

    /// Parses a TransportID for display only; `None` if it is truncated.
    pub fn parse(bytes: &[u8]) -> Option<TransportId> {
        let whole = bytes.get(..TransportId::length(bytes)?)?;
        let (format, protocol) = (u8_at(whole, 0) >> 6, u8_at(whole, 0) & 0x0f);
        if protocol != ISCSI {
            return Some(TransportId::Other {
                protocol,
                bytes: whole.to_vec(),
            });
        }
        let text = utf8(&whole[4..]);
        let port = if format == 1 {
            TransportId::port(&text)
        } else {
            None
        };
        Some(port.unwrap_or(TransportId::Iscsi {
            name: text,
            isid: None,
        }))
    }

    /// Parses an iSCSI TransportID that a command acts on, and returns it with the remaining bytes; `None` if
    /// it violates the standard in any way.
    pub fn parse_strictly(bytes: &[u8]) -> Option<(TransportId, &[u8])> {
        let (whole, rest) = bytes.split_at_checked(TransportId::length(bytes)?)?;
        let text = whole.get(4..)?;
        if whole[0] & 0x0f != ISCSI
            || text.len() < ADDITIONAL_BYTES_MIN
            || !text.len().is_multiple_of(4)
        {
            return None;
        }
        let end = text.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&text[..end]).ok()?;
        let id = match whole[0] >> 6 {
            0 => TransportId::Iscsi {
                name: text.to_owned(),
                isid: None,
            },
            1 => TransportId::port(text)?,
            _ => return None,
        };
        let TransportId::Iscsi { name, .. } = &id else {
            return None;
        };
        (1..=NAME_BYTES_MAX)
            .contains(&name.len())
            .then_some((id, rest))
    }

    /// Parses the name of a port: name and ISID in one text.
    fn port(text: &str) -> Option<TransportId> {
        let (name, isid) = text.split_once(ISID_MARK)?;
        let is_isid =
            (1..=12).contains(&isid.len()) && isid.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(isid, 16).ok().filter(|_| is_isid)?;
        let [_, _, isid @ ..] = number.to_be_bytes();
        Some(TransportId::Iscsi {
            name: name.to_owned(),
            isid: Some(isid),
        })
    }

    /// Encodes the TransportID.
    pub fn write(&self) -> Vec<u8> {
        let (format, text) = match self {
            TransportId::Other { bytes, .. } => return bytes.clone(),
            TransportId::Iscsi { isid, .. } => (u8::from(isid.is_some()) << 6, format!("{self}\0")),
        };
        let length = text.len().next_multiple_of(4).max(ADDITIONAL_BYTES_MIN);
        debug_assert!(length <= usize::from(u16::MAX), "a name beyond its length");
        let mut id = vec![format | ISCSI, 0, (length >> 8) as u8, length as u8];
        id.extend(text.as_bytes());
        id.resize(4 + length, 0);
        id
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransportId::Iscsi { name, isid: None } => f.write_str(name),
            TransportId::Iscsi {
                name,
                isid: Some(isid),
            } => write!(f, "{name}{ISID_MARK}{}", Hex(isid)),
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
    use proptest::prelude::*;

    use super::*;

    fn iscsi(format: u8, name: &[u8]) -> Vec<u8> {
        [&[format << 6 | 5, 0, 0, name.len() as u8][..], name].concat()
    }

    fn host() -> TransportId {
        TransportId::Iscsi {
            name: "iqn.1994-05.com.redhat:a".into(),
            isid: Some([0x00, 0x02, 0x3d, 0, 0, 1]),
        }
    }

    #[test]
    fn an_iscsi_port_is_a_name_and_an_isid() {
        let port =
            TransportId::parse(&iscsi(1, b"iqn.2026-01.io:a,i,0x800102030405\0\0\0")).unwrap();
        let isid = Some([0x80, 1, 2, 3, 4, 5]);
        assert_eq!(
            port,
            TransportId::Iscsi {
                name: "iqn.2026-01.io:a".into(),
                isid
            }
        );
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

    #[test]
    fn a_port_looks_as_in_the_standard() {
        let id = host().write();
        assert_eq!(id[..4], [0x45, 0, 0, 44]);
        assert_eq!(&id[4..], b"iqn.1994-05.com.redhat:a,i,0x00023d000001\0\0\0");
    }

    #[test]
    fn a_device_has_no_isid() {
        let id = iscsi(0, b"iqn.2026-11.x:y\0\0\0\0\0");
        let (parsed, rest) = TransportId::parse_strictly(&id).unwrap();
        assert_eq!(
            parsed,
            TransportId::Iscsi {
                name: "iqn.2026-11.x:y".into(),
                isid: None
            }
        );
        assert!(rest.is_empty());
    }

    #[test]
    fn another_protocol_or_a_cut_or_endless_name_is_not_obeyed() {
        let id = host().write();
        assert_eq!(
            TransportId::parse_strictly(&[&[0x46][..], &id[1..]].concat()),
            None
        );
        for length in 0..id.len() {
            assert_eq!(TransportId::parse_strictly(&id[..length]), None, "{length}");
        }
        assert_eq!(
            TransportId::parse_strictly(&[&id[..4], &[b'a'; 44]].concat()),
            None
        );
    }

    proptest! {
        #[test]
        fn a_port_comes_back_as_it_was(name in "[a-z0-9.:-]{1,223}", isid: Option<[u8; 6]>) {
            let port = TransportId::Iscsi { name, isid };
            let id = port.write();
            prop_assert_eq!(TransportId::parse(&id), Some(port.clone()));
            prop_assert_eq!(TransportId::parse_strictly(&id), Some((port, &[][..])));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = (TransportId::parse(&bytes), TransportId::parse_strictly(&bytes));
        }
    }
}
