//! The figures as JSON: every name ends with its unit.

use model::limits::{Block, DirectionLimits, DistanceLimits, DistantBlock, LinkLimits};
use model::link::{FRAMES_PER_ACK, Goodput, Layers};
use serde_json::{Value, json};

/// Everything, in bytes, bits and seconds.
///
/// # Errors
/// None that a number can cause: JSON has no infinity, which is written as `null`.
pub fn json(answer: &LinkLimits) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&value(answer)).map(|text| text + "\n")
}

fn value(answer: &LinkLimits) -> Value {
    let link = answer.link;
    let code = link.line_code();
    json!({
        "version": 1,
        "link_bits_per_s": link.bits_per_s,
        "link_bytes_per_s": link.bytes_per_s(),
        "line_code": code.map(|code| code.name),
        "line_bits_per_s": code.map(|code| code.bits_per_s),
        "mtu_bytes": link.mtu,
        "vlan": link.vlan,
        "ipv6": link.ipv6,
        "timestamps": link.timestamps,
        "frame": layers(link.data_layers()),
        "ack": layers(link.ack_layers()),
        "frames_per_ack": FRAMES_PER_ACK,
        "one_way": { "frames_per_s": link.frames_per_s(), "payload_bytes_per_s": link.payload_per_s() },
        "both_ways": {
            "frames_per_s_each_way": link.frames_per_s_both_ways(),
            "payload_bytes_per_s": link.payload_per_s_both_ways(),
        },
        "keys": answer.keys,
        "status_apart": answer.status_apart,
        "blocks": answer.blocks.iter().map(block).collect::<Vec<_>>(),
        "distance": answer.distance.as_ref().map(|far| distance(answer, far)),
    })
}

fn layers(layers: Layers) -> Value {
    json!({
        "ethernet_bytes": layers.ethernet,
        "vlan_tag_bytes": layers.vlan_tag,
        "ip_bytes": layers.ip,
        "tcp_bytes": layers.tcp,
        "payload_bytes": layers.payload,
        "padding_bytes": layers.padding,
        "check_bytes": layers.check,
        "frame_bytes": layers.frame(),
        "gap_bytes": layers.gap,
        "on_the_wire_bytes": layers.on_the_wire(),
        "overhead_bytes": layers.overhead(),
    })
}

fn block(block: &Block) -> Value {
    json!({
        "block_bytes": block.bytes,
        "reads": goodput(block.reads),
        "writes": goodput(block.writes),
        "both": goodput(block.both),
    })
}

fn goodput(goodput: Goodput) -> Value {
    json!({
        "bytes_per_s": goodput.bytes_per_s,
        "requests_per_s": goodput.requests_per_s,
        "back_percent": 100.0 * goodput.back,
    })
}

fn distance(answer: &LinkLimits, far: &DistanceLimits) -> Value {
    json!({
        "round_trip_s": far.asked.round_trip_s,
        "window_to_fill_bytes": far.window_bytes,
        "window_bytes": far.asked.window_bytes,
        "connections": far.asked.connections,
        "depth_requests": far.asked.depth,
        "tcp_payload_bytes_per_s": far.tcp_per_s,
        "blocks": far.blocks.iter().map(|block| far_block(answer, block)).collect::<Vec<_>>(),
    })
}

fn far_block(answer: &LinkLimits, block: &DistantBlock) -> Value {
    let names = std::iter::once("reads").chain(answer.write_modes.iter().copied());
    let ways: serde_json::Map<String, Value> =
        names.zip(&block.ways).map(|(name, to)| (name.to_owned(), way(to))).collect();
    json!({ "block_bytes": block.bytes, "ways": ways })
}

fn way(way: &DirectionLimits) -> Value {
    json!({
        "exchanges": way.exchanges,
        "depth_to_fill_requests": way.depth,
        "bytes_per_s": way.prediction.bytes_per_s,
        "latency_alone_s": way.prediction.alone_s,
        "limit": way.prediction.binding(),
    })
}
