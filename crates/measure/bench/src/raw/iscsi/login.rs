//! Keys of a login: what both halves say, and what is kept of the other's (RFC 7143 section 13).

use std::io;

use super::SEGMENT_BYTES;

/// What has been agreed on, as far as it decides where PDUs are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The other's MaxRecvDataSegmentLength.
    pub(super) segment_bytes: usize,
    pub(super) max_burst_bytes: usize,
    pub(super) first_burst_bytes: usize,
    pub(super) initial_r2t: bool,
    pub(super) immediate_data: bool,
}

impl Default for Agreed {
    /// What holds where nothing is said.
    fn default() -> Agreed {
        Agreed {
            segment_bytes: 8192,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            initial_r2t: true,
            immediate_data: true,
        }
    }
}

/// Of both halves, as our target and our initiator have them.
const MAX_BURST_BYTES: usize = 16_776_192;
const FIRST_BURST_BYTES: usize = 262_144;

impl Agreed {
    /// Takes in what an initiator offers, and gives the answer.
    pub(super) fn answer(&mut self, offers: &[u8]) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        for (key, value) in pairs(offers)? {
            if let Some(said) = self.answer_one(key, value) {
                append(&mut answer, key, &said);
            }
        }
        Ok(answer)
    }

    fn answer_one(&mut self, key: &str, value: &str) -> Option<String> {
        let least = |own: usize| number(value).map_or(own, |theirs| theirs.clamp(512, own));
        let said = match key {
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => return None, // declarations
            "HeaderDigest" | "DataDigest" | "AuthMethod" => "None".to_owned(),
            "MaxRecvDataSegmentLength" => {
                self.segment_bytes = least(SEGMENT_BYTES) & !3; // whole words: no padding between pieces of a READ
                SEGMENT_BYTES.to_string()
            }
            "MaxBurstLength" => {
                self.max_burst_bytes = least(MAX_BURST_BYTES) & !3;
                self.max_burst_bytes.to_string()
            }
            "FirstBurstLength" => {
                self.first_burst_bytes = least(FIRST_BURST_BYTES);
                self.first_burst_bytes.to_string()
            }
            // Either side may insist on R2Ts, and either may refuse immediate data.
            "InitialR2T" | "ImmediateData" | "DataPDUInOrder" | "DataSequenceInOrder" => value.to_owned(),
            "MaxConnections" | "MaxOutstandingR2T" => "1".to_owned(),
            "DefaultTime2Wait" => value.to_owned(),
            "DefaultTime2Retain" | "ErrorRecoveryLevel" => "0".to_owned(),
            "IFMarker" | "OFMarker" => "No".to_owned(),
            _ => "NotUnderstood".to_owned(),
        };
        Some(said)
    }

    /// Takes in what a target answers to [`offers`].
    pub(super) fn take_answer(&mut self, answer: &[u8]) -> io::Result<()> {
        for (key, value) in pairs(answer)? {
            let length = number(value).filter(|length| *length >= 512);
            match (key, length) {
                ("MaxRecvDataSegmentLength", Some(length)) => self.segment_bytes = length & !3,
                ("MaxBurstLength", Some(length)) => self.max_burst_bytes = length & !3,
                ("FirstBurstLength", Some(length)) => self.first_burst_bytes = length & !3,
                ("InitialR2T", _) => self.initial_r2t = value == "Yes",
                ("ImmediateData", _) => self.immediate_data = value == "Yes",
                _ => {}
            }
        }
        Ok(())
    }
}

/// What our half says when it logs in to a target.
pub(super) fn offers(initiator: &str, target: &str) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in [
        ("InitiatorName", initiator),
        ("TargetName", target),
        ("SessionType", "Normal"),
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxConnections", "1"),
        ("ErrorRecoveryLevel", "0"),
    ] {
        append(&mut text, key, value);
    }
    append(&mut text, "MaxRecvDataSegmentLength", &SEGMENT_BYTES.to_string());
    append(&mut text, "MaxBurstLength", &MAX_BURST_BYTES.to_string());
    append(&mut text, "FirstBurstLength", &FIRST_BURST_BYTES.to_string());
    text
}

pub(super) fn append(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend([key, "=", value, "\0"].concat().as_bytes());
}

fn pairs(text: &[u8]) -> io::Result<Vec<(&str, &str)>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a login whose keys are no text");
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let pairs = text.split('\0').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').ok_or_else(wrong)).collect()
}

fn number(value: &str) -> Option<usize> {
    match value.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}
