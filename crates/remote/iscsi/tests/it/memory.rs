//! A target in memory, in virtual time. It answers each PDU as soon as it arrives, and can break its
//! connections, lose its cache, be slow, and redirect.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use iscsi_client::Url;
use reactor::{
    Alone, Detached, InSlice, ListenOptions, Listener, OutSlice, Park, SharedWorld, Stream,
    StreamOptions, Unpark, World, block_on,
};

use crate::fake::accepted;

/// The only address at which the target accepts connections.
const PORTAL: &str = "10.0.0.1:3260";
/// Length of a data segment that every initiator accepts.
const SEGMENT_BYTES: usize = 8192;

/// The point at which the target closes each of its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Breaks {
    #[default]
    Never,
    AfterTheFirstAnswer,
    /// Closes the connection instead of responding to a READ.
    AtRead,
}

#[derive(Default)]
pub(crate) struct Target {
    /// The value of every byte of the cache generation.
    pub(crate) generation: Cell<u8>,
    /// The number of connections that have logged in.
    pub(crate) logins: Cell<u32>,
    pub(crate) breaks: Cell<Breaks>,
    /// The delay of each login response.
    pub(crate) login_delay: Cell<Duration>,
    /// The address to which the target redirects logins.
    pub(crate) redirects_to: Cell<Option<&'static str>>,
    /// The texts of all login requests.
    pub(crate) login_texts: RefCell<String>,
    pub(crate) block_bytes: Cell<u32>,
    /// LBPU and LBPWS of the Logical Block Provisioning page (SBC-3 6.6.4); 0 for a thick disk without that page.
    pub(crate) provisioning: Cell<u8>,
    /// The response to SendTargets; empty if the target lists no targets.
    pub(crate) targets: RefCell<String>,
    links: RefCell<Vec<Rc<Link>>>,
}

/// Runs a scene with a new target.
pub(crate) fn with_target(scene: impl AsyncFnOnce(Rc<Target>)) {
    let target = Target {
        block_bytes: Cell::new(512),
        ..Target::default()
    };
    let (alone, target) = (Alone::virtual_time(), Rc::new(target));
    block_on(
        Rc::new(Memory {
            alone,
            target: Rc::clone(&target),
        }),
        scene(target),
    );
}

impl Target {
    pub(crate) fn url(options: &str) -> Url {
        Url::parse(&format!(
            "iscsi://{PORTAL}/iqn.2026-01.io.linerate.test:memory/0{options}"
        ))
        .expect("a URL")
    }

    /// Closes the `count` oldest connections.
    pub(crate) fn end_connections(&self, count: usize) {
        let mut links = self.links.borrow_mut();
        let count = count.min(links.len());
        links.drain(..count).for_each(|link| link.end());
    }

