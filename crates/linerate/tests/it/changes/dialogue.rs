//! A program that executes commands line by line, and prints a result for each.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::program::PATIENCE;

/// A running program, which is ended when this value is dropped.
pub(crate) struct Dialogue {
    child: Child,
    stdin: ChildStdin,
    said: Receiver<Vec<u8>>,
    /// The text that ends each result.
    end: &'static str,
}

impl Dialogue {
    /// Starts a program. Returns `None` if the program ends before it has printed `end` for the first time.
    pub(crate) fn begin(command: &mut Command, end: &'static str) -> Option<Dialogue> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let (stdin, mut stdout) = (
            child.stdin.take().expect("a pipe"),
            child.stdout.take().expect("a pipe"),
        );
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(bytes @ 1..) = stdout.read(&mut buffer) {
                let _ = sender.send(buffer[..bytes].to_vec()); // fails at the end of the scene
            }
        });
        let mut dialogue = Dialogue {
            child,
            stdin,
            said,
            end,
        };
        dialogue.answer().map(|_| dialogue)
    }

    /// Sends a command, and returns its result.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.stdin
            .write_all(format!("{line}\n").as_bytes())
            .expect("a program that listens");
        self.answer()
            .unwrap_or_else(|| panic!("it ended at {line}"))
    }

    fn answer(&mut self) -> Option<String> {
        let mut text = String::new();
        while !text.ends_with(self.end) {
            match self.said.recv_timeout(PATIENCE) {
                Ok(bytes) => text += &String::from_utf8_lossy(&bytes),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("no answer within {PATIENCE:?}: {text}")
                }
            }
        }
        Some(text.trim_end_matches(self.end).to_owned())
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}
