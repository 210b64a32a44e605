//! Attacks by malicious clients. Memory and descriptors must stay bounded and be released, and other clients
//! must not be affected.

use super::Both;
use super::client::{BLOCK_STATUS, CACHE, Client, FLUSH, OPT_LIST, READ, WRITE, an_option};
use crate::hostile::resident_bytes;
use crate::program::until;

/// The maximum growth of the server's memory, with `staging` as below.
const MEMORY_BYTES_MAX: u64 = 96 << 20;
const STAGING: &str = "[limits]\nstaging = \"32MiB\"\n";

struct Siege {
    both: Both,
    witness: Client,
    memory_bytes: u64,
    descriptors: usize,
}

impl Siege {
    fn begin(volume: &str) -> Option<Siege> {
        let both = Both::serving(&[volume], STAGING)?;
        let mut witness = Client::attach(both.port, "disk");
        witness.write(0, &[0x5a; 65_536]).expect("written");
        // Each core opens its file resources at its first file request. Connect enough clients at the same
        // time to reach all cores.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut all: Vec<Client> = (0..2 * cores)
            .map(|_| Client::attach(both.port, "disk"))
            .collect();
        for client in &mut all {
            client.begin(FLUSH, 0, 0, &[]);
            client.answer(0).expect("flushed");
        }
        drop(all);
        let (memory_bytes, descriptors) = (resident_bytes(&both.server), descriptors(&both));
        Some(Siege {
            both,
            witness,
            memory_bytes,
            descriptors,
        })
    }

    /// Checks that the server serves others, and that its memory has not grown.
    fn holds(&mut self) {
        assert_eq!(self.witness.read(0, 65_536), Ok(vec![0x5a; 65_536]));
        let grown = resident_bytes(&self.both.server).saturating_sub(self.memory_bytes);
        println!("the server has grown by {} KiB", grown >> 10);
        assert!(grown < MEMORY_BYTES_MAX, "by {grown} bytes");
        Client::attach(self.both.port, "disk")
            .read(0, 512)
            .expect("and new ones are let in");
    }

    /// Like [`Self::holds`], after all clients have disconnected. Also checks that no resource of them is
    /// kept.
    fn expect_over(mut self) {
        self.holds();
        until("all descriptors are given back", || {
            descriptors(&self.both) <= self.descriptors
        });
    }
}

fn descriptors(both: &Both) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", both.server.pid()))
        .expect("a running server")
        .count()
}

#[test]
fn half_a_handshake_ends() {
    let mut siege = or_skip!(Siege::begin("disk=ram:64MiB"));
    let port = siege.both.port;
    let mut open: Vec<Client> = Vec::new();
    for cut in [0, 1, 8, 15, 16, 20] {
        let mut client = Client::connect(port);
        client.say(&an_option(7, b"\0\0\0\x04disk\0\0")[..cut]);
        open.push(client);
    }
    siege.holds();
    assert!(
        open.iter_mut().all(Client::is_closed),
        "by the time that a handshake may take"
    );
    drop(open);
    siege.expect_over();
}

#[test]
fn a_crowd_in_the_middle_of_its_handshake_leaves_room() {
    let mut siege = or_skip!(Siege::begin("disk=ram:64MiB"));
    let port = siege.both.port;
    let open: Vec<Client> = (0..900)
        .map(|_| {
            let mut client = Client::connect(port);
            client.say(&an_option(7, &[0; 60_000])[..1000]);
            client
        })
        .collect();
    siege.holds();
    drop(open);
    siege.expect_over();
}

#[test]
fn options_without_end_cost_little() {
    let mut siege = or_skip!(Siege::begin("disk=ram:64MiB"));
    let port = siege.both.port;
    // The client reads the replies to its options.
    let mut client = Client::connect(port);
    for option in [0, 3, 6, 7, 9, 10, 4096] {
        assert_eq!(
            client.option(option, &vec![0xff; 2 << 20]),
            0x8000_0009,
            "TOO_BIG"
        );
    }
    for _ in 0..2000 {
        assert_eq!(client.option(OPT_LIST, &[]), 1);
    }
    siege.holds();
    // The clients do not read the replies, so the server sends only as many as the sockets can buffer.
    let open: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::connect(port);
            client.stream.set_nonblocking(true).expect("a socket");
            let flood = an_option(OPT_LIST, &[]).repeat(1000);
            let _ =
                (0..100).try_for_each(|_| std::io::Write::write_all(&mut client.stream, &flood));
            client
        })
        .collect();
    siege.holds();
    drop((open, client));
    siege.expect_over();
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let siege = or_skip!(Siege::begin("disk=ram:64MiB"));
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 4],
        &[0xff; 28],
        b"IHAVEOPT\0\0\0\x07\0\0\0\0",
        &[0x21, 0xe4, 0x1c, 0x71],
    ] {
        let mut client = Client::attach(siege.both.port, "disk");
        client.say(garbage);
        assert!(client.is_closed());
    }
    siege.expect_over();
}

