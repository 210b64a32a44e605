//! Registrations in bytes, for a file that survives a power loss (APTPL, SPC-4 5.12.5).
//!
//! ```text
//!  registrations: count u32, then each: host · key u64 · ports
//!  reservation:   type u8 (0: none), then host · port
//!  host:          name · qualifier [6]
//!  ports:         one: 0 u8 · port      all but some: 1 u8 · count u16 · ports
//!  port:          name · group u16 · relative port u16
//!  name:          length u16 · UTF-8 bytes
//! ```
//!
//! All numbers are big-endian. PRGENERATION is not included: it restarts at power on (SPC-4 6.15.2). The
//! checksum is outside, in [`crate::saved`]; here anything that could not have been written is refused.

use std::num::NonZeroU64;

use super::{Ports, REGISTRATIONS_MAX, Registration, Registrations, Reservation, ReservationType};
use crate::requester::{HostPath, HostPort, ServicePort};
use crate::saved::{Damaged, Reader};

impl Registrations {
    /// What survives a loss of power: all of it with APTPL, nothing without.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.persist_through_power_loss {
            return bytes;
        }
        bytes.extend((self.registered.len() as u32).to_be_bytes());
        for registration in &self.registered {
            put_host(&mut bytes, &registration.host);
            bytes.extend(registration.key.get().to_be_bytes());
            put_ports(&mut bytes, &registration.ports);
        }
        match &self.reservation {
            None => bytes.push(0),
            Some(reservation) => {
                bytes.push(reservation.kind.code());
                put_host(&mut bytes, &reservation.holder.host);
                put_port(&mut bytes, &reservation.holder.service);
            }
        }
        bytes
    }

    /// What [`Registrations::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Registrations, Damaged> {
        if bytes.is_empty() {
            return Ok(Registrations::default());
        }
        let mut reader = Reader::new(bytes);
        let count = reader.u32()? as usize;
        if count > REGISTRATIONS_MAX {
            return Err(Damaged);
        }
        let mut state = Registrations { persist_through_power_loss: true, ..Registrations::default() };
        for _ in 0..count {
            state.registered.push(registration(&mut reader)?);
        }
        state.reservation = reservation(&mut reader)?;
        reader.end()?;
        state.is_consistent().then_some(state).ok_or(Damaged)
    }
}

fn registration(reader: &mut Reader<'_>) -> Result<Registration, Damaged> {
    Ok(Registration {
        host: host(reader)?,
        key: NonZeroU64::new(reader.u64()?).ok_or(Damaged)?,
        ports: ports(reader)?,
    })
}

fn reservation(reader: &mut Reader<'_>) -> Result<Option<Reservation>, Damaged> {
    let code = reader.u8()?;
    if code == 0 {
        return Ok(None);
    }
    let kind = ReservationType::from_code(code).ok_or(Damaged)?;
    let holder = HostPath { host: host(reader)?, service: port(reader)? };
    Ok(Some(Reservation { kind, holder }))
}

fn put_host(bytes: &mut Vec<u8>, host: &HostPort) {
    put_name(bytes, &host.name);
    bytes.extend(host.qualifier);
}

fn host(reader: &mut Reader<'_>) -> Result<HostPort, Damaged> {
    Ok(HostPort { name: name(reader)?, qualifier: reader.array()? })
}

fn put_ports(bytes: &mut Vec<u8>, ports: &Ports) {
    match ports {
        Ports::One(port) => {
            bytes.push(0);
            put_port(bytes, port);
        }
        Ports::AllBut(others) => {
            bytes.push(1);
            bytes.extend((others.len() as u16).to_be_bytes());
            others.iter().for_each(|port| put_port(bytes, port));
        }
    }
}

fn ports(reader: &mut Reader<'_>) -> Result<Ports, Damaged> {
    match reader.u8()? {
        0 => Ok(Ports::One(port(reader)?)),
        1 => {
            let count = reader.u16()?;
            Ok(Ports::AllBut((0..count).map(|_| port(reader)).collect::<Result<_, _>>()?))
        }
        _ => Err(Damaged),
    }
}

