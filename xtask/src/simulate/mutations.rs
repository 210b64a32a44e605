//! Known bugs, injected into a copy of the tree one at a time: the simulation must find them.
//!
//! A mutation is a text that occurs once in the code, and its replacement. A test keeps the list in step with the code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use xtask::process;
use xtask::tally::Verdict;
use xtask::workspace;

/// An injected bug.
#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) name: &'static str,
    /// The bug's effect on the server.
    what: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "copy-through-resets",
        what: "EXTENDED COPY is not a task of its destination, so aborts and resets there miss it",
        file: "crates/serve/logical_unit/src/access.rs",
        from: "self.others.get().map_or(&[], |others| others)",
        to: "self.others.get().map_or(&[], |others| &others[..0])",
    },
    Mutation {
        name: "told-when-built",
        what: "lost writes count as reported to a nexus when the response is built, not when it is acknowledged",
        file: "crates/serve/logical_unit/src/access.rs",
        from: "self.watch.reported_losses.set(losses);",
        to: "self.unit.note(|state| {
            let own = state.nexuses.iter_mut().filter(|nexus| Some(nexus.id) == self.nexus);
            own.for_each(|nexus| nexus.losses_told = losses);
        });",
    },
    Mutation {
        name: "flush-that-lies",
        what: "lost writes are reported only to the initiator whose flush detected them",
        file: "crates/serve/logical_unit/src/access.rs",
        from: "if told.is_none_or(|told| told >= losses) {",
        to: "if told.is_none_or(|told| told >= losses) || losses > 0 {",
    },
    Mutation {
        name: "flush-that-does-nothing",
        what: "SYNCHRONIZE CACHE returns GOOD without flushing the device",
        file: "crates/storage/volume/src/persistent_state.rs",
        from: "let flushed = block::flush_now(&*self.device).await;",
        to: "let flushed: Result<(), DeviceError> = Ok(());",
    },
    Mutation {
        name: "starved-command",
        what: "a command waiting for memory never starts when memory becomes available",
        file: "crates/serve/scsi_session/src/commands.rs",
        from: "while let Some((id, job)) = self.commands_mut().waiting_for_memory.pop_front() {",
        to: "while let Some((id, job)) = self.commands_mut().waiting_for_memory.pop_front().filter(|_| false) {",
    },
    Mutation {
        name: "shared-compare-and-write",
        what: "COMPARE AND WRITE does not lock its blocks exclusively",
        file: "crates/serve/logical_unit/src/command/atomic.rs",
        from: "let _excluded = access.locks().exclude(extent).await;
        let (expected, written)",
        to: "let _excluded = access.locks().share(extent).await;
        let (expected, written)",
    },
    Mutation {
        name: "late-write-behind-a-reset",
        what: "a reset completes while the device is still executing an abandoned write",
        file: "crates/storage/volume/src/lib.rs",
        from: "let _ = self.device.quiesced().await;",
        to: "",
    },
    Mutation {
        name: "write-beside-one-given-up",
        what: "blocks of an abandoned write are unlocked while the device is still executing it",
        file: "crates/serve/logical_unit/src/access.rs",
        from: "self.access.unit.volume().lock_until_quiesced(extent);",
        to: "let _ = extent;",
    },
    Mutation {
        name: "reader-that-does-not-read",
        what: "a peer that does not read its data keeps its memory and locked blocks indefinitely",
        file: "crates/serve/iscsi/src/slow_peers.rs",
        from: "        if let Some(link) = self.link(id) {
            link.cut_slow();",
        to: "        if let Some(link) = self.link(id) {
            let _ = link;",
    },
    Mutation {
        name: "preempt-that-aborts-nothing",
        what: "PREEMPT AND ABORT does not abort the tasks of the preempted nexus",
        file: "crates/serve/scsi_session/src/commands.rs",
        from: "owners: Owners::These(nexuses),
                spared: Some(by),",
        to: "owners: Owners::These(Vec::new()),
                spared: Some(by),",
    },
    Mutation {
        name: "early-data-lost",
        what: "data that overtook its command on another connection is dropped",
        file: "crates/serve/iscsi/src/session.rs",
        from: "self.land(task, offset, &bytes)",
        to: "drop((task, offset, bytes))",
    },
    Mutation {
        name: "other-portal-group",
        what: "our initiator assumes that a login to another portal group has ended its outstanding commands",
        file: "crates/remote/iscsi/src/open.rs",
        from: "let how = if leading.is_same_port(&self.leading) {",
        to: "let how = if leading.is_same_port(&self.leading) || true {",
    },
    Mutation {
        name: "unmap-beside-write",
        what: "blocks of a RAM volume that are receiving data count as unused, and UNMAP skips them",
        file: "crates/runtime/host/src/ram/memory.rs",
        from: "if received > 0 {",
        to: "if received > piece.len() {",
    },
    Mutation {
        name: "reservation-save",
        what: "a registration that is aborted while being saved is on disk but not in memory",
        file: "crates/serve/logical_unit/src/reservations/mod.rs",
        from: "    unit.commit();\n    unit.volume().save_reservations",
        to: "    unit.volume().save_reservations",
    },
    Mutation {
        name: "reservation-not-saved",
        what: "a registration that must survive a restart is not saved",
        file: "crates/storage/volume/src/persistent_state.rs",
        from: "state.save(saved.to_bytes()).await.map_err(|_| Unsaved)",
        to: "Ok(drop((state, saved)))",
    },
    Mutation {
        name: "logout-that-fails-requests",
        what: "requests fail while our session is logged out at the target's request",
        file: "crates/remote/iscsi/src/inner/mod.rs",
        from: "Err(SubmitError::NotConnected) if self.will_reconnect() => {",
        to: "Err(SubmitError::NotConnected) if self.will_reconnect() && self.connections.is_empty() => {",
    },
    Mutation {
        name: "copy-that-ends-without-a-word",
        what: "a copy that is ended by a reset of its destination gets no response",
        file: "crates/serve/iscsi/src/session.rs",
        from: "            is_copy\n        });",
        to: "            false\n        });",
    },
    Mutation {
        name: "abort-that-ends-nothing",
        what: "an aborted command keeps running after the response",
        file: "crates/serve/scsi_session/src/commands.rs",
        from: "self.task.abort();",
        to: "drop(self.task);",
    },
];

