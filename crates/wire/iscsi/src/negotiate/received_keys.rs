//! The keys that a peer has sent in one negotiation, to detect repetitions.

use super::NegotiationError;
use crate::keys::{Key, answer};
use crate::text::Pair;

/// The keys that one side has declared, offered or answered in a login, or in an exchange of text.
///
/// "Neither the initiator nor the target should attempt to declare or negotiate a parameter more than once during login,
/// except for responses to specific keys that explicitly allow repeated key declarations (e.g., TargetAddress). An attempt
/// to renegotiate/redeclare parameters not specifically allowed MUST be detected by the initiator and target" (RFC 7143
/// section 6.3; 6.4 says the same of the full feature phase).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceivedKeys(u64);

impl ReceivedKeys {
    /// Records the keys of one text.
    pub(crate) fn take(&mut self, pairs: &[Pair<'_>]) -> Result<(), NegotiationError> {
        let mut here = ReceivedKeys::default();
        for pair in pairs.iter().filter(|pair| !answer::is_answer(pair.value)) {
            let Some(key) = Key::find(pair.key) else { continue };
            let before = match key {
                // Several addresses (section 13.8), and an exchange of several steps with rules of its own.
                Key::TargetAddress | Key::ChapA | Key::ChapI | Key::ChapC | Key::ChapN | Key::ChapR => {
                    continue;
                }
                // Not allowed, but harmless, and real: libiscsi and u-root's initiator say who they are in every request.
                // That it does not change is for the login to see.
                Key::InitiatorName | Key::TargetName | Key::SessionType | Key::InitiatorAlias => here,
                _ => *self,
            };
            if before.has(key) {
                return Err(NegotiationError::Repeated(key));
            }
            here.add(key);
            self.add(key);
        }
        Ok(())
    }

    fn has(self, key: Key) -> bool {
        self.0 >> key as u32 & 1 == 1
    }

    fn add(&mut self, key: Key) {
        self.0 |= 1 << key as u32;
    }
}
