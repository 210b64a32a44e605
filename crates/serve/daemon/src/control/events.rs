//! The event stream of a server. [`Event`] lists the kinds of events; [`Events`] delivers each event to all
//! subscribers.
//!
//! Each subscriber has its own bounded queue. Publishing appends lines to the queues and never waits: a slow
//! subscriber receives [`Event::Missed`] instead of the events that did not fit in its queue.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use front_end_core::{HostAddress, Observer, SessionInfo};
use serde::{Deserialize, Serialize};

use super::VERSION;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A host has logged in.
    SessionBegan {
        /// The front end: `iscsi`.
        front_end: String,
        /// The host's name in that protocol: the initiator's iSCSI name.
        initiator: String,
        /// The authenticated CHAP name.
        user: Option<String>,
        /// `None` for a discovery session.
        target: Option<String>,
        /// The target's half of an iSCSI session's identity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tsih: Option<u16>,
        /// The initiator's address of its first connection.
        #[serde(with = "super::text")]
        peer: HostAddress,
    },
    /// The last connection of a session has ended.
    SessionEnded {
        /// The front end: `iscsi`.
        front_end: String,
        /// The host's name in that protocol: the initiator's iSCSI name.
        initiator: String,
        /// The authenticated CHAP name.
        user: Option<String>,
        /// `None` for a discovery session.
        target: Option<String>,
        /// The target's half of an iSCSI session's identity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tsih: Option<u16>,
    },
    /// A volume has been added.
    VolumeAdded {
        /// Its name.
        volume: String,
    },
    /// A volume has been removed.
    VolumeRemoved {
        /// Its name.
        volume: String,
    },
    /// A volume has been renamed.
    VolumeRenamed {
        /// Its new name.
        volume: String,
        /// Its old name.
        from: String,
    },
    /// A volume has been closed and reopened, because its specification changed.
    VolumeReplaced {
        /// Its name.
        volume: String,
    },
    /// A volume has grown, by a configuration change or because its file or device has grown.
    VolumeGrown {
        /// Its name.
        volume: String,
        /// Its new size.
        bytes: u64,
    },
    /// Requests of a volume have started to fail, or its device is unresponsive.
    VolumeFailed {
        /// Its name.
        volume: String,
        /// Human-readable cause.
        cause: String,
    },
    /// A volume has recovered.
    VolumeRecovered {
        /// Its name.
        volume: String,
        /// Number of failed requests.
        failed_requests: u64,
        /// Duration of the failure.
        seconds: f64,
    },
    /// A volume is out of service until its device responds.
    VolumeFenced {
        /// Its name.
        volume: String,
        /// The time for which its device has been unresponsive.
        silent_seconds: f64,
    },
    /// The configuration has changed, by a reload or by a change to one volume.
    ReloadApplied {
        /// The changes, one line each.
        changes: Vec<String>,
        /// Changes that failed.
        failed: Vec<String>,
    },
    /// A configuration change was refused.
    ReloadRefused {
        /// Human-readable reason.
        reason: String,
    },
    /// Replaces events that were dropped because this subscriber was too slow.
    Missed {
        /// Number of missed events.
        events: u64,
    },
}

/// An event as a line of the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Occurrence {
    /// Version of the control protocol.
    pub version: u32,
    /// Seconds since 1970 (UTC).
    pub time: f64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

type Line = Arc<[u8]>;

/// Delivers events to subscribers.
#[derive(Default)]
pub struct Events {
    subscribers: Mutex<Vec<Weak<Queue>>>,
}

/// Events that a subscriber has not taken yet.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    is_filled: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Line>,
    bytes: usize,
    missed: u64,
}

/// A subscriber, which receives events until it is dropped.
pub(crate) struct Subscriber(Arc<Queue>);

/// Maximum number of subscribers. Each subscriber has a thread and a queue.
const SUBSCRIBERS_MAX: usize = 16;
/// Maximum size of a queue, about two thousand events.
const QUEUE_BYTES_MAX: usize = 512 * 1024;

