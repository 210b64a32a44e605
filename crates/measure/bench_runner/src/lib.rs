//! Runs a suite on any kind of storage, and saves the results.
//!
//! ```text
//!   a suite ── fit ── prepare ─► conductor ──► crew ──► client ──► bench::run, on a thread of its own
//!                      ▲            │  ▲
//!                   storage  keeper ◄──┘  └── samples: stop, view
//!                               │
//!                             folder ── result.json
//! ```
//!
//! Reading order: [`conductor`] (the order and end of runs, and the verdict); [`prepare`], [`fit`],
//! [`storage`] (the storage and the permitted operations). Then [`client`], [`client_paths`], [`crew`],
//! [`agents`], `costs` (the clients and their costs); [`folder`] (results and reports); [`suites`]; [`view`]
//! and [`progress`] (observers); [`selftest`]. This crate does not parse arguments or print. The caller
//! passes the user's consent to overwrite as a value.
//!
//! ```
//! use backends::{location::Location, remote};
//! use bench::Extent;
//! use bench_runner::conductor::{Outcome, conduct};
//! use bench_runner::crew::LocalCrew;
//! use bench_runner::{fit, folder::Keeper, prepare, storage::Storage};
//!
//! let text = r#"
//!     name = "short"
//!     title = "Reads"
//!     about = "4 KiB reads for 50 ms"
//!     [[step]]
//!     stop = { time = "50ms" }
//!     cell = [{ name = "r", block = "4KiB", depth = 1, read = 100, random = 0 }]
//! "#;
//! let suite = bench::suite::parse(text).expect("a suite");
//! let record = remote::run(async {
//!     let place = Location::parse("ram:1MiB")?;
//!     let storage = Storage::open(&place, false, None).await?;
//!     let limits = fit::Limits {
//!         device_bytes: storage.subject.bytes,
//!         block_bytes: storage.subject.block_bytes,
//!         writes: false,
//!         part: Extent::ALL,
//!         clients: None,
//!     };
//!     let suite = fit::fit(suite, &limits)?.suite;
//!     let record = prepare::new_record(storage.subject.clone(), suite, storage.facts(&place).await, Vec::new());
//!     let mut keeper = Keeper::new(record, None)?;
//!     let crew = LocalCrew::new(storage.source.clone(), Default::default());
//!     let (outcome, _) = conduct(crew, &mut keeper, &mut (), None, &|| false).await;
//!     assert_eq!(outcome?, Outcome::Complete);
//!     Ok(keeper.end().0)
//! });
//! assert!(record.expect("memory is there").runs[0].iops() > 0.0);
//! ```
//!
//! One thread makes the decisions, and the others measure. A client is a thread with its own reactor and
//! sessions; it runs one role and reports each sample. The conductor takes the next run from the schedule,
//! stops all clients when the samples meet the stop criterion, and passes the run to the keeper. The keeper
//! replaces `result.json` before the next run starts. Views only observe. `bench` is a separate crate, which
//! opens no storage and does not depend on any protocol.
//!
//! With several machines, the coordinator's crew is [`agents`]. An agent uses the same crew as a local bench.
//! `agent::wire` defines their messages, and performs no I/O.

pub mod agents;
pub mod client;
pub mod client_paths;
pub mod conductor;
mod costs;
pub mod crew;
pub mod fit;
pub mod folder;
pub mod prepare;
pub mod progress;
pub mod selftest;
pub mod storage;
pub mod suites;
pub mod view;
