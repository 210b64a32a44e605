//! The test cells of document 002, ordered so that as little as possible is recreated between cells. This
//! module does not run them: the runner sets up the paths that the settings describe.

use crate::plan::{
    Cell, Order, Part, Percent, Role, Rule, Setting, Step, Stop, Suite, Way, Workload,
};

/// The name of the suite.
pub const NAME: &str = "wan";

/// The title of the suite.
pub const TITLE: &str =
    "Document 002: iSCSI over local, metropolitan and wide area networks, in a lab";

/// The parameters of the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct WanPlan {
    /// Capacity of the link in each direction, in bits per second.
    pub link_bits_per_s: f64,
    /// TCP's congestion control, except in the cells that compare several.
    pub congestion: String,
    /// Whether to run only a few cells of each part, each for a short time, in order to test the setup.
    pub quick: bool,
}

/// The request sizes of document 002, in which "1 kB" is 1024 bytes.
pub const BLOCK_BYTES: [u32; 4] = [1 << 10, 8 << 10, 64 << 10, 256 << 10];
/// The numbers of outstanding commands in document 002.
pub const DEPTHS: [u32; 2] = [1, 32];
/// The round-trip times in document 002, in milliseconds.
pub const RTTS_MS: [f64; 4] = [0.0, 2.0, 10.0, 50.0];
/// The TCP windows in document 002: the usual window of 2004, and one that is larger than the data in transit
/// at any of the distances.
pub const TCP_WINDOWS_BYTES: [u32; 2] = [64 << 10, 10 << 20];
/// The link rate of the second table of document 002.
pub const LAN_BITS_PER_S: f64 = 1e9;
/// The directions and kinds of data in the tables of document 002.
pub const WAYS: [Way; 3] = [Way::Reads, Way::MostSolicited, Way::MostUnsolicited];

/// The size of the largest packet, except in the cells that compare several.
pub const MTU: u32 = 1500;
/// The round-trip time for the additional parameters. It is long enough for each of them to matter, and short
/// enough for quick measurements.
const AXIS_RTT_MS: f64 = 10.0;

/// Creates the suite, with all cells unless the plan is quick.
pub fn suite(plan: &WanPlan) -> Suite {
    let mut cells: Vec<Cell> = document(plan).chain(axes(plan)).collect();
    if plan.quick {
        cells.retain(is_quick);
    }
    // The sort is stable, so cells with the same effort keep the order of the document.
    cells.sort_by_key(effort);
    let stop = stop(Way::Reads, 1, 0.0, plan.quick);
    Suite {
        name: "wan".to_owned(),
        title: "iSCSI over local, metropolitan and wide area networks".to_owned(),
        about: ABOUT.to_owned(),
        document: Some("002".to_owned()),
        assumed: ASSUMED.map(str::to_owned).to_vec(),
        steps: vec![Step::Measure {
            stop,
            order: Order::Once,
            cells,
        }],
    }
}

const ABOUT: &str = "All tests of document 002 (Dalgic, 2004): reads, most solicited and most unsolicited \
                     writes of 1, 8, 64 and 256 KiB, at queue depths 1 and 32, over round trips of 0, 2, 10 \
                     and 50 ms; plain TCP with windows of 64 KiB and 10 MiB; the same on Gigabit Ethernet \
                     without a delay. In addition, parameters that it names but does not measure: \
                     connections, sessions, MTU, command window, and TCP's congestion control. Target, \
                     initiator and network run on this machine, in a lab.";

const ASSUMED: [&str; 4] = [
    "requests are sequential; the document does not specify this",
    "the storage is memory: judging by their size, the document's numbers do not include its disks either",
    "MaxBurstLength 16 MiB and eight outstanding R2Ts; the document does not specify the negotiated values",
    "the LAN table has no added delay; the document does not specify its round trip",
];