#[test]
fn four_gibibytes_that_are_announced_take_no_memory() {
    let mut siege = or_skip!(Siege::begin("disk=file:{state}/disk.img?size=64MiB"));
    let open: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::attach(siege.both.port, "disk");
            client.begin(WRITE, 0, u64::from(u32::MAX), &vec![1; 1 << 20]);
            client
        })
        .collect();
    // These options have the maximum length, and their data does not arrive.
    let more: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::attach(siege.both.port, "protected");
            client.begin(WRITE, 0, 32 << 20, &[1; 4096]);
            client
        })
        .collect();
    siege.holds();
    drop((open, more));
    siege.expect_over();
}

/// Incomplete writes occupy all memory, and must lose it when other clients need it.
#[test]
fn writes_whose_data_do_not_come_give_way() {
    let mut siege = or_skip!(Siege::begin("disk=file:{state}/disk.img?size=64MiB"));
    let silent: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = Client::attach(siege.both.port, "disk");
            client.begin(WRITE, 0, 16 << 20, &[1; 4096]);
            client
        })
        .collect();
    siege
        .witness
        .write(0, &vec![0x5a; 1 << 20])
        .expect("memory, once it is given back");
    siege.holds();
    drop(silent);
    siege.expect_over();
}

#[test]
fn reads_that_nobody_takes_are_bounded() {
    for volume in ["disk=ram:64MiB", "disk=file:{state}/disk.img?size=64MiB"] {
        let mut siege = or_skip!(Siege::begin(volume));
        let open: Vec<Client> = (0..20)
            .map(|_| {
                let mut client = Client::attach(siege.both.port, "disk");
                let requests: Vec<u8> = (0..2000)
                    .flat_map(|_| client.header(READ, 0, 1 << 20))
                    .collect();
                client.say(&requests);
                client
            })
            .collect();
        siege.holds();
        drop(open);
        siege.expect_over();
    }
}

/// Regression: the memory of replies to BLOCK_STATUS, 16 MiB for each connection, was not counted.
#[test]
fn extents_that_nobody_takes_are_bounded() {
    let mut siege = or_skip!(Siege::begin("disk=ram:64MiB"));
    for block in 16..8192 {
        siege
            .witness
            .write(block * 8192, &[1; 4096])
            .expect("written");
    }
    let before = resident_bytes(&siege.both.server);
    siege.memory_bytes = before;
    let open: Vec<Client> = (0..16)
        .map(|_| {
            let mut client = Client::extended(siege.both.port, "disk");
            let requests: Vec<u8> = (0..500)
                .flat_map(|_| client.header(BLOCK_STATUS, 0, 64 << 20))
                .collect();
            client.say(&requests);
            client
        })
        .collect();
    until(
        "answers that wait for their clients, or clients that were cut",
        || {
            let told = crate::sessions::sessions(&siege.both.server);
            let of = |key: &str| {
                told.iter()
                    .map(|session| session[key].as_u64().unwrap_or(0))
                    .sum::<u64>()
            };
            let is_full = of("commands") > 8192 + 100 && of("in_flight") == 0;
            is_full
                || told.len() < 17
                || resident_bytes(&siege.both.server) > before + MEMORY_BYTES_MAX
        },
    );
    siege.holds();
    drop(open);
    siege.expect_over();
}

#[test]
fn thousands_of_reads_are_all_answered_in_their_own_name() {
    let mut siege = or_skip!(Siege::begin("disk=file:{state}/disk.img?size=64MiB"));
    let mut client = Client::extended(siege.both.port, "disk");
    let requests: Vec<u8> = (0..5000_u64)
        .flat_map(|at| client.header(READ, at % 100 * 4096 + at % 7, 512))
        .collect();
    client.say(&requests);
    let mut cookies: Vec<u64> = (0..5000)
        .map(|_| client.answer(512).expect("an answer").cookie)
        .collect();
    cookies.sort_unstable();
    assert!(cookies.into_iter().eq(1..=5000));
    siege.holds();
    drop(client);
    siege.expect_over();
}

/// CACHE reads in pieces, between which other tasks run. The server receives both requests together, and
/// begins with the first.
#[test]
fn a_read_overtakes_a_long_cache_request() {
    // This volume cannot expose its memory, and completes every read immediately.
    let both = or_skip!(Both::serving(&["disk=fault:[ram:256MiB]"], ""));
    let mut client = Client::attach(both.port, "disk");
    let requests = [
        client.header(CACHE, 0, 256 << 20),
        client.header(READ, 0, 512),
    ];
    client.say(&requests.concat());
    assert_eq!(
        client.answer(512).expect("an answer").cookie,
        2,
        "CACHE kept the core until its end"
    );
}
