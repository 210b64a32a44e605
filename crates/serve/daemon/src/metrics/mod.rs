//! Monitoring of a running server: metrics in Prometheus' text format, and a health check.
//!
//! This module counts nothing, and is independent of the front ends. Each front end has its own counters on
//! each core ([`front_end_core::CoreFrontEnd::statistics`]); its name becomes the label `protocol`. A scrape
//! reads these counters, the state of each volume, and the kernel's statistics of the process ([`Sample`]).
//! While the server reloads, or a core hangs, a scrape still completes within a second, and reports the
//! condition.
//!
//! Reading order: [`sample`] (reading the counters), `render` (all metrics, and a sample as text),
//! `exposition` (the text format), [`Health`], `http` (the listener).

mod exposition;
pub(crate) mod http;
pub(crate) mod render;
mod sample;

use std::time::{Duration, Instant};

use front_end_core::{Phase, Server};
use serde::Serialize;

pub use render::families;
pub(crate) use sample::{Probe, Reloads};

// The health of a server, and its problems.

/// A reactor thread counts as hung if it has had no iteration for this time. An idle thread has an iteration
/// every second.
const HUNG_TIME: Duration = Duration::from_secs(5);

/// The health of a server, as in the JSON of `/healthz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether there are no problems.
    pub healthy: bool,
    /// The problems found.
    pub problems: Vec<Problem>,
}

/// A problem that prevents hosts from using their volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The affected part: `server`, `reactor` or `volume`.
    pub kind: &'static str,
    /// Its name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The description.
    pub problem: String,
}

impl Health {
    pub(crate) fn of(server: &Server) -> Health {
        let mut problems = Vec::new();
        let mut add = |kind, name, problem: String| {
            problems.push(Problem {
                kind,
                name,
                problem,
            })
        };
        match server.phase() {
            Phase::Open => {}
            Phase::Starting => add(
                "server",
                None,
                "starting up: hosts are asked to retry".to_owned(),
            ),
            Phase::Draining => add(
                "server",
                None,
                "shutting down: hosts are asked to retry".to_owned(),
            ),
        }
        for (core, time) in server.hung_cores(Instant::now(), HUNG_TIME) {
            let problem = format!("the thread has hung for {} s", time.as_secs());
            add("reactor", Some(core.to_string()), problem);
        }
        for (name, volume) in server.volumes().iter() {
            let (condition, name) = (volume.health().condition(), || Some(name.to_owned()));
            if let Some(time) = condition.silent {
                let problem = format!(
                    "the device has been unresponsive for {} s",
                    time.as_secs_f64().round()
                );
                add("volume", name(), problem);
            } else if volume.is_fenced() {
                add(
                    "volume",
                    name(),
                    "is out of service until its device responds".to_owned(),
                );
            }
            if condition.is_failing {
                let cause = condition
                    .latest
                    .map_or("its storage fails".to_owned(), |latest| {
                        latest.error.to_string()
                    });
                add("volume", name(), cause);
            }
        }
        Health {
            healthy: problems.is_empty(),
            problems,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc;

    use super::*;
    use crate::{StartOptions, start};

    fn healthz(address: SocketAddr) -> (String, serde_json::Value) {
        let mut stream = TcpStream::connect(address).expect("a server of metrics");
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a reply");
        let status = head.split(' ').nth(1).expect("a status").to_owned();
        (status, serde_json::from_str(body).expect("JSON"))
    }

    fn until(address: SocketAddr, status: &str) -> serde_json::Value {
        loop {
            let (found, body) = healthz(address);
            if found == status {
                return body;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// This test stops and resumes the second of two threads.
    #[test]
    fn a_thread_that_hangs_is_named_over_http() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("linerate.toml");
        let text = "[metrics]\nlisten = \"127.0.0.1:0\"\n[volume.vm1]\nspec = \"ram:1MiB\"\n[[portal]]\n\
                    listen = \"127.0.0.1:0\"\n[[target]]\nname = \"iqn.2026-01.com.example:t\"\n\
                    lun = [{ lun = 0, volume = \"vm1\" }]\n";
        std::fs::write(&file, text).expect("written");
        let state = Some(folder.path().to_owned());
        let start_options = StartOptions {
            path: Some(file),
            state,
            reactors: Some(2),
            ..StartOptions::default()
        };
        let config = start_options.safe_config().expect("nothing wrong");
        let mut server = start(start_options, config).expect("started");
        server.open().expect("threads");
        let address = server.live().metrics_address().expect("it is served");
        let (stopped, (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        server.live().server().run_on(1, move |_| {
            let _ = stopped.0.send(());
            let _ = wait.recv();
        });
        stopped.1.recv().expect("it hangs");
        let body = until(address, "503");
        let problems = body["problems"].as_array().expect("problems");
        let reactor = problems
            .iter()
            .find(|problem| problem["name"] == "1")
            .expect("the second thread");
        assert_eq!(reactor["kind"], "reactor");
        assert!(
            reactor["problem"]
                .as_str()
                .is_some_and(|text| text.starts_with("the thread has hung for"))
        );
        drop(go);
        assert_eq!(
            until(address, "200"),
            serde_json::json!({ "healthy": true, "problems": [] })
        );
        server.live().shutdown(Duration::ZERO);
        server.join().expect("flushed");
    }
}