impl Events {
    /// Delivers an event to all subscribers. Never waits.
    pub fn publish(&self, event: Event) {
        let mut subscribers = locked(&self.subscribers);
        subscribers.retain(|queue| queue.strong_count() > 0);
        let queues: Vec<_> = subscribers.iter().filter_map(Weak::upgrade).collect();
        if queues.is_empty() {
            return;
        }
        let line = line(event);
        queues.iter().for_each(|queue| queue.put(Arc::clone(&line)));
    }

    /// Adds a subscriber; `None` if there are too many.
    pub(crate) fn subscribe(&self) -> Option<Subscriber> {
        let mut subscribers = locked(&self.subscribers);
        subscribers.retain(|queue| queue.strong_count() > 0);
        (subscribers.len() < SUBSCRIBERS_MAX).then(|| {
            let queue = Arc::new(Queue::default());
            subscribers.push(Arc::downgrade(&queue));
            debug_assert!(subscribers.len() <= SUBSCRIBERS_MAX);
            Subscriber(queue)
        })
    }
}

impl Queue {
    fn put(&self, line: Line) {
        let mut waiting = locked(&self.waiting);
        // A single line may exceed the limit, for example the report of a reload of thousands of volumes. It
        // is queued if the queue is empty.
        let is_full = waiting.bytes > 0 && waiting.bytes + line.len() > QUEUE_BYTES_MAX;
        // Once an event has been missed, all later events are also missed until the subscriber has been
        // notified of their number.
        if waiting.missed > 0 || is_full {
            waiting.missed += 1;
        } else {
            waiting.bytes += line.len();
            waiting.lines.push_back(line);
        }
        debug_assert!(
            waiting.bytes <= QUEUE_BYTES_MAX || waiting.lines.len() == 1,
            "a queue is bounded"
        );
        self.is_filled.notify_one();
    }
}

impl Subscriber {
    /// Waits for the next line. Returns `None` if there is none within `time`.
    pub(crate) fn next(&self, time: Duration) -> Option<Line> {
        let is_empty = |waiting: &mut Waiting| waiting.lines.is_empty() && waiting.missed == 0;
        let waiting = locked(&self.0.waiting);
        let waited = self.0.is_filled.wait_timeout_while(waiting, time, is_empty);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match waiting.lines.pop_front() {
            Some(line) => {
                debug_assert!(waiting.bytes >= line.len(), "its bytes were counted");
                waiting.bytes -= line.len();
                debug_assert!(
                    !waiting.lines.is_empty() || waiting.bytes == 0,
                    "an empty queue has no bytes"
                );
                Some(line)
            }
            None if waiting.missed > 0 => {
                let events = std::mem::take(&mut waiting.missed);
                Some(line(Event::Missed { events }))
            }
            None => None,
        }
    }
}