/// Returns the cells whose results the document contains.
fn document(plan: &WanPlan) -> impl Iterator<Item = Cell> {
    let matrix = |part: Part, link_bits_per_s: f64, rtt_ms: f64| {
        let setting = Setting {
            part,
            rtt_ms,
            link_bits_per_s,
            ..setting(plan, Way::Reads)
        };
        WAYS.into_iter().flat_map(move |way| {
            let setting = Setting {
                way,
                ..setting.clone()
            };
            BLOCK_BYTES.into_iter().flat_map(move |block_bytes| {
                let setting = setting.clone();
                DEPTHS.into_iter().map(move |depth| Load {
                    block_bytes,
                    depth,
                    setting: setting.clone(),
                })
            })
        })
    };
    let wan = RTTS_MS.map(|rtt_ms| matrix(Part::Wan, plan.link_bits_per_s, rtt_ms));
    let lan = matrix(Part::Lan, LAN_BITS_PER_S, 0.0);
    let loads: Vec<Load> = wan
        .into_iter()
        .flatten()
        .chain(lan)
        .chain(tcp(plan))
        .collect();
    let quick = plan.quick;
    loads.into_iter().map(move |load| load.cell(quick))
}

fn tcp(plan: &WanPlan) -> Vec<Load> {
    let mut loads = Vec::new();
    for rtt_ms in RTTS_MS {
        for window in TCP_WINDOWS_BYTES {
            for to_target in [true, false] {
                let setting = Setting {
                    part: Part::Tcp,
                    rtt_ms,
                    tcp_window_bytes: Some(window),
                    ..setting(plan, Way::Tcp { to_target })
                };
                loads.push(Load {
                    block_bytes: 64 << 10,
                    depth: 1,
                    setting,
                });
            }
        }
    }
    loads
}

/// Returns cells for the parameters that the document mentions without results: the most informative loads
/// for each of them.
fn axes(plan: &WanPlan) -> impl Iterator<Item = Cell> {
    let mut loads = Vec::new();
    for way in [Way::Reads, Way::MostUnsolicited] {
        let far = Setting {
            rtt_ms: AXIS_RTT_MS,
            ..setting(plan, way)
        };
        let mut add = |block_bytes: u32, depth: u32, setting: Setting| {
            loads.push(Load {
                block_bytes,
                depth,
                setting,
            });
        };
        for connections in [1, 2, 4, 8] {
            // Each connection has its own window. With a small window, the effect of more connections is
            // visible.
            let tcp_window_bytes = Some(TCP_WINDOWS_BYTES[0]);
            let part = Part::Connections;
            add(
                64 << 10,
                32,
                Setting {
                    part,
                    connections,
                    tcp_window_bytes,
                    ..far.clone()
                },
            );
        }
        for sessions in [1, 2, 4, 8] {
            // Each session has its own queue depth. A depth of eight is far too small for the distance.
            add(
                8 << 10,
                8,
                Setting {
                    part: Part::Sessions,
                    sessions,
                    ..far.clone()
                },
            );
        }
        for mtu in [1500, 9000] {
            add(
                256 << 10,
                32,
                Setting {
                    part: Part::Mtu,
                    mtu,
                    ..far.clone()
                },
            );
        }
        for window in [8, 16, 32, 64, 128, 256] {
            // Use as many commands as the largest window permits.
            let part = Part::CommandWindow;
            add(
                8 << 10,
                256,
                Setting {
                    part,
                    command_window: Some(window),
                    ..far.clone()
                },
            );
        }
        for loss in [0.0, LOSS] {
            for congestion in CONGESTION {
                let congestion = congestion.to_owned();
                add(
                    256 << 10,
                    32,
                    Setting {
                        part: Part::Congestion,
                        loss,
                        congestion,
                        ..far.clone()
                    },
                );
            }
        }
    }
    let quick = plan.quick;
    loads.into_iter().map(move |load| load.cell(quick))
}

/// A loss of one packet in a thousand: a bad line, on which the throughput of the three algorithms differs
/// several-fold.
const LOSS: f64 = 0.001;
const CONGESTION: [&str; 3] = ["cubic", "reno", "bbr"];

fn setting(plan: &WanPlan, way: Way) -> Setting {
    Setting {
        part: Part::Wan,
        way,
        link_bits_per_s: plan.link_bits_per_s,
        rtt_ms: 0.0,
        mtu: MTU,
        loss: 0.0,
        // "In the remainder of this study, we use this TCP window size."
        tcp_window_bytes: Some(TCP_WINDOWS_BYTES[1]),
        connections: 1,
        sessions: 1,
        command_window: None,
        congestion: plan.congestion.clone(),
    }
}

/// The length and depth of requests, and their direction and kind.
struct Load {
    block_bytes: u32,
    depth: u32,
    setting: Setting,
}

