//! Other people's programs against the real binary: the last judge of what an initiator sees.
//!
//! Each test starts a server of its own on a free port of the loopback, with its own state folder, runs a program
//! and looks at what it says; what went over the wire meanwhile is decoded by tshark, and must decode without a
//! complaint. A program that is not installed makes its tests say so and hold; `cargo xtask test` installs them all.
//!
//! `LINERATE_INTEROP_SERVER=tgt` runs the same tests against tgt, to tell a fault of the test from one of ours.

mod access;
mod agents;
mod agents_lan;
mod aoe;
mod attach;
mod attach_disk;
mod audit;
mod bench;
mod bench_command;
mod capture;
mod ceph;
mod changes;
mod check;
mod clients;
mod compare_command;
mod completions;
mod copy;
mod crash;
mod diagnose;
mod discover_command;
mod discovery;
mod ending;
mod exit_codes;
mod exposition;
mod foreign;
mod gateway;
mod growth;
mod hangup;
mod hostile;
mod hung;
mod hyperscsi;
mod hyperscsi_programs;
mod identity;
mod import;
mod info;
mod isolation;
mod journal_file;
mod json;
mod kept;
mod lab;
mod library;
mod lifecycle;
mod limits;
mod lost_cache;
mod lost_writes;
mod metrics;
mod multipath;
mod nbd;
mod nbd_channels;
mod nbd_client;
mod peer;
mod peer_command;
mod pipes;
mod portal_groups;
mod private_files;
mod program;
mod prove;
mod proxy;
mod qemu;
mod raid;
mod raid_lan;
mod raw_command;
mod rbd;
mod recorder;
mod refusals;
mod reload;
mod remote;
mod report;
mod scsi_command;
mod server;
mod server_command;
mod sessions;
mod storage_log;
mod supervised;
mod threaded_luns;
mod torn;
mod unwritten;
mod verbs;
mod widths;
mod wire;
