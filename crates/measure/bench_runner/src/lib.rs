//! Carrying out a suite on storage of any kind, and keeping what was measured.
//!
//! ```text
//!   a suite ── fit ── safety ──► conductor ──► crew ──► client ──► bench::run, on a thread of its own
//!                      ▲            │  ▲
//!                   storage  keeper ◄──┘  └── samples: stop, view
//!                               │
//!                             folder ── result.json
//! ```
//!
//! Reading order: [`conductor`] (the order of events), `stop`; [`prepare`], [`storage`], [`fit`], [`safety`] (what may be done); [`client`],
//! [`ways`], `costs`, `channels`, [`crew`], [`agents`], [`site`] (who does it, and where); [`begin`], [`keeper`], [`folder`], [`reports`], [`resume`] (what is kept);
//! [`suites`], [`shorter`] (what is measured); [`holes`], [`journal`]; [`serving`]; [`integrity`], [`ceiling`], [`own`] (a proof); [`view`], [`now`], [`watched`], [`progress`], [`silence`] (who looks on, and what of); [`verdict`]. Nothing here reads arguments or prints: who looks on is a [`view::View`], and
//! consent to overwrite is a value.
//!
//! ```
//! use backends::{location::Location, remote};
//! use bench::Extent;
//! use bench_runner::conductor::{Outcome, conduct};
//! use bench_runner::crew::LocalCrew;
//! use bench_runner::{begin, fit, keeper::Keeper, storage::Storage};
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
//!     let record = begin::record(storage.subject.clone(), suite, storage.facts(&place).await, Vec::new());
//!     let mut keeper = Keeper::new(record, None)?;
//!     let crew = LocalCrew::new(storage.source.clone(), Default::default());
//!     let (outcome, _) = conduct(crew, &mut keeper, &mut (), None, &|| false).await;
//!     assert_eq!(outcome?, Outcome::Complete);
//!     Ok(keeper.end().0)
//! });
//! assert!(record.expect("memory is there").runs[0].iops() > 0.0);
//! ```

pub mod agents;
pub mod begin;
pub mod ceiling;
mod channels;
pub mod client;
pub mod conductor;
mod costs;
pub mod crew;
pub mod fit;
pub mod folder;
mod frames;
pub mod holes;
pub mod integrity;
pub mod journal;
pub mod keeper;
pub mod now;
pub mod own;
pub mod prepare;
pub mod progress;
mod purge;
pub mod reports;
pub mod resume;
pub mod safety;
pub mod serving;
pub mod shorter;
pub mod silence;
pub mod site;
mod stop;
pub mod storage;
pub mod suites;
pub mod timestamp;
pub mod verdict;
pub mod view;
pub mod watched;
pub mod ways;
