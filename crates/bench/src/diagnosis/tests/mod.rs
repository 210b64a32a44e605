//! Paths that are made up, each with one thing wrong or none: what is found is what was planted, and its price is right.

mod planted;
mod world;
