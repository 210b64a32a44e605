//! HyperSCSI targets: discovers them on an Ethernet or at a host, and describes a target after a login.

use std::fmt::Write as _;
use std::sync::Arc;

use backends::Failure;
use backends::hyperscsi::{Found, PathStatus, Place, SessionStatus, Target, Url};
use readable::table::pairs;
use serde::Serialize;

use crate::disk::{self, UnitInfo};
use crate::pages::Answer;

/// The JSON names are stable.
#[derive(Serialize)]
struct Discovery {
    /// The queried place, in the form of the start of a URL.
    place: String,
    targets: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    /// The target's URL, without a LUN.
    url: String,
    stations: Vec<Station>,
}

#[derive(Serialize)]
struct Station {
    /// The queried interface, or the host with its port.
    asked: String,
    /// The address of the target.
    address: String,
}

#[derive(Serialize)]
struct Info {
    session: Session,
    luns: Vec<UnitInfo>,
}

#[derive(Serialize)]
struct Session {
    /// The target's URL, without a LUN.
    url: String,
    target: String,
    initiator: String,
    encrypted: bool,
    frame_bytes: usize,
    queue_depth: u32,
    paths: Vec<Path>,
}

#[derive(Serialize)]
struct Path {
    local: String,
    remote: String,
    up: bool,
    round_trip_us: Option<f64>,
    window_frames: u32,
}

/// Discovers the targets at a place: one `INTERFACE`, several interfaces joined by `+`, or
/// `hyperscsi+udp://HOST[:PORT]`.
///
/// # Errors
/// The text is invalid, or the place cannot be used.
pub async fn discover(text: &str) -> Result<(Answer, Result<(), Failure>), Failure> {
    let (place, found) = backends::hyperscsi::discover(text).await?;
    let discovery = Discovery::new(&place, &found);
    let nothing = format!("{} has no targets for this initiator", discovery.place);
    let looked = crate::unless_empty(&discovery.targets, nothing);
    Ok((Answer::new(discovery.text(), &discovery), looked))
}

impl Discovery {
    fn new(place: &Place, found: &[Found]) -> Discovery {
        let at = format!("{}://{place}", place.scheme());
        let mut names: Vec<&String> = found.iter().flat_map(|found| &found.targets).collect();
        names.sort();
        names.dedup();
        let station = |found: &Found| Station {
            asked: found.asked.clone(),
            address: found.from.to_string(),
        };
        let targets = names.into_iter().map(|name| Named {
            name: name.clone(),
            url: format!("{at}/{name}"),
            stations: found
                .iter()
                .filter(|found| found.targets.contains(name))
                .map(station)
                .collect(),
        });
        let targets = targets.collect();
        Discovery { place: at, targets }
    }

    fn text(&self) -> String {
        if self.targets.is_empty() {
            return String::new();
        }
        let mut text = format!("{}\n", self.place);
        for Named { url, stations, .. } in &self.targets {
            let at = |station: &Station| match station.address.contains(&station.asked) {
                true => station.address.clone(),
                false => format!("{} on {}", station.address, station.asked),
            };
            let stations: Vec<String> = stations.iter().map(at).collect();
            let _ = writeln!(text, "  {url}  {}", stations.join(", "));
        }
        text
    }
}

/// Logs in to the target of a URL, and describes the session and the LUN that the URL names, or all LUNs of
/// the target. `pages` are the pages of vital product data to show in full.
///
/// # Errors
/// The URL is wrong, the login fails, the session is lost, or there is no such LUN.
pub async fn info(text: &str, pages: &[u8]) -> Result<Answer, Failure> {
    let (url, lun) = backends::hyperscsi::target_url(text)?;
    let Target { target, session } = backends::hyperscsi::open_target(&url).await?;
    let looked = match lun {
        Some(number) => UnitInfo::look(&target.unit(number), pages)
            .await
            .map(|unit| vec![unit]),
        None => disk::look_at_all(&Arc::clone(&target), pages).await,
    };
    // Query the status last, because the round-trip times of the paths are known only after some traffic.
    let status = session.status().await;
    target.close().await;
    let luns = looked?;
    let status = status.ok_or_else(|| Failure::failed("the session is lost"))?;
    let info = Info {
        session: Session::new(&url, &status),
        luns,
    };
    Ok(Answer::new(info.text(), &info))
}

impl Info {
    fn text(&self) -> String {
        let luns: String = self
            .luns
            .iter()
            .map(|lun| format!("\n{}", lun.text()))
            .collect();
        self.session.text() + &luns
    }
}

impl Session {
    fn new(url: &Url, status: &SessionStatus) -> Session {
        let path = |path: &PathStatus| Path {
            local: path.local.to_string(),
            remote: path.remote.to_string(),
            up: path.is_up,
            round_trip_us: path.round_trip.map(|time| time.as_secs_f64() * 1e6),
            window_frames: path.window_frames,
        };
        Session {
            url: format!("{}://{}/{}", url.place.scheme(), url.place, url.target),
            target: url.target.clone(),
            initiator: url.options.name.clone(),
            encrypted: status.is_encrypted,
            frame_bytes: status.frame_bytes,
            queue_depth: status.queue_depth,
            paths: status.paths.iter().map(path).collect(),
        }
    }

    fn text(&self) -> String {
        let protection = if self.encrypted {
            "encrypted and authenticated"
        } else {
            "CRC32C, not authenticated"
        };
        let rows = [
            ("target", self.target.clone()),
            ("initiator", self.initiator.clone()),
            (
                "frames",
                format!("{} bytes, {protection}", self.frame_bytes),
            ),
            ("queue depth", self.queue_depth.to_string()),
        ];
        let paths = self.paths.iter().map(|path| ("path", path.text()));
        format!(
            "{}\n{}",
            self.url,
            pairs("  ", rows.into_iter().chain(paths))
        )
    }
}

impl Path {
    fn text(&self) -> String {
        let state = if self.up { "" } else { ", down" };
        let time = self
            .round_trip_us
            .map_or_else(String::new, |time| format!(", round trip {time:.0} us"));
        format!(
            "{} to {}{state}{time}, window {} frames",
            self.local, self.remote, self.window_frames
        )
    }
}
