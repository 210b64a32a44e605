//! A simple initiator that follows RFC 7143. It sends only the PDUs and commands that its callers request. It
//! shares no code with `iscsi_client`, so that the two cannot share a misinterpretation of the standard. The
//! speed at which it sends and receives is a parameter.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use reactor::Stream;
use scsi::Cdb;

use crate::pdu::{self, Header, Outbox, get_32, pdu, set_32};
use crate::universe;

#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) initiator: String,
    pub(crate) target: String,
    pub(crate) isid: [u8; 6],
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    /// Maximum length of the data in a PDU that the initiator sends, if the target accepts that length.
    pub(crate) segment_bytes: usize,
    /// Occasional delays of the initiator's reads and writes on its socket.
    pub(crate) slow: Slowness,
    /// Whether the simulation injects no faults that could suppress a response.
    pub(crate) is_calm: bool,
}

/// Delays of a peer: frequency, and maximum duration in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slowness {
    pub(crate) reads_once_in: u64,
    pub(crate) sends_once_in: u64,
    pub(crate) longest: u64,
}

/// A session with one connection.
#[derive(Clone)]
pub(crate) struct Simple(Rc<Inner>);

struct Inner {
    stream: Box<dyn Stream>,
    state: RefCell<SessionState>,
    slow: Slowness,
    is_calm: bool,
    immediate_bytes: usize,
    lost: Cell<bool>,
}

#[derive(Default)]
struct SessionState {
    next_itt: u32,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    tasks: BTreeMap<u32, Task>,
    out: Outbox,
    window: Vec<Waker>,
    segment_bytes: usize,
    /// The latest CmdSN whose command was answered.
    answered: u32,
    /// Whether the target has requested a logout.
    asked_to_leave: bool,
}

struct Task {
    lun: u16,
    cmd_sn: u32,
    data_out: Vec<u8>,
    data_in: Vec<u8>,
    answer: Option<CommandResult>,
    waker: Option<Waker>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandResult {
    /// SCSI status, or the response of a task management function.
    pub(crate) status: u8,
    /// Sense key, ASC and ASCQ.
    pub(crate) sense: Option<(u8, u8, u8)>,
    pub(crate) data: Vec<u8>,
}

/// The connection is lost; it is unknown whether the command was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) lun: u16,
    pub(crate) cdb: Cdb,
    pub(crate) out: Vec<u8>,
    pub(crate) in_bytes: u32,
}

/// Functions of RFC 7143 section 11.5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    AbortTask = 1,
    LunReset = 5,
}

pub(crate) const GOOD: u8 = 0;
/// Not a SCSI status: a task management function of the same session has terminated the command.
pub(crate) const ENDED: u8 = 0xff;
pub(crate) const CHECK_CONDITION: u8 = 2;
/// The command waited too long for other commands or for memory (SAM-5 5.3.1).
const BUSY: u8 = 8;

impl Simple {
    /// Logs in. On failure, returns the target's status, or 0 for a failed connection.
    pub(crate) async fn log_in(to: SocketAddr, terms: &Terms) -> Result<Simple, u16> {
        let world = reactor::world();
        let stream = world.connect(to, &Default::default()).map_err(|_| 0u16)?;
        let mut text = Vec::new();
        let yes = |yes: bool| if yes { "Yes" } else { "No" };
        for (key, value) in [
            ("InitiatorName", terms.initiator.as_str()),
            ("TargetName", &terms.target),
            ("SessionType", "Normal"),
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("InitialR2T", yes(terms.initial_r2t)),
            ("ImmediateData", yes(terms.immediate_data)),
            ("FirstBurstLength", "65536"),
            ("MaxBurstLength", "262144"),
            ("MaxRecvDataSegmentLength", "8192"),
            ("ErrorRecoveryLevel", "0"),
        ] {
            text.extend_from_slice(format!("{key}={value}\0").as_bytes());
        }
        let mut bhs = [0u8; 48];
        bhs[0] = 0x43; // login request, immediate
        bhs[1] = 0x87; // transit from operational negotiation to full feature phase
        bhs[8..14].copy_from_slice(&terms.isid);
        set_32(&mut bhs, 24, 1); // CmdSN
        let simple = Simple(Rc::new(Inner {
            stream,
            state: RefCell::new(SessionState {
                next_itt: 1,
                cmd_sn: 1,
                segment_bytes: 8192,
                ..SessionState::default()
            }),
            slow: terms.slow,
            is_calm: terms.is_calm,
            immediate_bytes: if terms.immediate_data { 8192 } else { 0 },
            lost: Cell::new(false),
        }));
        pdu::write(&*simple.0.stream, &pdu(bhs, &text))
            .await
            .map_err(|_| 0u16)?;
        let (answer, data) = pdu::read_pdu(&*simple.0.stream).await.map_err(|_| 0u16)?;
        let status = u16::from_be_bytes([answer[36], answer[37]]);
        if answer[0] & 0x3f != 0x23 || status != 0 || answer[1] & 0x83 != 0x83 {
            return Err(status.max(1));
        }
        {
            let mut state = simple.0.state.borrow_mut();
            state.exp_stat_sn = get_32(&answer, 24).wrapping_add(1);
            state.max_cmd_sn = get_32(&answer, 32);
            for pair in data.split(|byte| *byte == 0) {
                if let Some(value) = pair.strip_prefix(b"MaxRecvDataSegmentLength=") {
                    let value: usize = String::from_utf8_lossy(value).parse().unwrap_or(8192);
                    state.segment_bytes = value.min(terms.segment_bytes);
                }
            }
        }
        reactor::spawn(read(simple.clone()));
        reactor::spawn(write(simple.clone()));
        Ok(simple)
    }

