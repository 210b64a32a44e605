//! What the kernel knows of a TCP path: `struct tcp_info`, of which each kernel tells as much as it knows. What
//! lies beyond the length it returns is not there.

#![allow(unsafe_code)]

use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use reactor::PathInfo;
use socket2::SockRef;

/// The fields used, at the places that Linux's `include/uapi/linux/tcp.h` gives them; they never move. libc's
/// own definition ends where the structure of 2008 did.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    state_to_flags: [u8; 8],
    rto_to_snd_mss: [u32; 3],
    rcv_mss_to_last_ack_recv: [u32; 12],
    rtt_us: u32,
    rttvar_us: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss_to_rcv_space: [u32; 4],
    total_retrans: u32,
    pacing_to_bytes_received: [u64; 4],
    segs_out_to_notsent_bytes: [u32; 3],
    min_rtt_us: u32,
    data_segs: [u32; 2],
    delivery_rate: u64,
    busy_time_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
}

/// Nothing if the socket is no TCP socket or is gone.
pub(crate) fn info(socket: &OwnedFd) -> Option<PathInfo> {
    let (info, length) = read(socket)?;
    let told = |offset: usize| length >= offset + size_of::<u64>();
    let rest = |offset: usize, us: u64| told(offset).then(|| Duration::from_micros(us));
    // A field of four bytes is complete when the next is not begun: hence `length > offset`.
    let min_known = length > offset_of!(TcpInfo, min_rtt_us);
    let congestion = SockRef::from(socket).tcp_congestion().unwrap_or_default();
    Some(PathInfo {
        congestion: String::from_utf8_lossy(&congestion).trim_end_matches('\0').to_owned(),
        round_trip: Duration::from_micros(info.rtt_us.into()),
        round_trip_deviation: Duration::from_micros(info.rttvar_us.into()),
        round_trip_min: min_known.then(|| Duration::from_micros(info.min_rtt_us.into())),
        segment_bytes: info.rto_to_snd_mss[2],
        congestion_window_segments: info.snd_cwnd,
        retransmissions: info.total_retrans,
        delivery_bytes_per_second: told(offset_of!(TcpInfo, delivery_rate)).then_some(info.delivery_rate),
        limited_by_receiver: rest(offset_of!(TcpInfo, rwnd_limited_us), info.rwnd_limited_us),
        limited_by_send_buffer: rest(offset_of!(TcpInfo, sndbuf_limited_us), info.sndbuf_limited_us),
    })
}

/// The structure, and how many of its bytes the kernel filled.
fn read(socket: &OwnedFd) -> Option<(TcpInfo, usize)> {
    // SAFETY: a TcpInfo is integers only, for which zeros are values.
    let mut info: TcpInfo = unsafe { std::mem::zeroed() };
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which is that long, and the length to `length`.
    let told = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (told == 0).then_some((info, length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_kernel_puts_them() {
        // From the header: tcpi_rtt is the 16th u32 behind 8 bytes, and so on.
        assert_eq!(offset_of!(TcpInfo, rtt_us), 68);
        assert_eq!(offset_of!(TcpInfo, snd_cwnd), 80);
        assert_eq!(offset_of!(TcpInfo, total_retrans), 100);
        assert_eq!(offset_of!(TcpInfo, min_rtt_us), 148);
        assert_eq!(offset_of!(TcpInfo, delivery_rate), 160);
        assert_eq!(offset_of!(TcpInfo, sndbuf_limited_us), 184);
    }
}
