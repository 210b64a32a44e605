//! A URL in, a block device out.