fn put_port(bytes: &mut Vec<u8>, port: &ServicePort) {
    put_name(bytes, &port.name);
    bytes.extend(port.group.to_be_bytes());
    bytes.extend(port.relative_port.to_be_bytes());
}

fn port(reader: &mut Reader<'_>) -> Result<ServicePort, Damaged> {
    Ok(ServicePort { name: name(reader)?, group: reader.u16()?, relative_port: reader.u16()? })
}

/// Names are at most 223 bytes long with iSCSI (RFC 7143 4.2.7.1), so their length always fits.
fn put_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.extend((name.len() as u16).to_be_bytes());
    bytes.extend(name.as_bytes());
}

fn name(reader: &mut Reader<'_>) -> Result<String, Damaged> {
    let length = reader.u16()?;
    let bytes = reader.bytes(usize::from(length))?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Damaged)
}

#[cfg(test)]
mod tests {
    use super::super::Register;
    use super::super::scene::{key, path, through};
    use super::*;

    fn persistent() -> Registrations {
        let mut state = Registrations::default();
        let lasting = Register { persist_through_power_loss: true, ..Register::new(key(0xabcd)) };
        state.register(&path(1), &lasting.clone()).unwrap();
        state.register(&path(2), &Register { all_ports: true, ..lasting.clone() }).unwrap();
        state.register(&through(2, 2), &Register { key: 0, ..lasting }).unwrap();
        state.reserve(&path(1), 0xabcd, ReservationType::WriteExclusiveRegistrantsOnly).unwrap();
        state
    }

    #[test]
    fn all_but_the_generation_comes_back() {
        let before = persistent();
        let after = Registrations::from_bytes(&before.to_bytes()).unwrap();
        assert_eq!(after, Registrations { generation: 0, ..before });
    }

    /// Files of earlier versions are read.
    #[test]
    fn the_bytes_are_those_of_the_first_version() {
        let mut state = Registrations::default();
        let lasting = Register { persist_through_power_loss: true, ..Register::new(key(0xabcd)) };
        state.register(&path(1), &lasting).unwrap();
        state.reserve(&path(1), 0xabcd, ReservationType::WriteExclusiveRegistrantsOnly).unwrap();
        let host = b"\0\x16iqn.2026-11.test:host1\x40\0\0\0\0\x01";
        let port = b"\0\x17iqn.2026-11.test:target\0\x01\0\x01";
        let registered = [&[0, 0, 0, 1], &host[..], &[0, 0, 0, 0, 0, 0, 0xab, 0xcd], &[0], port].concat();
        let reserved = [&[5], &host[..], port].concat();
        assert_eq!(state.to_bytes(), [registered, reserved].concat());
    }

    #[test]
    fn without_aptpl_nothing_is_kept() {
        let state = Registrations { persist_through_power_loss: false, ..persistent() };
        assert_eq!(Registrations::from_bytes(&state.to_bytes()), Ok(Registrations::default()));
    }

    #[test]
    fn bytes_cut_anywhere_are_refused() {
        let bytes = persistent().to_bytes();
        for length in 1..bytes.len() {
            assert_eq!(Registrations::from_bytes(&bytes[..length]), Err(Damaged), "{length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Registrations::from_bytes(&longer), Err(Damaged));
    }

    #[test]
    fn a_reservation_without_holder_is_refused() {
        let mut state = persistent();
        state.registered.remove(0);
        assert_eq!(Registrations::from_bytes(&state.to_bytes()), Err(Damaged));
    }

    proptest::proptest! {
        #[test]
        fn changed_bytes_never_make_it_panic(at in 0usize..200, value: u8) {
            let mut bytes = persistent().to_bytes();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Registrations::from_bytes(&bytes);
        }
    }
}
