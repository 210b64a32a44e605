//! Statistics of a TCP path, from `struct tcp_info`. The kernel returns the length of the structure that it
//! filled; it does not support the fields beyond that. Counters are totals since the connection was
//! established.

#![allow(unsafe_code)]

use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use reactor::PathInfo;
use socket2::SockRef;

/// The used part of `struct tcp_info` in Linux's `include/uapi/linux/tcp.h`, in which offsets never change.
/// (libc's definition dates from 2008.) An array stands for several consecutive fields of the kernel, most of
/// them unused: `rto_to_snd_mss`, for example, contains `tcpi_rto`, `tcpi_ato` and `tcpi_snd_mss`. The suffix
/// `_us` is not part of the kernel's names.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    state_to_wscale: [u8; 7],
    flags: u8,
    rto_to_snd_mss: [u32; 3],
    rcv_mss_to_last_ack_recv: [u32; 10],
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt_us: u32,
    rttvar_us: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt_us: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_to_bytes_acked: [u64; 3],
    bytes_received: u64,
    segs_out_and_in: [u32; 2],
    notsent_bytes: u32,
    min_rtt_us: u32,
    data_segs: [u32; 2],
    delivery_rate: u64,
    busy_time_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
    delivered: [u32; 2],
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    /// `tcpi_rehash`, included so that the structure has no padding here.
    rehash: u32,
}

/// `tcpi_delivery_rate_app_limited`, the first bit field in `flags`: a lack of data to send, not the path,
/// limited the delivery rate.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") {
    0x01
} else {
    0x80
};

/// Returns the statistics of a socket's path; `None` if the kernel returns none, for example because the
/// socket is not TCP.
pub(crate) fn info(socket: &OwnedFd) -> Option<PathInfo> {
    let (info, length) = read(socket)?;
    let congestion = SockRef::from(socket).tcp_congestion().unwrap_or_default();
    let congestion = String::from_utf8_lossy(&congestion)
        .trim_end_matches('\0')
        .to_owned();
    Some(PathInfo {
        congestion,
        ..describe(&info, length)
    })
}

/// Converts the structure, of which the kernel filled `length` bytes. Every supported kernel fills the fields
/// up to `total_retrans`. The name of the congestion control is left empty.
fn describe(info: &TcpInfo, length: usize) -> PathInfo {
    let returned = ReturnedLength { length };
    let us = Duration::from_micros;
    PathInfo {
        congestion: String::new(),
        round_trip: us(info.rtt_us.into()),
        round_trip_deviation: us(info.rttvar_us.into()),
        round_trip_min: returned
            .short(offset_of!(TcpInfo, min_rtt_us), info.min_rtt_us)
            .map(|min| us(min.into())),
        receive_round_trip: Some(us(info.rcv_rtt_us.into())).filter(|time| !time.is_zero()),
        segment_bytes: info.rto_to_snd_mss[2],
        path_mtu_bytes: info.pmtu,
        congestion_window_segments: info.snd_cwnd,
        peer_window_bytes: returned.short(offset_of!(TcpInfo, snd_wnd), info.snd_wnd),
        receive_space_bytes: info.rcv_space,
        own_window_bytes: returned.short(offset_of!(TcpInfo, rcv_wnd), info.rcv_wnd),
        data_segments_in: returned.short(offset_of!(TcpInfo, data_segs), info.data_segs[0]),
        data_segments_out: returned.short(
            offset_of!(TcpInfo, data_segs) + size_of::<u32>(),
            info.data_segs[1],
        ),
        out_of_order_segments: returned.short(offset_of!(TcpInfo, rcv_ooopack), info.rcv_ooopack),
        unsent_bytes: returned.short(offset_of!(TcpInfo, notsent_bytes), info.notsent_bytes),
        retransmissions: info.total_retrans,
        sent_bytes: returned.long(offset_of!(TcpInfo, bytes_sent), info.bytes_sent),
        retransmitted_bytes: returned.long(offset_of!(TcpInfo, bytes_retrans), info.bytes_retrans),
        received_bytes: returned.long(offset_of!(TcpInfo, bytes_received), info.bytes_received),
        reorderings: returned.short(offset_of!(TcpInfo, reord_seen), info.reord_seen),
        duplicates: returned.short(offset_of!(TcpInfo, dsack_dups), info.dsack_dups),
        delivery_bytes_per_second: returned
            .long(offset_of!(TcpInfo, delivery_rate), info.delivery_rate),
        // The kernel sets this flag only if it also returns the delivery rate.
        delivery_limited_by_sender: returned
            .long(offset_of!(TcpInfo, delivery_rate), info.delivery_rate)
            .map(|_| info.flags & APP_LIMITED != 0),
        busy: returned
            .long(offset_of!(TcpInfo, busy_time_us), info.busy_time_us)
            .map(us),
        limited_by_receiver: returned
            .long(offset_of!(TcpInfo, rwnd_limited_us), info.rwnd_limited_us)
            .map(us),
        limited_by_send_buffer: returned
            .long(
                offset_of!(TcpInfo, sndbuf_limited_us),
                info.sndbuf_limited_us,
            )
            .map(us),
    }
}

