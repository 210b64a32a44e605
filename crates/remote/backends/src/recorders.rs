//! The flight recorders of all URLs of this process: the recent PDUs of its sessions, for Wireshark.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use iscsi_client::{FlightRecorder, Settings};

/// Where connections that were lost leave a file each.
const FOLDER: &str = "LINERATE_RECORD_DIR";

static RECORDERS: Mutex<Vec<FlightRecorder>> = Mutex::new(Vec::new());

/// Sees to it that the sessions of these settings are among what is recorded.
pub fn keep(settings: &Settings) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        settings.recorder.write_endings_to(Path::new(&folder));
    }
    RECORDERS.lock().unwrap_or_else(PoisonError::into_inner).push(settings.recorder.clone());
}

/// What all of them have recorded until now, as a file for Wireshark.
pub fn pcapng() -> Vec<u8> {
    iscsi_client::pcapng(RECORDERS.lock().unwrap_or_else(PoisonError::into_inner).iter())
}
