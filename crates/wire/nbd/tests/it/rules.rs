//! Sections "Command flags", "Request types" and "Error values": each rule for a request, in each form of session.

use nbd::flags::command::{DF, FAST_ZERO, FUA, NO_HOLE, PAYLOAD_LEN, REQ_ONE};
use nbd::flags::transmission;
use nbd::{BlockSizes, Command, Errno, Export, ReplyForm, Request, Session};

use crate::disk;

const SIZE: u64 = 64 << 20;
const FORMS: [ReplyForm; 3] = [
    ReplyForm::Simple,
    ReplyForm::Structured,
    ReplyForm::Extended,
];
const DATA: [Command; 5] = [
    Command::Read,
    Command::Write,
    Command::Trim,
    Command::Cache,
    Command::WriteZeroes,
];

fn session(form: ReplyForm) -> Session {
    Session {
        export: disk(),
        form,
        allocation: (form != ReplyForm::Simple).then_some(nbd::ALLOCATION_CONTEXT),
        channel: None,
    }
}

fn without(form: ReplyForm, flags: u16) -> Session {
    let export = Export {
        flags: disk().flags & !flags,
        ..disk()
    };
    Session {
        export,
        ..session(form)
    }
}

fn asks(kind: Command, offset: u64, length: u64) -> Request {
    Request {
        flags: 0,
        kind: kind as u16,
        cookie: 9,
        offset,
        length,
    }
}

fn flagged(kind: Command, flags: u16) -> Request {
    let length = if matches!(kind, Command::Flush | Command::Disconnect) {
        0
    } else {
        4096
    };
    Request {
        flags,
        ..asks(kind, 0, length)
    }
}

#[test]
fn unknown_commands_are_invalid() {
    for form in FORMS {
        for kind in (8..=u16::MAX).step_by(97).chain([8, 9, u16::MAX]) {
            let request = Request {
                flags: 0,
                kind,
                cookie: 0,
                offset: 0,
                length: 0,
            };
            assert_eq!(session(form).check(&request), Err(Errno::Einval), "{kind}");
        }
    }
}

#[test]
fn each_flag_belongs_to_its_commands() {
    let extended = |form| form == ReplyForm::Extended;
    for form in FORMS {
        let chunks = form != ReplyForm::Simple;
        let may = |kind, flag| match (kind, flag) {
            (Command::BlockStatus, _) if !chunks => false,
            (_, FUA) => true, // allowed on every command
            (Command::WriteZeroes, NO_HOLE | FAST_ZERO) => true,
            (Command::Read, DF) => chunks,
            (Command::BlockStatus, REQ_ONE) => true,
            (Command::Write, PAYLOAD_LEN) => extended(form),
            _ => false,
        };
        for kind in DATA
            .into_iter()
            .chain([Command::Flush, Command::BlockStatus])
        {
            for flag in (0..16).map(|bit| 1 << bit) {
                let wanted = if may(kind, flag) {
                    Ok(kind)
                } else {
                    Err(Errno::Einval)
                };
                assert_eq!(
                    session(form).check(&flagged(kind, flag)),
                    wanted,
                    "{form:?} {kind:?} {flag:#x}"
                );
            }
        }
    }
}

/// "There is no reply to an NBD_CMD_DISC."
#[test]
fn a_disconnect_is_never_refused() {
    for form in FORMS {
        for flags in [0, FUA, 0xffff] {
            let request = Request {
                flags,
                ..asks(Command::Disconnect, 7, 1 << 31)
            };
            assert_eq!(session(form).check(&request), Ok(Command::Disconnect));
        }
    }
}

#[test]
fn what_was_not_exposed_is_invalid() {
    for (flag, kind) in [
        (transmission::SEND_FLUSH, Command::Flush),
        (transmission::SEND_TRIM, Command::Trim),
        (transmission::SEND_WRITE_ZEROES, Command::WriteZeroes),
        (transmission::SEND_CACHE, Command::Cache),
    ] {
        for form in FORMS {
            assert_eq!(
                without(form, flag).check(&flagged(kind, 0)),
                Err(Errno::Einval),
                "{kind:?}"
            );
            assert_eq!(without(form, !flag).check(&flagged(kind, 0)), Ok(kind));
        }
    }
    for kind in DATA {
        let session = without(ReplyForm::Structured, transmission::SEND_FUA);
        assert_eq!(session.check(&flagged(kind, FUA)), Err(Errno::Einval));
    }
    let session = without(ReplyForm::Structured, transmission::SEND_FAST_ZERO);
    assert_eq!(
        session.check(&flagged(Command::WriteZeroes, FAST_ZERO)),
        Err(Errno::Einval)
    );
    assert_eq!(
        session.check(&flagged(Command::WriteZeroes, NO_HOLE)),
        Ok(Command::WriteZeroes)
    );
}

#[test]
fn block_status_needs_its_context() {
    for form in FORMS {
        let session = Session {
            allocation: None,
            ..session(form)
        };
        assert_eq!(
            session.check(&flagged(Command::BlockStatus, 0)),
            Err(Errno::Einval)
        );
    }
}

