//! Arbitrary input for an initiator's login: the login completes or fails in bounded time, and never attaches
//! to a target that fails to authenticate.
#![no_main]

use iscsi::login::{InitiatorConfig, InitiatorEvent, InitiatorLogin, LOGIN_DATA_BYTES_MAX};
use iscsi::name::Name;
use iscsi::negotiate::{Offers, SessionType};
use iscsi::pdu::{Cid, Isid, Itt, LoginRequest, Sn, Tsih};
use libfuzzer_sys::fuzz_target;
use script::{LOGIN_FLAGS, Script, chap_claim};

const LOGIN_RESPONSE: u8 = 0x23;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let chap = script.flag();
    let mut login = InitiatorLogin::new(config(chap));
    while !script.is_over() {
        let bhs = script.header(LOGIN_RESPONSE, LOGIN_FLAGS);
        login.handle_pdu(&bhs, &script.text());
        while let Some(transmit) = login.poll_transmit() {
            let request =
                LoginRequest::parse(&transmit.bhs).expect("our own requests are well formed");
            assert_eq!(request.data_segment_length as usize, transmit.data.len());
            assert!(transmit.data.len() <= LOGIN_DATA_BYTES_MAX);
        }
        if let Some(InitiatorEvent::LoggedIn(attached)) = login.poll_event() {
            assert!(!chap, "attached without a secret");
            assert!(attached.parameters.first_burst_length <= attached.parameters.max_burst_length);
        }
    }
});

fn config(chap: bool) -> InitiatorConfig {
    InitiatorConfig {
        initiator_name: Name::new("iqn.2026-11.org.example:host").expect("a name"),
        target_name: Name::new("iqn.2026-11.org.example:disk").ok(),
        session_type: SessionType::Normal,
        isid: Isid([0; 6]),
        tsih: Tsih::NEW,
        cid: Cid(0),
        itt: Itt::ZERO,
        cmd_sn: Sn(1),
        chap: chap.then(chap_claim),
        offers: Offers::of_initiator(),
        session: None,
    }
}