/// The length of the part of the structure that the kernel filled.
#[derive(Clone, Copy)]
struct ReturnedLength {
    length: usize,
}

impl ReturnedLength {
    /// Returns the value of a 32-bit field, if the kernel filled it.
    fn short(self, offset: usize, value: u32) -> Option<u32> {
        (self.length >= offset + size_of::<u32>()).then_some(value)
    }

    /// Returns the value of a 64-bit field, if the kernel filled it.
    fn long(self, offset: usize, value: u64) -> Option<u64> {
        (self.length >= offset + size_of::<u64>()).then_some(value)
    }
}

/// Queries the structure. Also returns the number of bytes that the kernel filled.
fn read(socket: &OwnedFd) -> Option<(TcpInfo, usize)> {
    // SAFETY: a TcpInfo is integers only, for which zeros are values.
    let mut info: TcpInfo = unsafe { std::mem::zeroed() };
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which is that long, and the length to
    // `length`.
    let returned = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (returned == 0).then_some((info, length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_kernel_puts_them() {
        // Offsets counted in the header: tcpi_rtt is the 16th u32 after 8 bytes, and so on.
        assert_eq!(offset_of!(TcpInfo, rtt_us), 68);
        assert_eq!(offset_of!(TcpInfo, snd_cwnd), 80);
        assert_eq!(offset_of!(TcpInfo, total_retrans), 100);
        assert_eq!(offset_of!(TcpInfo, min_rtt_us), 148);
        assert_eq!(offset_of!(TcpInfo, delivery_rate), 160);
        assert_eq!(offset_of!(TcpInfo, sndbuf_limited_us), 184);
        assert_eq!(offset_of!(TcpInfo, pmtu), 60);
        assert_eq!(offset_of!(TcpInfo, rcv_rtt_us), 92);
        assert_eq!(offset_of!(TcpInfo, bytes_received), 128);
        assert_eq!(offset_of!(TcpInfo, notsent_bytes), 144);
        assert_eq!(offset_of!(TcpInfo, bytes_sent), 200);
        assert_eq!(offset_of!(TcpInfo, dsack_dups), 216);
        assert_eq!(offset_of!(TcpInfo, snd_wnd), 228);
        assert_eq!(offset_of!(TcpInfo, data_segs), 152);
        assert_eq!(offset_of!(TcpInfo, rcv_ooopack), 224);
        assert_eq!(offset_of!(TcpInfo, rcv_wnd), 232);
    }

    #[test]
    fn what_an_old_kernel_does_not_tell_is_not_there() {
        // SAFETY: a TcpInfo is integers only, for which zeros are values.
        let zeros: TcpInfo = unsafe { std::mem::zeroed() };
        let info = TcpInfo {
            rtt_us: 7,
            delivery_rate: 8,
            flags: APP_LIMITED,
            bytes_sent: 9,
            ..zeros
        };
        let of_2008 = describe(&info, 104);
        assert_eq!(of_2008.data_segments_in, None);
        assert_eq!(
            (of_2008.round_trip, of_2008.round_trip_min),
            (Duration::from_micros(7), None)
        );
        let of_4_9 = describe(&info, 168);
        assert_eq!(
            (of_4_9.delivery_bytes_per_second, of_4_9.busy),
            (Some(8), None)
        );
        assert_eq!(
            (of_4_9.delivery_limited_by_sender, of_4_9.sent_bytes),
            (Some(true), None)
        );
        let of_5_4 = describe(&info, size_of::<TcpInfo>());
        assert_eq!(
            (of_5_4.sent_bytes, of_5_4.peer_window_bytes),
            (Some(9), Some(0))
        );
    }
}
