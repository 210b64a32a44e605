//! Test support: a login between an initiator and a target in memory, and a target that gets single requests.

use super::*;
use crate::chap::{Algorithm, Challenge, ChapClaim, ChapPolicy, Credentials, Secret};
use crate::name::Name;
use crate::negotiate::{Offers, SessionType};
use crate::pdu::{
    Bhs, Cid, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, Sn, Stage, TargetNumbers, Tsih,
};

pub(super) const INITIATOR: &str = "iqn.2026-11.org.example:host";
pub(super) const TARGET: &str = "iqn.2026-11.org.example:disk";
pub(super) const ISID: Isid = Isid([0x80, 1, 2, 3, 4, 5]);

/// An initiator, a target, and the target's driver.
pub(super) struct Pair {
    pub(super) config: InitiatorConfig,
    pub(super) admission: Admission,
    pub(super) grant: Result<Grant, LoginStatus>,
    /// The verdict on a proof.
    pub(super) verdict: Result<(), LoginStatus>,
}

/// The result of a login on both sides.
pub(super) struct Ended {
    pub(super) initiator: InitiatorEvent,
    pub(super) target: TargetEvent,
}

impl Pair {
    /// Both sides with defaults.
    pub(super) fn plain() -> Pair {
        Pair {
            config: InitiatorConfig {
                initiator_name: Name::new(INITIATOR).expect("a name"),
                target_name: Some(Name::new(TARGET).expect("a name")),
                session_type: SessionType::Normal,
                isid: ISID,
                tsih: Tsih::NEW,
                cid: Cid(7),
                itt: Itt::ZERO,
                cmd_sn: Sn(0x20),
                chap: None,
                offers: Offers::of_initiator(),
                session: None,
            },
            admission: accept(None),
            grant: Ok(grant()),
            verdict: Ok(()),
        }
    }

    /// The target requires CHAP, and can also authenticate itself.
    pub(super) fn with_chap(claim: ChapClaim) -> Pair {
        let mut pair = Pair::plain();
        pair.config.chap = Some(claim);
        pair.admission = accept(Some(policy()));
        pair
    }

    /// Runs the login until both sides have ended it. Every header passes between them in wire format.
    pub(super) fn run(&self) -> Ended {
        let mut initiator = InitiatorLogin::new(self.config.clone());
        let mut target = TargetLogin::new(TargetPolicy {
            first_stat_sn: Sn(0x100),
        });
        let (mut initiator_end, mut target_end) = (None, None);
        for _ in 0..LOGIN_PDUS_MAX {
            while let Some(Transmit { bhs, data }) = initiator.poll_transmit() {
                target.handle_pdu(&bhs, &data);
            }
            while let Some(event) = target.poll_event() {
                match event {
                    TargetEvent::Admit(_) => target.admit(self.admission.clone()),
                    TargetEvent::Proof { .. } => target.judge(self.verdict),
                    TargetEvent::SessionNeeded(_) => target.grant(self.grant),
                    end => target_end = Some(end),
                }
            }
            while let Some(Transmit { bhs, data }) = target.poll_transmit() {
                initiator.handle_pdu(&bhs, &data);
            }
            initiator_end = initiator_end.or(initiator.poll_event());
        }
        Ended {
            initiator: initiator_end.expect("an end"),
            target: target_end.expect("an end"),
        }
    }
}

impl Ended {
    /// The results of a login that succeeded on both sides; panics otherwise.
    pub(super) fn logged_in(self) -> (Attached, LoggedIn) {
        match (self.initiator, self.target) {
            (InitiatorEvent::LoggedIn(attached), TargetEvent::LoggedIn(logged_in)) => {
                (*attached, *logged_in)
            }
            (initiator, target) => panic!("not logged in: {initiator:?}, {target:?}"),
        }
    }

    /// The status that the initiator received, and the target's reason, after a login that was refused;
    /// panics otherwise.
    pub(super) fn refused(self) -> (LoginStatus, LoginError) {
        match (self.initiator, self.target) {
            (InitiatorEvent::Failed(LoginFailure::Refused(status)), TargetEvent::Failed(error)) => {
                (status, error)
            }
            (initiator, target) => panic!("not refused: {initiator:?}, {target:?}"),
        }
    }
}

/// A target that gets requests one by one.
pub(super) struct Door {
    pub(super) target: TargetLogin,
    pub(super) admission: Admission,
    pub(super) grant: Result<Grant, LoginStatus>,
    /// The verdict on proofs, and the users that offered them.
    pub(super) verdict: Result<(), LoginStatus>,
    pub(super) users: Vec<String>,
    pub(super) end: Option<TargetEvent>,
}

/// A login response and its text, with spaces for NULs.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) response: LoginResponse,
    pub(super) text: String,
}

