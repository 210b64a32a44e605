//! Conditions that a logical unit reports, and their encoding: in fixed or descriptor format, as the D_SENSE
//! bit of the control mode page selects.

/// The sense key: the category of the condition (SPC-4 table 43).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// Completed, after error recovery.
    RecoveredError = 0x1,
    /// The logical unit cannot be accessed now.
    NotReady = 0x2,
    /// The medium is faulty.
    MediumError = 0x3,
    /// The hardware is faulty.
    HardwareError = 0x4,
    /// The CDB or the parameter data is invalid.
    IllegalRequest = 0x5,
    /// A change of which the initiator must be notified before it continues.
    UnitAttention = 0x6,
    /// Writing is not permitted.
    DataProtect = 0x7,
    /// A copy operation ended early.
    CopyAborted = 0xa,
    /// The device server aborted the command; a retry may succeed.
    AbortedCommand = 0xb,
    /// The compared data differs.
    Miscompare = 0xe,
}

/// The content of the sense-key specific bytes (SPC-4 4.5.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Specific {
    /// Nothing: SKSV is zero.
    #[default]
    Nothing,
    /// The first byte, and if known the bit, of the invalid field.
    Field {
        /// In the CDB; otherwise in the parameter data.
        in_cdb: bool,
        /// The number of the byte, from 0.
        byte: u16,
        /// The most significant bit of the field.
        bit: Option<u8>,
    },
    /// Progress of a long operation, in 65,536ths.
    Progress(u16),
}

/// The reason for a CHECK CONDITION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code (high byte) and qualifier (low byte).
    pub asc: u16,
    /// The INFORMATION field: an LBA, or the offset of the first byte that differs. It sets VALID.
    pub information: Option<u64>,
    /// The sense-key specific field.
    pub specific: Specific,
}

impl Condition {
    /// The transfer length or direction of the transport does not match the CDB.
    pub const INVALID_INFORMATION_UNIT: Condition = Condition::new(
        SenseKey::IllegalRequest,
        asc::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT,
    );

    /// A condition without further details.
    pub const fn new(key: SenseKey, asc: u16) -> Condition {
        Condition {
            key,
            asc,
            information: None,
            specific: Specific::Nothing,
        }
    }

    /// INVALID FIELD IN CDB, pointing at a byte of the CDB.
    pub const fn invalid_field(byte: u16) -> Condition {
        Condition::new(SenseKey::IllegalRequest, asc::INVALID_FIELD_IN_CDB)
            .at_field(true, byte, None)
    }

    /// INVALID FIELD IN CDB, pointing at a bit of the CDB.
    pub const fn invalid_bit(byte: u16, bit: u8) -> Condition {
        Condition::new(SenseKey::IllegalRequest, asc::INVALID_FIELD_IN_CDB).at_field(
            true,
            byte,
            Some(bit),
        )
    }

    /// INVALID FIELD IN PARAMETER LIST, pointing at a byte of the parameter data.
    pub const fn invalid_parameter(byte: u16) -> Condition {
        Condition::new(
            SenseKey::IllegalRequest,
            asc::INVALID_FIELD_IN_PARAMETER_LIST,
        )
        .at_field(false, byte, None)
    }

    /// PARAMETER LIST LENGTH ERROR: the list has an invalid length.
    pub const fn parameter_list_length() -> Condition {
        Condition::new(SenseKey::IllegalRequest, asc::PARAMETER_LIST_LENGTH_ERROR)
    }

    /// Adds a field pointer to the condition.
    pub const fn at_field(self, in_cdb: bool, byte: u16, bit: Option<u8>) -> Condition {
        debug_assert!(matches!(bit, None | Some(0..8)), "a bit of a byte");
        Condition {
            specific: Specific::Field { in_cdb, byte, bit },
            ..self
        }
    }

    /// Adds the INFORMATION field to the condition.
    pub const fn with_information(self, information: u64) -> Condition {
        Condition {
            information: Some(information),
            ..self
        }
    }

