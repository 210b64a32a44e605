//! Where the fields of mode pages lie (SPC-4 7.5, SBC-3 6.5): one table a page.

use super::fields::FieldAt;

/// A page and a field of it, by the field's name in any case.
pub(super) fn find(name: &str) -> Option<(u8, u8, FieldAt)> {
    PAGES.iter().find_map(|(code, subpage, _, layout)| {
        let field = layout.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some((*code, *subpage, *field))
    })
}

pub(super) fn definition(code: u8, subpage: u8) -> Option<(&'static str, &'static [FieldAt])> {
    let page = PAGES.iter().find(|(of, sub, _, _)| (*of, *sub) == (code, subpage));
    page.map(|(_, _, name, layout)| (*name, *layout))
}

pub(super) fn layout(code: u8, subpage: u8) -> &'static [FieldAt] {
    definition(code, subpage).map_or(&[], |(_, layout)| layout)
}

type Definition = (u8, u8, &'static str, &'static [FieldAt]);

const PAGES: &[Definition] = &[
    (0x01, 0, "Read-Write Error Recovery", ERROR_RECOVERY),
    (0x02, 0, "Disconnect-Reconnect", DISCONNECT_RECONNECT),
    (0x07, 0, "Verify Error Recovery", VERIFY_ERROR_RECOVERY),
    (0x08, 0, "Caching", CACHING),
    (0x0a, 0, "Control", CONTROL),
    (0x0a, 1, "Control Extension", CONTROL_EXTENSION),
    (0x18, 0, "Protocol Specific Logical Unit", &[]),
    (0x19, 0, "Protocol Specific Port", &[]),
    (0x1a, 0, "Power Condition", POWER_CONDITION),
    (0x1c, 0, "Informational Exceptions Control", INFORMATIONAL_EXCEPTIONS),
    (0x1c, 2, "Logical Block Provisioning", PROVISIONING),
];

/// SBC-3 6.5.8.
const ERROR_RECOVERY: &[FieldAt] = &[
    FieldAt::new(2, 7, 1, "AWRE", "bad blocks are reassigned when written"),
    FieldAt::new(2, 6, 1, "ARRE", "bad blocks are reassigned when read"),
    FieldAt::new(2, 5, 1, "TB", "blocks that cannot be recovered are transferred"),
    FieldAt::new(2, 4, 1, "RC", "reads go on without recovery, that they may not wait"),
    FieldAt::new(2, 3, 1, "EER", "error correction before retries"),
    FieldAt::new(2, 2, 1, "PER", "recovered errors are reported"),
    FieldAt::new(2, 1, 1, "DTE", "transfers end at a recovered error"),
    FieldAt::new(2, 0, 1, "DCR", "no error correction"),
    FieldAt::new(3, 7, 8, "READ_RETRY_COUNT", "retries of a read"),
    FieldAt::new(8, 7, 8, "WRITE_RETRY_COUNT", "retries of a write"),
    FieldAt::new(10, 7, 16, "RECOVERY_TIME_LIMIT", "milliseconds for the recovery of a command"),
];

/// SPC-4 7.5.11.
const DISCONNECT_RECONNECT: &[FieldAt] = &[
    FieldAt::new(2, 7, 8, "BUFFER_FULL_RATIO", "of 256, when data are sent"),
    FieldAt::new(3, 7, 8, "BUFFER_EMPTY_RATIO", "of 256, when data are asked for"),
    FieldAt::new(4, 7, 16, "BUS_INACTIVITY_LIMIT", "in units of 100 microseconds"),
    FieldAt::new(6, 7, 16, "DISCONNECT_TIME_LIMIT", "in units of 100 microseconds"),
    FieldAt::new(8, 7, 16, "CONNECT_TIME_LIMIT", "in units of 100 microseconds"),
    FieldAt::new(10, 7, 16, "MAXIMUM_BURST_SIZE", "in units of 512 bytes"),
    FieldAt::new(14, 7, 16, "FIRST_BURST_SIZE", "in units of 512 bytes"),
];

