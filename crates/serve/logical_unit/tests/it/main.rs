//! Tests of the logical unit from a front end's point of view, over a disk in memory. There is one file for
//! each command.

// The items of `support` are public, because the fuzz target also includes the module.
#![allow(unreachable_pub)]

mod support;

mod absent;
mod any_bytes;
mod at_once;
mod attentions;
mod capacity;
mod changed_since;
mod compare_and_write;
mod defects;
mod device_errors;
mod diagnostic;
mod directions;
mod extended_copy;
mod fence;
mod format;
mod given_up;
mod inquiry;
mod lba_status;
mod log_sense;
mod lost_writes;
mod many_cores;
mod mode;
mod model;
mod operation_codes;
mod or_write;
mod persistent;
mod prefetch;
mod prevent_allow;
mod read;
mod report_luns;
mod request_sense;
mod reservations;
mod reserve;
mod sanitize;
mod start_stop;
mod synchronize_cache;
mod target_port_groups;
mod task_management;
mod unmap;
mod verify;
mod vpd;
mod write;
mod write_and_verify;
mod write_atomic;
mod write_protect;
mod write_same;
