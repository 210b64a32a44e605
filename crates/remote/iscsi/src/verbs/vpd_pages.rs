//! Where the fields of vital product data pages lie that are numbers and flags (SPC-4 7.8, SBC-3 6.6).

use super::fields::FieldAt;

/// SPC-4 7.8.7.
pub(super) const EXTENDED_INQUIRY: &[FieldAt] = &[
    FieldAt::new(4, 7, 2, "ACTIVATE_MICROCODE", "how new microcode comes into force"),
    FieldAt::new(4, 5, 3, "SPT", "types of protection that can be formatted"),
    FieldAt::new(4, 2, 1, "GRD_CHK", "guard tags are checked"),
    FieldAt::new(4, 1, 1, "APP_CHK", "application tags are checked"),
    FieldAt::new(4, 0, 1, "REF_CHK", "reference tags are checked"),
    FieldAt::new(5, 5, 1, "UASK_SUP", "unit attentions come with sense-key specific data"),
    FieldAt::new(5, 4, 1, "GROUP_SUP", "commands can be grouped"),
    FieldAt::new(5, 3, 1, "PRIOR_SUP", "commands have priorities"),
    FieldAt::new(5, 2, 1, "HEADSUP", "HEAD OF QUEUE commands"),
    FieldAt::new(5, 1, 1, "ORDSUP", "ORDERED commands"),
    FieldAt::new(5, 0, 1, "SIMPSUP", "SIMPLE commands"),
    FieldAt::new(6, 3, 1, "WU_SUP", "WRITE LONG can mark blocks as uncorrectable"),
    FieldAt::new(6, 2, 1, "CRD_SUP", "error correction can be disabled"),
    FieldAt::new(6, 1, 1, "NV_SUP", "non-volatile cache"),
    FieldAt::new(6, 0, 1, "V_SUP", "volatile cache"),
    FieldAt::new(7, 4, 1, "P_I_I_SUP", "protection information in intervals"),
    FieldAt::new(7, 0, 1, "LUICLR", "logical unit's I_T nexus losses are cleared"),
    FieldAt::new(8, 4, 1, "R_SUP", "referrals"),
    FieldAt::new(8, 0, 1, "CBCS", "capability-based command security"),
    FieldAt::new(9, 3, 4, "MULTI_I_T_NEXUS_MICROCODE", "microcode by several I_T nexuses"),
    FieldAt::new(10, 7, 16, "EXTENDED_SELF_TEST", "minutes that an extended self-test takes"),
    FieldAt::new(12, 7, 1, "POA_SUP", "power-on activation of microcode"),
    FieldAt::new(12, 6, 1, "HRA_SUP", "hard-reset activation of microcode"),
    FieldAt::new(12, 5, 1, "VSA_SUP", "vendor-specific activation of microcode"),
    FieldAt::new(13, 7, 8, "MAX_SENSE", "longest sense data, in bytes"),
];

/// SBC-3 6.6.4; the atomic lengths are SBC-4's.
pub(super) const BLOCK_LIMITS: &[FieldAt] = &[
    FieldAt::new(4, 0, 1, "WSNZ", "WRITE SAME of zero blocks is refused"),
    FieldAt::new(5, 7, 8, "MAX_COMPARE_AND_WRITE", "longest COMPARE AND WRITE, in blocks"),
    FieldAt::new(6, 7, 16, "OPTIMAL_GRANULARITY", "optimal transfers are multiples of it, in blocks"),
    FieldAt::new(8, 7, 32, "MAX_TRANSFER", "longest transfer, in blocks"),
    FieldAt::new(12, 7, 32, "OPTIMAL_TRANSFER", "optimal transfer, in blocks"),
    FieldAt::new(16, 7, 32, "MAX_PREFETCH", "longest PRE-FETCH, in blocks"),
    FieldAt::new(20, 7, 32, "MAX_UNMAP", "most blocks of one UNMAP"),
    FieldAt::new(24, 7, 32, "MAX_UNMAP_DESCRIPTORS", "most descriptors of one UNMAP"),
    FieldAt::new(28, 7, 32, "UNMAP_GRANULARITY", "optimal UNMAP granularity, in blocks"),
    FieldAt::new(32, 7, 1, "UGAVALID", "the alignment is valid"),
    FieldAt::new(32, 6, 31, "UNMAP_ALIGNMENT", "first granule's block"),
    FieldAt::new(36, 7, 64, "MAX_WRITE_SAME", "longest WRITE SAME, in blocks"),
    FieldAt::new(44, 7, 32, "MAX_ATOMIC", "longest WRITE ATOMIC, in blocks"),
    FieldAt::new(48, 7, 32, "ATOMIC_ALIGNMENT", "alignment of WRITE ATOMIC, in blocks"),
    FieldAt::new(52, 7, 32, "ATOMIC_GRANULARITY", "granularity of WRITE ATOMIC, in blocks"),
    FieldAt::new(56, 7, 32, "MAX_ATOMIC_BOUNDED", "longest WRITE ATOMIC with boundaries, in blocks"),
    FieldAt::new(60, 7, 32, "MAX_ATOMIC_BOUNDARY", "largest atomic boundary, in blocks"),
];