    /// Adds a progress indication to the condition.
    pub const fn with_progress(self, progress: u16) -> Condition {
        Condition {
            specific: Specific::Progress(progress),
            ..self
        }
    }

    /// Encodes the condition.
    pub fn encode(&self, format: SenseFormat) -> SenseData {
        match format {
            SenseFormat::Fixed => self.fixed(),
            SenseFormat::Descriptor => self.descriptor(),
        }
    }

    /// Fixed format (SPC-4 4.5.3). INFORMATION has 32 bits in this format: with a larger value, VALID is zero.
    fn fixed(&self) -> SenseData {
        let mut bytes = [0; SENSE_BYTES_MAX];
        bytes[0] = 0x70;
        bytes[2] = self.key as u8;
        bytes[7] = FIXED_BYTES as u8 - 8;
        bytes[12..14].copy_from_slice(&self.asc.to_be_bytes());
        if let Some(information) = self.information.and_then(|wide| u32::try_from(wide).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        if let Some(specific) = self.specific.encode() {
            bytes[15..18].copy_from_slice(&specific);
        }
        SenseData {
            bytes,
            length: FIXED_BYTES as u8,
        }
    }

    /// Descriptor format (SPC-4 4.5.2): with an information descriptor and a sense-key specific descriptor,
    /// as needed.
    fn descriptor(&self) -> SenseData {
        let mut bytes = [0; SENSE_BYTES_MAX];
        let mut length = 8;
        bytes[0] = 0x72;
        bytes[1] = self.key as u8;
        bytes[2..4].copy_from_slice(&self.asc.to_be_bytes());
        if let Some(information) = self.information {
            bytes[length] = 0x00;
            bytes[length + 1] = 0x0a;
            bytes[length + 2] = 0x80;
            bytes[length + 4..length + 12].copy_from_slice(&information.to_be_bytes());
            length += 12;
        }
        if let Some(specific) = self.specific.encode() {
            bytes[length] = 0x02;
            bytes[length + 1] = 0x06;
            bytes[length + 4..length + 7].copy_from_slice(&specific);
            length += 8;
        }
        debug_assert!(
            length <= SENSE_BYTES_MAX,
            "descriptors beyond the sense data"
        );
        bytes[7] = length as u8 - 8;
        SenseData {
            bytes,
            length: length as u8,
        }
    }
}

impl Specific {
    /// Parses the field, whose meaning depends on the sense key. A truncated field is [`Specific::Nothing`].
    pub(super) fn parse(key: u8, bytes: &[u8]) -> Specific {
        let Some([flags @ 0x80..=0xff, high, low]) = bytes.first_chunk() else {
            return Specific::Nothing;
        };
        let number = u16::from_be_bytes([*high, *low]);
        match key {
            0x0 | 0x2 => Specific::Progress(number),
            0x5 => {
                let bit = (flags & 0x08 != 0).then_some(flags & 0x07);
                Specific::Field {
                    in_cdb: flags & 0x40 != 0,
                    byte: number,
                    bit,
                }
            }
            _ => Specific::Nothing,
        }
    }

    fn encode(self) -> Option<[u8; 3]> {
        match self {
            Specific::Nothing => None,
            Specific::Field { in_cdb, byte, bit } => {
                let in_cdb = if in_cdb { 0x40 } else { 0 };
                let bit = bit.map_or(0, |bit| 0x08 | bit & 7);
                let [high, low] = byte.to_be_bytes();
                Some([0x80 | in_cdb | bit, high, low])
            }
            Specific::Progress(progress) => {
                let [high, low] = progress.to_be_bytes();
                Some([0x80, high, low])
            }
        }
    }
}

/// The format of sense data (control mode page, D_SENSE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenseFormat {
    /// Response code 70h, 18 bytes.
    #[default]
    Fixed,
    /// Response code 72h, 8 bytes and descriptors.
    Descriptor,
}

