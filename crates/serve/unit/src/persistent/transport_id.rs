//! TransportIDs of iSCSI initiators (SPC-4 7.6.4.6).
//!
//! ```text
//!  0      FORMAT CODE (7-6) · PROTOCOL IDENTIFIER 5h (3-0)
//!  2..4   ADDITIONAL LENGTH, a multiple of 4, at least 20
//!  4..    00b: name NUL...            an initiator device
//!         01b: name ",i,0x" isid NUL... an initiator port
//! ```

use crate::nexus::InitiatorPort;

/// Whom a TransportID names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransportId {
    /// One port.
    Port(InitiatorPort),
    /// All ports of the initiator with this name.
    Device(String),
}

/// A TransportID that is not one of iSCSI's, or not a legal one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

const ISCSI: u8 = 5;
const SEPARATOR: &str = ",i,0x";
/// RFC 7143 4.2.7.1.
const NAME_BYTES_MAX: usize = 223;
const ADDITIONAL_BYTES_MIN: usize = 20;

impl TransportId {
    /// Reads the TransportID at the start of `bytes`; returns it and the rest.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(TransportId, &[u8]), Malformed> {
        let [first, _, high, low, tail @ ..] = bytes else {
            return Err(Malformed);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (text, rest) = tail.split_at_checked(length).ok_or(Malformed)?;
        if first & 0x0f != ISCSI || length < ADDITIONAL_BYTES_MIN || length % 4 != 0 {
            return Err(Malformed);
        }
        let end = text.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
        let text = std::str::from_utf8(&text[..end]).map_err(|_| Malformed)?;
        let id = match first >> 6 {
            0 => TransportId::Device(name(text)?),
            1 => TransportId::Port(port(text)?),
            _ => return Err(Malformed),
        };
        Ok((id, rest))
    }
}

fn port(text: &str) -> Result<InitiatorPort, Malformed> {
    let (before, isid) = text.split_once(SEPARATOR).ok_or(Malformed)?;
    let digits = (1..=12).contains(&isid.len()) && isid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(isid, 16).ok().filter(|_| digits).ok_or(Malformed)?;
    let [_, _, isid @ ..] = number.to_be_bytes();
    Ok(InitiatorPort { name: name(before)?, qualifier: isid })
}

/// iSCSI names are compared in lower case (RFC 7143 4.2.7.1).
fn name(text: &str) -> Result<String, Malformed> {
    let legal = !text.is_empty() && text.len() <= NAME_BYTES_MAX;
    legal.then(|| text.to_lowercase()).ok_or(Malformed)
}

/// The TransportID of an initiator port.
pub(crate) fn transport_id(port: &InitiatorPort) -> Vec<u8> {
    let [a, b, c, d, e, f] = port.qualifier;
    let text = format!("{}{SEPARATOR}{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}\0", port.name);
    let length = text.len().next_multiple_of(4).max(ADDITIONAL_BYTES_MIN);
    let mut id = vec![0x40 | ISCSI, 0, (length >> 8) as u8, length as u8];
    id.extend(text.as_bytes());
    id.resize(4 + length, 0);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host() -> InitiatorPort {
        InitiatorPort { name: "iqn.1994-05.com.redhat:a".into(), qualifier: [0x00, 0x02, 0x3d, 0, 0, 1] }
    }

    #[test]
    fn a_port_looks_as_in_the_standard() {
        let id = transport_id(&host());
        assert_eq!(id[..4], [0x45, 0, 0, 44]);
        assert_eq!(&id[4..], b"iqn.1994-05.com.redhat:a,i,0x00023d000001\0\0\0");
    }

    #[test]
    fn a_device_has_no_isid() {
        let mut id = vec![0x05, 0, 0, 20];
        id.extend(b"IQN.2026-11.x:y\0\0\0\0\0");
        let (parsed, rest) = TransportId::parse(&id).unwrap();
        assert_eq!(parsed, TransportId::Device("iqn.2026-11.x:y".into()));
        assert!(rest.is_empty());
    }

    #[test]
    fn another_protocol_or_a_cut_or_endless_name_is_malformed() {
        let id = transport_id(&host());
        assert_eq!(TransportId::parse(&[&[0x46][..], &id[1..]].concat()), Err(Malformed));
        for length in 0..id.len() {
            assert_eq!(TransportId::parse(&id[..length]), Err(Malformed), "{length}");
        }
        let endless = [&id[..4], &[b'a'; 44]].concat();
        assert_eq!(TransportId::parse(&endless), Err(Malformed));
    }

    proptest! {
        #[test]
        fn a_port_comes_back_as_it_was(name in "[a-z0-9.:-]{1,223}", isid: [u8; 6]) {
            let port = InitiatorPort { name, qualifier: isid };
            let id = transport_id(&port);
            prop_assert_eq!(TransportId::parse(&id), Ok((TransportId::Port(port), &[][..])));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = TransportId::parse(&bytes);
        }
    }
}
