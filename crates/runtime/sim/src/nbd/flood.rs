//! Peers that send endlessly before the login has completed: clients that pipeline NBD options and iSCSI
//! login requests, and an NBD server whose replies to an option never end. A state machine that reads as long
//! as data arrives would serve no other peer, and none of its timers would fire; [`crate::cores::turn`]
//! checks for this. A client must time out.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use reactor::{OutSlice, Stream};

use super::adversary::read_what_is_there;
use super::simple::{OPT_GO, OPTION_MAGIC, OPTION_REPLY, REPLY_ACK, REPLY_INFO, greet, option};
use crate::adversary::login;
use crate::network::Machine;
use crate::pdu::{self, pdu};
use crate::simulation::{GROUPS, Simulation, portal};
use crate::universe::{self, draw, note};

/// Starts the clients that flood the server, and one client whose server floods it.
pub(crate) fn begin(simulation: &Rc<Simulation>) -> Vec<Machine> {
    Machine::new("flooding server").run(serve);
    let client = Machine::fair("a client that is flooded");
    let of_client = Rc::clone(simulation);
    client.run(move || ask(of_client));
    let count = draw(|random| random.between(1, 3));
    let floods = (0..count).map(|_| Machine::of("flood", simulation, flood));
    floods.chain([client]).collect()
}

/// Floods the server through one connection after another.
async fn flood(simulation: Rc<Simulation>) {
    while !simulation.is_over.get() {
        reactor::sleep(Duration::from_nanos(draw(|random| {
            random.mostly_small(100_000, 1_000_000_000)
        })))
        .await;
        let is_nbd = draw(|random| random.once_in(2));
        let group = draw(|random| random.between(1, u64::from(GROUPS))) as u16;
        let to = if is_nbd {
            super::portal()
        } else {
            portal(group)
        };
        let Ok(stream) = reactor::world().connect(to, &Default::default()) else {
            continue;
        };
        note(&[62, u64::from(is_nbd)], || {
            format!("a flood starts at {to}")
        });
        let time = Duration::from_nanos(draw(|random| {
            random.mostly_small(100_000_000, 20_000_000_000)
        }));
        let _ = reactor::timeout(time, async {
            if is_nbd {
                greet(&*stream).await?;
                let number = *draw(|random| random.pick(&[LIST, INFO, UNKNOWN]));
                return send_without_end(&*stream, &option(number, &[])).await;
            }
            let (mut header, text) = login(0);
            header[1] = 0x04; // operational negotiation, which never ends
            send_without_end(&*stream, &pdu(header, text.as_bytes())).await
        })
        .await;
    }
}

const LIST: u32 = 3;
const INFO: u32 = 6;
const SET_META_CONTEXT: u32 = 10;
const UNKNOWN: u32 = 77;
const REPLY_META_CONTEXT: u32 = 4;

/// Sends the same bytes repeatedly, whatever the peer replies.
async fn send_without_end(stream: &dyn Stream, bytes: &[u8]) -> io::Result<()> {
    let burst = bytes.repeat((16 << 10) / bytes.len() + 1);
    loop {
        read_what_is_there(stream)?;
        let mut sent = 0;
        while sent < burst.len() {
            match stream.try_write(&[OutSlice::Bytes(&burst[sent..])]) {
                Ok(some) => sent += some,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll_fn(|cx| match stream.poll_readable(cx) {
                        Poll::Pending => stream.poll_writable(cx),
                        ready => ready,
                    })
                    .await?;
                    read_what_is_there(stream)?;
                }
                Err(error) => return Err(error),
            }
        }
        reactor::yield_now().await;
    }
}

/// Address of the server that floods its clients.
fn flooding_portal() -> SocketAddr {
    SocketAddr::new(super::portal().ip(), 10810)
}

/// Runs a server that replies to a client's options, to one of them endlessly.
async fn serve() {
    let Ok(listener) = reactor::world().listen(flooding_portal(), &Default::default()) else {
        return;
    };
    while let Ok(stream) = listener.accept().await {
        drop(reactor::spawn(async move { drop(answer(&*stream).await) }));
    }
}

async fn answer(stream: &dyn Stream) -> io::Result<()> {
    pdu::write(stream, &[&b"NBDMAGIC"[..], OPTION_MAGIC, &[0, 1]].concat()).await?;
    pdu::read(stream, &mut [0; 4]).await?;
    let last = *draw(|random| random.pick(&[SET_META_CONTEXT, OPT_GO]));
    loop {
        let mut header = [0; 16];
        pdu::read(stream, &mut header).await?;
        let word = |at: usize| {
            header[at..at + 4]
                .iter()
                .fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        let number = word(8);
        pdu::read(stream, &mut vec![0; word(12) as usize]).await?;
        if number == last {
            let (kind, data) = match number {
                OPT_GO => (REPLY_INFO, &[0, 9][..]), // an undefined information item
                _ => (REPLY_META_CONTEXT, &b"\0\0\0\x01base:allocation"[..]),
            };
            return send_without_end(stream, &reply(number, kind, data)).await;
        }
        pdu::write(stream, &reply(number, REPLY_ACK, &[])).await?;
    }
}

fn reply(to: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_REPLY.to_be_bytes().to_vec();
    [to, kind, data.len() as u32]
        .iter()
        .for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// Connects our client to that server, and checks that the handshake fails within its timeout.
async fn ask(simulation: Rc<Simulation>) {
    let Ok(mut url) = nbd_client::Url::parse(&format!("nbd://{}/volume0", flooding_portal()))
    else {
        return;
    };
    url.options.timeout = Duration::from_secs(5);
    while !simulation.is_over.get() {
        let opened = nbd_client::open(&url, None, universe::fill_random);
        match reactor::timeout(OPEN_MAX, opened).await {
            Ok(Ok(_)) => universe::fault(
                "a client completed its handshake with a flooding server".to_owned(),
            ),
            Ok(Err(error)) => note(&[63], || format!("a client is flooded: {error}")),
            Err(_) => universe::fault(format!(
                "a flooded client still waits after {} s",
                OPEN_MAX.as_secs()
            )),
        }
        reactor::sleep(Duration::from_nanos(draw(|random| {
            random.mostly_small(1_000_000, 1_000_000_000)
        })))
        .await;
    }
}

/// Time limit for opening the export. It is longer than the client's timeout.
const OPEN_MAX: Duration = Duration::from_secs(30);
