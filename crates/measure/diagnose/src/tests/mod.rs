//! Synthetic and real paths, each with one planted cause or none: the diagnosis must find the cause, with the
//! right gain.

mod planted;
mod real;
mod world;