#[test]
fn the_end_is_where_the_export_ends() {
    for form in FORMS {
        let session = session(form);
        let all = DATA.into_iter().chain(
            [Command::BlockStatus]
                .into_iter()
                .filter(|_| session.allocation.is_some()),
        );
        for kind in all {
            let beyond = match kind {
                Command::Write | Command::WriteZeroes => Errno::Enospc,
                _ => Errno::Einval,
            };
            for (offset, length) in [
                (SIZE, 1),
                (SIZE - 1, 2),
                (SIZE + 1, 0),
                (u64::MAX, 1),
                (u64::MAX, 0),
                (1 << 63, 512),
                (0, SIZE + 1),
            ] {
                let request = asks(kind, offset, length);
                assert_eq!(
                    session.check(&request),
                    Err(beyond),
                    "{kind:?} {offset} {length}"
                );
            }
            for (offset, length) in [(0, 1), (SIZE - 1, 1), (SIZE, 0), (0, 0), (12_345, 678)] {
                assert_eq!(
                    session.check(&asks(kind, offset, length)),
                    Ok(kind),
                    "{kind:?} {offset} {length}"
                );
            }
        }
    }
    // 64-bit lengths must not wrap around.
    for kind in DATA {
        assert!(
            session(ReplyForm::Extended)
                .check(&asks(kind, 1, u64::MAX))
                .is_err()
        );
        assert!(
            session(ReplyForm::Extended)
                .check(&asks(kind, SIZE, u64::MAX - SIZE + 1))
                .is_err()
        );
    }
}

#[test]
fn a_payload_has_32_mib_and_what_has_none_may_be_longer() {
    let most = 32 << 20;
    for form in FORMS {
        for kind in [Command::Read, Command::Write] {
            assert_eq!(session(form).check(&asks(kind, 0, most)), Ok(kind));
            assert_eq!(session(form).check(&asks(kind, 1, most)), Ok(kind));
            assert_eq!(
                session(form).check(&asks(kind, 0, most + 1)),
                Err(Errno::Einval)
            );
        }
        for kind in [Command::Trim, Command::WriteZeroes, Command::Cache] {
            assert_eq!(
                session(form).check(&asks(kind, 0, SIZE)),
                Ok(kind),
                "{kind:?}"
            );
        }
    }
    let status = asks(Command::BlockStatus, 0, SIZE);
    assert_eq!(
        session(ReplyForm::Structured).check(&status),
        Ok(Command::BlockStatus)
    );
}

#[test]
fn a_minimum_block_size_is_enforced() {
    let export = Export {
        block_sizes: BlockSizes {
            minimum: 512,
            preferred: 4096,
            maximum: 32 << 20,
        },
        ..disk()
    };
    let session = Session {
        export,
        form: ReplyForm::Structured,
        allocation: Some(nbd::ALLOCATION_CONTEXT),
        channel: None,
    };
    for kind in DATA.into_iter().chain([Command::BlockStatus]) {
        for (offset, length) in [(1, 512), (512, 1), (0, 513), (256, 256)] {
            assert_eq!(
                session.check(&asks(kind, offset, length)),
                Err(Errno::Einval),
                "{kind:?}"
            );
        }
        assert_eq!(session.check(&asks(kind, 512, 1024)), Ok(kind));
    }
}

#[test]
fn a_flush_has_no_range() {
    for form in FORMS {
        assert_eq!(
            session(form).check(&asks(Command::Flush, 0, 0)),
            Ok(Command::Flush)
        );
        assert_eq!(
            session(form).check(&asks(Command::Flush, 512, 0)),
            Err(Errno::Einval)
        );
        assert_eq!(
            session(form).check(&asks(Command::Flush, 0, 512)),
            Err(Errno::Einval)
        );
    }
}

#[test]
fn what_is_read_only_is_not_changed() {
    for form in FORMS {
        let mut session = session(form);
        session.export.flags |= transmission::READ_ONLY;
        let changes = [Command::Write, Command::Trim, Command::WriteZeroes];
        for kind in changes {
            assert_eq!(
                session.check(&flagged(kind, 0)),
                Err(Errno::Eperm),
                "{kind:?}"
            );
            assert_eq!(
                session.check(&asks(kind, SIZE, 512)),
                Err(Errno::Eperm),
                "whatever else is wrong"
            );
        }
        // Servers do not advertise commands that change a read-only export; they are still refused.
        session.export.flags &= !(transmission::SEND_TRIM | transmission::SEND_WRITE_ZEROES);
        for kind in changes {
            assert_eq!(
                session.check(&flagged(kind, 0)),
                Err(Errno::Eperm),
                "{kind:?}"
            );
        }
        for kind in [Command::Read, Command::Flush, Command::Cache] {
            assert_eq!(session.check(&flagged(kind, 0)), Ok(kind));
        }
    }
}
