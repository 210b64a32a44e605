//! What a configuration and a running server have of each front end.

pub mod iscsi;
