//! Programs that disturb a path: `cargo measure burn` and `cargo measure forward`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, Result};
use rustix::process::getppid;
use xtask::tally::Verdict;

// `cargo measure burn`: a program that spins for a part of each period. It exits with its parent.

#[derive(Debug, clap::Args)]
pub(crate) struct BurnOptions {
    /// Fraction of each period to spin, from 0 to 1
    #[arg(long)]
    share: f64,
    /// Length of a period in microseconds
    #[arg(long)]
    period_us: u64,
}

pub(crate) fn burn(options: &BurnOptions) -> Verdict {
    let period = Duration::from_micros(options.period_us);
    let busy = period.mul_f64(options.share.clamp(0.0, 1.0));
    let parent = getppid();
    let mut start = Instant::now();
    while getppid() == parent {
        while start.elapsed() < busy {
            std::hint::spin_loop();
        }
        start += period;
        // After a delay, do not make up for missed periods: this would be one long burst.
        start = start.max(Instant::now().checked_sub(period).unwrap_or(start));
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
    }
    Verdict::Holds
}

// `cargo measure forward`: forwards data between a client and a target. It sends the target's PDUs as an inefficient target
// would: the header of each PDU separately, followed by its data.
//
// Without TCP_NODELAY, the data then waits until the header is acknowledged (RFC 896). The receiver delays this
// acknowledgement by 40 ms, because it has nothing to send before it gets the data (RFC 1122, 4.2.3.2).

#[derive(Debug, clap::Args)]
pub(crate) struct ForwardOptions {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Address of the target
    #[arg(long)]
    to: SocketAddr,
    /// Do not set TCP_NODELAY
    #[arg(long)]
    nagle: bool,
}

/// Serves until its parent exits.
pub(crate) fn forward(options: &ForwardOptions) -> Result<Verdict> {
    let listener =
        TcpListener::bind(options.listen).with_context(|| format!("{}", options.listen))?;
    println!("ready");
    let (to, nagle) = (options.to, options.nagle);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // Ignore errors: if the connection to the target fails or ends, the client's connection is also
            // closed.
            let _ = join(client, to, nagle);
        }
    });
    let parent = getppid();
    while getppid() == parent {
        thread::sleep(Duration::from_millis(200));
    }
    Ok(Verdict::Holds)
}

fn join(client: TcpStream, to: SocketAddr, nagle: bool) -> io::Result<()> {
    let target = TcpStream::connect(to)?;
    target.set_nodelay(true)?;
    client.set_nodelay(!nagle)?;
    let (mut from_client, mut to_target) = (client.try_clone()?, target.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_target);
        let _ = to_target.shutdown(std::net::Shutdown::Write);
    });
    thread::spawn(move || {
        let _ = in_pieces(target, &client);
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
    Ok(())
}

/// Basic header segment: RFC 7143 section 11.2.1.
const BHS_BYTES: usize = 48;

/// Forwards PDUs without digests until the target closes: the header in one write, the data in another.
fn in_pieces(mut target: impl Read, mut client: impl Write) -> io::Result<()> {
    let mut header = [0; BHS_BYTES];
    let mut data = Vec::new();
    loop {
        target.read_exact(&mut header)?;
        data.resize(data_bytes(&header), 0);
        target.read_exact(&mut data)?;
        client.write_all(&header)?;
        if !data.is_empty() {
            client.write_all(&data)?;
        }
    }
}

/// Returns the number of bytes after a header: additional header segments, and data padded to a multiple of
/// four (sections 11.2.1.4 and 11.2.1.5).
fn data_bytes(header: &[u8; BHS_BYTES]) -> usize {
    let [additional, high, middle, low] =
        [header[4], header[5], header[6], header[7]].map(usize::from);
    additional * 4 + ((high << 16) | (middle << 8) | low).next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records each write separately.
    #[derive(Default)]
    struct Pieces(Vec<Vec<u8>>);

    impl Write for &mut Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pdu_with_data_goes_in_two_pieces_and_one_without_in_one() {
        let mut with_data = vec![0x25; BHS_BYTES];
        with_data[4..8].copy_from_slice(&[1, 0, 0, 5]); // 4 bytes of additional header, 5 of data, 3 of padding
        with_data.extend([7; 12]);
        let mut without = vec![0x21; BHS_BYTES];
        without[4..8].fill(0);
        let said = [with_data.clone(), without.clone()].concat();
        let mut pieces = Pieces::default();
        let end = in_pieces(said.as_slice(), &mut pieces).expect_err("the end of what it said");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        let lengths: Vec<usize> = pieces.0.iter().map(Vec::len).collect();
        assert_eq!(lengths, [48, 12, 48]);
        assert_eq!(pieces.0.concat(), said);
    }
}
