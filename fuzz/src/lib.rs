//! What a fuzzer's bytes mean to the targets that need more than bytes: a script of choices, texts and PDUs.
//!
//! A text is made of the standard's keys and of values that have a meaning somewhere, so that the fuzzer gets past
//! the parsers and into the machines behind them; or it is raw bytes. Every choice takes a byte, and a script that
//! has run out chooses zero.

mod edits;

pub use edits::{assert_in_text, edited};

use iscsi::keys;
use iscsi::pdu::{BHS_BYTES, Bhs};

/// What is left of the fuzzer's bytes.
pub struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of these.
    pub fn pick<'b, T: ?Sized>(&mut self, choices: &[&'b T]) -> &'b T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// So many bytes, or as many as are left.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A text: most often pairs, sometimes raw.
    pub fn text(&mut self) -> Vec<u8> {
        let choice = self.byte();
        if choice >= 0xf0 {
            let count = usize::from(self.byte()) * 33;
            return self.bytes(count).to_vec();
        }
        let mut text = Vec::new();
        (0..choice % 12).for_each(|_| self.pair(&mut text));
        text
    }

    /// A key and a value of it, and the NUL behind.
    fn pair(&mut self, text: &mut Vec<u8>) {
        let key = keys::TABLE.get(usize::from(self.byte()) % (keys::TABLE.len() + 1));
        text.extend_from_slice(key.map_or("X-unknown", |entry| entry.name).as_bytes());
        text.push(b'=');
        match self.byte() {
            choice @ 0..0xe0 => text.extend_from_slice(VALUES[usize::from(choice) % VALUES.len()].as_bytes()),
            choice => text.extend_from_slice(self.bytes(usize::from(choice - 0xe0))),
        }
        text.push(0);
    }

    /// A header: raw, but for its opcode and flags, which are most often what these say.
    pub fn header(&mut self, opcode: u8, flags: &[u8]) -> Bhs {
        let mut bhs = Bhs([0; BHS_BYTES]);
        let choice = self.byte();
        if choice >= 0xf0 {
            let raw = self.bytes(BHS_BYTES);
            bhs.set_bytes(0, raw);
            return bhs;
        }
        bhs.set_u8(0, opcode);
        bhs.set_u8(1, flags[usize::from(choice) % flags.len()]);
        // One byte out of place now and then: enough for every check of a field.
        if self.byte() >= 0xc0 {
            let at = usize::from(self.byte()) % BHS_BYTES;
            let value = self.byte();
            bhs.set_u8(at, value);
        }
        bhs
    }
}

/// Flags of login PDUs: each stage with and without T, and C.
pub const LOGIN_FLAGS: &[u8] = &[0x00, 0x81, 0x83, 0x04, 0x87, 0x40, 0x44];

/// Values that mean something to some key, and some that nearly do.
const VALUES: &[&str] = &[
    "Yes",
    "No",
    "None",
    "CRC32C",
    "CRC32C,None",
    "CHAP",
    "CHAP,None",
    "KRB5",
    "Normal",
    "Discovery",
    "All",
    "iqn.2026-11.org.example:host",
    "iqn.2026-11.org.example:disk",
    "eui.02004567a425678d",
    "0",
    "1",
    "2",
    "5",
    "8,7,6,5",
    "511",
    "512",
    "8192",
    "65536",
    "262144",
    "16777215",
    "16777216",
    "0xffffffff",
    "4294967296",
    "3600",
    "0x",
    "0x0102030405060708090a0b0c0d0e0f10",
    "0bAAECAwQFBgcICQ==",
    "alice",
    "NotUnderstood",
    "Irrelevant",
    "Reject",
    "RFC3720,ResponseFence",
    "",
];