    /// Waits until the command window is open. The caller must send immediately.
    pub(crate) async fn window(&self) {
        self.or_leave(poll_fn(|cx| {
            let mut state = self.0.state.borrow_mut();
            if self.0.lost.get() || (state.cmd_sn.wrapping_sub(state.max_cmd_sn) as i32) <= 0 {
                return Poll::Ready(());
            }
            state.window.push(cx.waker().clone());
            Poll::Pending
        }))
        .await;
    }

    /// Waits for up to [`SILENCE_MAX`], then closes the connection: if the target no longer has the
    /// connection, nothing arrives on it.
    async fn or_leave<T>(&self, something: impl Future<Output = T>) -> Option<T> {
        match reactor::timeout(SILENCE_MAX, something).await {
            Ok(value) => Some(value),
            Err(_) => {
                if self.0.is_calm {
                    let seconds = SILENCE_MAX.as_secs();
                    universe::fault(format!(
                        "a command has had no response for {seconds} s, although nothing blocks it"
                    ));
                }
                self.leave();
                None
            }
        }
    }

    /// Sends a command and waits for its completion.
    pub(crate) async fn execute(&self, command: Command) -> Result<CommandResult, Lost> {
        self.execute_for(command, None).await
    }

    /// Like `execute`, but aborts the command if it takes longer than `patience`.
    pub(crate) async fn execute_for(
        &self,
        command: Command,
        patience: Option<Duration>,
    ) -> Result<CommandResult, Lost> {
        self.window().await;
        let lun = command.lun;
        let itt = {
            let mut state = self.0.state.borrow_mut();
            let Command {
                lun,
                cdb,
                out,
                in_bytes,
            } = command;
            let mut bhs = [0u8; 48];
            bhs[0] = 0x01;
            bhs[1] = 0x80
                | if in_bytes > 0 { 0x40 } else { 0 }
                | if out.is_empty() { 0 } else { 0x20 }
                | 0x01;
            bhs[8..10].copy_from_slice(&lun.to_be_bytes());
            set_32(
                &mut bhs,
                20,
                if out.is_empty() {
                    in_bytes
                } else {
                    out.len() as u32
                },
            );
            let cmd_sn = state.cmd_sn;
            set_32(&mut bhs, 24, cmd_sn);
            state.cmd_sn = cmd_sn.wrapping_add(1);
            bhs[32..48].copy_from_slice(&cdb);
            let immediate = out.len().min(self.0.immediate_bytes);
            let task = Task {
                lun,
                cmd_sn,
                data_out: out,
                data_in: vec![0; in_bytes as usize],
                answer: None,
                waker: None,
            };
            state.send(bhs, immediate, task)
        };
        let _waiting = Waiting(self, itt);
        if let Some(patience) = patience {
            if let Ok(answer) = reactor::timeout(patience, self.answer(itt)).await {
                return answer;
            }
            self.manage(Function::AbortTask, lun, itt).await?;
        }
        self.answer(itt).await
    }

