//! A target that behaves well while the fuzzer's bytes are zero; other bytes select misbehaviour.
//!
//! It is almost stateless: it responds to each PDU separately, and stores only the progress of writes.

use std::collections::HashMap;

use iscsi::pdu::{BHS_BYTES, Bhs, pad_bytes};
use script::Script;

mod scsi;

pub(crate) struct Target {
    bytes: Vec<u8>,
    /// Number of consumed bytes.
    used: usize,
    wires: Vec<Numbers>,
    exp_cmd_sn: u32,
    /// Bytes received so far for each write, and its R2Ts.
    writes: HashMap<u32, Write>,
    is_mute: bool,
    hangs_up: bool,
}

/// The numbers of a connection.
#[derive(Clone, Copy, Default)]
struct Numbers {
    stat_sn: u32,
}

#[derive(Clone, Copy)]
struct Write {
    wanted: u32,
    received: u32,
    r2ts: u32,
}

/// The initiator's opcodes (RFC 7143 11.2.1.2).
mod opcode {
    pub(super) const NOP_OUT: u8 = 0x00;
    pub(super) const SCSI_COMMAND: u8 = 0x01;
    pub(super) const TASK_MANAGEMENT: u8 = 0x02;
    pub(super) const LOGIN: u8 = 0x03;
    pub(super) const TEXT: u8 = 0x04;
    pub(super) const DATA_OUT: u8 = 0x05;
    pub(super) const LOGOUT: u8 = 0x06;
}

const FINAL: u8 = 0x80;
const NO_TAG: u32 = u32::MAX;

impl Target {
    pub(crate) fn new(bytes: &[u8]) -> Target {
        Target {
            bytes: bytes.to_vec(),
            used: 0,
            wires: Vec::new(),
            exp_cmd_sn: 0,
            writes: HashMap::new(),
            is_mute: false,
            hangs_up: false,
        }
    }

    /// Whether connections are refused now.
    pub(crate) fn refuses(&mut self) -> bool {
        self.is_mute || self.byte() >= 0xf8
    }

    /// Whether to close the connection that was served last.
    pub(crate) fn hangs_up(&mut self) -> bool {
        std::mem::take(&mut self.hangs_up)
    }

    /// Processes every complete PDU.
    pub(crate) fn serve(&mut self, wire: usize, heard: &mut Vec<u8>, said: &mut Vec<u8>) {
        self.wires
            .resize(self.wires.len().max(wire + 1), Numbers::default());
        let mut at = 0;
        while let Some(bhs) = heard[at..].first_chunk::<BHS_BYTES>() {
            let bhs = Bhs(*bhs);
            let begin = at + BHS_BYTES + bhs.total_ahs_length();
            let length = bhs.data_segment_length() as usize;
            let Some(data) = heard.get(begin..begin + length) else {
                break;
            };
            let data = data.to_vec();
            at = begin + length + pad_bytes(length);
            self.hear(wire, &bhs, &data, said);
        }
        heard.drain(..at.min(heard.len()));
    }

    fn hear(&mut self, wire: usize, bhs: &Bhs, data: &[u8], said: &mut Vec<u8>) {
        if self.is_mute {
            return;
        }
        if !bhs.immediate() && matches!(bhs.u8(0) & 0x3f, opcode::SCSI_COMMAND | opcode::TEXT) {
            self.exp_cmd_sn = bhs.u32(24).wrapping_add(1);
        }
        let before = said.len();
        match self.byte() {
            0..0xc0 => self.answer(wire, bhs, data, said),
            0xc0..0xd0 => (0..2).for_each(|_| self.answer(wire, bhs, data, said)),
            0xd0..0xd8 => {} // lost
            0xd8..0xe8 => {
                self.answer(wire, bhs, data, said);
                self.damage(&mut said[before..]);
            }
            0xe8..0xf4 => {
                self.say_anything(said);
                self.answer(wire, bhs, data, said);
            }
            0xf4..0xf8 => {
                let count = usize::from(self.byte());
                said.extend(self.script(|script| script.bytes(count).to_vec()));
            }
            0xf8..0xfe => self.hangs_up = true,
            0xfe.. => self.is_mute = true,
        }
    }

    fn answer(&mut self, wire: usize, bhs: &Bhs, data: &[u8], said: &mut Vec<u8>) {
        match bhs.u8(0) & 0x3f {
            opcode::NOP_OUT if bhs.itt_raw() != NO_TAG => {
                let mut answer = self.status(wire, 0x20, bhs);
                answer.set_u32(20, NO_TAG);
                say(said, answer, data);
            }
            opcode::SCSI_COMMAND => self.carry_out(wire, bhs, data, said),
            opcode::TASK_MANAGEMENT => {
                let mut answer = self.status(wire, 0x22, bhs);
                let response = self.byte();
                answer.set_u8(2, if response < 0xe0 { 0 } else { response & 7 });
                say(said, answer, &[]);
            }
            opcode::LOGIN => self.let_in(wire, bhs, data, said),
            opcode::TEXT => {
                let text = self.script(|script| script.text());
                let answer = self.status(wire, 0x24, bhs);
                say(said, answer, &text);
            }
            opcode::DATA_OUT => self.take(wire, bhs, data, said),
            opcode::LOGOUT => {
                let answer = self.status(wire, 0x26, bhs);
                say(said, answer, &[]);
                self.hangs_up = true;
            }
            _ => {}
        }
    }