/// SBC-3 6.6.3.
pub(super) const BLOCK_DEVICE_CHARACTERISTICS: &[FieldAt] = &[
    FieldAt::new(4, 7, 16, "MEDIUM_ROTATION_RATE", "turns per minute; 1: it does not turn; 0: unknown"),
    FieldAt::new(6, 7, 8, "PRODUCT_TYPE", "type of flash card, if it is one"),
    FieldAt::new(7, 7, 2, "WABEREQ", "what was never written reads as"),
    FieldAt::new(7, 5, 2, "WACEREQ", "what a crypto erase leaves reads as"),
    FieldAt::new(7, 3, 4, "NOMINAL_FORM_FACTOR", "size of its case"),
    FieldAt::new(8, 5, 2, "ZONED", "1: host-aware zones; 2: zones that the device manages"),
    FieldAt::new(8, 1, 1, "FUAB", "flushes work as SYNCHRONIZE CACHE and FUA say"),
    FieldAt::new(8, 0, 1, "VBULS", "VERIFY looks at blocks that are not mapped"),
    FieldAt::new(12, 7, 32, "DEPOPULATION_TIME", "seconds that removing a storage element takes"),
];

/// SBC-3 6.6.5.
pub(super) const LOGICAL_BLOCK_PROVISIONING: &[FieldAt] = &[
    FieldAt::new(4, 7, 8, "THRESHOLD_EXPONENT", "thresholds are counted in 2^it blocks"),
    FieldAt::new(5, 7, 1, "LBPU", "UNMAP gives blocks back"),
    FieldAt::new(5, 6, 1, "LBPWS", "WRITE SAME(16) with UNMAP gives blocks back"),
    FieldAt::new(5, 5, 1, "LBPWS10", "WRITE SAME(10) with UNMAP gives blocks back"),
    FieldAt::new(5, 4, 3, "LBPRZ", "1: blocks given back read as zeros; 2: as a pattern"),
    FieldAt::new(5, 1, 1, "ANC_SUP", "blocks can be anchored"),
    FieldAt::new(5, 0, 1, "DP", "a designator of the resource pool follows"),
    FieldAt::new(6, 7, 5, "MINIMUM_PERCENTAGE", "granularity of threshold percentages"),
    FieldAt::new(6, 2, 3, "PROVISIONING_TYPE", "0: not told; 1: resource provisioned; 2: thin"),
    FieldAt::new(7, 7, 8, "THRESHOLD_PERCENTAGE", "percent in use at which a warning comes"),
];

/// ZBC 6.5.
pub(super) const ZONED_BLOCK_DEVICE: &[FieldAt] = &[
    FieldAt::new(4, 0, 1, "URSWRZ", "reads are not restricted in sequential zones"),
    FieldAt::new(8, 7, 32, "OPTIMAL_OPEN", "optimal number of open sequential zones"),
    FieldAt::new(12, 7, 32, "OPTIMAL_NON_SEQUENTIAL", "optimal number of zones written out of order"),
    FieldAt::new(16, 7, 32, "MAX_OPEN", "most open sequential zones"),
];