/// Mutations of NBD, to be found in worlds with NBD clients.
const NBD_MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "nbd-flush-that-does-nothing",
        what: "an NBD flush succeeds without flushing the device",
        file: "crates/serve/nbd/src/carry_out.rs",
        from: "RequestKind::Flush, None, || self.volume().flush())",
        to: "RequestKind::Flush, None, || async { Ok(()) })",
    },
    Mutation {
        name: "nbd-fua-that-does-nothing",
        what: "a write with FUA is acknowledged when it is in a cache",
        file: "crates/serve/nbd/src/carry_out.rs",
        from: "if is_volatile && request.flags & command::FUA != 0 {",
        to: "if is_volatile && request.flags & command::FUA == u16::MAX {",
    },
    Mutation {
        name: "nbd-flush-that-lies",
        what: "an NBD flush does not report lost writes",
        file: "crates/serve/nbd/src/carry_out.rs",
        from: "if told < losses {",
        to: "if told > losses {",
    },
    Mutation {
        name: "nbd-write-through-the-gate",
        what: "a request once permitted to an NBD client stays permitted",
        file: "crates/serve/front_end_core/src/requests.rs",
        from: "if known != generation {",
        to: "if known == u64::MAX {",
    },
    Mutation {
        name: "nbd-preempt-that-aborts-nothing",
        what: "PREEMPT AND ABORT does not abort NBD requests that its reservation forbids",
        file: "crates/serve/nbd/src/front_end.rs",
        from: "client.requests.abort_reserved();",
        to: "",
    },
    Mutation {
        name: "nbd-write-beside-one-given-up",
        what: "blocks of an abandoned NBD write are unlocked while the device is still executing it",
        file: "crates/serve/front_end_core/src/requests.rs",
        from: "self.requests.volume.lock_until_quiesced(extent);",
        to: "let _ = extent;",
    },
    Mutation {
        name: "nbd-reply-before-the-write",
        what: "an NBD write is acknowledged while the device is still executing it",
        file: "crates/serve/nbd/src/carry_out.rs",
        from: "let write = || device.write(extent, data, durability);
        let written = self
            .requests
            .ask(ticket, RequestKind::Change, Some(extent), write)
            .await;",
        to: "let volume = Arc::clone(self.volume());
        drop(reactor::spawn(async move { volume.device().write(extent, data, durability).await }));
        let written: Result<(), Unserved> = Ok(());",
    },
    Mutation {
        name: "nbd-requests-behind-the-end",
        what: "requests of a closed NBD connection keep running",
        file: "crates/serve/nbd/src/front_end.rs",
        from: "let end = connection.run().await;
                    client.requests.abort();",
        to: "let end = connection.run().await;",
    },
];

/// Mutations to be found in worlds with our NBD client.
const OUR_NBD_MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "nbd-connection-that-lives-on",
        what: "a lost connection identified by its client is not closed",
        file: "crates/serve/nbd/src/channels.rs",
        from: "entry.has_to_end.store(true, SeqCst);
                true",
        to: "let _ = entry;
                false",
    },
    Mutation {
        name: "nbd-loss-that-is-not-noted",
        what: "our NBD client has unflushed writes, but does not record that the server restarted",
        file: "crates/remote/failover/src/channels.rs",
        from: "if self.ledger.borrow_mut().note_loss() {",
        to: "if self.ledger.borrow().has_unflushed() {",
    },
];