    /// Requests a task management function for the logical unit, or for the task with this tag.
    pub(crate) async fn manage(&self, function: Function, lun: u16, task: u32) -> Result<u8, Lost> {
        let itt = {
            let mut state = self.0.state.borrow_mut();
            let mut bhs = [0u8; 48];
            bhs[0] = 0x42;
            bhs[1] = 0x80 | function as u8;
            bhs[8..10].copy_from_slice(&lun.to_be_bytes());
            set_32(&mut bhs, 20, task);
            set_32(&mut bhs, 24, state.cmd_sn);
            set_32(
                &mut bhs,
                32,
                state.tasks.get(&task).map_or(0, |task| task.cmd_sn),
            );
            let task = Task {
                lun,
                cmd_sn: 0,
                data_out: Vec::new(),
                data_in: Vec::new(),
                answer: None,
                waker: None,
            };
            state.send(bhs, 0, task)
        };
        let _waiting = Waiting(self, itt);
        let response = self.answer(itt).await?.status;
        if response == 0 {
            // The tasks that the function terminated get no response (RFC 7143 section 4.2.3.3), so wake
            // their waiters here.
            let mut state = self.0.state.borrow_mut();
            let ended: Vec<u32> = state
                .tasks
                .range(..itt)
                .filter(|(tag, _)| function == Function::LunReset || **tag == task)
                .filter(|(_, task)| task.lun == lun && task.answer.is_none())
                .map(|(itt, _)| *itt)
                .collect();
            ended
                .into_iter()
                .for_each(|itt| state.end(itt, ENDED, None));
        }
        Ok(response)
    }

    pub(crate) fn next_cmd_sn(&self) -> u32 {
        self.0.state.borrow().cmd_sn
    }

    /// Whether the target has certainly started the command with this CmdSN: it has answered a later command,
    /// and all data of the command was immediate data.
    pub(crate) fn has_begun(&self, cmd_sn: u32) -> bool {
        self.0.immediate_bytes > 0 && self.0.state.borrow().answered > cmd_sn
    }

    /// Closes the connection without a logout.
    pub(crate) fn leave(&self) {
        self.0.stream.shutdown();
        self.lose();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.0.lost.get()
    }

    /// Whether the target has requested a logout.
    pub(crate) fn is_asked_to_leave(&self) -> bool {
        self.0.state.borrow().asked_to_leave
    }

