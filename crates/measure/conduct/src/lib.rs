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
//! [`ways`], `costs`, [`crew`], [`agents`], [`site`] (who does it, and where); [`begin`], [`keeper`], [`folder`], [`reports`], [`resume`] (what is kept);
//! [`suites`], [`shorter`] (what is measured); [`holes`], [`journal`]; [`integrity`], [`ceiling`] (a proof); [`view`], [`now`], [`progress`] (who looks on, and what of). Nothing here reads arguments or prints: who looks on is a [`view::View`], and
//! consent to overwrite is a value.
//!
//! ```
//! use backends::{location::Location, remote};
//! use bench::record::Sample;
//! use bench::{Extent, Go};
//! use conduct::conductor::{Conductor, Outcome, SEED};
//! use conduct::crew::{Crew, LocalCrew, Purged};
//! use conduct::view::{RunStart, View};
//! use conduct::{begin, fit, keeper::Keeper, storage::Storage};
//!
//! struct Nobody;
//! impl View for Nobody {
//!     fn begins(&mut self, _: &RunStart<'_>) {}
//!     fn sample(&mut self, _: usize, _: &Sample) {}
//!     fn purged(&mut self, _: Purged) {}
//!     fn ended(&mut self, _: &bench::record::CellRun) {}
//!     fn note(&mut self, _: &str) {}
//! }
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
//!     let mut crew = LocalCrew::new(storage.source.clone(), Default::default());
//!     let (keep, view, asked) = (&mut keeper, &mut Nobody, &|| false);
//!     let mut conductor =
//!         Conductor { crew: &mut crew, keeper: keep, view, asked, server: None, tables: Vec::new() };
//!     assert_eq!(conductor.conduct(SEED).await?, Outcome::Complete);
//!     crew.close().await;
//!     Ok(keeper.end().0)
//! });
//! assert!(record.expect("memory is there").runs[0].iops() > 0.0);
//! ```

pub mod agents;
pub mod begin;
pub mod ceiling;
pub mod client;
pub mod conductor;
mod costs;
pub mod crew;
pub mod fit;
pub mod folder;
pub mod holes;
pub mod integrity;
pub mod journal;
pub mod keeper;
pub mod now;
pub mod prepare;
pub mod progress;
mod purge;
pub mod reports;
pub mod resume;
pub mod safety;
pub mod shorter;
pub mod site;
mod stop;
pub mod storage;
pub mod suites;
pub mod timestamp;
pub mod view;
pub mod ways;
