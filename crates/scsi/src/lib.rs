//! SCSI commands, sense, pages and the logical unit; knows no wire.
