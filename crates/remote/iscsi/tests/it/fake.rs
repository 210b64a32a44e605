//! A minimal target that accepts logins, each with a given portal group tag. It can present a disk without data
//! behind them, or redirect them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// A portal that returns these portal group tags, one per connection.
pub(crate) fn portal(tags: &'static [u16]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for (stream, tag) in listener.incoming().zip(tags) {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || let_in(&mut stream, *tag, Then::Hears));
        }
    });
    port
}

/// A portal that accepts one connection and ignores it after the login.
pub(crate) fn deaf_portal() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(listener);
        let_in(&mut stream, 1, Then::IsDeaf);
    });
    port
}

/// A disk that answers what an initiator asks when it attaches it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) block_bytes: u32,
    /// LBPU and LBPWS of the Logical Block Provisioning page (SBC-3 6.6.4).
    pub(crate) provisioning: u8,
}

/// A portal for one connection to a disk, and the text of its login.
pub(crate) fn disk(disk: Disk) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    let (sender, heard) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut beginning = vec![0; 48];
        stream.peek(&mut beginning).expect("a login");
        let length = u32::from_be_bytes([0, beginning[5], beginning[6], beginning[7]]) as usize;
        let mut login = vec![0; 48 + length];
        while stream.peek(&mut login).expect("a login") < login.len() {
            thread::yield_now();
        }
        let _ = sender.send(String::from_utf8_lossy(&login[48..]).into_owned()); // not every test reads it
        if let Some(stat_sn) = let_in(&mut stream, 1, Then::Answers) {
            disk.answer(stream, stat_sn);
        }
    });
    (port, heard)
}

/// A portal that redirects every login to this address.
pub(crate) fn redirecting(to: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let Some((request, _)) = next(&mut stream) else { continue };
            let mut answer = response(0x23, &request, 1);
            (answer[36], answer[37]) = (1, 1); // target moved temporarily (RFC 7143 section 11.13.5)
            answer[8..14].copy_from_slice(&request[8..14]);
            send(&mut stream, answer, format!("TargetAddress={to}\0").as_bytes());
        }
    });
    port
}

impl Disk {
    /// Answers commands until the connection ends.
    fn answer(self, mut stream: TcpStream, mut stat_sn: u32) {
        while let Some((request, _)) = next(&mut stream) {
            if request[0] & 0x3f != 0x01 {
                return; // a logout
            }
            let cdb = &request[32..48];
            let expected = u32::from_be_bytes([request[20], request[21], request[22], request[23]]);
            let data = match (cdb[0], cdb[1] & 0x1f, cdb[2]) {
                (0x00, ..) => Some(Vec::new()),
                (0x12, 0, _) => Some([&[0, 0, 6, 2, 31][..], &[b' '; 31]].concat()),
                (0x12, _, 0x00) => Some(vec![0, 0, 0, 2, 0x00, 0xb2]),
                (0x12, _, 0xb2) => Some(vec![0, 0xb2, 0, 4, 0, self.provisioning, 2, 0]),
                (0x9e, 0x10, _) => {
                    let mut capacity = vec![0; 32];
                    capacity[7] = 0xff;
                    capacity[8..12].copy_from_slice(&self.block_bytes.to_be_bytes());
                    capacity[14] = 0xc0; // LBPME and LBPRZ
                    Some(capacity)
                }
                _ => None, // CHECK CONDITION: INVALID COMMAND OPERATION CODE
            };
            // The last Data-In PDU has the status (RFC 7143 section 11.7.3).
            let (opcode, flags, status, data) = match data {
                Some(data) if data.is_empty() => (0x21, 0x80, 0, data),
                Some(data) => (0x25, 0x81, 0, data[..data.len().min(expected as usize)].to_vec()),
                None => {
                    let sense = [0, 18, 0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0];
                    (0x21, 0x80, 2, sense.to_vec())
                }
            };
            let moved = if opcode == 0x25 { data.len() as u32 } else { 0 };
            let mut answer = response(opcode, &request, stat_sn);
            answer[1] = if moved < expected { flags | 0x02 } else { flags }; // underflow
            answer[3] = status;
            answer[44..48].copy_from_slice(&(expected - moved).to_be_bytes());
            if !send(&mut stream, answer, &data) {
                return;
            }
            stat_sn += 1;
        }
    }
}

