//! Tests that a configuration file produces the same requests as Iometer's documented rules: the same
//! offsets, the same share of reads, and the same behaviour at the end of the span.
//!
//! [`Rules`] is a second implementation of the rules, based on their description (`IOTargetDisk::Seek`,
//! `Grunt::Do_IOs`) and independent of `crate::access`:
//!
//! 1. A line is drawn by its share of 100.
//! 2. With probability "% random", the offset is random, from 0 to the length of the span; otherwise it is
//!    the end of the previous request.
//! 3. The offset is rounded up to the alignment, or to a sector if the alignment is 0.
//! 4. If the request would extend past the end of the span, it goes to the start.
//! 5. With probability "% reads", the request is a read.

use block::{BlockSize, Blocks, Geometry, Random};
use proptest::prelude::*;

use crate::access::{AccessStream, Kind, Layout};
use crate::plan::Workload;

const SECTOR: u64 = 512;

/// An access line, with the values of the file.
#[derive(Clone, Copy, Debug)]
struct Line {
    size: u64,
    share: u64,
    reads: u64,
    random: u64,
    align: u64,
}

/// The properties of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    offset: u64,
    bytes: u64,
    is_read: bool,
}

/// The rules, with an independent random generator.
struct Rules<'a> {
    lines: &'a [Line],
    span: u64,
    offset: u64,
    transferred: u64,
    random: Random,
}

impl Rules<'_> {
    fn draw(&mut self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn next(&mut self) -> Request {
        let mut number = self.draw(100);
        let mut lines = self.lines.iter();
        let line = lines
            .find(|line| {
                let is_it = number < line.share;
                number = number.saturating_sub(line.share);
                is_it
            })
            .expect("shares make 100");
        let is_random = self.draw(100) < line.random;
        let offset = if is_random {
            self.draw(self.span)
        } else {
            self.offset + self.transferred
        };
        let offset = offset.next_multiple_of(line.align.max(SECTOR));
        let offset = if offset + line.size > self.span {
            0
        } else {
            offset
        };
        (self.offset, self.transferred) = (offset, line.size);
        let is_read = self.draw(100) < line.reads;
        Request {
            offset,
            bytes: line.size,
            is_read,
        }
    }
}

/// Writes a configuration file with these lines.
fn file(lines: &[Line], sectors: u64) -> String {
    let lines: String = lines
        .iter()
        .map(
            |Line {
                 size,
                 share,
                 reads,
                 random,
                 align,
             }| { format!("\t{size},{share},{reads},{random},0,1,{align},0\n") },
        )
        .collect();
    format!(
        "Version 1.1.0\n'ACCESS SPECIFICATIONS ===\n'Access specification name,default assignment\n\tpattern,NONE\n\
         'size,% of size,% reads,% random,delay,burst,align,reply\n{lines}'END access specifications\n\
         'MANAGER LIST ===\n'Manager ID, manager name\n\t1,A\n'Manager network address\n\t\n'Worker\n\tW\n'Worker type\n\
         \tDISK\n'Default target settings for worker\n\
         'Number of outstanding IOs,test connection rate,transactions per connection\n\t16,DISABLED,1\n\
         'Disk maximum size,starting sector\n\t{sectors},0\n'End default target settings for worker\n\
         'Assigned access specs\n\tpattern\n'End assigned access specs\n'End worker\n'End manager\n'END manager list\n"
    )
}

fn workload(text: &str) -> Workload {
    let suite = crate::icf::parse(text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .suite("pattern");
    let cell = suite.cells().next().expect("a cell");
    cell.roles[0].workload.clone()
}

/// Returns the requests that a file produces, on a disk that is longer than the span.
fn stream(workload: &Workload) -> impl Iterator<Item = Request> + use<> {
    let blocks = Blocks(1 << 24);
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks,
        physical_exponent: 3,
    };
    let layout = Layout::new(workload, geometry, 1).expect("it fits");
    let mut stream = AccessStream::new(&layout, workload.seed, 0, 1);
    std::iter::from_fn(move || {
        let ask = stream.next();
        Some(Request {
            offset: ask.offset,
            bytes: ask.bytes,
            is_read: ask.kind == Kind::Read,
        })
    })
}