impl Load {
    fn cell(self, quick: bool) -> Cell {
        let Load {
            block_bytes,
            depth,
            setting,
        } = self;
        let read = if setting.way.direction() == model::Direction::Read {
            Percent::ALL
        } else {
            Percent::NONE
        };
        let workload = Workload::simple(block_bytes, depth, read, Percent::NONE);
        let role = Role {
            sessions: setting.sessions,
            ..Role::new("client", 0, workload)
        };
        let series = series(&setting);
        let name = match point(&setting) {
            Some(point) => format!("{series}, {point}"),
            None => format!("{series}, {} KiB × {depth}", block_bytes >> 10),
        };
        Cell {
            stop: Some(stop(setting.way, depth, setting.rtt_ms, quick)),
            setting: Some(Box::new(setting)),
            ..Cell::new(name, series, vec![role])
        }
    }
}

/// Returns the name of the series, which cells have in common if they differ only in length and depth.
fn series(setting: &Setting) -> String {
    let way = match setting.way {
        Way::Tcp { to_target: true } => "TCP to the target",
        Way::Tcp { to_target: false } => "TCP from the target",
        Way::Reads => "read",
        Way::MostSolicited => "solicited write",
        Way::MostUnsolicited => "unsolicited write",
    };
    let place = match setting.part {
        Part::Wan | Part::Tcp => format!("{} ms", setting.rtt_ms),
        Part::Lan => "LAN".to_owned(),
        Part::Connections => "connections".to_owned(),
        Part::Sessions => "sessions".to_owned(),
        Part::Mtu => "MTU".to_owned(),
        Part::CommandWindow => "command window".to_owned(),
        Part::Congestion => format!("{} % loss", setting.loss * 100.0),
    };
    format!("{way}, {place}")
}

/// Returns the value of the parameter that the cell varies, if its name must contain more than length and
/// depth.
fn point(setting: &Setting) -> Option<String> {
    match setting.part {
        Part::Wan | Part::Lan => None,
        Part::Tcp => setting
            .tcp_window_bytes
            .map(|bytes| format!("window {}", size(bytes))),
        Part::Connections => Some(setting.connections.to_string()),
        Part::Sessions => Some(setting.sessions.to_string()),
        Part::Mtu => Some(setting.mtu.to_string()),
        Part::CommandWindow => setting.command_window.map(|commands| commands.to_string()),
        Part::Congestion => Some(setting.congestion.clone()),
    }
}

