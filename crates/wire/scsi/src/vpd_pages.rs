//! Vital product data pages that are numbers and flags (SPC-4 7.8, SBC-3 6.6).

use crate::fields::layout;

/// The header of a page of `bytes` in all.
const fn vpd_header(code: u8, bytes: u8) -> [u8; 4] {
    [0, code, 0, bytes - 4]
}

layout! {
    /// Extended INQUIRY data (SPC-4 7.8.7).
    ExtendedInquiry: 64 bytes from vpd_header(0x86, 64),
    {
        activate_microcode: u8 = (4, 7, 2, "ACTIVATE_MICROCODE", "how new microcode comes into force"),
        spt: u8 = (4, 5, 3, "SPT", "types of protection that can be formatted"),
        grd_chk: bool = (4, 2, 1, "GRD_CHK", "guard tags are checked"),
        app_chk: bool = (4, 1, 1, "APP_CHK", "application tags are checked"),
        ref_chk: bool = (4, 0, 1, "REF_CHK", "reference tags are checked"),
        uask_sup: bool = (5, 5, 1, "UASK_SUP", "unit attentions come with sense-key specific data"),
        group_sup: bool = (5, 4, 1, "GROUP_SUP", "commands can be grouped"),
        prior_sup: bool = (5, 3, 1, "PRIOR_SUP", "commands have priorities"),
        headsup: bool = (5, 2, 1, "HEADSUP", "HEAD OF QUEUE commands"),
        ordsup: bool = (5, 1, 1, "ORDSUP", "ORDERED commands"),
        simpsup: bool = (5, 0, 1, "SIMPSUP", "SIMPLE commands"),
        wu_sup: bool = (6, 3, 1, "WU_SUP", "WRITE LONG can mark blocks as uncorrectable"),
        crd_sup: bool = (6, 2, 1, "CRD_SUP", "error correction can be disabled"),
        nv_sup: bool = (6, 1, 1, "NV_SUP", "non-volatile cache"),
        v_sup: bool = (6, 0, 1, "V_SUP", "volatile cache"),
        p_i_i_sup: bool = (7, 4, 1, "P_I_I_SUP", "protection information in intervals"),
        luiclr: bool = (7, 0, 1, "LUICLR", "logical unit's I_T nexus losses are cleared"),
        r_sup: bool = (8, 4, 1, "R_SUP", "referrals"),
        cbcs: bool = (8, 0, 1, "CBCS", "capability-based command security"),
        multi_i_t_nexus_microcode: u8 =
            (9, 3, 4, "MULTI_I_T_NEXUS_MICROCODE", "microcode by several I_T nexuses"),
        extended_self_test: u16 =
            (10, 7, 16, "EXTENDED_SELF_TEST", "minutes that an extended self-test takes"),
        poa_sup: bool = (12, 7, 1, "POA_SUP", "power-on activation of microcode"),
        hra_sup: bool = (12, 6, 1, "HRA_SUP", "hard-reset activation of microcode"),
        vsa_sup: bool = (12, 5, 1, "VSA_SUP", "vendor-specific activation of microcode"),
        max_sense: u8 = (13, 7, 8, "MAX_SENSE", "longest sense data, in bytes"),
    }

    /// The limits of commands (SBC-3 6.6.4).
    BlockLimits: 64 bytes from vpd_header(0xb0, 64),
    {
        wsnz: bool = (4, 0, 1, "WSNZ", "WRITE SAME of zero blocks is refused"),
        compare_and_write_blocks: u8 =
            (5, 7, 8, "MAX_COMPARE_AND_WRITE", "longest COMPARE AND WRITE, in blocks"),
        optimal_granularity: u16 =
            (6, 7, 16, "OPTIMAL_GRANULARITY", "optimal transfers are multiples of it, in blocks"),
        transfer_blocks: u32 = (8, 7, 32, "MAX_TRANSFER", "longest transfer, in blocks"),
        optimal_transfer: u32 = (12, 7, 32, "OPTIMAL_TRANSFER", "optimal transfer, in blocks"),
        max_prefetch: u32 = (16, 7, 32, "MAX_PREFETCH", "longest PRE-FETCH, in blocks"),
        unmap_blocks: u32 = (20, 7, 32, "MAX_UNMAP", "most blocks of one UNMAP"),
        unmap_descriptors: u32 = (24, 7, 32, "MAX_UNMAP_DESCRIPTORS", "most descriptors of one UNMAP"),
        unmap_granularity_blocks: u32 =
            (28, 7, 32, "UNMAP_GRANULARITY", "optimal UNMAP granularity, in blocks"),
        ugavalid: bool = (32, 7, 1, "UGAVALID", "the alignment is valid"),
        unmap_alignment_blocks: u32 = (32, 6, 31, "UNMAP_ALIGNMENT", "first granule's block"),
        write_same_blocks: u64 = (36, 7, 64, "MAX_WRITE_SAME", "longest WRITE SAME, in blocks"),
        atomic_blocks: u32 = (44, 7, 32, "MAX_ATOMIC", "longest WRITE ATOMIC, in blocks"),
        atomic_alignment: u32 = (48, 7, 32, "ATOMIC_ALIGNMENT", "alignment of WRITE ATOMIC, in blocks"),
        atomic_granularity: u32 = (52, 7, 32, "ATOMIC_GRANULARITY", "granularity of WRITE ATOMIC, in blocks"),
        max_atomic_bounded: u32 =
            (56, 7, 32, "MAX_ATOMIC_BOUNDED", "longest WRITE ATOMIC with boundaries, in blocks"),
        max_atomic_boundary: u32 = (60, 7, 32, "MAX_ATOMIC_BOUNDARY", "largest atomic boundary, in blocks"),
    }

    /// What a medium is like (SBC-3 6.6.3).
    BlockDeviceCharacteristics: 64 bytes from vpd_header(0xb1, 64),
    {
        medium_rotation_rate: u16 =
            (4, 7, 16, "MEDIUM_ROTATION_RATE", "turns per minute; 1: it does not turn; 0: unknown"),
        product_type: u8 = (6, 7, 8, "PRODUCT_TYPE", "type of flash card, if it is one"),
        wabereq: u8 = (7, 7, 2, "WABEREQ", "what was never written reads as"),
        wacereq: u8 = (7, 5, 2, "WACEREQ", "what a crypto erase leaves reads as"),
        nominal_form_factor: u8 = (7, 3, 4, "NOMINAL_FORM_FACTOR", "size of its case"),
        zoned: u8 = (8, 5, 2, "ZONED", "1: host-aware zones; 2: zones that the device manages"),
        fuab: bool = (8, 1, 1, "FUAB", "flushes work as SYNCHRONIZE CACHE and FUA say"),
        vbuls: bool = (8, 0, 1, "VBULS", "VERIFY looks at blocks that are not mapped"),
        depopulation_time: u32 =
            (12, 7, 32, "DEPOPULATION_TIME", "seconds that removing a storage element takes"),
    }

    /// How blocks can be given back (SBC-3 6.6.5).
    Provisioning: 8 bytes from vpd_header(0xb2, 8),
    {
        threshold_exponent: u8 = (4, 7, 8, "THRESHOLD_EXPONENT", "thresholds are counted in 2^it blocks"),
        by_unmap: bool = (5, 7, 1, "LBPU", "UNMAP gives blocks back"),
        by_write_same_16: bool = (5, 6, 1, "LBPWS", "WRITE SAME(16) with UNMAP gives blocks back"),
        by_write_same_10: bool = (5, 5, 1, "LBPWS10", "WRITE SAME(10) with UNMAP gives blocks back"),
        lbprz: u8 = (5, 4, 3, "LBPRZ", "1: blocks given back read as zeros; 2: as a pattern"),
        anchors: bool = (5, 1, 1, "ANC_SUP", "blocks can be anchored"),
        dp: bool = (5, 0, 1, "DP", "a designator of the resource pool follows"),
        minimum_percentage: u8 = (6, 7, 5, "MINIMUM_PERCENTAGE", "granularity of threshold percentages"),
        provisioning_type: u8 =
            (6, 2, 3, "PROVISIONING_TYPE", "0: not told; 1: resource provisioned; 2: thin"),
        threshold_percentage: u8 =
            (7, 7, 8, "THRESHOLD_PERCENTAGE", "percent in use at which a warning comes"),
    }

    /// The zones of a disk that has some (ZBC 6.5).
    ZonedBlockDevice: 64 bytes from vpd_header(0xb6, 64),
    {
        urswrz: bool = (4, 0, 1, "URSWRZ", "reads are not restricted in sequential zones"),
        optimal_open: u32 = (8, 7, 32, "OPTIMAL_OPEN", "optimal number of open sequential zones"),
        optimal_non_sequential: u32 =
            (12, 7, 32, "OPTIMAL_NON_SEQUENTIAL", "optimal number of zones written out of order"),
        max_open: u32 = (16, 7, 32, "MAX_OPEN", "most open sequential zones"),
    }
}
