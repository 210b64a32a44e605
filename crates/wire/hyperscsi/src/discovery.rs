//! Discovery (opcode 0x10): an initiator broadcasts a question, and each host that has targets answers with
//! their names.
//!
//! ```text
//!  question 0 kind = 0 │ 1 nonce u64
//!  answer   0 kind = 1 │ 1 nonce u64 │ 9 count │ names, each after its length (u8)
//! ```
//!
//! A question is padded to [`FRAME_BYTES_MIN`] bytes, and an answer is not longer than the question. The
//! initiator obtains LUNs with REPORT LUNS, after a login.

use crate::frame::{FRAME_BYTES_MIN, HEADER_BYTES, Header, Opcode};
use crate::login::{Fields, frame, put_counted};

const QUESTION: u8 = 0;
const ANSWER: u8 = 1;

/// The frame with a discovery question.
pub fn question(nonce: u64) -> Vec<u8> {
    let body = [&[QUESTION][..], &nonce.to_be_bytes()].concat();
    frame(Opcode::Discovery, 0, &body, FRAME_BYTES_MIN)
}

/// The names of targets in an answer to the question with this nonce.
pub fn answered(nonce: u64, bytes: &mut [u8]) -> Option<Vec<String>> {
    let header = Header::parse(bytes)
        .ok()
        .filter(|header| header.opcode == Opcode::Discovery)?;
    let mut fields = Fields(crate::login::body(&header, bytes)?);
    if fields.u8()? != ANSWER || fields.u64()? != nonce {
        return None;
    }
    let count = fields.u8()?;
    let names: Option<Vec<String>> = (0..count).map(|_| fields.name()).collect();
    names.filter(|_| fields.0.is_empty())
}

/// The nonce of a question.
pub(crate) fn asked(body: &[u8]) -> Option<u64> {
    let mut fields = Fields(body);
    (fields.u8()? == QUESTION).then_some(())?;
    fields.u64().filter(|_| fields.0.is_empty())
}

/// The frame that answers a question of `room` bytes. Names that do not fit are omitted.
pub(crate) fn answer(nonce: u64, names: &[String], room: usize) -> Vec<u8> {
    let mut body = [&[ANSWER][..], &nonce.to_be_bytes(), &[0]].concat();
    for name in names.iter().take(usize::from(u8::MAX)) {
        if HEADER_BYTES + body.len() + 1 + name.len() + 4 > room.min(FRAME_BYTES_MIN) {
            break;
        }
        put_counted(name.as_bytes(), &mut body);
        body[9] += 1;
    }
    frame(Opcode::Discovery, 0, &body, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_as_far_as_there_is_room() {
        let names: Vec<String> = (0..300).map(|index| format!("target-{index}")).collect();
        let question = question(7);
        let mut answer = answer(7, &names, question.len());
        assert!(
            answer.len() <= question.len(),
            "an answer is never longer than its question"
        );
        assert_eq!(
            answered(8, &mut answer.clone()),
            None,
            "of another question"
        );
        let told = answered(7, &mut answer).expect("an answer");
        assert!(
            told.len() > 80 && names.starts_with(&told),
            "{}",
            told.len()
        );
    }
}