/// The counts of both streams for each class of requests. A class consists of the length, the direction,
/// whether the request is sequential, and the range of its offset if it is not.
type Kinds = std::collections::BTreeMap<(u64, bool, bool, u64), (f64, f64)>;

fn count(
    kinds: &mut Kinds,
    requests: &[Request],
    lines: &[Line],
    span: u64,
    add: fn(&mut (f64, f64)),
) {
    let part = span.div_ceil(16);
    for two in requests.windows(2) {
        let end = two[0].offset + two[0].bytes;
        let follows = lines
            .iter()
            .any(|line| two[1].offset == end.next_multiple_of(line.align.max(SECTOR)));
        // Only randomly drawn offsets are independent of each other, so the offset of a sequential request is
        // ignored.
        let place = if follows { 0 } else { two[1].offset / part };
        let kind = (two[1].bytes, two[1].is_read, follows, place);
        add(kinds.entry(kind).or_default());
    }
}

/// Returns whether two streams of equal length can follow the same rules. The chi-square statistic of their
/// counts has a mean equal to its degrees of freedom, and a variance of twice that number. The statistic must
/// be within six standard deviations of the mean (plus 20, since with few degrees of freedom the distribution
/// has a long tail). Streams that follow the same rules fail this test once in ten million cases.
fn same(one: &[Request], other: &[Request], lines: &[Line], span: u64) -> Result<(), String> {
    let mut kinds = Kinds::new();
    count(&mut kinds, one, lines, span, |counts| counts.0 += 1.0);
    count(&mut kinds, other, lines, span, |counts| counts.1 += 1.0);
    // Ignore rare classes: they are not significant, and do not follow the chi-square distribution.
    let often = kinds.values().filter(|(one, other)| one + other >= 10.0);
    let (mut statistic, mut freedom) = (0.0, 0.0);
    for (one, other) in often {
        statistic += (one - other).powi(2) / (one + other);
        freedom += 1.0;
    }
    let most = freedom + 6.0 * f64::sqrt(2.0 * freedom) + 20.0;
    if statistic <= most {
        Ok(())
    } else {
        Err(format!("{statistic} is more than {most}: {kinds:?}"))
    }
}

/// Checks the rules that apply to every single request.
fn check_each(requests: &[Request], lines: &[Line], span: u64) -> Result<(), String> {
    let mut end: u64 = 0;
    for (index, request) in requests.iter().enumerate() {
        let of_length = lines
            .iter()
            .filter(|line| line.size == request.bytes && line.share > 0);
        let fits = request.offset + request.bytes <= span;
        let by_a_line = |line: &Line| {
            let align = line.align.max(SECTOR);
            let following = end.next_multiple_of(align);
            let following = if following + line.size > span {
                0
            } else {
                following
            };
            let place =
                request.offset == following || (line.random > 0 && request.offset % align == 0);
            place
                && if request.is_read {
                    line.reads > 0
                } else {
                    line.reads < 100
                }
        };
        if !fits || !of_length.clone().any(by_a_line) {
            return Err(format!(
                "request {index} is by no line: {request:?}, the last ended at {end}"
            ));
        }
        end = request.offset + request.bytes;
    }
    Ok(())
}

fn compared(lines: &[Line], sectors: u64, requests: usize, seed: u64) -> Result<(), String> {
    let span = sectors * SECTOR;
    let ours: Vec<Request> = stream(&workload(&file(lines, sectors)))
        .take(requests)
        .collect();
    let mut rules = Rules {
        lines,
        span,
        offset: 0,
        transferred: 0,
        random: Random::new(seed),
    };
    let theirs: Vec<Request> = (0..requests).map(|_| rules.next()).collect();
    check_each(&theirs, lines, span)?;
    check_each(&ours, lines, span)?;
    same(&ours, &theirs, lines, span)
}

