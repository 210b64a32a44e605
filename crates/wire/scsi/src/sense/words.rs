//! Sense data as text.
//!
//! The numbers are from SPC-4 (annex D); the wording is our own, and brief. The table covers the codes that
//! disks, arrays and iSCSI targets send; any other qualifier has the text of its additional sense code.

use std::fmt;

use super::{Sense, Specific};

/// `NOT READY, becoming ready (02/04/01)`.
impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sense {
            key,
            code,
            qualifier,
            ..
        } = *self;
        write!(
            f,
            "{}, {} ({key:02x}/{code:02x}/{qualifier:02x})",
            key_name(key),
            meaning(code, qualifier)
        )?;
        if self.deferred {
            write!(f, ", of an earlier command")?;
        }
        if let Some(information) = self.information {
            write!(f, ", information {information}")?;
        }
        match self.specific {
            Specific::Nothing => Ok(()),
            Specific::Progress(progress) => {
                write!(f, ", {:.1} % done", f64::from(progress) * 100.0 / 65_536.0)
            }
            Specific::Field { in_cdb, byte, bit } => {
                write!(f, ", at byte {byte}")?;
                bit.iter().try_for_each(|bit| write!(f, " bit {bit}"))?;
                write!(
                    f,
                    " of the {}",
                    if in_cdb { "command" } else { "parameters" }
                )
            }
        }
    }
}

/// The name of a sense key (SPC-4 table 48).
fn key_name(key: u8) -> &'static str {
    match key {
        0x0 => "NO SENSE",
        0x1 => "RECOVERED ERROR",
        0x2 => "NOT READY",
        0x3 => "MEDIUM ERROR",
        0x4 => "HARDWARE ERROR",
        0x5 => "ILLEGAL REQUEST",
        0x6 => "UNIT ATTENTION",
        0x7 => "DATA PROTECT",
        0x8 => "BLANK CHECK",
        0x9 => "VENDOR SPECIFIC",
        0xa => "COPY ABORTED",
        0xb => "ABORTED COMMAND",
        0xd => "VOLUME OVERFLOW",
        0xe => "MISCOMPARE",
        0xf => "COMPLETED",
        _ => "RESERVED",
    }
}

/// The meaning of ADDITIONAL SENSE CODE and QUALIFIER.
fn meaning(code: u8, qualifier: u8) -> &'static str {
    let exact = WORDS.binary_search_by_key(&(code, qualifier), |(code, qualifier, _)| {
        (*code, *qualifier)
    });
    let family =
        || WORDS.binary_search_by_key(&(code, 0), |(code, qualifier, _)| (*code, *qualifier));
    match exact.or_else(|_| family()) {
        Ok(place) => WORDS[place].2,
        Err(_) if code >= 0x80 || qualifier >= 0x80 => "a vendor-specific code",
        Err(_) => "something unknown",
    }
}

