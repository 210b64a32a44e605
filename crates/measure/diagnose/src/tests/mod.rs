//! Paths that are made up and some that are real, each with one thing wrong or none: what is found is what was planted, and its price is right.

mod planted;
mod real;
mod world;
