//! Whether another initiator has reserved the LUN: then it is not attached, or only for reading.
//!
//! A session of ours is a nexus that nobody knows, so that every reservation is another's. One by RESERVE(6) cannot be
//! asked for; it is met as a RESERVATION CONFLICT.

use block::{BlockDevice, Buffer, DeviceError, Extent};
use initiator::{RemoteLun, Transfer, status};

use crate::failure::{Failure, Kind};

/// A persistent reservation (SPC-4 6.15.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reservation {
    key: u64,
    kind: u8,
}

/// Refuses a LUN that may not be used as is wanted.
pub(super) async fn check(lun: &RemoteLun, read_only: bool) -> Result<(), Failure> {
    match reservation(lun).await? {
        Some(reservation) if !(read_only && reservation.lets_others_read()) => Err(refusal(reservation)),
        _ => readable(lun).await,
    }
}

fn refusal(reservation: Reservation) -> Failure {
    let Reservation { key, .. } = reservation;
    let way = if reservation.lets_others_read() { "; --read-only is possible" } else { "" };
    let sentence =
        format!("another initiator has reserved the LUN: {}, key {key:#018x}{way}", reservation.name());
    Failure::new(Kind::Reserved, sentence)
}

/// PERSISTENT RESERVE IN with READ RESERVATION (SPC-4 6.15.3). What does not know the command has none to tell of.
async fn reservation(lun: &RemoteLun) -> Result<Option<Reservation>, Failure> {
    const LENGTH: usize = 24;
    let cdb = [0x5e, 0x01, 0, 0, 0, 0, 0, 0, LENGTH as u8, 0, 0, 0, 0, 0, 0, 0];
    for _attempt in 0..ATTENTIONS_MAX {
        let answer = lun.command(cdb, Transfer::into_all_of(Buffer::zeroed(LENGTH))).await?;
        match answer.status {
            status::GOOD => return Ok(Reservation::parse(&answer.data)),
            status::CHECK_CONDITION if answer.sense.is_some_and(|sense| sense.key == UNIT_ATTENTION) => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// SPC-4 4.5.6.
const UNIT_ATTENTION: u8 = 0x6;

/// A new nexus finds some: power on, and whatever else happened before it came.
const ATTENTIONS_MAX: usize = 8;

/// Whether the LUN lets us read, by reading.
async fn readable(lun: &RemoteLun) -> Result<(), Failure> {
    let first = Extent::new(0, 1);
    let buffer = Buffer::zeroed(lun.geometry().block_size.bytes() as usize);
    match lun.read(first, buffer).await {
        Ok(_) => Ok(()),
        Err(DeviceError::Reserved) => {
            Err(Failure::new(Kind::Reserved, "another initiator has reserved the LUN (RESERVE)"))
        }
        Err(error) => Err(Failure::device("cannot read block 0", error)),
    }
}

impl Reservation {
    fn parse(data: &[u8]) -> Option<Reservation> {
        let additional = u32::from_be_bytes(data.get(4..8)?.try_into().ok()?);
        if additional < 16 {
            return None;
        }
        let key = u64::from_be_bytes(data.get(8..16)?.try_into().ok()?);
        Some(Reservation { key, kind: data.get(21)? & 0x0f })
    }

    /// SPC-4 table 64: who has not registered may still read under the write exclusive ones.
    fn lets_others_read(self) -> bool {
        matches!(self.kind, 0x1 | 0x5 | 0x7)
    }

    /// SPC-4 table 64.
    fn name(self) -> &'static str {
        match self.kind {
            0x1 => "Write Exclusive",
            0x3 => "Exclusive Access",
            0x5 => "Write Exclusive - Registrants Only",
            0x6 => "Exclusive Access - Registrants Only",
            0x7 => "Write Exclusive - All Registrants",
            0x8 => "Exclusive Access - All Registrants",
            _ => "of a type that is reserved",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_data_of_read_reservation() {
        let mut data = [0; 24];
        data[3] = 5; // PRGENERATION
        assert_eq!(Reservation::parse(&data), None);
        data[7] = 16;
        data[8..16].copy_from_slice(&0xabc_u64.to_be_bytes());
        data[21] = 0x05;
        let held = Reservation::parse(&data).expect("a reservation");
        assert_eq!(held, Reservation { key: 0xabc, kind: 5 });
        assert!(held.lets_others_read());
        let said = refusal(held).to_string();
        assert!(said.contains("Write Exclusive - Registrants Only, key 0x0000000000000abc"), "{said}");
    }

    #[test]
    fn what_is_cut_short_is_no_reservation() {
        assert_eq!(Reservation::parse(&[]), None);
        assert_eq!(Reservation::parse(&[0, 0, 0, 1, 0, 0, 0, 16, 1, 2]), None);
    }
}