    /// Returns a response header for `bhs` with the sequence numbers of a status.
    fn status(&mut self, wire: usize, opcode: u8, bhs: &Bhs) -> Bhs {
        let mut answer = self.numbered(wire, opcode, bhs);
        self.wires[wire].stat_sn = self.wires[wire].stat_sn.wrapping_add(1);
        answer.set_u8(1, FINAL);
        answer
    }

    fn numbered(&mut self, wire: usize, opcode: u8, bhs: &Bhs) -> Bhs {
        let mut answer = Bhs([0; BHS_BYTES]);
        answer.set_u8(0, opcode);
        answer.set_u32(16, bhs.itt_raw());
        answer.set_u32(24, self.wires[wire].stat_sn);
        answer.set_u32(28, self.exp_cmd_sn);
        answer.set_u32(32, self.exp_cmd_sn.wrapping_add(WINDOW));
        answer
    }

    /// Sends a login response that accepts all proposals.
    fn let_in(&mut self, wire: usize, bhs: &Bhs, data: &[u8], said: &mut Vec<u8>) {
        self.exp_cmd_sn = bhs.u32(24);
        let mut answer = self.status(wire, 0x23, bhs);
        answer.set_u8(1, bhs.u8(1));
        answer.set_bytes(8, &bhs.bytes::<6>(8));
        answer.set_u16(14, 1); // a TSIH: the same session for all connections
        let text = match self.byte() {
            0..0xb0 => agreement(data, 1),
            0xb0..0xe8 => agreement(data, 2), // another portal group
            0xe8..0xf0 => {
                answer.set_u8(36, 1); // moved temporarily
                answer.set_u8(37, 1);
                format!("TargetAddress=192.0.2.{}\0", 1 + self.byte() % 3).into_bytes()
            }
            0xf0..0xf8 => self.script(|script| script.text()),
            class => {
                answer.set_u8(36, class & 3);
                agreement(data, 1)
            }
        };
        say(said, answer, &text);
    }

    /// Changes one byte of the next output.
    fn damage(&mut self, said: &mut [u8]) {
        let at = usize::from(self.byte()) | usize::from(self.byte() & 3) << 8;
        let value = self.byte();
        if let Some(byte) = said.get_mut(at) {
            *byte ^= value.max(1);
        }
    }

    /// Sends an unsolicited PDU.
    fn say_anything(&mut self, said: &mut Vec<u8>) {
        const OPCODES: [u8; 8] = [0x20, 0x21, 0x22, 0x25, 0x31, 0x32, 0x3f, 0x24];
        let opcode = OPCODES[usize::from(self.byte()) % OPCODES.len()];
        let header = self.script(|script| script.header(opcode, &[FINAL, 0, FINAL | 1]));
        let count = usize::from(self.byte());
        let data = self.script(|script| script.bytes(count).to_vec());
        say(said, header, &data);
    }

    fn byte(&mut self) -> u8 {
        self.script(|script| script.byte())
    }

    /// Consumes a byte of the fuzzer.
    fn script<T>(&mut self, take: impl FnOnce(&mut Script<'_>) -> T) -> T {
        let mut script = Script(&self.bytes[self.used..]);
        let taken = take(&mut script);
        self.used = self.bytes.len() - script.0.len();
        taken
    }
}

/// Number of commands that can be outstanding.
const WINDOW: u32 = 20;

/// Sends a PDU with its length field and padding.
fn say(said: &mut Vec<u8>, mut header: Bhs, data: &[u8]) {
    header.set_data_segment_length(data.len() as u32);
    said.extend_from_slice(&header.0);
    said.extend_from_slice(data);
    said.resize(said.len() + pad_bytes(data.len()), 0);
}

/// Returns the result of a login's offers with a target that proposes nothing.
fn agreement(offers: &[u8], portal_group: u16) -> Vec<u8> {
    let mut text = Vec::new();
    for pair in offers
        .split(|byte| *byte == 0)
        .filter(|pair| !pair.is_empty())
    {
        let key = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        match key {
            b"InitiatorName" | b"InitiatorAlias" | b"SessionType" => continue,
            b"TargetName" => text.extend(format!("TargetPortalGroupTag={portal_group}").bytes()),
            b"AuthMethod" | b"HeaderDigest" | b"DataDigest" => {
                text.extend([key, b"=None"].concat())
            }
            b"TaskReporting" => text.extend_from_slice(b"TaskReporting=RFC3720"),
            b"iSCSIProtocolLevel" => text.extend_from_slice(b"iSCSIProtocolLevel=1"),
            _ => text.extend_from_slice(pair),
        }
        text.push(0);
    }
    text
}
