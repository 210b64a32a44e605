//! Adapts a suite to the storage and to the permissions: removes and lists the cells that cannot or must not
//! be measured. Also limits the time of a suite ([`Shorten`]).

use backends::Failure;
use bench::Extent;
use bench::plan::{Cell, Order, Role, Step, Stop, Suite};

/// The capacity of the storage, and the permissions.
pub struct Limits {
    /// The capacity of the storage, in bytes.
    pub device_bytes: u64,
    /// The length of a logical block, in bytes.
    pub block_bytes: u32,
    /// Whether writes are allowed.
    pub writes: bool,
    /// The part of the storage that the suite may access.
    pub part: Extent,
    /// The number of available machines; `None` means no limit.
    pub clients: Option<usize>,
}

/// A suite adapted to the limits.
pub struct Fitted {
    /// The suite.
    pub suite: Suite,
    /// The parts that were omitted or shortened, one sentence each.
    pub notes: Vec<String>,
}

/// Adapts `suite` to the limits. Fails if no cell remains.
pub fn fit(mut suite: Suite, limits: &Limits) -> Result<Fitted, Failure> {
    if limits.part.exceeds(limits.device_bytes) {
        let bytes = limits.device_bytes;
        return Err(Failure::refused(format!(
            "{} extends beyond the end of the storage, which has {bytes} bytes",
            limits.part
        )));
    }
    let mut notes = Vec::new();
    if !limits.writes && suite.writes() {
        let left_out = leave_out(&mut suite, |cell| {
            cell.roles.iter().any(|role| role.workload.writes())
        });
        suite
            .steps
            .retain(|step| matches!(step, Step::Measure { .. }));
        if suite.cells().next().is_none() {
            let why = "the suite overwrites the storage; to permit this, use --allow-write";
            return Err(Failure::refused(why));
        }
        notes.push(format!(
            "{}, because writing is not permitted (--allow-write)",
            named(&left_out)
        ));
    }
    if let Some(clients) = limits.clients {
        let wanted = |role: &Role| usize::from(role.client) + 1;
        let left_out = leave_out(&mut suite, |cell| {
            cell.roles.iter().any(|role| wanted(role) > clients)
        });
        if suite.cells().next().is_none() {
            return Err(Failure::refused(format!(
                "the suite needs more machines than the {clients} listed in --agents"
            )));
        }
        if !left_out.is_empty() {
            notes.push(format!(
                "{}, because only {clients} agents are listed",
                named(&left_out)
            ));
        }
    }
    let (block, ragged) = (limits.block_bytes, |cell: &Cell| {
        let accesses = cell.roles.iter().flat_map(|role| &role.workload.accesses);
        accesses
            .into_iter()
            .any(|access| !access.block_bytes.is_multiple_of(limits.block_bytes))
    });
    let left_out = leave_out(&mut suite, ragged);
    if suite.cells().next().is_none() {
        let sentence =
            format!("no request length is a multiple of the storage's block size, {block} bytes");
        return Err(Failure::refused(sentence));
    }
    if !left_out.is_empty() {
        notes.push(format!(
            "{}, because the block size of the storage is {block} bytes",
            named(&left_out)
        ));
    }
    if cut(&mut suite, limits)? {
        let bytes = limits.device_bytes;
        notes.push(format!(
            "the suite was reduced to fit the storage, which has only {bytes} bytes"
        ));
    }
    Ok(Fitted { suite, notes })
}

/// Removes cells, and returns their names. A step whose end depends on the results of a removed cell would
/// never end, so the step is removed as well.
fn leave_out(suite: &mut Suite, is_out: impl Fn(&Cell) -> bool) -> Vec<String> {
    let mut left_out = Vec::new();
    for step in &mut suite.steps {
        let Step::Measure { order, cells, .. } = step else {
            continue;
        };
        let tracked = match order {
            Order::SteadyRounds { tracked, .. } => cells.iter().find(|cell| cell.name == *tracked),
            Order::Once | Order::Interleaved { .. } => None,
        };
        let endless = tracked.is_some_and(&is_out);
        cells.retain(|cell| {
            let stays = !endless && !is_out(cell);
            if !stays {
                left_out.push(cell.name.clone());
            }
            stays
        });
    }
    suite
        .steps
        .retain(|step| !matches!(step, Step::Measure { cells, .. } if cells.is_empty()));
    left_out
}

