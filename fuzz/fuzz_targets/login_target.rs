//! Arbitrary input for a target's login: the login completes or fails in bounded time, and is refused to an
//! initiator without the secret.
#![no_main]

use iscsi::login::{
    Acceptance, Admission, Grant, LOGIN_DATA_BYTES_MAX, TargetEvent, TargetLogin, TargetPolicy,
};
use iscsi::negotiate::Offers;
use iscsi::pdu::{LoginResponse, LoginStatus, Sn, Tsih};
use libfuzzer_sys::fuzz_target;
use script::{LOGIN_FLAGS, Script, chap_policy};

const LOGIN_REQUEST: u8 = 0x43;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let choices = script.byte();
    let chap = choices & 1 == 1;
    let mut login = TargetLogin::new(TargetPolicy {
        first_stat_sn: Sn(u32::MAX - 1),
    });
    if choices & 2 == 0 {
        let names = b"InitiatorName=iqn.2026-11.org.example:host\0TargetName=iqn.2026-11.org.example:disk\0";
        login.handle_pdu(&script.header(LOGIN_REQUEST, LOGIN_FLAGS), names);
    }
    while !script.is_over() {
        let bhs = script.header(LOGIN_REQUEST, LOGIN_FLAGS);
        login.handle_pdu(&bhs, &script.text());
        while let Some(event) = login.poll_event() {
            match event {
                TargetEvent::Admit(_) => login.admit(admission(&mut script, chap)),
                TargetEvent::Proof { .. } if script.byte() < 0xf0 => login.judge(Ok(())),
                TargetEvent::Proof { .. } => login.judge(Err(LoginStatus::ServiceUnavailable)),
                TargetEvent::SessionNeeded(_) if script.byte() < 0xf0 => {
                    login.grant(Ok(Grant {
                        tsih: Tsih(1),
                        exp_cmd_sn: Sn(1),
                        max_cmd_sn: Sn(64),
                    }));
                }
                TargetEvent::SessionNeeded(_) => login.grant(Err(LoginStatus::OutOfResources)),
                TargetEvent::LoggedIn(_) => assert!(!chap, "logged in without a secret"),
                TargetEvent::Failed(_) => {}
            }
        }
        while let Some(transmit) = login.poll_transmit() {
            let response =
                LoginResponse::parse(&transmit.bhs).expect("our own responses are well formed");
            assert_eq!(response.data_segment_length as usize, transmit.data.len());
            assert!(transmit.data.len() <= LOGIN_DATA_BYTES_MAX);
        }
    }
});

fn admission(script: &mut Script<'_>, chap: bool) -> Admission {
    match script.byte() {
        0..0xf0 => Admission::Accept(Box::new(Acceptance {
            target_portal_group_tag: Some(1),
            authentication: chap.then(chap_policy),
            offers: Offers::of_target(),
            session: None,
            refusal: (script.byte() > 0xf8).then_some(LoginStatus::SessionDoesNotExist),
        })),
        0xf0..0xf8 => Admission::Refuse(LoginStatus::NotFound),
        0xf8.. => Admission::Redirect {
            address: "[::1]:3260,1".to_owned(),
            permanent: true,
        },
    }
}
