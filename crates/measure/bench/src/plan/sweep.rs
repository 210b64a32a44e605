//! Workloads that differ in one or several parameters: all combinations of the listed values.

use super::{
    Access, Align, Blocks, Cell, Data, Distribution, Durable, Order, Pace, Percent, Rate, Role,
    Span, Step, Stop, Suite, Workload,
};

/// The parameters of a sweep: lists of values that vary from cell to cell, and values common to all cells. No
/// list is empty.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Lengths of requests.
    pub blocks: Vec<Blocks>,
    /// Queue depths of each session.
    pub depths: Vec<u32>,
    /// Shares of reads.
    pub reads: Vec<Percent>,
    /// Shares of requests to random offsets.
    pub randoms: Vec<Percent>,
    /// Requests per second of each client; `None` is a closed loop.
    pub rates: Vec<Option<Rate>>,
    /// Whether the intervals between requests are random, so that the rate is kept only on average.
    pub poisson: bool,
    /// Distribution of random offsets.
    pub distribution: Distribution,
    /// Alignment of requests.
    pub align: Align,
    /// Number of clients, 1 or more.
    pub clients: u16,
    /// Number of sessions of each client, 1 or more.
    pub sessions: u16,
    /// Number of requests between two pauses, 1 or more.
    pub burst: u32,
    /// The pause before each burst, in milliseconds.
    pub pause_ms: u32,
    /// The content of writes, and whether reads are checked.
    pub data: Data,
    /// The guarantee that writes request.
    pub durable: Durable,
    /// The first client's seed; each further client adds one.
    pub seed: u64,
    /// The condition that ends each cell.
    pub stop: Stop,
    /// Number of repeats.
    pub repeats: u32,
}

/// The parameters that differ between cells.
#[derive(Clone, Copy)]
struct Point<'a> {
    blocks: &'a Blocks,
    depth: u32,
    read: Percent,
    random: Percent,
    rate: Option<Rate>,
}

/// Maximum number of cells. A larger number is probably an error; if it is not, write the suite to a file.
const CELLS_MAX: usize = 1000;

impl Sweep {
    /// Creates a suite with a cell for each combination. The last parameter changes fastest.
    ///
    /// # Errors
    /// Returns an error with the number of cells if there are too many.
    pub fn suite(&self) -> Result<Suite, String> {
        let points = self.points();
        if points.len() > CELLS_MAX {
            return Err(format!(
                "these lists have {} combinations; the maximum is {CELLS_MAX}",
                points.len()
            ));
        }
        let cells: Vec<Cell> = points.into_iter().map(|point| self.cell(point)).collect();
        let order = match self.repeats {
            1 => Order::Once,
            repeats => Order::Interleaved {
                repeats_min: repeats,
                repeats_max: repeats,
            },
        };
        Ok(Suite {
            name: "custom".to_owned(),
            title: if cells.len() == 1 {
                "One workload"
            } else {
                "A sweep"
            }
            .to_owned(),
            about: "A workload from command-line options.".to_owned(),
            document: None,
            assumed: Vec::new(),
            steps: vec![Step::Measure {
                stop: self.stop,
                order,
                cells,
            }],
        })
    }

    fn points(&self) -> Vec<Point<'_>> {
        let mut points = Vec::new();
        for &read in &self.reads {
            for &random in &self.randoms {
                for blocks in &self.blocks {
                    for &depth in &self.depths {
                        let point = |&rate: &Option<Rate>| Point {
                            blocks,
                            depth,
                            read,
                            random,
                            rate,
                        };
                        points.extend(self.rates.iter().map(point));
                    }
                }
            }
        }
        points
    }

    fn cell(&self, point: Point<'_>) -> Cell {
        let role = |client: u16| Role {
            name: if self.clients == 1 {
                "client".to_owned()
            } else {
                format!("client {}", client + 1)
            },
            client,
            sessions: self.sessions,
            read_ahead_bytes: None,
            // Clients that access the same sequence of offsets would find each other's data in a cache.
            apart: self.clients > 1 && point.random < Percent::ALL,
            workload: self.workload(point, client),
        };
        let kind = self.workload(point, 0).kind();
        let rate = point
            .rate
            .map(|Rate(rate)| format!("-rate-{rate}"))
            .unwrap_or_default();
        // The name is unique in the sweep, since it contains every parameter that can vary.
        let name = format!(
            "{}-{}-depth-{}{rate}",
            kind.name("-"),
            point.blocks,
            point.depth
        );
        // The series is the curve of the cell: all parameters except the length and the load.
        Cell::new(name, kind.name(" "), (0..self.clients).map(role).collect())
    }

    /// Creates the workload of a client. Each client has a different seed, since two clients that read the
    /// same offsets at the same time would measure a cache.
    fn workload(&self, point: Point<'_>, client: u16) -> Workload {
        let accesses = point.blocks.0.iter().map(|(block_bytes, share)| Access {
            block_bytes: *block_bytes,
            share: *share,
            read: point.read,
            random: point.random,
            align: self.align,
            burst: self.burst,
            delay_ms: self.pause_ms,
        });
        Workload {
            accesses: accesses.collect(),
            depth: point.depth,
            pace: match (point.rate, self.poisson) {
                (None, _) => Pace::Closed,
                (Some(Rate(per_second)), false) => Pace::Constant { per_second },
                (Some(Rate(per_second)), true) => Pace::Poisson { per_second },
            },
            span: Span::default(),
            distribution: self.distribution,
            data: self.data,
            drain_after: None,
            durable: self.durable,
            seed: self.seed.wrapping_add(u64::from(client)),
        }
    }
}