/// Limits the span of every workload to the permitted part. Returns whether a span was longer than the
/// device.
fn cut(suite: &mut Suite, limits: &Limits) -> Result<bool, Failure> {
    let mut is_longer = false;
    for step in &mut suite.steps {
        let Step::Measure { cells, .. } = step else {
            continue;
        };
        for workload in cells
            .iter_mut()
            .flat_map(|cell| &mut cell.roles)
            .map(|role| &mut role.workload)
        {
            let wanted = Extent::of(workload.span, limits.device_bytes);
            is_longer |= wanted.exceeds(limits.device_bytes);
            let device = Extent::of(bench::plan::Span::default(), limits.device_bytes);
            let left = wanted
                .within(device)
                .and_then(|extent| extent.within(limits.part));
            let left = left.ok_or_else(|| {
                Failure::refused(format!(
                    "a workload of the suite uses {wanted}, but only {} is permitted",
                    limits.part
                ))
            })?;
            workload.span = left.span();
        }
        cells
            .iter_mut()
            .for_each(|cell| cell.divide(limits.device_bytes));
        if let Some(cell) = cells.iter().find(|cell| cell.verifies_foreign_data()) {
            return Err(Failure::refused(format!(
                "some roles of {} overwrite data that others verify; give each role its own span",
                cell.name
            )));
        }
    }
    Ok(is_longer)
}

/// Formats names: "read-4KiB, read-8KiB and 14 more were omitted".
fn named(names: &[String]) -> String {
    const NAMED: usize = 4;
    match names {
        [] => "steps that prepare the storage were omitted".to_owned(),
        [name] => format!("{name} was omitted"),
        names if names.len() <= NAMED => {
            let (last, before) = names.split_last().expect("at least two");
            format!("{} and {last} were omitted", before.join(", "))
        }
        names => {
            format!(
                "{} and {} more were omitted",
                names[..NAMED - 1].join(", "),
                names.len() - NAMED + 1
            )
        }
    }
}

/// Limits on the time of a suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shorten {
    /// The maximum counted time of a run.
    pub seconds: Option<f64>,
    /// The maximum number of repeats.
    pub rounds: Option<u32>,
}

impl Shorten {
    /// Returns the suite with these limits applied.
    pub fn apply(self, mut suite: Suite) -> Suite {
        let before = suite.clone();
        for step in &mut suite.steps {
            let Step::Measure { stop, order, cells } = step else {
                continue;
            };
            let own = cells.iter_mut().filter_map(|cell| cell.stop.as_mut());
            std::iter::once(stop)
                .chain(own)
                .for_each(|stop| self.shorten(stop));
            self.thin(order);
        }
        if suite != before {
            suite.assumed.push(self.in_words());
        }
        suite
    }

    fn shorten(self, stop: &mut Stop) {
        let most = self.seconds.unwrap_or(f64::INFINITY);
        stop.max_s = stop.max_s.min(most);
        stop.min_s = stop.min_s.min(most);
        stop.warm_up_s = stop.warm_up_s.min(most); // the warm-up takes no longer than the counted time
    }

    fn thin(self, order: &mut Order) {
        let most = self.rounds.unwrap_or(u32::MAX);
        match order {
            Order::Once => {}
            Order::Interleaved {
                repeats_min,
                repeats_max,
            } => {
                *repeats_max = (*repeats_max).min(most);
                *repeats_min = (*repeats_min).min(most);
            }
            Order::SteadyRounds { rounds_max, .. } => *rounds_max = (*rounds_max).min(most),
        }
    }

