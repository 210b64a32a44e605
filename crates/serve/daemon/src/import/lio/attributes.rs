//! Attributes that configfs has, with the values that they have if nobody sets them.

use super::super::json::Object;
use super::super::{Note, Place};

/// Attributes of a portal group with LIO's own values. Those without one are looked at elsewhere or concern nothing here.
pub(super) const GROUP_ATTRIBUTES: &[(&str, Option<&str>)] = &[
    ("authentication", None),
    ("cache_dynamic_acls", None),
    ("default_cmdsn_depth", Some("64")),
    ("default_erl", Some("0")),
    ("demo_mode_discovery", Some("1")),
    ("demo_mode_write_protect", None),
    ("fabric_prot_type", Some("0")),
    ("generate_node_acls", None),
    ("login_keys_workaround", Some("1")),
    ("login_timeout", Some("15")),
    ("netif_timeout", Some("2")),
    ("prod_mode_write_protect", None),
    ("t10_pi", Some("0")),
    ("tpg_enabled_sendtargets", Some("1")),
];

/// Attributes of a node ACL likewise.
pub(super) const ACL_ATTRIBUTES: &[(&str, Option<&str>)] = &[
    ("authentication", Some("-1")),
    ("dataout_timeout", Some("3")),
    ("dataout_timeout_retries", Some("5")),
    ("default_erl", Some("0")),
    ("nopin_response_timeout", Some("30")),
    ("nopin_timeout", Some("15")),
    ("random_datain_pdu_offsets", Some("0")),
    ("random_datain_seq_offsets", Some("0")),
    ("random_r2t_offsets", Some("0")),
];

/// Attributes of a storage object likewise.
pub(super) const STORAGE_ATTRIBUTES: &[(&str, Option<&str>)] = &[
    ("alua_support", Some("1")),
    ("block_size", None),
    ("complete_type", None),
    ("emulate_3pc", Some("1")),
    ("emulate_caw", Some("1")),
    ("emulate_dpo", None),
    ("emulate_fua_read", None),
    ("emulate_fua_write", Some("1")),
    ("emulate_model_alias", None),
    ("emulate_pr", Some("1")),
    ("emulate_rest_reord", Some("0")),
    ("emulate_rsoc", Some("1")),
    ("emulate_tas", Some("1")),
    ("emulate_tpu", None),
    ("emulate_tpws", None),
    ("emulate_ua_intlck_ctrl", Some("0")),
    ("emulate_write_cache", None),
    ("enforce_pr_isids", None),
    ("force_pr_aptpl", Some("0")),
    ("is_nonrot", None),
    ("max_unmap_block_desc_count", None),
    ("max_unmap_lba_count", None),
    ("max_write_same_len", None),
    ("optimal_sectors", None),
    ("pgr_support", Some("1")),
    ("pi_prot_format", Some("0")),
    ("pi_prot_type", Some("0")),
    ("pi_prot_verify", Some("0")),
    ("queue_depth", None),
    ("submit_type", None),
    ("unmap_granularity", None),
    ("unmap_granularity_alignment", None),
    ("unmap_zeroes_data", None),
];

/// A note for each attribute with another value than LIO's own.
pub(super) fn unusual(attributes: &Object<'_>, known: &[(&str, Option<&str>)]) -> Vec<Note> {
    let is_unusual = |(name, value, place): (&str, Option<String>, Place)| {
        // What the kernel or the device says of itself is no setting.
        let usual = known.iter().find(|(other, _)| *other == name).map(|(_, usual)| *usual);
        let is_usual = match usual {
            Some(Some(usual)) => value.as_deref() == Some(usual),
            Some(None) => true,
            None => name.starts_with("hw_"),
        };
        let sentence = format!("the attribute `{name}` is not carried over: there is no such setting here");
        (!is_usual).then(|| Note::new(&place, sentence))
    };
    attributes.scalars().filter_map(is_unusual).collect()
}