    async fn answer(&self, itt: u32) -> Result<CommandResult, Lost> {
        let answer = poll_fn(|cx| {
            let mut state = self.0.state.borrow_mut();
            let lost = self.0.lost.get();
            let Some(task) = state.tasks.get_mut(&itt) else {
                return Poll::Ready(Err(Lost));
            };
            match task.answer.take() {
                Some(answer) => Poll::Ready(Ok(answer)),
                None if lost => Poll::Ready(Err(Lost)),
                None => {
                    task.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        self.or_leave(answer).await.unwrap_or(Err(Lost))
    }

    fn lose(&self) {
        self.0.lost.set(true);
        let wakers = {
            let mut state = self.0.state.borrow_mut();
            let mut wakers: Vec<Waker> = state
                .tasks
                .values_mut()
                .filter_map(|task| task.waker.take())
                .collect();
            wakers.append(&mut state.window);
            wakers.extend(state.out.take_writer());
            wakers
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Maximum time to wait for the target. It is longer than any hang of a disk, and longer than the target
/// waits for a disk.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(200);

/// Removes a task when its future is dropped.
struct Waiting<'a>(&'a Simple, u32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.state.borrow_mut().tasks.remove(&self.1);
    }
}

impl SessionState {
    fn send(&mut self, mut bhs: Header, immediate: usize, task: Task) -> u32 {
        let itt = self.next_itt;
        self.next_itt += 1;
        set_32(&mut bhs, 16, itt);
        set_32(&mut bhs, 28, self.exp_stat_sn);
        let bytes = pdu(bhs, &task.data_out[..immediate]);
        self.tasks.insert(itt, task);
        self.out.put(&bytes);
        itt
    }
}

async fn write(simple: Simple) {
    loop {
        let taken = poll_fn(|cx| {
            simple
                .0
                .state
                .borrow_mut()
                .out
                .poll_take(cx, simple.0.lost.get())
        })
        .await;
        let Some(bytes) = taken else { return };
        if pdu::write(&*simple.0.stream, &bytes).await.is_err() {
            return simple.lose();
        }
    }
}

async fn read(simple: Simple) {
    loop {
        dawdle(simple.0.slow.reads_once_in, simple.0.slow.longest).await;
        let Ok((bhs, data)) = pdu::read_pdu(&*simple.0.stream).await else {
            return simple.lose();
        };
        simple.take(&bhs, &data);
        if simple.is_lost() {
            return;
        }
    }
}

/// Once in `once_in` calls, waits for up to `longest` nanoseconds.
pub(crate) async fn dawdle(once_in: u64, longest: u64) {
    if universe::draw(|random| random.once_in(once_in)) {
        let time = universe::draw(|random| random.mostly_small(1_000_000, longest));
        reactor::sleep(Duration::from_nanos(time)).await;
    }
}

impl Simple {
    fn take(&self, bhs: &Header, data: &[u8]) {
        let opcode = bhs[0] & 0x3f;
        let itt = get_32(bhs, 16);
        let mut state = self.0.state.borrow_mut();
        let numbered = opcode != 0x31 && !(opcode == 0x25 && bhs[1] & 1 == 0);
        if numbered && !(opcode == 0x20 && itt == u32::MAX) {
            state.exp_stat_sn = get_32(bhs, 24).wrapping_add(1);
        }
        let max = get_32(bhs, 32);
        if (max.wrapping_sub(state.max_cmd_sn) as i32) > 0 {
            state.max_cmd_sn = max;
        }
        let window = std::mem::take(&mut state.window);
        match opcode {
            0x21 | 0x22 => {
                let sense = data
                    .get(2..16)
                    .map(|sense| (sense[2] & 15, sense[12], sense[13]));
                let status = if opcode == 0x21 { bhs[3] } else { bhs[2] };
                if opcode == 0x21 && status == BUSY && self.0.is_calm {
                    universe::fault(
                        "a command ended with BUSY, although no fault was injected".to_owned(),
                    );
                }
                state.end(itt, status, sense);
            }
            0x25 => {
                let offset = get_32(bhs, 40) as usize;
                if let Some(task) = state.tasks.get_mut(&itt)
                    && let Some(place) = task.data_in.get_mut(offset..offset + data.len())
                {
                    place.copy_from_slice(data);
                }
                if bhs[1] & 1 != 0 {
                    state.end(itt, bhs[3], None);
                }
            }
            0x31 => {
                let (offset, length) = (get_32(bhs, 40) as usize, get_32(bhs, 44) as usize);
                let mut ttt = [0; 4];
                ttt.copy_from_slice(&bhs[20..24]);
                drop(state);
                reactor::spawn(self.clone().send_data(itt, ttt, offset, length));
                state = self.0.state.borrow_mut();
            }
            0x20 if bhs[20..24] != [0xff; 4] => {
                let mut answer = [0u8; 48];
                (answer[0], answer[1]) = (0x40, 0x80);
                answer[8..16].copy_from_slice(&bhs[8..16]);
                answer[16..20].fill(0xff);
                answer[20..24].copy_from_slice(&bhs[20..24]);
                set_32(&mut answer, 24, state.cmd_sn);
                set_32(&mut answer, 28, state.exp_stat_sn);
                state.out.put(&pdu(answer, &[]));
            }
            0x32 => state.asked_to_leave = true,
            0x3f => {
                universe::fault(format!(
                    "the target rejects a PDU of a conforming initiator: reason {:#x}",
                    bhs[2]
                ));
            }
            _ => {}
        }
        drop(state);
        window.into_iter().for_each(Waker::wake);
    }

    async fn send_data(self, itt: u32, ttt: [u8; 4], offset: usize, length: usize) {
        let mut at = 0;
        let mut number = 0;
        while at < length {
            dawdle(self.0.slow.sends_once_in, self.0.slow.longest).await;
            if self.is_lost() {
                return;
            }
            let mut state = self.0.state.borrow_mut();
            let count = (length - at).min(state.segment_bytes);
            let Some(task) = state.tasks.get(&itt) else {
                return;
            };
            let lun = task.lun;
            let Some(data) = task.data_out.get(offset + at..offset + at + count) else {
                return universe::fault(format!(
                    "R2T beyond the data: {offset}+{length} of {}",
                    task.data_out.len()
                ));
            };
            let data = data.to_vec();
            let mut bhs = [0u8; 48];
            bhs[0] = 0x05;
            bhs[1] = if at + count == length { 0x80 } else { 0 };
            bhs[8..10].copy_from_slice(&lun.to_be_bytes());
            set_32(&mut bhs, 16, itt);
            bhs[20..24].copy_from_slice(&ttt);
            set_32(&mut bhs, 28, state.exp_stat_sn);
            set_32(&mut bhs, 36, number);
            set_32(&mut bhs, 40, (offset + at) as u32);
            state.out.put(&pdu(bhs, &data));
            at += count;
            number += 1;
        }
    }
}

impl SessionState {
    fn end(&mut self, itt: u32, status: u8, sense: Option<(u8, u8, u8)>) {
        if let Some(task) = self.tasks.get_mut(&itt) {
            let data = std::mem::take(&mut task.data_in);
            if status != ENDED {
                self.answered = self.answered.max(task.cmd_sn);
            }
            task.answer = Some(CommandResult {
                status,
                sense,
                data,
            });
            if let Some(waker) = task.waker.take() {
                waker.wake();
            }
        }
    }
}