    fn in_words(self) -> String {
        let seconds = self
            .seconds
            .map(|seconds| format!("no run took more than {seconds} s"));
        let rounds = self
            .rounds
            .map(|rounds| format!("no cell was run more than {rounds} times"));
        let said: Vec<_> = seconds.into_iter().chain(rounds).collect();
        format!(
            "Shortened by options: {}; the suite specifies more.",
            said.join(", and ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::plan::{Data, Percent, Role, Span, Stop, Workload};

    fn cell(name: &str, block_bytes: u32, read: Percent) -> Cell {
        let workload = Workload::simple(block_bytes, 1, read, Percent::ALL);
        let role = Role {
            name: "client".to_owned(),
            client: 0,
            sessions: 1,
            read_ahead_bytes: None,
            apart: false,
            workload,
        };
        Cell::new(name, "s", vec![role])
    }

    fn suite(order: Order, cells: Vec<Cell>) -> Suite {
        let steps = vec![
            Step::Purge,
            Step::Measure {
                stop: Stop::after(1.0),
                order,
                cells,
            },
        ];
        let (name, title, about) = ("x".to_owned(), String::new(), String::new());
        Suite {
            name,
            title,
            about,
            document: None,
            assumed: Vec::new(),
            steps,
        }
    }

    fn limits(writes: bool) -> Limits {
        Limits {
            device_bytes: 1 << 20,
            block_bytes: 4096,
            writes,
            part: Extent::ALL,
            clients: None,
        }
    }

    fn why(outcome: Result<Fitted, Failure>) -> String {
        outcome.err().expect("a refusal").to_string()
    }

    #[test]
    fn a_suite_of_writes_only_is_refused_where_nothing_may_be_written() {
        let writes = suite(Order::Once, vec![cell("write", 4096, Percent::NONE)]);
        assert!(why(fit(writes, &limits(false))).contains("--allow-write"));
    }

    #[test]
    fn cells_that_write_are_left_out_and_named() {
        let both = vec![
            cell("read", 4096, Percent::ALL),
            cell("write", 4096, Percent::NONE),
        ];
        let fitted = fit(suite(Order::Once, both), &limits(false)).expect("a read is left");
        assert_eq!(
            fitted
                .suite
                .cells()
                .map(|cell| cell.name.as_str())
                .collect::<Vec<_>>(),
            ["read"]
        );
        assert!(!fitted.suite.writes());
        assert_eq!(
            fitted.notes,
            ["write was omitted, because writing is not permitted (--allow-write)"]
        );
    }

    #[test]
    fn rounds_without_the_cell_that_ends_them_are_left_out() {
        let order = Order::SteadyRounds {
            tracked: "write".to_owned(),
            rounds_max: 25,
        };
        let both = vec![
            cell("read", 4096, Percent::ALL),
            cell("write", 4096, Percent::NONE),
        ];
        assert!(fit(suite(order, both), &limits(false)).is_err());
    }

    #[test]
    fn requests_that_are_no_whole_blocks_are_left_out() {
        let both = vec![
            cell("512B", 512, Percent::ALL),
            cell("4KiB", 4096, Percent::ALL),
        ];
        let fitted = fit(suite(Order::Once, both), &limits(true)).expect("one is left");
        assert_eq!(
            fitted.notes,
            ["512B was omitted, because the block size of the storage is 4096 bytes"]
        );
    }

    #[test]
    fn what_takes_more_machines_than_there_are_is_left_out() {
        let mut two = cell("two", 4096, Percent::ALL);
        two.roles.push(Role {
            client: 1,
            ..two.roles[0].clone()
        });
        let both = suite(
            Order::Once,
            vec![cell("one", 4096, Percent::ALL), two.clone()],
        );
        let limits = Limits {
            clients: Some(1),
            ..limits(true)
        };
        let fitted = fit(both, &limits).expect("one is left");
        assert_eq!(
            fitted.notes,
            ["two was omitted, because only 1 agents are listed"]
        );
        assert!(
            why(fit(suite(Order::Once, vec![two]), &limits)).contains("more machines than the 1")
        );
    }

    #[test]
    fn nothing_goes_beyond_the_part_that_may_be_used() {
        let mut small = cell("read", 4096, Percent::ALL);
        small.roles[0].workload.span = Span {
            start_bytes: 0,
            bytes: Some(1 << 19),
        };
        let part = "256KiB..768KiB".parse().expect("a part");
        let limits = Limits {
            part,
            ..limits(true)
        };
        let cells = vec![small, cell("all", 4096, Percent::ALL)];
        let fitted = fit(suite(Order::Once, cells), &limits).expect("it fits");
        let spans: Vec<_> = fitted
            .suite
            .cells()
            .map(|cell| cell.roles[0].workload.span)
            .collect();
        let span = |start_bytes, bytes| Span {
            start_bytes,
            bytes: Some(bytes),
        };
        assert_eq!(
            spans,
            [span(256 << 10, 256 << 10), span(256 << 10, 512 << 10)]
        );
    }

    #[test]
    fn a_part_beyond_the_end_is_refused_and_a_suite_that_wants_more_is_cut() {
        let part = "2MiB".parse().expect("a part");
        let beyond = fit(
            suite(Order::Once, vec![cell("read", 4096, Percent::ALL)]),
            &Limits {
                part,
                ..limits(true)
            },
        );
        assert!(why(beyond).contains("1048576 bytes"));
        let mut large = cell("read", 4096, Percent::ALL);
        large.roles[0].workload.span.bytes = Some(5 << 30);
        let fitted = fit(suite(Order::Once, vec![large]), &limits(true)).expect("it is cut");
        assert_eq!(
            fitted
                .suite
                .cells()
                .next()
                .and_then(|cell| cell.roles[0].workload.span.bytes),
            Some(1 << 20)
        );
        assert_eq!(fitted.notes.len(), 1);
    }

    #[test]
    fn roles_that_verify_overlapping_parts_are_refused() {
        let mut cell = cell("write", 4096, Percent::NONE);
        cell.roles.push(Role {
            client: 1,
            ..cell.roles[0].clone()
        });
        let spans = [(0, 1 << 19), (0, 1 << 20)]; // their halves are 0 to 256 KiB, and 512 KiB to 1 MiB
        for (role, (start_bytes, bytes)) in cell.roles.iter_mut().zip(spans) {
            role.workload.span = Span {
                start_bytes,
                bytes: Some(bytes),
            };
            role.workload.data = Data::Stamped;
        }
        assert!(fit(suite(Order::Once, vec![cell.clone()]), &limits(true)).is_ok());
        cell.roles[0].workload.span = Span {
            start_bytes: 1 << 19,
            bytes: Some(1 << 19),
        };
        assert!(
            why(fit(suite(Order::Once, vec![cell]), &limits(true)))
                .contains("give each role its own span")
        );
    }

    #[test]
    fn many_names_are_counted() {
        let names: Vec<_> = (1..=20).map(|number| format!("c{number}")).collect();
        assert_eq!(named(&names), "c1, c2, c3 and 17 more were omitted");
        assert_eq!(named(&names[..2]), "c1 and c2 were omitted");
    }

    const UNCHANGED: Shorten = Shorten {
        seconds: None,
        rounds: None,
    };

    fn preset(name: &str) -> Suite {
        bench::suite::named(name).expect("a preset")
    }

    fn longest_s(suite: &Suite) -> f64 {
        let stops = suite.steps.iter().flat_map(|step| match step {
            Step::Measure { stop, cells, .. } => {
                cells.iter().map(|cell| cell.stop(*stop)).collect()
            }
            Step::Purge | Step::Fill { .. } => Vec::new(),
        });
        stops
            .map(|stop| stop.warm_up_s.max(stop.min_s).max(stop.max_s))
            .fold(0.0, f64::max)
    }

    #[test]
    fn every_run_of_every_suite_can_be_short() {
        for preset in bench::suite::presets() {
            let short = Shorten {
                seconds: Some(0.25),
                rounds: Some(1),
            }
            .apply(preset.clone());
            assert!(longest_s(&short) <= 0.25, "{}", short.name);
            assert!(
                short
                    .assumed
                    .last()
                    .is_some_and(|said| said.contains("0.25 s")),
                "{}",
                short.name
            );
            assert_eq!(UNCHANGED.apply(preset.clone()), *preset);
        }
    }

    #[test]
    fn what_is_short_already_is_not_made_longer() {
        let long = Shorten {
            seconds: Some(1e6),
            rounds: Some(1000),
        };
        assert_eq!(long.apply(preset("vmware4")), preset("vmware4"));
    }
}