/// The header of a response, with the tag of its request.
fn response(opcode: u8, request: &[u8; 48], stat_sn: u32) -> [u8; 48] {
    let mut answer = [0; 48];
    answer[0] = opcode;
    answer[16..20].copy_from_slice(&request[16..20]);
    if opcode == 0x25 {
        answer[20..24].fill(0xff); // no target transfer tag
    }
    let cmd_sn = u32::from_be_bytes([request[24], request[25], request[26], request[27]]);
    let exp_cmd_sn = if request[0] & 0x40 == 0 { cmd_sn.wrapping_add(1) } else { cmd_sn };
    answer[24..28].copy_from_slice(&stat_sn.to_be_bytes());
    answer[28..32].copy_from_slice(&exp_cmd_sn.to_be_bytes());
    answer[32..36].copy_from_slice(&exp_cmd_sn.wrapping_add(63).to_be_bytes());
    answer
}

/// Whether the peer takes the PDU.
fn send(stream: &mut TcpStream, mut header: [u8; 48], data: &[u8]) -> bool {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    let mut pdu = [&header[..], data].concat();
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    stream.write_all(&pdu).is_ok()
}

/// What a target does after the login.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Reads until the end of the connection.
    Hears,
    /// Reads nothing, and keeps the socket open.
    IsDeaf,
    /// Leaves the connection to the caller.
    Answers,
}

/// Accepts a login without authentication. Returns the next StatSN of a connection that is left to the caller.
fn let_in(stream: &mut TcpStream, tag: u16, then: Then) -> Option<u32> {
    let mut stat_sn = 1_u32;
    while let Some((request, text)) = next(stream) {
        if request[0] & 0x3f != 0x03 {
            return None;
        }
        let answer = accepted(&request, &text, tag, stat_sn);
        stat_sn += 1;
        if stream.write_all(&answer).is_err() {
            return None;
        }
        match then {
            Then::IsDeaf if answer[1] & 0x83 == 0x83 => loop {
                thread::park();
            },
            Then::Answers if answer[1] & 0x83 == 0x83 => return Some(stat_sn),
            Then::Hears | Then::IsDeaf | Then::Answers => {}
        }
    }
    None
}

/// The response to a login request, to the requested stage: with the initiator's own values, and without
/// authentication.
pub(crate) fn accepted(request: &[u8; 48], text: &[u8], tag: u16, stat_sn: u32) -> Vec<u8> {
    let mut answer = [0; 48];
    (answer[0], answer[1]) = (0x23, request[1]);
    answer[8..14].copy_from_slice(&request[8..14]);
    answer[15] = 1; // TSIH
    answer[16..20].copy_from_slice(&request[16..20]);
    answer[24..28].copy_from_slice(&stat_sn.to_be_bytes());
    answer[28..32].copy_from_slice(&request[24..28]);
    answer[32..36].copy_from_slice(&64_u32.to_be_bytes());
    // Only once: a repeated key ends the login (RFC 7143 section 6.3).
    let mut said =
        if stat_sn == 1 { format!("TargetPortalGroupTag={tag}\0").into_bytes() } else { Vec::new() };
    for pair in text.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()) {
        let key = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        match key {
            b"InitiatorName" | b"InitiatorAlias" | b"SessionType" | b"TargetName" => continue,
            b"AuthMethod" | b"HeaderDigest" | b"DataDigest" => said.extend([key, b"=None"].concat()),
            b"TaskReporting" => said.extend(b"TaskReporting=RFC3720"),
            b"iSCSIProtocolLevel" => said.extend(b"iSCSIProtocolLevel=1"),
            _ => said.extend(pair),
        }
        said.push(0);
    }
    answer[5..8].copy_from_slice(&(said.len() as u32).to_be_bytes()[1..]);
    said.resize(said.len().next_multiple_of(4), 0);
    [&answer[..], &said].concat()
}

/// The next PDU's header and data; `None` at the end.
fn next(stream: &mut TcpStream) -> Option<([u8; 48], Vec<u8>)> {
    let mut header = [0; 48];
    stream.read_exact(&mut header).ok()?;
    let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
    let mut data = vec![0; length.next_multiple_of(4)];
    stream.read_exact(&mut data).ok()?;
    data.truncate(length);
    Some((header, data))
}