/// Encoded sense data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseData {
    bytes: [u8; SENSE_BYTES_MAX],
    length: u8,
}

impl SenseData {
    /// The bytes that follow the SenseLength field of a SCSI Response PDU.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(SENSE_BYTES_MAX)]
    }

    /// The sense key, in either format.
    pub fn key(&self) -> u8 {
        if self.is_descriptor() {
            self.bytes[1] & 0x0f
        } else {
            self.bytes[2] & 0x0f
        }
    }

    /// Additional sense code and qualifier, in either format.
    pub fn asc(&self) -> u16 {
        let at = if self.is_descriptor() { 2 } else { 12 };
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn is_descriptor(&self) -> bool {
        debug_assert!(
            matches!(self.bytes[0] & 0x7f, 0x70..=0x73),
            "sense data of a supported format"
        );
        self.bytes[0] & 0x7f >= 0x72
    }
}

impl std::fmt::Debug for SenseData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SenseData({:x}/{:04x})", self.key(), self.asc())
    }
}

/// The header, an information and a sense-key specific descriptor: the maximum that we encode.
const SENSE_BYTES_MAX: usize = 8 + 12 + 8;
const FIXED_BYTES: usize = 18;

/// Additional sense codes and qualifiers (SPC-4 annex F), as `asc << 8 | ascq`.
#[allow(missing_docs)] // the standard's names
pub mod asc {
    pub const NO_ADDITIONAL_SENSE_INFORMATION: u16 = 0x0000;
    pub const IO_PROCESS_TERMINATED: u16 = 0x0006;
    pub const OPERATION_IN_PROGRESS: u16 = 0x0016;
    pub const BECOMING_READY: u16 = 0x0401;
    pub const INITIALIZING_COMMAND_REQUIRED: u16 = 0x0402;
    pub const MANUAL_INTERVENTION_REQUIRED: u16 = 0x0403;
    pub const FORMAT_IN_PROGRESS: u16 = 0x0404;
    pub const SANITIZE_IN_PROGRESS: u16 = 0x041b;
    pub const UNREACHABLE_COPY_TARGET: u16 = 0x0804;
    pub const WRITE_ERROR: u16 = 0x0c00;
    pub const UNEXPECTED_UNSOLICITED_DATA: u16 = 0x0c0c;
    pub const NOT_ENOUGH_UNSOLICITED_DATA: u16 = 0x0c0d;
    pub const INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT: u16 = 0x0e03;
    pub const THIRD_PARTY_DEVICE_FAILURE: u16 = 0x0d01;
    pub const UNRECOVERED_READ_ERROR: u16 = 0x1100;
    pub const PARAMETER_LIST_LENGTH_ERROR: u16 = 0x1a00;
    pub const MISCOMPARE_DURING_VERIFY: u16 = 0x1d00;
    pub const INVALID_COMMAND_OPERATION_CODE: u16 = 0x2000;
    pub const LBA_OUT_OF_RANGE: u16 = 0x2100;
    pub const INVALID_FIELD_IN_CDB: u16 = 0x2400;
    pub const LOGICAL_UNIT_NOT_SUPPORTED: u16 = 0x2500;
    pub const INVALID_FIELD_IN_PARAMETER_LIST: u16 = 0x2600;
    pub const PARAMETER_VALUE_INVALID: u16 = 0x2602;
    pub const INVALID_RELEASE_OF_PERSISTENT_RESERVATION: u16 = 0x2604;
    pub const TOO_MANY_TARGET_DESCRIPTORS: u16 = 0x2606;
    pub const UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE: u16 = 0x2607;
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: u16 = 0x2608;
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE: u16 = 0x2609;
    pub const UNEXPECTED_INEXACT_SEGMENT: u16 = 0x260a;
    pub const INLINE_DATA_LENGTH_EXCEEDED: u16 = 0x260b;
    pub const WRITE_PROTECTED: u16 = 0x2700;
    pub const SOFTWARE_WRITE_PROTECTED: u16 = 0x2702;
    pub const SPACE_ALLOCATION_FAILED: u16 = 0x2707;
    pub const MEDIUM_MAY_HAVE_CHANGED: u16 = 0x2800;
    pub const POWER_ON_OR_RESET: u16 = 0x2900;
    pub const BUS_DEVICE_RESET: u16 = 0x2903;
    pub const I_T_NEXUS_LOSS: u16 = 0x2907;
    pub const MODE_PARAMETERS_CHANGED: u16 = 0x2a01;
    pub const RESERVATIONS_PREEMPTED: u16 = 0x2a03;
    pub const RESERVATIONS_RELEASED: u16 = 0x2a04;
    pub const REGISTRATIONS_PREEMPTED: u16 = 0x2a05;
    pub const CAPACITY_DATA_CHANGED: u16 = 0x2a09;
    pub const COMMAND_SEQUENCE_ERROR: u16 = 0x2c00;
    pub const COMMAND_TIMEOUT_DURING_PROCESSING: u16 = 0x2e02;
    pub const SAVING_PARAMETERS_NOT_SUPPORTED: u16 = 0x3900;
    pub const MEDIUM_NOT_PRESENT: u16 = 0x3a00;
    pub const FAILED_SELF_TEST: u16 = 0x3e03;
    pub const INQUIRY_DATA_CHANGED: u16 = 0x3f03;
    pub const MEDIUM_FORMAT_CORRUPTED: u16 = 0x3100;
    pub const FORMAT_COMMAND_FAILED: u16 = 0x3101;
    pub const SANITIZE_COMMAND_FAILED: u16 = 0x3103;
    pub const REPORTED_LUNS_DATA_CHANGED: u16 = 0x3f0e;
    pub const INTERNAL_TARGET_FAILURE: u16 = 0x4400;
    pub const INVALID_MESSAGE_ERROR: u16 = 0x4900;
    pub const PROTOCOL_SERVICE_CRC_ERROR: u16 = 0x4705;
    pub const MEDIUM_REMOVAL_PREVENTED: u16 = 0x5302;
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: u16 = 0x5504;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISCOMPARE: Condition =
        Condition::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY);

    #[test]
    fn fixed_format_carries_information_and_valid() {
        let sense = MISCOMPARE
            .with_information(0x1234)
            .encode(SenseFormat::Fixed);
        assert_eq!(sense.bytes()[..8], [0xf0, 0, 0x0e, 0, 0, 0x12, 0x34, 10]);
        assert_eq!(
            (sense.bytes().len(), sense.key(), sense.asc()),
            (18, 0x0e, 0x1d00)
        );
    }

    #[test]
    fn information_too_wide_for_fixed_format_leaves_valid_at_zero() {
        let sense = MISCOMPARE
            .with_information(1 << 32)
            .encode(SenseFormat::Fixed);
        assert_eq!(sense.bytes()[..8], [0x70, 0, 0x0e, 0, 0, 0, 0, 10]);
    }

    #[test]
    fn descriptor_format_carries_wide_information() {
        let sense = MISCOMPARE
            .with_information(1 << 32)
            .encode(SenseFormat::Descriptor);
        assert_eq!(
            sense.bytes(),
            [
                0x72, 0x0e, 0x1d, 0, 0, 0, 0, 12, 0, 0x0a, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0
            ]
        );
    }

    #[test]
    fn a_field_pointer_names_byte_and_bit() {
        let fixed = Condition::invalid_bit(1, 7).encode(SenseFormat::Fixed);
        assert_eq!(fixed.bytes()[15..18], [0xcf, 0, 1]);
        let parameter = Condition::invalid_parameter(0x102).encode(SenseFormat::Descriptor);
        assert_eq!(parameter.bytes()[8..], [2, 6, 0, 0, 0x80, 1, 2, 0]);
    }
}
