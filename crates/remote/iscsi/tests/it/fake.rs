//! A minimal target that accepts logins, each with a given portal group tag, and nothing else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Starts a portal that returns these portal group tags, one per connection.
pub(crate) fn portal(tags: &'static [u16]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for (stream, tag) in listener.incoming().zip(tags) {
            let stream = stream.expect("a connection");
            thread::spawn(move || let_in(stream, *tag, Then::Hears));
        }
    });
    port
}

/// Starts a portal that accepts one connection, and ignores it after the login.
pub(crate) fn deaf_portal() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        drop(listener);
        let_in(stream, 1, Then::IsDeaf);
    });
    port
}

/// The behaviour of the target after the login.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Reads and discards all data until the connection ends.
    Hears,
    /// Reads nothing, and keeps the socket open.
    IsDeaf,
}

/// Accepts a login without authentication.
fn let_in(mut stream: TcpStream, tag: u16, then: Then) {
    let mut stat_sn = 1_u32;
    while let Some((request, text)) = next(&mut stream) {
        if request[0] & 0x3f != 0x03 {
            return;
        }
        let answer = accepted(&request, &text, tag, stat_sn);
        stat_sn += 1;
        if stream.write_all(&answer).is_err() {
            return;
        }
        if answer[1] & 0x83 == 0x83 && then == Then::IsDeaf {
            loop {
                thread::park();
            }
        }
    }
}

/// Returns the response to a login request. It accepts the requested stage and the initiator's values,
/// without authentication.
pub(crate) fn accepted(request: &[u8; 48], text: &[u8], tag: u16, stat_sn: u32) -> Vec<u8> {
    let mut answer = [0; 48];
    (answer[0], answer[1]) = (0x23, request[1]);
    answer[8..14].copy_from_slice(&request[8..14]);
    answer[15] = 1; // TSIH
    answer[16..20].copy_from_slice(&request[16..20]);
    answer[24..28].copy_from_slice(&stat_sn.to_be_bytes());
    answer[28..32].copy_from_slice(&request[24..28]);
    answer[32..36].copy_from_slice(&64_u32.to_be_bytes());
    // The key is sent only once, because a repeated key ends the login (RFC 7143 section 6.3).
    let mut said = if stat_sn == 1 {
        format!("TargetPortalGroupTag={tag}\0").into_bytes()
    } else {
        Vec::new()
    };
    for pair in text
        .split(|byte| *byte == 0)
        .filter(|pair| !pair.is_empty())
    {
        let key = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        match key {
            b"InitiatorName" | b"InitiatorAlias" | b"SessionType" | b"TargetName" => continue,
            b"AuthMethod" | b"HeaderDigest" | b"DataDigest" => {
                said.extend([key, b"=None"].concat())
            }
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

/// Reads the header and the data of the next PDU; `None` at the end of the connection.
fn next(stream: &mut TcpStream) -> Option<([u8; 48], Vec<u8>)> {
    let mut header = [0; 48];
    stream.read_exact(&mut header).ok()?;
    let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
    let mut data = vec![0; length.next_multiple_of(4)];
    stream.read_exact(&mut data).ok()?;
    data.truncate(length);
    Some((header, data))
}
