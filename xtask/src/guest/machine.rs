//! The emulated machine, and a shell in it.
//!
//! ```text
//!   first serial line    the kernel's console ──► a file, which is kept if a scene fails
//!   second serial line   scripts ──► sh ──► output and exit code
//!   two network cards    tap interfaces of the namespace in which the server runs
//! ```

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::image::Image;
use xtask::process::Background;
use xtask::serving::Placement;

/// Time limit until the guest's shell responds: this takes 5 s on an idle machine, and has taken 48 s during other builds.
const BOOT: Duration = Duration::from_secs(240);

/// Time limit of a script that waits only for the guest itself.
pub(super) const SCRIPT: Duration = Duration::from_secs(240);

/// Prefix of the line that ends a script's output. The shell itself never prints it.
const MARK: &str = "@@ ";

/// A running guest, stopped when dropped.
#[derive(Debug)]
pub(super) struct Guest {
    computer: Background,
    shell: ChildStdin,
    lines: Receiver<String>,
    scripts: u32,
    console: PathBuf,
    /// The time from its start until the shell responds.
    pub(super) boot: Duration,
}

impl Guest {
    /// Boots the guest with its two network cards at `taps`.
    pub(super) fn boot(
        image: &Image,
        place: &Placement,
        taps: &[&str],
        console: &Path,
    ) -> Result<Guest> {
        let begun = Instant::now();
        let mut command = place.command("qemu-system-x86_64");
        // With a thread for each processor, QEMU can keep the translation of a breakpoint that the kernel has already
        // replaced (a patched static key), and the kernel stops with "int3" in `__skb_get_hash_net` or elsewhere.
        command.args("-M q35 -accel tcg,thread=single -cpu max -smp 2 -m 768".split(' '));
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&image.root);
        // On a loaded machine, the emulated processor can stall for seconds; the kernel must not treat that as a fault.
        let quiet = "quiet panic=-1 nowatchdog no_timer_check rcupdate.rcu_cpu_stall_suppress=1 random.trust_cpu=on";
        command.args([
            "-append",
            &format!("console=ttyS0 loglevel=6 {quiet} mitigations=off nokaslr"),
        ]);
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()));
        command.args("-chardev stdio,id=shell,signal=off -serial chardev:shell".split(' '));
        for (at, tap) in taps.iter().enumerate() {
            command.args([
                "-netdev",
                &format!("tap,id=net{at},ifname={tap},script=no,downscript=no"),
            ]);
            command.args([
                "-device",
                &format!("virtio-net-pci,netdev=net{at},mac=52:54:00:77:00:0{at},romfile="),
            ]);
        }
        let mut computer = Background::start_piped(&mut command)?;
        let shell = computer
            .child
            .stdin
            .take()
            .context("the guest's serial line")?;
        let output = computer
            .child
            .stdout
            .take()
            .context("the guest's serial line")?;
        let (heard, lines) = mpsc::channel();
        thread::spawn(move || {
            // A serial line can carry bytes that are not UTF-8.
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line)
                    .trim_end_matches('\r')
                    .to_owned();
                let _ = heard.send(line); // fails if the guest was dropped
            }
        });
        let console = console.to_owned();
        let mut guest = Guest {
            computer,
            shell,
            lines,
            scripts: 0,
            console,
            boot: Duration::ZERO,
        };
        guest.until("up", BOOT).context("booting the guest")?;
        guest.boot = begun.elapsed();
        Ok(guest)
    }

    /// Runs a script in the guest and returns its output. The script stops at the first failing command; the error then contains
    /// all of its output.
    pub(super) fn run(&mut self, script: &str) -> Result<String> {
        self.run_within(SCRIPT, script)
    }

    /// Like [`Guest::run`], for a script that waits for something outside of the guest.
    pub(super) fn run_within(&mut self, limit: Duration, script: &str) -> Result<String> {
        self.start(script)?;
        self.finish(limit)
    }

    /// Starts a script; [`Guest::finish`] waits for its end. Only one script can run at a time.
    pub(super) fn start(&mut self, script: &str) -> Result<()> {
        self.scripts += 1;
        let number = self.scripts;
        // The mark starts a new line even if the script's last line is not terminated.
        write!(
            self.shell,
            "( set -e\n{script}\n) </dev/null 2>&1; printf '\\n{MARK}{number} %d\\n' $?\n"
        )
        .context("the guest has terminated")?;
        Ok(())
    }

    /// Waits for the current script.
    pub(super) fn finish(&mut self, limit: Duration) -> Result<String> {
        let (output, code) = self.until(&self.scripts.to_string(), limit)?;
        ensure!(
            code == 0,
            "a script in the guest ended with {code}:\n{output}"
        );
        Ok(output)
    }

    /// Kills the guest, like a power failure.
    pub(super) fn end(&mut self) {
        self.computer.kill();
    }

    /// Reads the output up to a mark, and the exit code in the mark.
    fn until(&mut self, name: &str, limit: Duration) -> Result<(String, i32)> {
        let deadline = Instant::now() + limit;
        let mut output = String::new();
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => match line
                    .strip_prefix(MARK)
                    .and_then(|rest| rest.split_once(' '))
                {
                    Some((found, code)) if found == name => {
                        output.truncate(output.trim_end().len());
                        return Ok((output, code.parse().context("an exit code")?));
                    }
                    Some(_) => output.clear(), // of a script that was abandoned
                    None => output += &format!("{line}\n"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "the guest did not respond within {} s; output until then:\n{output}",
                        limit.as_secs()
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the guest has terminated:\n{}", self.last_words())
                }
            }
        }
    }

    /// Returns the last lines of the console.
    pub(super) fn last_words(&self) -> String {
        const LINES: usize = 30;
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}
