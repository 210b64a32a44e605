//! The identity of a logical unit: names that are stable across restarts and renames, since they derive from
//! a stored UUID.

use scsi::Name;

/// The identity of a logical unit as INQUIRY and its VPD pages report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Stored with the volume.
    pub uuid: [u8; 16],
    /// T10 VENDOR IDENTIFICATION, padded with spaces.
    pub vendor: [u8; 8],
    /// PRODUCT IDENTIFICATION. The same on all volumes: ESXi copies between LUNs only if they agree in it.
    pub product: [u8; 16],
    /// PRODUCT REVISION LEVEL.
    pub revision: [u8; 4],
    /// Changes whenever acknowledged writes that were not flushed may have been lost before this start; `None` if that is not
    /// known. VPD page C0h joins it with [`volume::Volume::loss_mark`], which changes with each loss.
    pub cache_generation: Option<[u8; 16]>,
}

impl Identity {
    /// The default identity of a volume with this UUID.
    pub fn new(uuid: [u8; 16]) -> Identity {
        Identity {
            uuid,
            vendor: *b"LINERATE",
            product: *b"VOLUME          ",
            revision: *b"0001",
            cache_generation: None,
        }
    }

    /// The same, with a generation of the volatile cache behind the logical unit.
    pub fn with_cache_generation(self, generation: [u8; 16]) -> Identity {
        Identity { cache_generation: Some(generation), ..self }
    }

    /// The unit serial number (VPD page 80h): the UUID in 32 hexadecimal digits.
    pub fn serial(&self) -> String {
        self.uuid.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The NAA designator (SPC-4 7.8.6.6.4): locally assigned, NAA 3h, from 60 bits of the UUID. NAA 6h would
    /// claim an IEEE company identifier, and we have none.
    pub fn naa(&self) -> [u8; 8] {
        let mut hash = Fnv::new();
        self.uuid.iter().for_each(|byte| hash.add(*byte));
        let local = hash.0 & 0x0fff_ffff_ffff_ffff;
        (0x3000_0000_0000_0000 | local).to_be_bytes()
    }

    /// The designators of the logical unit in VPD page 83h. The T10 vendor ID based one (SPC-4 7.8.6.4) is
    /// the vendor and a vendor-specific part. ESXi and Hyper-V compare no more than the first eight
    /// characters of that part, so those must differ between volumes: they come from a hash of the UUID,
    /// whose own beginning may be a date.
    pub fn names(&self) -> [Name; 2] {
        let naa = self.naa();
        let unique = naa[2..].iter().rev().map(|byte| format!("{byte:02x}")).collect();
        let vendor = String::from_utf8_lossy(&self.vendor).into_owned();
        [Name::Naa(naa.to_vec()), Name::T10 { vendor, name: unique }]
    }

    /// Whether this is one of the [`Identity::names`] in its encoding of VPD page 83h.
    pub fn has_designator(&self, designator: &[u8]) -> bool {
        self.names().iter().any(|name| name.designator() == designator)
    }
}

/// FNV-1a over the whole UUID, whose version and variant bits are the same in all. It must never change: the
/// names of existing volumes depend on it.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_frozen() {
        let identity = Identity::new(*b"0123456789abcdef");
        assert_eq!(identity.serial(), "30313233343536373839616263646566");
        assert_eq!(identity.naa()[0] >> 4, 3);
        assert_eq!(identity.naa(), Identity::new(*b"0123456789abcdef").naa());
        assert_ne!(identity.naa(), Identity::new(*b"0123456789abcdeg").naa());
    }
}