/// Mutations to be found in worlds in which our NBD client has a journal.
const JOURNAL_MUTATIONS: &[Mutation] = &[Mutation {
    name: "nbd-replay-without-a-loss",
    what: "each start of the server looks like a loss, so an NBD client replaces newer writes of others",
    file: "crates/serve/nbd/src/channels.rs",
    from: "match volume.cache_generation() {",
    to: "match volume.cache_generation().filter(|_| false) {",
}];

/// Mutations of RAID sets, to be found by the model checks of members with bad sectors and of returning
/// members, and by the scenes of both.
const RAID_MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "lost-read",
        what: "a block that is lost on a member is read from it",
        file: "crates/storage/raid/src/members/lost.rs",
        from: "first_of(index, extent.lba.0..extent.lba.0 + extent.blocks.0)?;",
        to: "first_of(index, extent.lba.0..extent.lba.0)?;",
    },
    Mutation {
        name: "lost-unrecorded",
        what: "the list of lost blocks is not recorded with the progress of a rebuild",
        file: "crates/storage/raid/src/members/mod.rs",
        from: "let lost = self.lost.lock().recorded();",
        to: "let lost = crate::lost::LostBlocks::default();",
    },
    Mutation {
        name: "lost-acknowledged",
        what: "a write to a lost block is acknowledged before its removal from the list is recorded",
        file: "crates/storage/raid/src/write.rs",
        from: "protected.finish();
        self.members.settle_healed().await?;",
        to: "protected.finish();",
    },
    Mutation {
        name: "lost-replayed",
        what: "parity is lost while the journal has a record with older parity, whose replay removes it from the list",
        file: "crates/storage/raid/src/write.rs",
        from: "journal.empty(None).await?;",
        to: "let _ = journal;",
    },
    Mutation {
        name: "lost-parity-kept",
        what: "parity that became inconsistent by a write next to unreadable blocks counts as correct",
        file: "crates/storage/raid/src/write.rs",
        from: "self.lose_parity(stripe, &lost).await?;",
        to: "let _ = &lost;",
    },
    Mutation {
        name: "mirror-read-before-it-is-synchronised",
        what: "of two copies that differ after a crash, one read returns the first and a later read the other",
        file: "crates/storage/raid/src/read.rs",
        from: "if self.is_unsynced(piece.stripe) && !self.profile.read_only {",
        to: "if self.is_unsynced(piece.stripe) && self.profile.read_only {",
    },
    Mutation {
        name: "comeback-of-a-cleared-bit",
        what: "a bit of the write-intent bitmap is cleared before it is recorded that a failed member misses the region",
        file: "crates/storage/raid/src/intent.rs",
        from: "let regions = state
                .regions
                .keys()
                .chain(&state.unsynced)
                .copied()
                .collect();",
        to: "let regions = state.unsynced.iter().copied().collect();",
    },
    Mutation {
        name: "comeback-without-a-note",
        what: "a write to a region that a failed member misses starts before that bit is on stable storage",
        file: "crates/storage/raid/src/intent.rs",
        from: "let is_on_disk = self.state.lock().missed.on_disk.contains(&number);",
        to: "let is_on_disk = true;",
    },
    Mutation {
        name: "comeback-read-too-early",
        what: "a returning member counts as rebuilt in a region that it missed",
        file: "crates/storage/raid/src/intent.rs",
        from: "|| state
                .missed
                .regions
                .contains(&(stripe / self.region_stripes))
    }",
        to: "|| stripe > self.stripes()
    }",
    },
];

/// Mutations to be found in worlds where sessions of our initiator break after each login.
const BREAKS_MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "login-that-is-success",
        what: "a login counts as successful however soon its session breaks, so the next login follows immediately",
        file: "crates/remote/iscsi/src/open.rs",
        from: "lived.is_some_and(|lived| lived < STEADY)",
        to: "lived.is_some_and(|lived| lived > STEADY)",
    },
    Mutation {
        name: "request-without-end",
        what: "a request that is resent in each new session has no timeout",
        file: "crates/remote/iscsi/src/lun.rs",
        from: "self.within_its_time(self.try_again(info, cdb, bytes, epoch, ended))",
        to: "self.try_again(info, cdb, bytes, epoch, ended)",
    },
];

/// Mutations to be found in worlds where peers never stop sending.
const FLOODS_MUTATIONS: &[Mutation] = &[Mutation {
    name: "poll-without-budget",
    what: "a task receives and sends for as long as its peer does, and blocks its core",
    file: "crates/runtime/reactor/src/executor.rs",
    from: ".saturating_sub(CALL_BYTES.saturating_add(bytes)),",
    to: ".saturating_sub(bytes / usize::MAX),",
}];