fn line() -> impl Strategy<Value = Line> {
    let chance = prop_oneof![Just(0u64), Just(100u64), 0..=100u64];
    let align = prop_oneof![Just(0u64), Just(512u64), Just(4096u64), 1..32u64];
    (1..64u64, chance.clone(), chance, align).prop_map(|(sectors, reads, random, align)| Line {
        size: sectors * SECTOR,
        share: 100,
        reads,
        random,
        align: if align < 32 { align * SECTOR } else { align },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_specification_gives_what_the_rules_give(
        mut lines in proptest::collection::vec(line(), 1..4),
        sectors in 200..20_000u64,
        seed: u64,
    ) {
        let count = lines.len() as u64;
        lines.iter_mut().for_each(|line| line.share = 100 / count);
        lines[0].share += 100 % count;
        prop_assert_eq!(compared(&lines, sectors, 20_000, seed), Ok(()));
    }
}

#[test]
fn the_four_patterns_give_what_the_rules_give() {
    let text = include_str!("../../../tests/data/vmware4.icf");
    let suite = crate::icf::parse(text)
        .expect("the four patterns")
        .suite("vmware4");
    let lines = [
        (32_768, 100, 0),
        (8192, 65, 60),
        (32_768, 50, 0),
        (8192, 70, 100),
    ];
    for (cell, (size, reads, random)) in suite.cells().zip(lines) {
        let lines = [Line {
            size,
            share: 100,
            reads,
            random,
            align: 0,
        }];
        let span = 8_000_000 * SECTOR;
        let ours: Vec<Request> = stream(&cell.roles[0].workload).take(300_000).collect();
        let mut rules = Rules {
            lines: &lines,
            span,
            offset: 0,
            transferred: 0,
            random: Random::new(7),
        };
        let theirs: Vec<Request> = (0..300_000).map(|_| rules.next()).collect();
        assert_eq!(check_each(&ours, &lines, span), Ok(()), "{}", cell.name);
        assert_eq!(same(&ours, &theirs, &lines, span), Ok(()), "{}", cell.name);
    }
}

/// An unexpected consequence of the rules: a random request that would extend past the end goes to the start,
/// so the start is used more often.
#[test]
fn the_start_gets_what_does_not_fit() {
    let lines = [Line {
        size: 1024,
        share: 100,
        reads: 100,
        random: 100,
        align: 0,
    }];
    let requests: Vec<Request> = stream(&workload(&file(&lines, 17))).take(170_000).collect();
    let at = |sector: u64| {
        requests
            .iter()
            .filter(|request| request.offset == sector * SECTOR)
            .count()
    };
    // 17 sectors are drawn with equal probability. A request of two sectors that starts at the last one would
    // extend past the end.
    assert!((19_000..21_000).contains(&at(0)), "{}", at(0));
    assert!((1..16).all(|sector| (9_400..10_600).contains(&at(sector))));
    assert_eq!(at(16), 0);
}

/// Tests the comparison itself: it detects a different mix, a different share of random requests, and a
/// different behaviour at the end of the span.
#[test]
fn other_rules_are_told_apart() {
    let lines = |reads, random| {
        [Line {
            size: 8192,
            share: 100,
            reads,
            random,
            align: 0,
        }]
    };
    let (span, any) = (1000 * SECTOR, lines(0, 0));
    let of = |lines: [Line; 1]| {
        stream(&workload(&file(&lines, 1000)))
            .take(100_000)
            .collect::<Vec<_>>()
    };
    let right = of(lines(65, 60));
    assert!(same(&right, &of(lines(70, 60)), &any, span).is_err());
    assert!(same(&right, &of(lines(65, 65)), &any, span).is_err());
    let clamped: Vec<Request> = right
        .iter()
        .map(|request| Request {
            offset: if request.offset == 0 {
                span - 8192
            } else {
                request.offset
            },
            ..*request
        })
        .collect();
    assert!(same(&right, &clamped, &any, span).is_err());
}