/// SBC-3 6.5.9.
const VERIFY_ERROR_RECOVERY: &[FieldAt] = &[
    FieldAt::new(3, 7, 8, "VERIFY_RETRY_COUNT", "retries of a verification"),
    FieldAt::new(10, 7, 16, "VERIFY_RECOVERY_TIME_LIMIT", "milliseconds for the recovery of a command"),
];

/// SBC-3 6.5.5.
const CACHING: &[FieldAt] = &[
    FieldAt::new(2, 7, 1, "IC", "the cache is controlled by its segments"),
    FieldAt::new(2, 6, 1, "ABPF", "a prefetch is aborted by a command"),
    FieldAt::new(2, 5, 1, "CAP", "the cache analyses what is asked for"),
    FieldAt::new(2, 4, 1, "DISC", "prefetches across discontinuities"),
    FieldAt::new(2, 3, 1, "SIZE", "the cache's segments are given by their size"),
    FieldAt::new(2, 2, 1, "WCE", "writes are answered from a cache that is lost with the power"),
    FieldAt::new(2, 1, 1, "MF", "prefetches are given as multiples"),
    FieldAt::new(2, 0, 1, "RCD", "reads do not come from the cache"),
    FieldAt::new(3, 7, 4, "DEMAND_READ_RETENTION", "how long what was read is kept"),
    FieldAt::new(3, 3, 4, "WRITE_RETENTION", "how long what was written is kept"),
    FieldAt::new(4, 7, 16, "DISABLE_PREFETCH_LENGTH", "blocks from which on nothing is prefetched"),
    FieldAt::new(6, 7, 16, "MINIMUM_PREFETCH", "blocks"),
    FieldAt::new(8, 7, 16, "MAXIMUM_PREFETCH", "blocks"),
    FieldAt::new(10, 7, 16, "MAXIMUM_PREFETCH_CEILING", "blocks"),
    FieldAt::new(12, 7, 1, "FSW", "blocks that follow each other are written in their order"),
    FieldAt::new(12, 6, 1, "LBCSS", "segments are given in blocks"),
    FieldAt::new(12, 5, 1, "DRA", "nothing is read ahead"),
    FieldAt::new(12, 2, 2, "SYNC_PROG", "progress of SYNCHRONIZE CACHE"),
    FieldAt::new(12, 0, 1, "NV_DIS", "the non-volatile cache is off"),
    FieldAt::new(13, 7, 8, "CACHE_SEGMENTS", "number of segments"),
    FieldAt::new(14, 7, 16, "CACHE_SEGMENT_SIZE", "bytes or blocks"),
];

/// SPC-4 7.5.8.
const CONTROL: &[FieldAt] = &[
    FieldAt::new(2, 7, 3, "TST", "0: one task set for all; 1: one for each I_T nexus"),
    FieldAt::new(2, 4, 1, "TMF_ONLY", "ACA conditions end by task management only"),
    FieldAt::new(2, 3, 1, "DPICZ", "no checks of protection information without RDPROTECT"),
    FieldAt::new(2, 2, 1, "D_SENSE", "sense data in descriptor format"),
    FieldAt::new(2, 1, 1, "GLTSD", "log parameters are not saved by themselves"),
    FieldAt::new(2, 0, 1, "RLEC", "exceptions of the log are reported"),
    FieldAt::new(3, 7, 4, "QUEUE_ALGORITHM", "0: simple commands in order; 1: in any order"),
    FieldAt::new(3, 3, 1, "NUAR", "no unit attention on release"),
    FieldAt::new(3, 2, 2, "QERR", "what becomes of other commands after a CHECK CONDITION"),
    FieldAt::new(4, 6, 1, "RAC", "a check is reported even if retries take long"),
    FieldAt::new(4, 5, 2, "UA_INTLCK", "unit attentions are cleared by REQUEST SENSE only"),
    FieldAt::new(4, 3, 1, "SWP", "write protected by software"),
    FieldAt::new(5, 7, 1, "ATO", "application tags are the initiator's"),
    FieldAt::new(5, 6, 1, "TAS", "commands that others abort end with TASK ABORTED"),
    FieldAt::new(5, 5, 1, "ATMPE", "application tag mode page is in force"),
    FieldAt::new(5, 4, 1, "RWWP", "writes without protection information are refused"),
    FieldAt::new(5, 2, 3, "AUTOLOAD_MODE", "what becomes of a medium that is put in"),
    FieldAt::new(8, 7, 16, "BUSY_TIMEOUT_PERIOD", "longest time of BUSY, in units of 100 milliseconds"),
    FieldAt::new(10, 7, 16, "EXTENDED_SELF_TEST_TIME", "seconds"),
];

