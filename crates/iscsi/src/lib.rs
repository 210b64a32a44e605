//! iSCSI (RFC 7143), both halves, as machines without I/O.