    fn connect(self: &Rc<Self>, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
        if to.to_string() != PORTAL {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let link = Rc::new(Link {
            stat_sn: Cell::new(1),
            ..Link::default()
        });
        self.links.borrow_mut().push(Rc::clone(&link));
        Ok(Box::new(Connection {
            target: Rc::clone(self),
            link,
        }))
    }

    fn handle(&self, link: &Rc<Link>, pdu: &[u8; 48], data: &[u8]) {
        const NO_TAG: [u8; 4] = [0xff; 4];
        match pdu[0] & 0x3f {
            0x00 => {
                let mut answer = link.answer(0x20, pdu);
                answer[20..24].copy_from_slice(&NO_TAG);
                link.say(&answer, data);
            }
            0x01 => {
                let ends = match self.breaks.get() {
                    Breaks::Never => false,
                    Breaks::AfterTheFirstAnswer => true,
                    Breaks::AtRead => pdu[32] == 0x88,
                };
                if self.breaks.get() != Breaks::AtRead || !ends {
                    self.carry_out(link, pdu);
                }
                if ends {
                    self.links
                        .borrow_mut()
                        .retain(|other| !Rc::ptr_eq(other, link));
                    link.end();
                }
            }
            0x02 => link.say(&link.answer(0x22, pdu), &[]),
            0x03 => self.log_in(link, pdu, data),
            0x04 => self.list(link, pdu),
            0x06 => link.say(&link.answer(0x26, pdu), &[]),
            other => panic!("operation {other:02x}"),
        }
    }

    fn log_in(&self, link: &Rc<Link>, request: &[u8; 48], text: &[u8]) {
        *self.login_texts.borrow_mut() += std::str::from_utf8(text).expect("text");
        let mut answer = accepted(request, text, 1, link.next_stat_sn());
        if let Some(to) = self.redirects_to.get() {
            answer.truncate(48);
            answer[1] = request[1] & 0x0c;
            (answer[36], answer[37]) = (1, 1); // the target has moved temporarily
            let to = format!("TargetAddress={to}\0");
            answer[7] = to.len() as u8;
            answer.extend(to.bytes());
            answer.resize(answer.len().next_multiple_of(4), 0);
        }
        self.logins
            .set(self.logins.get() + u32::from(answer[1] & 0x83 == 0x83));
        let (link, delay) = (Rc::clone(link), self.login_delay.get());
        drop(reactor::spawn(async move {
            reactor::sleep(delay).await;
            link.send(&answer);
        }));
    }

    /// Responds to SendTargets, in several parts.
    fn list(&self, link: &Link, pdu: &[u8; 48]) {
        let targets = self.targets.borrow();
        let from = link.listed.get();
        let part = &targets.as_bytes()[from..targets.len().min(from + SEGMENT_BYTES)];
        link.listed.set(from + part.len());
        if part.is_empty() {
            return;
        }
        let mut answer = link.answer(0x24, pdu);
        answer[20..24].fill(0xff);
        if link.listed.get() < targets.len() {
            answer[1] = 0x40; // the C bit: the text continues
            answer[20..24].copy_from_slice(&1_u32.to_be_bytes());
        }
        link.say(&answer, part);
    }

    /// Executes a SCSI command of a disk of 64 blocks. The disk keeps no data.
    fn carry_out(&self, link: &Link, pdu: &[u8; 48]) {
        let cdb = &pdu[32..];
        let room = u32::from_be_bytes([pdu[20], pdu[21], pdu[22], pdu[23]]) as usize;
        let is_vital = cdb[1] & 1 == 1;
        let data = match (cdb[0], is_vital.then_some(cdb[2])) {
            (0x12, None) => [&[0, 0, 6, 2, 31, 0, 0, 0][..], &[b' '; 28]].concat(),
            (0x12, Some(0x00)) if self.provisioning.get() == 0 => vec![0, 0, 0, 3, 0, 0x83, 0xc0],
            (0x12, Some(0x00)) => vec![0, 0, 0, 4, 0, 0x83, 0xb2, 0xc0],
            (0x12, Some(0x83)) => [&[0, 0x83, 0, 20, 1, 3, 0, 16, 0x60][..], &[7; 15]].concat(),
            (0x12, Some(0xb2)) => vec![0, 0xb2, 0, 4, 0, self.provisioning.get(), 2, 0],
            (0x12, Some(_)) => [
                &b"\0\xc0\0\x1cLINERATE\x01\0\0\0"[..],
                &[self.generation.get(); 16],
            ]
            .concat(),
            (0x9e, _) => {
                let mut capacity = vec![0; 32];
                capacity[7] = 63; // the last block
                capacity[8..12].copy_from_slice(&self.block_bytes.get().to_be_bytes());
                capacity[14] = if self.provisioning.get() == 0 {
                    0
                } else {
                    0xc0
                }; // LBPME and LBPRZ
                capacity
            }
            (0xa0, _) => vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            (0x88, _) => vec![0; room],
            (0x1a | 0x5a, _) => {
                let mut answer = link.answer(0x21, pdu);
                answer[3] = 2; // CHECK CONDITION, INVALID COMMAND OPERATION CODE
                return link.say(&answer, &[0, 8, 0x72, 5, 0x20, 0, 0, 0, 0, 0]);
            }
            _ => return link.say(&link.answer(0x21, pdu), &[]),
        };
        let data = &data[..data.len().min(room)];
        let mut answer = link.answer(0x25, pdu);
        answer[1] = 0x81; // the last data, with the status
        answer[20..24].fill(0xff);
        if data.len() < room {
            answer[1] |= 0x02; // underflow
            answer[44..].copy_from_slice(&((room - data.len()) as u32).to_be_bytes());
        }
        link.say(&answer, data);
    }
}

/// A connection, whose state the target and the initiator share.
#[derive(Default)]
struct Link {
    stat_sn: Cell<u32>,
    exp_cmd_sn: Cell<u32>,
    /// Number of bytes of the target list that were sent.
    listed: Cell<usize>,
    received: RefCell<Vec<u8>>,
    answers: RefCell<VecDeque<u8>>,
    is_over: Cell<bool>,
    reader: RefCell<Option<Waker>>,
}

impl Link {
    fn next_stat_sn(&self) -> u32 {
        self.stat_sn.replace(self.stat_sn.get() + 1)
    }

