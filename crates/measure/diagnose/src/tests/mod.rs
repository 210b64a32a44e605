//! Tests with synthetic and real paths. Each has one planted cause or none, and the diagnosis must find the
//! cause with the right gain.

mod planted;
mod real;
mod world;