/// The mutations to be found in worlds, with the part that such a world has.
const IN_WORLDS: &[(&[Mutation], Option<&str>)] = &[
    (MUTATIONS, None),
    (NBD_MUTATIONS, Some("Nbd")),
    (OUR_NBD_MUTATIONS, Some("OurNbd")),
    (JOURNAL_MUTATIONS, Some("Journals")),
    (BREAKS_MUTATIONS, Some("Breaks")),
    (FLOODS_MUTATIONS, Some("Floods")),
];

/// Returns all mutations.
pub(super) fn all() -> impl Iterator<Item = &'static Mutation> {
    IN_WORLDS
        .iter()
        .flat_map(|(mutations, _)| *mutations)
        .chain(RAID_MUTATIONS)
}

pub(super) fn named(name: &str) -> Result<&'static Mutation> {
    let known = || {
        all()
            .map(|mutation| mutation.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    all()
        .find(|mutation| mutation.name == name)
        .with_context(|| format!("unknown mutation {name}; the mutations are {}", known()))
}

impl Mutation {
    /// Returns the text of the mutation's file, with the bug.
    fn mutated(&self, root: &Path) -> Result<String> {
        let text = fs::read_to_string(root.join(self.file)).with_context(|| self.file)?;
        let count = text.matches(self.from).count();
        ensure!(
            count == 1,
            "{}: its text occurs {count} times in {}",
            self.name,
            self.file
        );
        Ok(text.replace(self.from, self.to))
    }

    /// Holds if the simulation of a tree with this bug reports a fault within `seconds`, starting at `seed`.
    pub(super) fn try_out(&self, seed: u64, seconds: u64) -> Result<Verdict> {
        println!("{}: {}", self.name, self.what);
        let tree = tree()?;
        fs::write(tree.join(self.file), self.mutated(&tree)?)?;
        if RAID_MUTATIONS.iter().any(|other| other.name == self.name) {
            return self.try_out_on_raid(&tree);
        }
        let target = tree.with_file_name("mutant-target");
        let mut build = super::build_of(&tree);
        build.env("CARGO_TARGET_DIR", &target);
        process::succeed(build).context("building the mutant")?;
        let mut command = super::optimised(&target);
        command.args(["find", &seed.to_string(), &seconds.to_string()]);
        let (_, part) = IN_WORLDS
            .iter()
            .find(|(mutations, _)| mutations.iter().any(|other| other.name == self.name))
            .with_context(|| format!("{} belongs to no world", self.name))?;
        command.args(part.iter().flat_map(|part| ["--with", part]));
        let status = command.status().context("the mutant")?;
        // Exit code 2 means wrong arguments, not a fault.
        ensure!(
            status.code() != Some(2),
            "{}: the simulation did not run",
            self.name
        );
        if status.success() {
            println!("{}: not found", self.name);
            return Ok(Verdict::Fails);
        }
        Ok(Verdict::Holds)
    }

    /// Like [`Mutation::try_out`], with the tests of RAID.
    fn try_out_on_raid(&self, tree: &Path) -> Result<Verdict> {
        let tests = ["test", "--package", "linerate-raid", "--test", "it"];
        let cargo = |arguments: &[&str]| {
            let mut command = process::cargo(&tests);
            command.args(arguments).current_dir(tree);
            command.env("CARGO_TARGET_DIR", tree.with_file_name("mutant-target"));
            command
        };
        process::succeed(cargo(&["--no-run"])).context("building the mutant")?;
        let models = [
            "--",
            "model_of_bad_sectors",
            "model_of_members_that_come_back",
        ];
        let scenes = ["lost::", "comeback::", "by_content::"];
        let found = cargo(&[&models[..], &scenes].concat())
            .status()
            .context("the mutant")?;
        if found.success() {
            println!("{}: not found", self.name);
            return Ok(Verdict::Fails);
        }
        Ok(Verdict::Holds)
    }
}

/// Creates a fresh copy of the sources of the simulation.
fn tree() -> Result<PathBuf> {
    let root = workspace::root();
    let tree = workspace::target_directory().join("xtask/mutant");
    let _ = fs::remove_dir_all(&tree); // of an earlier mutation, if any
    fs::create_dir_all(&tree)?;
    let mut list = Command::new("git");
    list.current_dir(root).args([
        "ls-files",
        "Cargo.*",
        "crates",
        "fuzz",
        "measurements",
        "xtask",
        ".cargo",
        "rust-toolchain*",
    ]);
    for file in process::capture(list)?.lines() {
        let (from, to) = (root.join(file), tree.join(file));
        if from.exists() {
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(from, to)?;
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_has_its_place_in_the_code() {
        for mutation in all() {
            mutation.mutated(workspace::root()).expect("there once");
        }
    }
}
