//! What a session asked for and got, as far as it decides how often a command waits.

use iscsi::negotiate::{DigestKind, Parameters};
use iscsi_client::Settings;
use model::Keys;

/// What we offer. The target's own MaxRecvDataSegmentLength is not ours to ask for: it is the one that it declared.
pub(super) fn asked(settings: &Settings, got: &Parameters) -> Keys {
    Keys {
        immediate_data: settings.immediate_data,
        initial_r2t: settings.initial_r2t,
        first_burst_bytes: settings.first_burst_bytes,
        max_burst_bytes: settings.max_burst_bytes,
        outstanding_r2ts: settings.max_outstanding_r2t,
        target_segment_bytes: got.peer_max_recv_data_segment_length,
        initiator_segment_bytes: settings.max_segment_bytes,
        header_digest: settings.header_digest,
        data_digest: settings.data_digest,
    }
}

/// What was agreed on.
pub(super) fn got(got: &Parameters) -> Keys {
    Keys {
        immediate_data: got.immediate_data,
        initial_r2t: got.initial_r2t,
        first_burst_bytes: got.first_burst_length,
        max_burst_bytes: got.max_burst_length,
        outstanding_r2ts: got.max_outstanding_r2t,
        target_segment_bytes: got.peer_max_recv_data_segment_length,
        initiator_segment_bytes: got.local_max_recv_data_segment_length,
        header_digest: got.header_digest == DigestKind::Crc32c,
        data_digest: got.data_digest == DigestKind::Crc32c,
    }
}

#[cfg(test)]
mod tests {
    use iscsi::negotiate::SessionType;

    use super::*;

    #[test]
    fn what_is_asked_for_is_ours_and_what_is_got_is_agreed_on() {
        let parameters = Parameters { initial_r2t: true, ..Parameters::defaults(SessionType::Normal) };
        let settings = Settings { data_digest: true, ..Settings::default() };
        let (asked, got) = (asked(&settings, &parameters), got(&parameters));
        assert_eq!((asked.initial_r2t, got.initial_r2t), (false, true));
        assert_eq!((asked.data_digest, got.data_digest), (true, false));
        assert_eq!(asked.target_segment_bytes, got.target_segment_bytes);
    }
}
