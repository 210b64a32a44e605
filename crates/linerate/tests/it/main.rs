//! Tests of the real binary with other programs, which check it from the view of an initiator.
//!
//! Each test starts a separate server on a free loopback port, with its own state directory, runs a program
//! and checks its output. tshark decodes the traffic, which must not cause a complaint. Tests whose program
//! is not installed are skipped with a message; `cargo xtask test` installs all programs.
//!
//! `LINERATE_INTEROP_SERVER=tgt` runs the same tests against tgt, to distinguish an error in the test from
//! one in Linerate.

/// The value, or the end of the test if a requirement is not met; the reason has been printed.
macro_rules! or_skip {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return,
        }
    };
}

/// Ends the test if a requirement is not met; the reason has been printed.
macro_rules! needs {
    ($is_met:expr) => {
        if !$is_met {
            return;
        }
    };
}

mod access;
mod agents;
mod agents_lan;
mod aoe;
mod attach;
mod attach_disk;
mod audit;
mod bench;
mod bench_command;
mod blocking_luns;
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
mod hyperscsi_cores;
mod hyperscsi_lab;
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
mod link_local;
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
mod rbd;
mod recorder;
mod refusals;
mod reload;
mod remote;
mod report;
mod reproduce;
mod scsi_command;
mod server;
mod server_command;
mod sessions;
mod sharkd;
mod storage_log;
mod supervised;
mod torn;
mod unwritten;
mod verbs;
mod widths;
mod wire;
