//! Human-readable text: numbers ([`figures`]) and columns of text ([`table`]).

pub mod figures;
pub mod table;