    /// Returns the header of a final response.
    fn answer(&self, operation: u8, pdu: &[u8; 48]) -> [u8; 48] {
        let mut answer = [0; 48];
        (answer[0], answer[1]) = (operation, 0x80);
        answer[16..20].copy_from_slice(&pdu[16..20]);
        answer[24..28].copy_from_slice(&self.next_stat_sn().to_be_bytes());
        answer[28..32].copy_from_slice(&self.exp_cmd_sn.get().to_be_bytes());
        answer[32..36].copy_from_slice(&(self.exp_cmd_sn.get() + 63).to_be_bytes());
        answer
    }

    fn say(&self, header: &[u8; 48], data: &[u8]) {
        let mut pdu = [&header[..], data].concat();
        pdu[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        self.send(&pdu);
    }

    fn send(&self, bytes: &[u8]) {
        self.answers.borrow_mut().extend(bytes);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn end(&self) {
        self.is_over.set(true);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Takes the next complete PDU.
    fn next(&self) -> Option<([u8; 48], Vec<u8>)> {
        let mut received = self.received.borrow_mut();
        let header: [u8; 48] = *received.first_chunk()?;
        let bytes = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let end = 48 + bytes.next_multiple_of(4);
        if received.len() < end {
            return None;
        }
        let data = received[48..48 + bytes].to_vec();
        received.drain(..end);
        let is_immediate = header[0] & 0x40 != 0;
        let cmd_sn = u32::from_be_bytes([header[24], header[25], header[26], header[27]]);
        self.exp_cmd_sn.set(cmd_sn + u32::from(!is_immediate));
        Some((header, data))
    }
}

/// The initiator's end of a connection.
struct Connection {
    target: Rc<Target>,
    link: Rc<Link>,
}

impl Stream for Connection {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let (mut answers, mut count) = (self.link.answers.borrow_mut(), 0);
        for place in into {
            let InSlice::Bytes(place) = place else {
                panic!("the data has a buffer")
            };
            let taken = place.len().min(answers.len());
            place
                .iter_mut()
                .zip(answers.drain(..taken))
                .for_each(|(place, byte)| *place = byte);
            count += taken;
        }
        if count == 0 && !self.link.is_over.get() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(count)
        }
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        if self.link.is_over.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut count = 0;
        for bytes in from {
            let OutSlice::Bytes(bytes) = bytes else {
                panic!("the data has a buffer")
            };
            self.link.received.borrow_mut().extend_from_slice(bytes);
            count += bytes.len();
        }
        while let Some((header, data)) = self.link.next() {
            if !self.link.is_over.get() {
                self.target.handle(&self.link, &header, &data);
            }
        }
        Ok(count)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.reader.replace(Some(cx.waker().clone()));
        let is_ready = self.link.is_over.get() || !self.link.answers.borrow().is_empty();
        if is_ready {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> SocketAddr {
        PORTAL.parse().expect("an address")
    }

    fn local(&self) -> SocketAddr {
        ([10, 0, 0, 2], 1).into()
    }

    fn shutdown(&self) {
        self.link.end();
    }

    fn detach(self: Box<Self>) -> Detached {
        panic!("one thread is enough")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.target
            .links
            .borrow_mut()
            .retain(|link| !Rc::ptr_eq(link, &self.link));
    }
}

/// The initiator's runtime environment.
struct Memory {
    alone: SharedWorld,
    target: Rc<Target>,
}

impl World for Memory {
    fn now(&self) -> Instant {
        self.alone.now()
    }

    fn listen(&self, at: SocketAddr, options: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        self.alone.listen(at, options)
    }

    fn connect(&self, to: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        self.target.connect(to)
    }

    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>> {
        self.alone.adopt(stream)
    }

    fn turn(&self, park: Park) {
        self.alone.turn(park);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        self.alone.unpark()
    }
}
