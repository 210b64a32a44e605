//! Statistics in JSON: one object, with units in the names of its fields.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use reactor::PathInfo;
use serde::{Serialize, Serializer};

use super::table::phase_name;
use super::{
    Calls, ClassStatistics, ConnectionStatistics, Counters, Incidents, Latency, Phase, RoundTrips, Statistics,
};

impl Serialize for Statistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Record::new(self).serialize(serializer)
    }
}

#[derive(Serialize)]
struct Record {
    seconds: f64,
    read: ClassRecord,
    write: ClassRecord,
    other: ClassRecord,
    written_bytes: WrittenRecord,
    data_in_bytes: u64,
    r2ts: u64,
    rejects: u64,
    window: WindowRecord,
    nops: NopRecord,
    reads: CallsRecord,
    writes: CallsRecord,
    digests: DigestRecord,
    incidents: IncidentsRecord,
    connections: Vec<ConnectionRecord>,
}

#[derive(Serialize)]
struct ClassRecord {
    commands: u64,
    errors: u64,
    bytes: u64,
    latency_us: LatencyRecord,
    /// By name: `waiting`, and the phases. They make the whole.
    parts_us: BTreeMap<&'static str, LatencyRecord>,
}

#[derive(Serialize)]
struct LatencyRecord {
    mean: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[derive(Serialize)]
struct WrittenRecord {
    immediate: u64,
    unsolicited: u64,
    solicited: u64,
}

#[derive(Serialize)]
struct WindowRecord {
    room: u32,
    under_way: u32,
    stalls: u64,
    stalled_seconds: f64,
}

#[derive(Serialize)]
struct NopRecord {
    count: u64,
    mean_us: Option<f64>,
    min_us: Option<f64>,
    max_us: Option<f64>,
}

#[derive(Serialize)]
struct CallsRecord {
    calls: u64,
    idle: u64,
    bytes: u64,
    pdus: u64,
}

#[derive(Serialize)]
struct DigestRecord {
    segments: u64,
    bytes: u64,
    estimated_seconds: f64,
}

#[derive(Serialize)]
struct IncidentsRecord {
    busy: u64,
    task_set_full: u64,
    unit_attentions: u64,
    replays: u64,
    timeouts: u64,
    aborts: u64,
    resets: u64,
    connections_lost: u64,
    reconnects: u64,
    away_seconds: f64,
    away_seconds_max: f64,
}

#[derive(Serialize)]
struct ConnectionRecord {
    cid: u16,
    local: SocketAddr,
    peer: SocketAddr,
    path: Option<PathRecord>,
}

#[derive(Serialize)]
struct PathRecord {
    congestion: String,
    round_trip_us: f64,
    round_trip_deviation_us: f64,
    round_trip_min_us: Option<f64>,
    receive_round_trip_us: Option<f64>,
    segment_bytes: u32,
    path_mtu_bytes: u32,
    congestion_window_segments: u32,
    peer_window_bytes: Option<u32>,
    receive_space_bytes: u32,
    own_window_bytes: Option<u32>,
    data_segments_in: Option<u32>,
    data_segments_out: Option<u32>,
    out_of_order_segments: Option<u32>,
    unsent_bytes: Option<u32>,
    retransmissions: u32,
    sent_bytes: Option<u64>,
    retransmitted_bytes: Option<u64>,
    received_bytes: Option<u64>,
    reorderings: Option<u32>,
    duplicates: Option<u32>,
    delivery_bytes_per_second: Option<u64>,
    delivery_limited_by_sender: Option<bool>,
    busy_seconds: Option<f64>,
    limited_by_receiver_seconds: Option<f64>,
    limited_by_send_buffer_seconds: Option<f64>,
}

impl Record {
    fn new(of: &Statistics) -> Record {
        let Counters { immediate_bytes, unsolicited_bytes, solicited_bytes, .. } = of.counters;
        Record {
            seconds: of.time.as_secs_f64(),
            read: ClassRecord::new(&of.read),
            write: ClassRecord::new(&of.write),
            other: ClassRecord::new(&of.other),
            written_bytes: WrittenRecord {
                immediate: immediate_bytes,
                unsolicited: unsolicited_bytes,
                solicited: solicited_bytes,
            },
            data_in_bytes: of.counters.data_in_bytes,
            r2ts: of.counters.r2ts,
            rejects: of.counters.rejects,
            window: WindowRecord {
                room: of.window_room,
                under_way: of.under_way,
                stalls: of.counters.window_stalls,
                stalled_seconds: of.counters.window_stalled.as_secs_f64(),
            },
            nops: NopRecord::new(&of.counters.nops),
            reads: CallsRecord::new(of.received, of.counters.pdus_in),
            writes: CallsRecord::new(of.sent, of.counters.pdus_out),
            digests: DigestRecord {
                segments: of.digests.segments,
                bytes: of.digests.bytes,
                estimated_seconds: of.digests.estimate().as_secs_f64(),
            },
            incidents: IncidentsRecord::new(&of.incidents),
            connections: of.connections.iter().map(ConnectionRecord::new).collect(),
        }
    }
}

impl ClassRecord {
    fn new(of: &ClassStatistics) -> ClassRecord {
        let phases = Phase::ALL.map(|phase| (phase_name(phase), LatencyRecord::new(of.phase(phase))));
        let waiting = ("waiting", LatencyRecord::new(&of.waiting));
        ClassRecord {
            commands: of.commands,
            errors: of.errors,
            bytes: of.bytes,
            latency_us: LatencyRecord::new(&of.latency),
            parts_us: std::iter::once(waiting).chain(phases).collect(),
        }
    }
}

impl LatencyRecord {
    fn new(of: &Latency) -> LatencyRecord {
        let percentile = |percent| us(of.percentile(percent));
        LatencyRecord {
            mean: us(of.mean()),
            p50: percentile(50.0),
            p99: percentile(99.0),
            p999: percentile(99.9),
            max: us(of.max()),
        }
    }
}

impl NopRecord {
    fn new(of: &RoundTrips) -> NopRecord {
        NopRecord {
            count: of.count,
            mean_us: of.mean().map(us),
            min_us: of.min.map(us),
            max_us: of.max.map(us),
        }
    }
}

impl CallsRecord {
    fn new(of: Calls, pdus: u64) -> CallsRecord {
        CallsRecord { calls: of.calls, idle: of.idle, bytes: of.bytes, pdus }
    }
}

impl IncidentsRecord {
    fn new(of: &Incidents) -> IncidentsRecord {
        IncidentsRecord {
            busy: of.busy,
            task_set_full: of.task_set_full,
            unit_attentions: of.unit_attentions,
            replays: of.replays,
            timeouts: of.timeouts,
            aborts: of.aborts,
            resets: of.resets,
            connections_lost: of.connections_lost,
            reconnects: of.reconnects,
            away_seconds: of.away.as_secs_f64(),
            away_seconds_max: of.away_longest.as_secs_f64(),
        }
    }
}

impl ConnectionRecord {
    fn new(of: &ConnectionStatistics) -> ConnectionRecord {
        let path = of.path.as_ref().map(PathRecord::new);
        ConnectionRecord { cid: of.cid.0, local: of.local, peer: of.peer, path }
    }
}

impl PathRecord {
    fn new(of: &PathInfo) -> PathRecord {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        PathRecord {
            congestion: of.congestion.clone(),
            round_trip_us: us(of.round_trip),
            round_trip_deviation_us: us(of.round_trip_deviation),
            round_trip_min_us: of.round_trip_min.map(us),
            receive_round_trip_us: of.receive_round_trip.map(us),
            segment_bytes: of.segment_bytes,
            path_mtu_bytes: of.path_mtu_bytes,
            congestion_window_segments: of.congestion_window_segments,
            peer_window_bytes: of.peer_window_bytes,
            receive_space_bytes: of.receive_space_bytes,
            own_window_bytes: of.own_window_bytes,
            data_segments_in: of.data_segments_in,
            data_segments_out: of.data_segments_out,
            out_of_order_segments: of.out_of_order_segments,
            unsent_bytes: of.unsent_bytes,
            retransmissions: of.retransmissions,
            sent_bytes: of.sent_bytes,
            retransmitted_bytes: of.retransmitted_bytes,
            received_bytes: of.received_bytes,
            reorderings: of.reorderings,
            duplicates: of.duplicates,
            delivery_bytes_per_second: of.delivery_bytes_per_second,
            delivery_limited_by_sender: of.delivery_limited_by_sender,
            busy_seconds: seconds(of.busy),
            limited_by_receiver_seconds: seconds(of.limited_by_receiver),
            limited_by_send_buffer_seconds: seconds(of.limited_by_send_buffer),
        }
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