/// SPC-4 7.5.9.
const CONTROL_EXTENSION: &[FieldAt] = &[
    FieldAt::new(4, 2, 1, "TCMOS", "the clock may be set by other means"),
    FieldAt::new(4, 1, 1, "SCSIP", "the clock is SET TIMESTAMP's first"),
    FieldAt::new(4, 0, 1, "IALUAE", "implicit changes of access states"),
    FieldAt::new(5, 3, 4, "INITIAL_COMMAND_PRIORITY", "priority of commands without one"),
    FieldAt::new(6, 7, 8, "MAXIMUM_SENSE_LENGTH", "bytes of sense data; 0: no limit"),
];

/// SPC-4 7.5.13.
const POWER_CONDITION: &[FieldAt] = &[
    FieldAt::new(2, 0, 1, "STANDBY_Y", "the timer of standby_y runs"),
    FieldAt::new(3, 3, 1, "IDLE_C", "the timer of idle_c runs"),
    FieldAt::new(3, 2, 1, "IDLE_B", "the timer of idle_b runs"),
    FieldAt::new(3, 1, 1, "IDLE_A", "the timer of idle_a runs"),
    FieldAt::new(3, 0, 1, "STANDBY_Z", "the timer of standby_z runs"),
    FieldAt::new(4, 7, 32, "IDLE_A_TIMER", "in units of 100 milliseconds"),
    FieldAt::new(8, 7, 32, "STANDBY_Z_TIMER", "in units of 100 milliseconds"),
];

/// SBC-3 6.5.7.
const INFORMATIONAL_EXCEPTIONS: &[FieldAt] = &[
    FieldAt::new(2, 7, 1, "PERF", "no delays for informational exceptions"),
    FieldAt::new(2, 5, 1, "EBF", "background functions are on"),
    FieldAt::new(2, 4, 1, "EWASC", "warnings are reported"),
    FieldAt::new(2, 3, 1, "DEXCPT", "informational exceptions are off"),
    FieldAt::new(2, 2, 1, "TEST", "a failure is made up, for tests"),
    FieldAt::new(2, 1, 1, "EBACKERR", "errors of background functions are reported"),
    FieldAt::new(2, 0, 1, "LOGERR", "informational exceptions are logged"),
    FieldAt::new(3, 3, 4, "MRIE", "by which means they are reported"),
    FieldAt::new(4, 7, 32, "INTERVAL_TIMER", "between reports, in units of 100 milliseconds"),
    FieldAt::new(8, 7, 32, "REPORT_COUNT", "reports of one event; 0: no limit"),
];

/// SBC-3 6.5.6.
const PROVISIONING: &[FieldAt] =
    &[FieldAt::new(4, 0, 1, "SITUA", "thresholds are reported to a single initiator")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_names_of_their_own() {
        let names: Vec<_> = PAGES.iter().flat_map(|page| page.3).map(|field| field.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
        assert!(find("wce").is_some_and(|(page, _, _)| page == 8));
        assert!(find("xyz").is_none());
    }
}
