//! TCP congestion control of our own sockets.

use backends::location::Location;

/// The congestion control of the sockets to a place, if there are any: it is writes that it slows down, reads are up to the
/// target's.
pub fn congestion(place: &Location) -> Option<String> {
    match place {
        Location::Lun(url) => Some(url.settings.stream.congestion.clone().unwrap_or_else(system_congestion)),
        Location::Volume(_) | Location::Path(_) => None,
    }
}

/// The system's choice for sockets that make none.
pub fn system_congestion() -> String {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    default.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