/// Formats a size: `64 KiB`, `10 MiB`.
fn size(bytes: u32) -> String {
    if bytes >= 1 << 20 {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

/// Returns the warm-up time and the counted time of a cell. TCP doubles its window each round trip. For the
/// longest of these distances on the fastest of these links, it needs a dozen round trips, and some more to
/// settle: thirty in total. At the longest distance, fewer requests complete, so the counted time is longer.
/// Solicited writes that start at the same time stay synchronised: all commands are sent, then all R2Ts, then
/// all data. The next commands wait behind the data, so the link is idle for a round trip in each cycle. The
/// writes need more than a hundred round trips to spread out (160 Mbit/s, 50 ms, 64 KiB: 14 MB/s in the first
/// second, 18 from the sixth on). The warm-up covers this time.
fn stop(way: Way, depth: u32, rtt_ms: f64, quick: bool) -> Stop {
    let trips = if way == Way::MostSolicited && depth > 1 {
        160.0
    } else {
        30.0
    };
    // Round to whole milliseconds, which a record represents exactly.
    let warm_up_s = (300.0 + trips * rtt_ms).round() / 1000.0;
    let counted_s = if rtt_ms >= 50.0 { 3.0 } else { 2.0 };
    let part = if quick { 0.3 } else { 1.0 };
    let counted_s = counted_s * part;
    Stop {
        warm_up_s,
        min_s: counted_s,
        max_s: counted_s,
        rule: Rule::Time,
    }
}

/// Returns a sort key: the parts to recreate between two cells, the most expensive first. These are the
/// target, whose TCP window, congestion control and command window are fixed when it starts; then the path;
/// then the session.
fn effort(cell: &Cell) -> impl Ord + use<> {
    let setting = cell
        .setting
        .as_ref()
        .expect("every cell of this suite has one");
    let target = (
        setting.congestion.clone(),
        setting.tcp_window_bytes,
        setting.command_window,
    );
    let thousandths = |number: f64| (number * 1000.0).round() as u64;
    let way = (
        setting.link_bits_per_s as u64,
        setting.mtu,
        thousandths(setting.rtt_ms),
        thousandths(setting.loss),
    );
    (
        target,
        way,
        setting.way,
        setting.connections,
        setting.sessions,
    )
}

/// Returns whether a quick plan includes the cell: such a plan has only a few values of each parameter in the
/// document's tables, and one value of each additional parameter.
fn is_quick(cell: &Cell) -> bool {
    let (Some(setting), Some(role)) = (&cell.setting, cell.roles.first()) else {
        return false;
    };
    let block_bytes = role.workload.block_bytes_max();
    match setting.part {
        Part::Wan => {
            [8 << 10, 256 << 10].contains(&block_bytes) && [0.0, 10.0].contains(&setting.rtt_ms)
        }
        Part::Tcp => [0.0, 10.0].contains(&setting.rtt_ms),
        Part::Lan => block_bytes == 64 << 10,
        Part::Connections => setting.connections == 4,
        Part::Sessions => setting.sessions == 4,
        Part::Mtu => setting.mtu == 9000,
        Part::CommandWindow => setting.command_window == Some(32),
        Part::Congestion => setting.congestion == "reno",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(link_bits_per_s: f64) -> WanPlan {
        WanPlan {
            link_bits_per_s,
            congestion: "cubic".to_owned(),
            quick: false,
        }
    }

    fn of(suite: &Suite, part: Part) -> usize {
        suite
            .cells()
            .filter(|cell| {
                cell.setting
                    .as_ref()
                    .is_some_and(|setting| setting.part == part)
            })
            .count()
    }

    #[test]
    fn every_cell_of_the_document_is_there_once() {
        let suite = suite(&plan(160e6));
        assert_eq!(
            [Part::Wan, Part::Tcp, Part::Lan].map(|part| of(&suite, part)),
            [96, 16, 24]
        );
        let names: BTreeSet<&str> = suite.cells().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), suite.cells().count(), "names are unique");
        assert!(
            names.contains("solicited write, 50 ms, 64 KiB × 32"),
            "{names:?}"
        );
        assert!(
            names.contains("TCP from the target, 10 ms, window 64 KiB"),
            "{names:?}"
        );
    }

    #[test]
    fn the_matrix_leaves_a_third_of_its_time_for_what_has_to_be_made() {
        let minutes = |plan: &WanPlan| suite(plan).longest_s() / 60.0;
        assert!(minutes(&plan(1e9)) < 10.0, "of 15: {}", minutes(&plan(1e9)));
        assert!(
            minutes(&plan(160e6)) < 13.0,
            "of 20: {}",
            minutes(&plan(160e6))
        );
        let quick = WanPlan {
            quick: true,
            ..plan(1e9)
        };
        assert!(
            minutes(&quick) < 1.5 && suite(&quick).cells().count() > 30,
            "{}",
            minutes(&quick)
        );
    }

    #[test]
    fn what_is_dear_to_make_is_made_seldom() {
        let suite = suite(&plan(160e6));
        let settings: Vec<&Setting> = suite
            .cells()
            .filter_map(|cell| cell.setting.as_deref())
            .collect();
        let changes = |of: &dyn Fn(&Setting) -> String| {
            1 + settings
                .windows(2)
                .filter(|pair| of(pair[0]) != of(pair[1]))
                .count()
        };
        let target = |s: &Setting| {
            format!(
                "{} {:?} {:?}",
                s.congestion, s.tcp_window_bytes, s.command_window
            )
        };
        // Two changes of TCP's window, two of the congestion control, and six command windows.
        assert_eq!(changes(&target), 2 + 2 + 6);
        let way = |s: &Setting| {
            format!(
                "{} {} {} {} {}",
                target(s),
                s.link_bits_per_s,
                s.mtu,
                s.rtt_ms,
                s.loss
            )
        };
        assert!(changes(&way) <= 25, "{}", changes(&way));
        let session =
            |s: &Setting| format!("{} {:?} {} {}", way(s), s.way, s.connections, s.sessions);
        assert!(changes(&session) <= 75, "{}", changes(&session));
    }

    #[test]
    fn a_suite_survives_its_record() {
        let suite = suite(&plan(160e6));
        let text = serde_json::to_string(&suite).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Suite>(&text).expect("a suite"),
            suite
        );
    }
}
