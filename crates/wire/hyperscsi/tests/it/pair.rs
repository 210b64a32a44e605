//! An initiator and a target on a wire without delays.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hyperscsi::initiator::{self, Event};
use hyperscsi::target::{self, Admission, Directory, TaskId};
use hyperscsi::{Cipher, Command, FunctionResult, Initiator, Psk, Refusal, Response, Target};

/// Admits one initiator, with this key.
pub(crate) struct One(pub(crate) Option<Psk>);

impl Directory<u8> for One {
    fn admit(&self, initiator: &str, target: &str, _: &u8) -> Result<Admission, Refusal> {
        if (initiator, target) != ("host", "disk") {
            return Err(Refusal::UnknownTarget);
        }
        Ok(self.0.clone().map_or(Admission::Open, Admission::Key))
    }

    fn targets(&self, _: &u8) -> Vec<String> {
        vec!["disk".to_owned()]
    }
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) initiator: Initiator,
    pub(crate) target: Target<u8, One>,
    pub(crate) events: Vec<Event>,
    pub(crate) target_events: Vec<target::Event>,
    /// Frames that were delivered to the target and to the initiator.
    pub(crate) to_target: Vec<Vec<u8>>,
    pub(crate) to_initiator: Vec<Vec<u8>>,
    /// Whether a frame passes.
    pub(crate) passes: fn(path: u8, bytes: usize) -> bool,
    /// Whether commands are answered immediately, and ended sessions quiesce immediately.
    pub(crate) answers: bool,
}

pub(crate) fn key() -> Option<(Psk, Cipher)> {
    Some((Psk::from_secret(b"a secret"), Cipher::Aes256Gcm))
}

pub(crate) fn config() -> initiator::Config {
    initiator::Config::new("host", "disk")
}

pub(crate) fn command(cdb: u8, data_in_bytes: u32, data_out: Vec<u8>) -> Command {
    Command {
        cdb: vec![cdb; 16],
        data_in_bytes,
        data_out: data_out.into(),
        ..Command::default()
    }
}

impl Pair {
    pub(crate) fn new(config: initiator::Config) -> Pair {
        let now = Instant::now();
        let one = One(config.key.as_ref().map(|(key, _)| key.clone()));
        Pair {
            now,
            initiator: Initiator::new(now, config, [1; 32]),
            target: Target::new(target::Config::default(), one, [2; 32]),
            events: Vec::new(),
            target_events: Vec::new(),
            to_target: Vec::new(),
            to_initiator: Vec::new(),
            passes: |_, _| true,
            answers: true,
        }
    }

    pub(crate) fn logged_in(config: initiator::Config) -> Pair {
        let mut pair = Pair::new(config);
        pair.settle();
        assert!(
            matches!(pair.events[..], [Event::LoggedIn { .. }]),
            "{:?}",
            pair.events
        );
        pair.events.clear();
        pair
    }

    /// Delivers all frames until neither side has any.
    pub(crate) fn settle(&mut self) {
        let mut frame = Vec::new();
        loop {
            let passes = self.passes;
            let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
            while let Some(path) = self.initiator.poll_transmit(self.now, &mut frame) {
                there.push_back((path, frame.clone()));
            }
            while let Some(path) = self.target.poll_transmit(self.now, &mut frame) {
                back.push_back((path, frame.clone()));
            }
            if there.is_empty() && back.is_empty() {
                return;
            }
            for (path, mut frame) in there
                .into_iter()
                .filter(|(path, frame)| passes(*path, frame.len()))
            {
                self.to_target.push(frame.clone());
                self.target.handle_frame(self.now, &path, &mut frame);
                self.serve();
            }
            for (_, mut frame) in back
                .into_iter()
                .filter(|(path, frame)| passes(*path, frame.len()))
            {
                self.to_initiator.push(frame.clone());
                self.initiator.handle_frame(self.now, &mut frame);
            }
            self.collect();
        }
    }

    pub(crate) fn collect(&mut self) {
        self.events
            .extend(std::iter::from_fn(|| self.initiator.poll_event()));
    }

    pub(crate) fn serve(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                target::Event::Command { task, ref command } if self.answers => {
                    self.answer(task, command);
                }
                target::Event::Function { task, .. } if self.answers => {
                    self.target.function_done(task, FunctionResult::Complete);
                }
                // This driver has no commands in transit to a medium.
                target::Event::SessionEnded { session, .. } if self.answers => {
                    self.target.quiesced(session);
                    self.target_events.push(event);
                }
                event => self.target_events.push(event),
            }
        }
    }

    /// Answers with data that repeats the CDB's first byte.
    pub(crate) fn answer(&mut self, task: TaskId, command: &Command) {
        let data = vec![command.cdb[0]; command.data_in_bytes as usize].into();
        assert!(self.target.respond(
            task,
            Response {
                data,
                ..Response::default()
            }
        ));
    }

    /// Advances time, deadline by deadline.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = [self.initiator.poll_timeout(), self.target.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            match next {
                Some(next) if next <= end => {
                    self.now = self.now.max(next);
                    self.initiator.handle_timeout(self.now);
                    self.target.handle_timeout(self.now);
                    self.serve();
                }
                _ => break,
            }
        }
        self.now = end;
        self.collect();
    }
}