fn line(event: Event) -> Line {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // Round to milliseconds, because further digits would not be meaningful.
    let time = time.as_millis() as f64 / 1000.0;
    let mut line = serde_json::to_vec(&Occurrence {
        version: VERSION,
        time,
        event,
    })
    .expect("names and numbers");
    line.push(b'\n');
    line.into()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for Events {
    fn session_began(&self, session: SessionInfo<'_>, peer: HostAddress) {
        self.publish(Event::SessionBegan {
            front_end: session.front_end.to_owned(),
            initiator: session.initiator.to_owned(),
            user: session.user.map(str::to_owned),
            target: session.target.map(str::to_owned),
            tsih: session.handle,
            peer,
        });
    }

    fn session_ended(&self, session: SessionInfo<'_>) {
        self.publish(Event::SessionEnded {
            front_end: session.front_end.to_owned(),
            initiator: session.initiator.to_owned(),
            user: session.user.map(str::to_owned),
            target: session.target.map(str::to_owned),
            tsih: session.handle,
        });
    }

    fn volume_failed(&self, volume: &str, cause: &str) {
        self.publish(Event::VolumeFailed {
            volume: volume.to_owned(),
            cause: cause.to_owned(),
        });
    }

    fn volume_recovered(&self, volume: &str, failed: u64, time: Duration) {
        self.publish(Event::VolumeRecovered {
            volume: volume.to_owned(),
            failed_requests: failed,
            seconds: time.as_secs_f64(),
        });
    }

    fn volume_fenced(&self, volume: &str, silent: Duration) {
        self.publish(Event::VolumeFenced {
            volume: volume.to_owned(),
            silent_seconds: silent.as_secs_f64(),
        });
    }

    fn volume_grew(&self, volume: &str, bytes: u64) {
        self.publish(Event::VolumeGrown {
            volume: volume.to_owned(),
            bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(volume: &str) -> Event {
        Event::VolumeAdded {
            volume: volume.to_owned(),
        }
    }

    fn next(subscriber: &Subscriber) -> Option<Event> {
        let line = subscriber.next(Duration::ZERO)?;
        Some(
            serde_json::from_slice::<Occurrence>(&line)
                .expect("an event")
                .event,
        )
    }

    #[test]
    fn each_subscriber_is_told_in_order_of_what_happens_while_it_is_there() {
        let events = Events::default();
        events.publish(added("before"));
        let (first, second) = (
            events.subscribe().expect("room"),
            events.subscribe().expect("room"),
        );
        events.publish(added("a"));
        drop(second);
        events.publish(added("b"));
        assert_eq!(
            (next(&first), next(&first), next(&first)),
            (Some(added("a")), Some(added("b")), None)
        );
    }

    #[test]
    fn a_slow_subscriber_is_told_how_much_it_has_missed_and_takes_bounded_memory() {
        let events = Events::default();
        let (slow, quick) = (
            events.subscribe().expect("room"),
            events.subscribe().expect("room"),
        );
        let name = "x".repeat(1000);
        for _ in 0..10_000 {
            events.publish(added(&name));
            assert_eq!(next(&quick), Some(added(&name)), "the other is not held up");
        }
        assert!(locked(&slow.0.waiting).bytes <= QUEUE_BYTES_MAX);
        let mut kept = 0;
        let missed = loop {
            match next(&slow) {
                Some(Event::Missed { events }) => break events,
                Some(_) => kept += 1,
                None => panic!("it is not told of what it has missed"),
            }
        };
        assert_eq!(kept + missed, 10_000);
        events.publish(added("after"));
        assert_eq!(next(&slow), Some(added("after")));
    }

    #[test]
    fn an_event_that_is_longer_than_a_queue_is_told() {
        let events = Events::default();
        let subscriber = events.subscribe().expect("room");
        let long = Event::ReloadApplied {
            changes: vec!["x".repeat(2 * QUEUE_BYTES_MAX)],
            failed: Vec::new(),
        };
        events.publish(long.clone());
        events.publish(added("behind it"));
        assert_eq!(next(&subscriber), Some(long));
        assert_eq!(next(&subscriber), Some(Event::Missed { events: 1 }));
    }

    #[test]
    fn there_are_so_many_subscribers_and_no_more() {
        let events = Events::default();
        let all: Vec<_> = (0..SUBSCRIBERS_MAX)
            .filter_map(|_| events.subscribe())
            .collect();
        assert_eq!(all.len(), SUBSCRIBERS_MAX);
        assert!(events.subscribe().is_none());
        drop(all);
        assert!(events.subscribe().is_some(), "who has gone leaves room");
    }

    #[test]
    fn the_words_of_events_are_frozen() {
        let event = Event::VolumeFenced {
            volume: "vm1".to_owned(),
            silent_seconds: 2.5,
        };
        let occurrence = Occurrence {
            version: 1,
            time: 1.5,
            event,
        };
        let line = r#"{"version":1,"time":1.5,"event":"volume-fenced","volume":"vm1","silent_seconds":2.5}"#;
        assert_eq!(serde_json::to_string(&occurrence).expect("JSON"), line);
        assert_eq!(
            serde_json::from_str::<Occurrence>(line).expect("an event"),
            occurrence
        );
    }
}
