//! Interprets a fuzzer's bytes for targets that need structured input: a script of choices, texts and PDUs.
//!
//! A text is either raw bytes, or consists of the standard's keys and of values that are valid for some key. Such texts pass
//! the parsers, so that the fuzzer reaches the state machines behind them. Every choice takes a byte. An exhausted script
//! chooses zero.

use bench::plan::Suite;
use iscsi::chap::{Algorithm, Challenge, ChapClaim, ChapPolicy, Credentials, Secret};
use iscsi::keys;
use iscsi::pdu::{BHS_BYTES, Bhs};

/// The remaining bytes of the fuzzer.
pub struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    /// Whether the script is exhausted.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Chooses between yes and no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns one of the choices.
    pub fn pick<'b, T: ?Sized>(&mut self, choices: &[&'b T]) -> &'b T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Returns a number, which is usually small or just below the wrap-around.
    pub fn word(&mut self) -> u32 {
        match self.byte() {
            small @ 0..160 => u32::from(small),
            near @ 160..192 => u32::MAX - u32::from(near - 160),
            192.. => self
                .bytes(4)
                .iter()
                .fold(0, |word, &byte| word << 8 | u32::from(byte)),
        }
    }

    /// Returns the length of a data segment: none, or up to 155 bytes.
    pub fn segment_length(&mut self) -> u32 {
        u32::from(self.byte()).saturating_sub(100)
    }

    /// Returns up to `count` bytes, limited by the rest of the script.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Returns a text: usually key-value pairs, sometimes raw bytes.
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

    /// Appends a key and a value, terminated by a NUL.
    fn pair(&mut self, text: &mut Vec<u8>) {
        let key = keys::TABLE.get(usize::from(self.byte()) % (keys::TABLE.len() + 1));
        text.extend_from_slice(key.map_or("X-unknown", |entry| entry.name).as_bytes());
        text.push(b'=');
        match self.byte() {
            choice @ 0..0xe0 => {
                text.extend_from_slice(VALUES[usize::from(choice) % VALUES.len()].as_bytes())
            }
            choice => text.extend_from_slice(self.bytes(usize::from(choice - 0xe0))),
        }
        text.push(0);
    }

    /// Returns a header: raw bytes, usually with this opcode and one of these flags.
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
        // Occasionally, change one byte: enough to reach the check of every field.
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

/// Values that are valid for some key, and some that are almost valid.
#[rustfmt::skip]
const VALUES: &[&str] = &[
    "Yes", "No", "None", "CRC32C", "CRC32C,None", "CHAP", "CHAP,None", "KRB5", "Normal", "Discovery", "All",
    "iqn.2026-11.org.example:host", "iqn.2026-11.org.example:disk", "eui.02004567a425678d", "0", "1", "2",
    "5", "8,7,6,5", "511", "512", "8192", "65536", "262144", "16777215", "16777216", "0xffffffff",
    "4294967296", "3600", "0x", "0x0102030405060708090a0b0c0d0e0f10", "0bAAECAwQFBgcICQ==", "alice",
    "NotUnderstood", "Irrelevant", "Reject", "RFC3720,ResponseFence", "",
];

/// Returns a target's requirements of an initiator that must authenticate.
pub fn chap_policy() -> ChapPolicy {
    ChapPolicy {
        algorithms: Algorithm::ALL.to_vec(),
        initiators: [credentials("alice", b"twelve or more")].into(),
        target: Some(credentials("disk", b"the target's own")),
        challenge: Challenge {
            identifier: 1,
            bytes: vec![0xaa; 16],
        },
    }
}

/// Returns the same initiator, and its requirements of the target.
pub fn chap_claim() -> ChapClaim {
    let challenge = Challenge {
        identifier: 2,
        bytes: vec![0xbb; 16],
    };
    ChapClaim {
        algorithms: Algorithm::ALL.to_vec(),
        initiator: credentials("alice", b"twelve or more"),
        target: Some((credentials("disk", b"the target's own"), challenge)),
    }
}

fn credentials(name: &str, secret: &[u8]) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: Secret::new(secret),
    }
}

/// Returns `good` with changes until the script is exhausted, or the unchanged rest of the script.
pub fn edited(good: &str, script: &mut Script<'_>, words: &[&str]) -> String {
    if script.byte() >= 0xe0 {
        return String::from_utf8_lossy(script.0).into_owned();
    }
    let mut lines: Vec<String> = good.lines().map(str::to_owned).collect();
    while !script.is_over() && !lines.is_empty() && lines.len() < 1000 {
        edit(&mut lines, script, words);
    }
    lines.join("\n")
}

/// Changes one line: replaces some of its letters by a word or other letters, or deletes, duplicates or moves the line.
fn edit(lines: &mut Vec<String>, script: &mut Script<'_>, words: &[&str]) {
    let at = usize::from(u16::from_be_bytes([script.byte(), script.byte()])) % lines.len();
    let elsewhere = usize::from(script.byte()) % lines.len();
    match script.byte() {
        0..0xa0 => {
            let letters: Vec<char> = lines[at].chars().collect();
            let from = usize::from(script.byte()) % (letters.len() + 1);
            let to = (from + usize::from(script.byte() % 16)).min(letters.len());
            let instead = match script.byte() {
                0..0xc0 => script.pick(words).to_owned(),
                count => {
                    String::from_utf8_lossy(script.bytes(usize::from(count - 0xc0))).into_owned()
                }
            };
            lines[at] = letters[..from].iter().collect::<String>() + &instead;
            lines[at].extend(&letters[to..]);
        }
        0xa0..0xc0 => {
            lines.remove(at);
        }
        0xc0..0xe0 => lines.insert(elsewhere, lines[at].clone()),
        _ => lines.swap(at, elsewhere),
    }
}

/// Asserts that the position of an error is in the text, or directly after it.
pub fn assert_in_text(text: &str, line: usize, column: usize) {
    let lines = text.split('\n').count();
    assert!((1..=lines + 1).contains(&line), "line {line} of {lines}");
    let letters = text
        .split('\n')
        .nth(line - 1)
        .map_or(0, |line| line.chars().count());
    assert!(
        (1..=letters + 1).contains(&column),
        "column {column} of {letters} in line {line}"
    );
}

/// Asserts that the names of cells are unique, and that each cell has work.
pub fn assert_measurable(suite: &Suite) {
    let mut names: Vec<&str> = suite.cells().map(|cell| cell.name.as_str()).collect();
    names.sort_unstable();
    assert!(
        names.windows(2).all(|two| two[0] != two[1]),
        "two cells have the same name: {names:?}"
    );
    for cell in suite.cells() {
        assert!(!cell.roles.is_empty() && cell.roles.iter().all(|role| role.workload.depth > 0));
        for accesses in cell.roles.iter().map(|role| &role.workload.accesses) {
            assert_eq!(
                accesses
                    .iter()
                    .map(|access| u32::from(access.share.get()))
                    .sum::<u32>(),
                100
            );
        }
    }
}