/// Sorted by number, for binary search.
const WORDS: &[(u8, u8, &str)] = &[
    (0x00, 0x00, "nothing more"),
    (0x00, 0x06, "the I/O process was terminated"),
    (0x00, 0x16, "an operation is in progress"),
    (0x00, 0x1d, "ATA pass-through information"),
    (
        0x00,
        0x1e,
        "a conflicting security association command is in progress",
    ),
    (0x01, 0x00, "no index or sector signal"),
    (0x02, 0x00, "no seek complete"),
    (0x03, 0x00, "a write fault of the peripheral device"),
    (0x04, 0x00, "not ready, the cause is not reported"),
    (0x04, 0x01, "becoming ready"),
    (0x04, 0x02, "not ready: START STOP UNIT is required"),
    (0x04, 0x03, "not ready: manual intervention is required"),
    (0x04, 0x04, "being formatted"),
    (0x04, 0x05, "a rebuild is in progress"),
    (0x04, 0x06, "a recalculation is in progress"),
    (0x04, 0x07, "an operation is in progress"),
    (0x04, 0x09, "a self-test is in progress"),
    (0x04, 0x0a, "the access state of its port is changing"),
    (0x04, 0x0b, "its port is in the standby state"),
    (0x04, 0x0c, "its port is unavailable"),
    (0x04, 0x0d, "a structural check is needed"),
    (0x04, 0x10, "its auxiliary memory is inaccessible"),
    (0x04, 0x11, "not ready: NOTIFY (ENABLE SPINUP) is required"),
    (0x04, 0x12, "offline"),
    (0x04, 0x14, "space is being allocated"),
    (0x04, 0x1a, "a START STOP UNIT command is in progress"),
    (0x04, 0x1b, "being sanitized"),
    (0x04, 0x1c, "additional power has been requested"),
    (0x04, 0x1d, "being configured"),
    (0x04, 0x1e, "microcode must be activated"),
    (0x04, 0x1f, "microcode must be downloaded"),
    (0x04, 0x20, "a hard reset is required"),
    (0x04, 0x22, "a power cycle is required"),
    (0x05, 0x00, "the logical unit does not respond to selection"),
    (0x06, 0x00, "no reference position found"),
    (0x07, 0x00, "several peripheral devices were selected"),
    (0x08, 0x00, "communication with the logical unit failed"),
    (0x08, 0x01, "communication with the logical unit timed out"),
    (0x09, 0x00, "lost track"),
    (0x0a, 0x00, "the error log overflowed"),
    (0x0b, 0x00, "a warning"),
    (0x0b, 0x01, "warning: the temperature limit is exceeded"),
    (0x0b, 0x02, "warning: an enclosure is degraded"),
    (0x0b, 0x03, "warning: a background self-test failed"),
    (
        0x0b,
        0x04,
        "warning: a background scan found a medium error",
    ),
    (0x0c, 0x00, "a write error"),
    (0x0c, 0x02, "a write error: automatic reallocation failed"),
    (0x0c, 0x03, "a write error: reassignment is recommended"),
    (
        0x0c,
        0x0b,
        "a write error: the cached data could not be written",
    ),
    (
        0x0c,
        0x0c,
        "a write error: expected unsolicited data did not arrive",
    ),
    (
        0x0c,
        0x0d,
        "a write error: unexpected unsolicited data arrived",
    ),
    (0x0d, 0x00, "an error at the remote end of a copy"),
    (0x0d, 0x01, "an error of the third-party device of a copy"),
    (0x0d, 0x02, "the copy's target device is not reachable"),
    (0x0d, 0x03, "the copy's target device is of the wrong type"),
    (0x0d, 0x04, "a data underrun at the copy's target device"),
    (0x0d, 0x05, "a data overrun at the copy's target device"),
    (0x0e, 0x00, "a malformed information unit"),
    (0x0e, 0x01, "an information unit that is too short"),
    (0x0e, 0x02, "an information unit that is too long"),
    (0x0e, 0x03, "an invalid field in an information unit"),
    (0x10, 0x00, "a check value is wrong"),
    (0x10, 0x01, "the guard tag is wrong"),
    (0x10, 0x02, "the application tag is wrong"),
    (0x10, 0x03, "the reference tag is wrong"),
    (0x11, 0x00, "an unrecovered read error"),
    (0x11, 0x01, "an unrecovered read error: retries exhausted"),
    (0x11, 0x02, "an error too long to correct"),
    (
        0x11,
        0x04,
        "an unrecovered read error: automatic reallocation failed",
    ),
    (
        0x11,
        0x0b,
        "an unrecovered read error: reassignment is recommended",
    ),
    (
        0x11,
        0x14,
        "an unrecovered read error: the block is marked as bad",
    ),
    (0x12, 0x00, "no address mark found for the ID field"),
    (0x13, 0x00, "no address mark found for the data field"),
    (0x14, 0x00, "the block was not found"),
    (0x15, 0x00, "a positioning error"),
    (0x16, 0x00, "a data synchronisation mark error"),
    (0x17, 0x00, "data recovered without error correction"),
    (0x17, 0x01, "data recovered by retries"),
    (0x18, 0x00, "data recovered by error correction"),
    (0x18, 0x02, "data recovered, and the block was reallocated"),
    (0x19, 0x00, "the defect list has an error"),
    (0x1a, 0x00, "the parameter list has the wrong length"),
    (0x1b, 0x00, "a synchronous data transfer error"),
    (0x1c, 0x00, "the defect list was not found"),
    (0x1d, 0x00, "the data does not match the comparison data"),
    (0x1d, 0x01, "the verified blocks are not mapped"),
    (
        0x1e,
        0x00,
        "the ID field was recovered with error correction",
    ),
    (0x1f, 0x00, "a partial defect list was returned"),
    (0x20, 0x00, "the target does not support the command"),
    (
        0x20,
        0x01,
        "access is denied: the initiator must enroll first",
    ),
    (0x20, 0x02, "access is denied: no access rights"),
    (0x20, 0x03, "access is denied: the key is wrong"),
    (0x20, 0x0b, "access is denied: the proxy token is wrong"),
    (0x21, 0x00, "the LBA is beyond the end of the medium"),
    (0x21, 0x01, "an invalid element address"),
    (0x21, 0x04, "an unaligned write"),
    (0x21, 0x05, "a write across a zone boundary"),
    (0x21, 0x06, "a read of unwritten data"),
    (0x21, 0x07, "a read across a zone boundary"),
    (0x22, 0x00, "the function is invalid for the device type"),
    (0x23, 0x00, "the copy's token is invalid"),
    (0x23, 0x01, "the copy's token is unknown"),
    (0x23, 0x04, "the copy's token has expired"),
    (0x23, 0x07, "the copy's token was revoked"),
    (0x23, 0x0a, "the copy's token cannot be created"),
    (0x24, 0x00, "an invalid field in the command"),
    (0x24, 0x01, "the CDB could not be decrypted"),
    (0x24, 0x08, "an invalid XCOPY field in the command"),
    (0x25, 0x00, "there is no such LUN"),
    (0x26, 0x00, "an invalid field in the parameters"),
    (0x26, 0x01, "a parameter is not supported"),
    (0x26, 0x02, "a parameter value is invalid"),
    (0x26, 0x03, "threshold parameters are not supported"),
    (0x26, 0x04, "the reservation to release does not exist"),
    (0x26, 0x06, "too many target descriptors"),
    (0x26, 0x07, "a target descriptor of an unsupported type"),
    (0x26, 0x08, "too many segment descriptors"),
    (0x26, 0x09, "a segment descriptor of an unsupported type"),
    (0x26, 0x0a, "a segment is not a whole number of blocks"),
    (0x26, 0x0b, "too much inline data"),
    (
        0x26,
        0x0c,
        "the operation is invalid for the copy's source or destination",
    ),
    (0x26, 0x0d, "a copy segment granularity violation"),
    (0x27, 0x00, "write protected"),
    (0x27, 0x01, "write protected by hardware"),
    (0x27, 0x02, "write protected by software"),
    (0x27, 0x03, "the associated medium is write protected"),
    (0x27, 0x04, "persistently write protected"),
    (0x27, 0x05, "permanently write protected"),
    (0x27, 0x06, "conditionally write protected"),
    (
        0x27,
        0x07,
        "space allocation failed: the thin volume's pool is full",
    ),
    (0x27, 0x08, "a zone is read-only"),
    (
        0x28,
        0x00,
        "it became ready, or its medium may have changed",
    ),
    (0x28, 0x01, "an import or export element was accessed"),
    (0x29, 0x00, "it was powered on, or reset"),
    (0x29, 0x01, "it was powered on"),
    (0x29, 0x02, "its bus was reset"),
    (0x29, 0x03, "it was reset by this or another initiator"),
    (0x29, 0x04, "it reset itself"),
    (0x29, 0x05, "its transceiver mode is now single-ended"),
    (0x29, 0x06, "its transceiver mode is now LVD"),
    (0x29, 0x07, "the I_T nexus was lost"),
    (0x2a, 0x00, "parameters have changed"),
    (0x2a, 0x01, "mode parameters have changed"),
    (0x2a, 0x02, "log parameters have changed"),
    (0x2a, 0x03, "our reservation was preempted"),
    (0x2a, 0x04, "our reservation was released"),
    (0x2a, 0x05, "our registration was preempted"),
    (0x2a, 0x06, "the access state of a port has changed"),
    (0x2a, 0x07, "the change of a port's access state failed"),
    (0x2a, 0x08, "the priority has changed"),
    (0x2a, 0x09, "the capacity has changed"),
    (0x2a, 0x0a, "the error history's nexus has been cleared"),
    (0x2a, 0x0b, "the error history's snapshot has been released"),
    (0x2a, 0x10, "the time has changed"),
    (
        0x2b,
        0x00,
        "a copy cannot be executed: the target cannot disconnect",
    ),
    (0x2c, 0x00, "a command sequence error"),
    (0x2c, 0x05, "an illegal power condition was requested"),
    (0x2c, 0x07, "the previous command ended with BUSY"),
    (
        0x2c,
        0x08,
        "the previous command ended with a reservation conflict",
    ),
    (0x2c, 0x09, "the ORWRITE generation does not match"),
    (0x2e, 0x00, "the operation has insufficient time"),
    (0x2e, 0x01, "the command timed out in the target"),
    (0x2f, 0x00, "commands were cleared by another initiator"),
    (0x2f, 0x01, "commands were cleared by a loss of power"),
    (0x2f, 0x02, "commands were cleared by the device server"),
    (0x30, 0x00, "an incompatible medium"),
    (0x31, 0x00, "the medium's format is corrupt"),
    (0x31, 0x01, "formatting failed"),
    (0x31, 0x03, "sanitizing failed"),
    (0x32, 0x00, "no spare blocks are left"),
    (0x34, 0x00, "the enclosure has failed"),
    (0x35, 0x00, "the enclosure's services have failed"),
    (0x37, 0x00, "a parameter was rounded"),
    (0x38, 0x00, "a log parameter reached its threshold"),
    (0x38, 0x07, "the thin volume's pool has reached a threshold"),
    (0x39, 0x00, "parameters cannot be saved"),
    (0x3a, 0x00, "there is no medium"),
    (0x3a, 0x01, "there is no medium; the tray is closed"),
    (0x3a, 0x02, "there is no medium; the tray is open"),
    (0x3b, 0x00, "a sequential positioning error"),
    (0x3d, 0x00, "invalid bits in an IDENTIFY message"),
    (
        0x3e,
        0x00,
        "the logical unit has not completed self-configuration",
    ),
    (0x3e, 0x01, "the logical unit has failed"),
    (0x3e, 0x02, "communication with the logical unit timed out"),
    (0x3e, 0x03, "a self-test has failed"),
    (0x3f, 0x00, "operating conditions have changed"),
    (0x3f, 0x01, "the microcode has changed"),
    (0x3f, 0x02, "the operating definition has changed"),
    (0x3f, 0x03, "its INQUIRY data has changed"),
    (0x3f, 0x04, "a component device was attached"),
    (0x3f, 0x05, "its identifier has changed"),
    (0x3f, 0x0c, "a device was removed"),
    (0x3f, 0x0d, "a device was added"),
    (0x3f, 0x0e, "the target's list of LUNs has changed"),
    (0x3f, 0x11, "the medium may be loaded"),
    (0x3f, 0x16, "microcode has changed without a reset"),
    (0x40, 0x00, "a memory failure"),
    (0x43, 0x00, "a message error"),
    (0x44, 0x00, "a failure inside the target"),
    (0x44, 0x71, "an ATA device failed the command"),
    (0x45, 0x00, "selection or reselection failed"),
    (0x47, 0x00, "a parity error"),
    (0x47, 0x03, "an information unit's CRC is wrong"),
    (0x47, 0x05, "a protocol service CRC is wrong"),
    (0x48, 0x00, "the initiator detected an error"),
    (0x49, 0x00, "an invalid message"),
    (0x4a, 0x00, "an error in the command phase"),
    (0x4b, 0x00, "an error in the data phase"),
    (0x4b, 0x01, "an invalid target port transfer tag"),
    (0x4b, 0x02, "too much write data was sent"),
    (
        0x4b,
        0x03,
        "an acknowledgement or negative acknowledgement timed out",
    ),
    (0x4b, 0x05, "a data offset error"),
    (0x4b, 0x06, "the initiator response timed out"),
    (0x4c, 0x00, "the logical unit failed self-configuration"),
    (0x4d, 0x00, "overlapped commands with the same tag"),
    (0x4e, 0x00, "overlapped untagged commands"),
    (0x51, 0x00, "erasing failed"),
    (0x53, 0x00, "loading or ejecting the medium failed"),
    (0x53, 0x02, "removal of the medium is prevented"),
    (0x55, 0x00, "a resource of the system failed"),
    (0x55, 0x01, "a system buffer is full"),
    (0x55, 0x02, "not enough resources for a reservation"),
    (0x55, 0x03, "not enough resources"),
    (0x55, 0x04, "not enough resources for a registration"),
    (0x55, 0x0b, "not enough power for the operation"),
    (0x55, 0x0c, "not enough resources to create a token"),
    (
        0x55,
        0x0d,
        "not enough resources to create a token; try again later",
    ),
    (0x58, 0x00, "the requested generation does not exist"),
    (0x5a, 0x00, "an operator request"),
    (0x5a, 0x02, "an operator selected write protection"),
    (0x5b, 0x00, "a log exception"),
    (0x5c, 0x00, "spindle synchronisation changed"),
    (0x5d, 0x00, "a failure is predicted"),
    (0x5d, 0xff, "a failure is predicted (test)"),
    (0x5e, 0x00, "a low-power condition is active"),
    (0x65, 0x00, "a voltage fault"),
    (0x67, 0x00, "a configuration failure"),
    (0x67, 0x0b, "an ATA device feature is not enabled"),
    (0x68, 0x00, "the logical unit is not configured"),
    (0x69, 0x00, "data on the logical unit was lost"),
    (0x6b, 0x00, "its state has changed"),
    (0x6c, 0x00, "a rebuild failed"),
    (0x6e, 0x00, "the command to the logical unit failed"),
    (0x71, 0x00, "a decompression error"),
    (0x74, 0x00, "a security error"),
    (0x74, 0x71, "access to the logical unit is not authorised"),
    (0x74, 0x79, "a security conflict in the translated device"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_in_order_for_the_search() {
        assert!(WORDS.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    }

    #[test]
    fn a_target_that_is_starting_says_so() {
        let sense = Sense {
            key: 2,
            code: 4,
            qualifier: 1,
            ..Sense::default()
        };
        assert_eq!(sense.to_string(), "NOT READY, becoming ready (02/04/01)");
    }

    #[test]
    fn a_code_without_words_has_its_familys() {
        let sense = |code, qualifier| {
            Sense {
                key: 3,
                code,
                qualifier,
                ..Sense::default()
            }
            .to_string()
        };
        assert_eq!(
            sense(0x11, 0x7f),
            "MEDIUM ERROR, an unrecovered read error (03/11/7f)"
        );
        assert_eq!(
            sense(0x99, 0),
            "MEDIUM ERROR, a vendor-specific code (03/99/00)"
        );
        assert_eq!(sense(0x7f, 0), "MEDIUM ERROR, something unknown (03/7f/00)");
    }

    #[test]
    fn the_field_at_fault_is_pointed_at() {
        let fixed = [
            0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xca, 0, 2,
        ];
        let sense = Sense::parse(&fixed).unwrap();
        assert_eq!(
            sense.specific,
            Specific::Field {
                in_cdb: true,
                byte: 2,
                bit: Some(2)
            }
        );
        let words = "ILLEGAL REQUEST, an invalid field in the command (05/24/00), at byte 2 bit 2 of the command";
        assert_eq!(sense.to_string(), words);
    }

    #[test]
    fn progress_is_told_by_either_format() {
        let descriptor = [0x72, 2, 4, 0x1b, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 0x80, 0, 0];
        let sense = Sense::parse(&descriptor).unwrap();
        assert_eq!(
            sense.to_string(),
            "NOT READY, being sanitized (02/04/1b), 50.0 % done"
        );
    }
}
