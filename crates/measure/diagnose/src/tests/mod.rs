//! Tests with synthetic and real paths. Each has planted causes or none, and the diagnosis must find the
//! cause with the right gain.

mod counterfactual;
mod planted;
mod real;
mod world;
