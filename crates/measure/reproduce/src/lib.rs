//! Reproduces the source documents. It builds the hosts, links and storage of a document in a lab, and carries out
//! its tests in its order. The page has every measured number next to the published one.
//!
//! ```text
//!   plans/002.toml ── plan::Plan ── run::reproduce ──► for each bed and test: bench_runner::conductor
//!                                        │                       │
//!                                        │             OUT/BED/TEST/result.json
//!                                        └──► page::write ──► OUT/report.md, report.html, numbers.csv
//! ```
//!
//! Everything that is specific to a document is in its plan, which users can read and change: the *beds* (each a
//! lab with its storage), and the *tests*, each of which measures numbers of one table with one suite. The
//! program itself contains no special case for any document.
//!
//! Reading order: [`plan`] (beds and tests), [`run`] (the sequence), `crew` (the clients in the lab), [`page`].

mod crew;
pub mod page;
pub mod plan;
pub mod run;