impl Door {
    pub(super) fn open() -> Door {
        Door {
            target: TargetLogin::new(TargetPolicy {
                first_stat_sn: Sn(0x100),
            }),
            admission: accept(None),
            grant: Ok(grant()),
            verdict: Ok(()),
            users: Vec::new(),
            end: None,
        }
    }

    pub(super) fn with_chap() -> Door {
        Door {
            admission: accept(Some(policy())),
            ..Door::open()
        }
    }

    /// Sends a request with this text, with spaces for NULs; returns the response.
    pub(super) fn say(&mut self, request: LoginRequest, text: &str) -> Reply {
        self.say_bytes(request, text.replace(' ', "\0").as_bytes())
            .expect("a response")
    }

    pub(super) fn say_bytes(&mut self, request: LoginRequest, text: &[u8]) -> Option<Reply> {
        let request = LoginRequest {
            data_segment_length: text.len() as u32,
            ..request
        };
        self.say_pdu(&request.emit(), text)
    }

    pub(super) fn say_pdu(&mut self, bhs: &Bhs, data: &[u8]) -> Option<Reply> {
        self.target.handle_pdu(bhs, data);
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Admit(_) => self.target.admit(self.admission.clone()),
                TargetEvent::Proof { user } => {
                    self.users.push(user);
                    self.target.judge(self.verdict);
                }
                TargetEvent::SessionNeeded(_) => self.target.grant(self.grant),
                end => self.end = Some(end),
            }
        }
        self.target
            .poll_transmit()
            .map(|Transmit { bhs, data }| Reply {
                response: LoginResponse::parse(&bhs).expect("a login response"),
                text: String::from_utf8(data).expect("text").replace('\0', " "),
            })
    }

    /// Why the target ended the login.
    pub(super) fn error(&self) -> Option<LoginError> {
        match self.end {
            Some(TargetEvent::Failed(error)) => Some(error),
            _ => None,
        }
    }
}

/// A login request in a stage, with or without a requested transition.
pub(super) fn request(stage: Stage, transit_to: Option<Stage>) -> LoginRequest {
    LoginRequest {
        continues: false,
        stage,
        transit_to,
        version_max: 0,
        version_min: 0,
        isid: ISID,
        tsih: Tsih::NEW,
        itt: Itt::ZERO,
        cid: Cid(7),
        cmd_sn: Sn(0x20),
        exp_stat_sn: Sn(0),
        data_segment_length: 0,
    }
}

/// A response that stays in its stage.
pub(super) fn success(stage: Stage, text_bytes: usize) -> LoginResponse {
    LoginResponse {
        continues: false,
        stage,
        transit_to: None,
        version_max: 0,
        version_active: 0,
        isid: ISID,
        tsih: Tsih::NEW,
        itt: Itt::ZERO,
        numbers: TargetNumbers {
            stat_sn: Sn(0),
            exp_cmd_sn: Sn(0x20),
            max_cmd_sn: Sn(0x20),
        },
        status: LoginStatus::Success,
        data_segment_length: text_bytes as u32,
    }
}

/// The names of a first request, and more text.
pub(super) fn names_and(more: &str) -> String {
    format!("InitiatorName={INITIATOR} TargetName={TARGET} SessionType=Normal {more}")
}

pub(super) fn accept(authentication: Option<ChapPolicy>) -> Admission {
    Admission::Accept(Box::new(Acceptance {
        target_portal_group_tag: Some(1),
        authentication,
        offers: Offers::of_target(),
        session: None,
        refusal: None,
    }))
}

pub(super) fn grant() -> Grant {
    Grant {
        tsih: Tsih(0x55),
        exp_cmd_sn: Sn(0x20),
        max_cmd_sn: Sn(0x11f),
    }
}

pub(super) fn policy() -> ChapPolicy {
    ChapPolicy {
        algorithms: Algorithm::ALL.to_vec(),
        initiators: [credentials("alice", "twelve or more")].into(),
        target: Some(credentials("disk", "the target's own")),
        challenge: Challenge {
            identifier: 1,
            bytes: vec![0xaa; 16],
        },
    }
}

pub(super) fn one_way(algorithm: Algorithm) -> ChapClaim {
    ChapClaim {
        algorithms: vec![algorithm],
        initiator: credentials("alice", "twelve or more"),
        target: None,
    }
}

pub(super) fn mutual(algorithm: Algorithm) -> ChapClaim {
    let ours = Challenge {
        identifier: 2,
        bytes: vec![0xbb; 16],
    };
    ChapClaim {
        target: Some((credentials("disk", "the target's own"), ours)),
        ..one_way(algorithm)
    }
}

pub(super) fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: Secret::new(secret.as_bytes()),
    }
}
