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
    let exact = words(u16::from_be_bytes([code, qualifier]));
    match exact.or_else(|| words(u16::from_be_bytes([code, 0]))) {
        Some(words) => words,
        None if code >= 0x80 || qualifier >= 0x80 => "a vendor-specific code",
        None => "something unknown",
    }
}

/// The text of ADDITIONAL SENSE CODE (the high byte) and QUALIFIER.
fn words(code: u16) -> Option<&'static str> {
    Some(match code {
        0x0000 => "nothing more",
        0x0006 => "the I/O process was terminated",
        0x0016 => "an operation is in progress",
        0x001d => "ATA pass-through information",
        0x001e => "a conflicting security association command is in progress",
        0x0100 => "no index or sector signal",
        0x0200 => "no seek complete",
        0x0300 => "a write fault of the peripheral device",
        0x0400 => "not ready, the cause is not reported",
        0x0401 => "becoming ready",
        0x0402 => "not ready: START STOP UNIT is required",
        0x0403 => "not ready: manual intervention is required",
        0x0404 => "being formatted",
        0x0405 => "a rebuild is in progress",
        0x0406 => "a recalculation is in progress",
        0x0407 => "an operation is in progress",
        0x0409 => "a self-test is in progress",
        0x040a => "the access state of its port is changing",
        0x040b => "its port is in the standby state",
        0x040c => "its port is unavailable",
        0x040d => "a structural check is needed",
        0x0410 => "its auxiliary memory is inaccessible",
        0x0411 => "not ready: NOTIFY (ENABLE SPINUP) is required",
        0x0412 => "offline",
        0x0414 => "space is being allocated",
        0x041a => "a START STOP UNIT command is in progress",
        0x041b => "being sanitized",
        0x041c => "additional power has been requested",
        0x041d => "being configured",
        0x041e => "microcode must be activated",
        0x041f => "microcode must be downloaded",
        0x0420 => "a hard reset is required",
        0x0422 => "a power cycle is required",
        0x0500 => "the logical unit does not respond to selection",
        0x0600 => "no reference position found",
        0x0700 => "several peripheral devices were selected",
        0x0800 => "communication with the logical unit failed",
        0x0801 => "communication with the logical unit timed out",
        0x0900 => "lost track",
        0x0a00 => "the error log overflowed",
        0x0b00 => "a warning",
        0x0b01 => "warning: the temperature limit is exceeded",
        0x0b02 => "warning: an enclosure is degraded",
        0x0b03 => "warning: a background self-test failed",
        0x0b04 => "warning: a background scan found a medium error",
        0x0c00 => "a write error",
        0x0c02 => "a write error: automatic reallocation failed",
        0x0c03 => "a write error: reassignment is recommended",
        0x0c0b => "a write error: the cached data could not be written",
        0x0c0c => "a write error: expected unsolicited data did not arrive",
        0x0c0d => "a write error: unexpected unsolicited data arrived",
        0x0d00 => "an error at the remote end of a copy",
        0x0d01 => "an error of the third-party device of a copy",
        0x0d02 => "the copy's target device is not reachable",
        0x0d03 => "the copy's target device is of the wrong type",
        0x0d04 => "a data underrun at the copy's target device",
        0x0d05 => "a data overrun at the copy's target device",
        0x0e00 => "a malformed information unit",
        0x0e01 => "an information unit that is too short",
        0x0e02 => "an information unit that is too long",
        0x0e03 => "an invalid field in an information unit",
        0x1000 => "a check value is wrong",
        0x1001 => "the guard tag is wrong",
        0x1002 => "the application tag is wrong",
        0x1003 => "the reference tag is wrong",
        0x1100 => "an unrecovered read error",
        0x1101 => "an unrecovered read error: retries exhausted",
        0x1102 => "an error too long to correct",
        0x1104 => "an unrecovered read error: automatic reallocation failed",
        0x110b => "an unrecovered read error: reassignment is recommended",
        0x1114 => "an unrecovered read error: the block is marked as bad",
        0x1200 => "no address mark found for the ID field",
        0x1300 => "no address mark found for the data field",
        0x1400 => "the block was not found",
        0x1500 => "a positioning error",
        0x1600 => "a data synchronisation mark error",
        0x1700 => "data recovered without error correction",
        0x1701 => "data recovered by retries",
        0x1800 => "data recovered by error correction",
        0x1802 => "data recovered, and the block was reallocated",
        0x1900 => "the defect list has an error",
        0x1a00 => "the parameter list has the wrong length",
        0x1b00 => "a synchronous data transfer error",
        0x1c00 => "the defect list was not found",
        0x1d00 => "the data does not match the comparison data",
        0x1d01 => "the verified blocks are not mapped",
        0x1e00 => "the ID field was recovered with error correction",
        0x1f00 => "a partial defect list was returned",
        0x2000 => "the target does not support the command",
        0x2001 => "access is denied: the initiator must enroll first",
        0x2002 => "access is denied: no access rights",
        0x2003 => "access is denied: the key is wrong",
        0x200b => "access is denied: the proxy token is wrong",
        0x2100 => "the LBA is beyond the end of the medium",
        0x2101 => "an invalid element address",
        0x2104 => "an unaligned write",
        0x2105 => "a write across a zone boundary",
        0x2106 => "a read of unwritten data",
        0x2107 => "a read across a zone boundary",
        0x2200 => "the function is invalid for the device type",
        0x2300 => "the copy's token is invalid",
        0x2301 => "the copy's token is unknown",
        0x2304 => "the copy's token has expired",
        0x2307 => "the copy's token was revoked",
        0x230a => "the copy's token cannot be created",
        0x2400 => "an invalid field in the command",
        0x2401 => "the CDB could not be decrypted",
        0x2408 => "an invalid XCOPY field in the command",
        0x2500 => "there is no such LUN",
        0x2600 => "an invalid field in the parameters",
        0x2601 => "a parameter is not supported",
        0x2602 => "a parameter value is invalid",
        0x2603 => "threshold parameters are not supported",
        0x2604 => "the reservation to release does not exist",
        0x2606 => "too many target descriptors",
        0x2607 => "a target descriptor of an unsupported type",
        0x2608 => "too many segment descriptors",
        0x2609 => "a segment descriptor of an unsupported type",
        0x260a => "a segment is not a whole number of blocks",
        0x260b => "too much inline data",
        0x260c => "the operation is invalid for the copy's source or destination",
        0x260d => "a copy segment granularity violation",
        0x2700 => "write protected",
        0x2701 => "write protected by hardware",
        0x2702 => "write protected by software",
        0x2703 => "the associated medium is write protected",
        0x2704 => "persistently write protected",
        0x2705 => "permanently write protected",
        0x2706 => "conditionally write protected",
        0x2707 => "space allocation failed: the thin volume's pool is full",
        0x2708 => "a zone is read-only",
        0x2800 => "it became ready, or its medium may have changed",
        0x2801 => "an import or export element was accessed",
        0x2900 => "it was powered on, or reset",
        0x2901 => "it was powered on",
        0x2902 => "its bus was reset",
        0x2903 => "it was reset by this or another initiator",
        0x2904 => "it reset itself",
        0x2905 => "its transceiver mode is now single-ended",
        0x2906 => "its transceiver mode is now LVD",
        0x2907 => "the I_T nexus was lost",
        0x2a00 => "parameters have changed",
        0x2a01 => "mode parameters have changed",
        0x2a02 => "log parameters have changed",
        0x2a03 => "our reservation was preempted",
        0x2a04 => "our reservation was released",
        0x2a05 => "our registration was preempted",
        0x2a06 => "the access state of a port has changed",
        0x2a07 => "the change of a port's access state failed",
        0x2a08 => "the priority has changed",
        0x2a09 => "the capacity has changed",
        0x2a0a => "the error history's nexus has been cleared",
        0x2a0b => "the error history's snapshot has been released",
        0x2a10 => "the time has changed",
        0x2b00 => "a copy cannot be executed: the target cannot disconnect",
        0x2c00 => "a command sequence error",
        0x2c05 => "an illegal power condition was requested",
        0x2c07 => "the previous command ended with BUSY",
        0x2c08 => "the previous command ended with a reservation conflict",
        0x2c09 => "the ORWRITE generation does not match",
        0x2e00 => "the operation has insufficient time",
        0x2e01 => "the command timed out in the target",
        0x2f00 => "commands were cleared by another initiator",
        0x2f01 => "commands were cleared by a loss of power",
        0x2f02 => "commands were cleared by the device server",
        0x3000 => "an incompatible medium",
        0x3100 => "the medium's format is corrupt",
        0x3101 => "formatting failed",
        0x3103 => "sanitizing failed",
        0x3200 => "no spare blocks are left",
        0x3400 => "the enclosure has failed",
        0x3500 => "the enclosure's services have failed",
        0x3700 => "a parameter was rounded",
        0x3800 => "a log parameter reached its threshold",
        0x3807 => "the thin volume's pool has reached a threshold",
        0x3900 => "parameters cannot be saved",
        0x3a00 => "there is no medium",
        0x3a01 => "there is no medium; the tray is closed",
        0x3a02 => "there is no medium; the tray is open",
        0x3b00 => "a sequential positioning error",
        0x3d00 => "invalid bits in an IDENTIFY message",
        0x3e00 => "the logical unit has not completed self-configuration",
        0x3e01 => "the logical unit has failed",
        0x3e02 => "communication with the logical unit timed out",
        0x3e03 => "a self-test has failed",
        0x3f00 => "operating conditions have changed",
        0x3f01 => "the microcode has changed",
        0x3f02 => "the operating definition has changed",
        0x3f03 => "its INQUIRY data has changed",
        0x3f04 => "a component device was attached",
        0x3f05 => "its identifier has changed",
        0x3f0c => "a device was removed",
        0x3f0d => "a device was added",
        0x3f0e => "the target's list of LUNs has changed",
        0x3f11 => "the medium may be loaded",
        0x3f16 => "microcode has changed without a reset",
        0x4000 => "a memory failure",
        0x4300 => "a message error",
        0x4400 => "a failure inside the target",
        0x4471 => "an ATA device failed the command",
        0x4500 => "selection or reselection failed",
        0x4700 => "a parity error",
        0x4703 => "an information unit's CRC is wrong",
        0x4705 => "a protocol service CRC is wrong",
        0x4800 => "the initiator detected an error",
        0x4900 => "an invalid message",
        0x4a00 => "an error in the command phase",
        0x4b00 => "an error in the data phase",
        0x4b01 => "an invalid target port transfer tag",
        0x4b02 => "too much write data was sent",
        0x4b03 => "an acknowledgement or negative acknowledgement timed out",
        0x4b05 => "a data offset error",
        0x4b06 => "the initiator response timed out",
        0x4c00 => "the logical unit failed self-configuration",
        0x4d00 => "overlapped commands with the same tag",
        0x4e00 => "overlapped untagged commands",
        0x5100 => "erasing failed",
        0x5300 => "loading or ejecting the medium failed",
        0x5302 => "removal of the medium is prevented",
        0x5500 => "a resource of the system failed",
        0x5501 => "a system buffer is full",
        0x5502 => "not enough resources for a reservation",
        0x5503 => "not enough resources",
        0x5504 => "not enough resources for a registration",
        0x550b => "not enough power for the operation",
        0x550c => "not enough resources to create a token",
        0x550d => "not enough resources to create a token; try again later",
        0x5800 => "the requested generation does not exist",
        0x5a00 => "an operator request",
        0x5a02 => "an operator selected write protection",
        0x5b00 => "a log exception",
        0x5c00 => "spindle synchronisation changed",
        0x5d00 => "a failure is predicted",
        0x5dff => "a failure is predicted (test)",
        0x5e00 => "a low-power condition is active",
        0x6500 => "a voltage fault",
        0x6700 => "a configuration failure",
        0x670b => "an ATA device feature is not enabled",
        0x6800 => "the logical unit is not configured",
        0x6900 => "data on the logical unit was lost",
        0x6b00 => "its state has changed",
        0x6c00 => "a rebuild failed",
        0x6e00 => "the command to the logical unit failed",
        0x7100 => "a decompression error",
        0x7400 => "a security error",
        0x7471 => "access to the logical unit is not authorised",
        0x7479 => "a security conflict in the translated device",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
