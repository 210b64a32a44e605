//! Keys, read on a thread of their own: the first that asks for an end is heard as a signal is, the second ends the
//! program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::give_back;
use crate::interrupt::Interrupt;

/// Reads keys until it is dropped.
pub(super) struct Keys {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// As a shell reports a command that SIGINT ended.
const INTERRUPTED: i32 = 130;

impl Keys {
    pub(super) fn read(interrupt: Interrupt) -> Keys {
        let done = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&done);
        let thread = thread::spawn(move || {
            while !ended.load(Relaxed) {
                match event::poll(LOOK_EVERY).and_then(|is_there| is_there.then(event::read).transpose()) {
                    Ok(Some(Event::Key(key))) if asks_for_an_end(key) => end(&interrupt),
                    Ok(_) => {}
                    // The terminal has gone: signals are left.
                    Err(_) => return,
                }
            }
        });
        Keys { done, thread: Some(thread) }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// In raw mode Ctrl-C is a key like others.
fn asks_for_an_end(key: KeyEvent) -> bool {
    let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

fn end(interrupt: &Interrupt) {
    if interrupt.is_asked() {
        give_back();
        std::process::exit(INTERRUPTED);
    }
    interrupt.ask();
}
