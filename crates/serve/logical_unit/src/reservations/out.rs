//! PERSISTENT RESERVE OUT: its CDB and parameter lists (SPC-4 6.16).

use scsi::fields::u32_at;
use scsi::{Condition, ReserveMoveList, ReserveOut, ReserveOutList, TransportId};
use volume::reservations::{Change, Move, Register, ReservationType};

use crate::nexus::{InitiatorPort, NexusName, TargetPort};

/// The fields of the CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    action: ReserveOut,
    /// SCOPE and TYPE; `None` if they are invalid, which is an error only for some service actions.
    kind: Option<ReservationType>,
    /// PARAMETER LIST LENGTH in bytes.
    pub(crate) length: usize,
}

/// The context in which a parameter list is interpreted.
pub(crate) struct ListContext<'a> {
    /// The nexus that sent the list.
    pub(crate) by: &'a NexusName,
    /// All attached I_T nexuses: a TransportID without ISID, or a relative port, identifies some of them.
    pub(crate) attached: &'a [NexusName],
    /// Whether registrations can persist through a power loss.
    pub(crate) can_persist: bool,
}

/// The parameter list without TransportIDs.
const LIST_BYTES: usize = ReserveOutList::BYTES;
/// The maximum length accepted: enough for 64 TransportIDs of 232 bytes.
const LIST_BYTES_MAX: usize = 16 << 10;

impl Request {
    /// Parses the CDB, 5Fh, of full length.
    pub(crate) fn parse(cdb: &[u8]) -> Result<Request, Condition> {
        let &[0x5f, action, scope_type, _, _, a, b, c, d, ..] = cdb else {
            return Err(Condition::invalid_field(0));
        };
        let request = Request {
            action: ReserveOut::try_from(action & 0x1f)
                .map_err(|_| Condition::invalid_bit(1, 4))?,
            kind: ReservationType::from_code(scope_type), // SCOPE is always 0h (SPC-4 6.15.3.3)
            length: u32::from_be_bytes([a, b, c, d]) as usize,
        };
        request.check(scope_type)
    }

    fn check(self, scope_type: u8) -> Result<Request, Condition> {
        let reserves = matches!(self.action, ReserveOut::Reserve | ReserveOut::Release);
        if reserves && self.kind.is_none() {
            return Err(Condition::invalid_bit(
                2,
                if scope_type & 0xf0 != 0 { 7 } else { 3 },
            ));
        }
        let exact = !matches!(
            self.action,
            ReserveOut::Register | ReserveOut::RegisterAndMove
        );
        if self.length < LIST_BYTES || exact && self.length != LIST_BYTES {
            return Err(Condition::parameter_list_length());
        }
        if self.length > LIST_BYTES_MAX {
            return Err(Condition::invalid_field(5));
        }
        Ok(self)
    }

    /// Parses the parameter list.
    pub(crate) fn read(&self, list: &[u8], context: &ListContext<'_>) -> Result<Change, Condition> {
        if list.len() < self.length {
            return Err(Condition::parameter_list_length());
        }
        let basic = ReserveOutList::parse(list);
        let ReserveOutList {
            key,
            service_action_key: second,
            ..
        } = basic;
        match (self.action, self.kind) {
            (ReserveOut::Register | ReserveOut::RegisterAndIgnoreExistingKey, _) => {
                self.register(basic, list, context).map(Change::Register)
            }
            (ReserveOut::RegisterAndMove, _) => moved(list, context).map(Change::Move),
            (ReserveOut::Clear, _) => Ok(Change::Clear { key }),
            (ReserveOut::Preempt | ReserveOut::PreemptAndAbort, kind) => {
                let abort = self.action == ReserveOut::PreemptAndAbort;
                Ok(Change::Preempt {
                    key,
                    victims: second,
                    kind,
                    abort,
                })
            }
            (ReserveOut::Reserve, Some(kind)) => Ok(Change::Reserve { key, kind }),
            (ReserveOut::Release, Some(kind)) => Ok(Change::Release { key, kind }),
            (ReserveOut::Reserve | ReserveOut::Release, None) => Err(Condition::invalid_bit(2, 3)),
        }
    }

    fn register(
        &self,
        basic: ReserveOutList,
        list: &[u8],
        context: &ListContext<'_>,
    ) -> Result<Register, Condition> {
        let (ids, registers) = (
            basic.specify_initiator_ports,
            self.action == ReserveOut::Register,
        );
        if ids && !registers {
            return Err(bit(20, 3));
        }
        if !ids && list.len() != LIST_BYTES {
            return Err(Condition::parameter_list_length());
        }
        Ok(Register {
            existing: registers.then_some(basic.key),
            key: basic.service_action_key,
            all_ports: basic.all_target_ports,
            persist_through_power_loss: persists(basic.persist, bit(20, 0), context)?,
            others: ids.then(|| initiators(list, context)).transpose()?,
        })
    }
}

/// Parses the list of TransportIDs for SPEC_I_PT, which starts at byte 24.
fn initiators(list: &[u8], context: &ListContext<'_>) -> Result<Vec<InitiatorPort>, Condition> {
    let mut rest = list.get(28..).ok_or(Condition::parameter_list_length())?;
    if u32_at(list, 24) as usize != rest.len() {
        return Err(Condition::parameter_list_length());
    }
    let mut initiators = Vec::new();
    while !rest.is_empty() {
        let at = list.len() - rest.len();
        let (id, tail) = TransportId::parse_strictly(rest).ok_or(wrong(at))?;
        let ports = ports_of(&id, context);
        if ports.is_empty() {
            return Err(wrong(at));
        }
        let is_new = |port: &InitiatorPort| !initiators.contains(port);
        let ports: Vec<InitiatorPort> = ports.into_iter().filter(is_new).collect();
        initiators.extend(ports);
        rest = tail;
    }
    Ok(initiators)
}

/// A TransportID without ISID identifies the attached ports of that initiator (SPC-4 7.6.4.6).
fn ports_of(id: &TransportId, context: &ListContext<'_>) -> Vec<InitiatorPort> {
    if let Some(port) = port_of(id) {
        return vec![port];
    }
    let TransportId::Iscsi { name, .. } = id else {
        return Vec::new();
    };
    let here = context.attached.iter().map(|nexus| &nexus.host);
    let mut ports: Vec<InitiatorPort> = here
        .filter(|port| port.name == name.to_ascii_lowercase())
        .cloned()
        .collect();
    ports.sort_unstable_by_key(|port| port.qualifier);
    ports.dedup();
    ports
}

/// Returns the port that a TransportID names, if it names exactly one. iSCSI names are compared in lower case
/// (RFC 7143 4.2.7.1).
fn port_of(id: &TransportId) -> Option<InitiatorPort> {
    match id {
        TransportId::Iscsi {
            name,
            isid: Some(isid),
        } => Some(InitiatorPort {
            name: name.to_ascii_lowercase(),
            qualifier: *isid,
        }),
        TransportId::Iscsi { isid: None, .. } | TransportId::Other { .. } => None,
    }
}

/// Parses the parameter list of REGISTER AND MOVE.
fn moved(list: &[u8], context: &ListContext<'_>) -> Result<Move, Condition> {
    let (list, id) = (
        ReserveMoveList::parse(list),
        list.get(LIST_BYTES..).unwrap_or_default(),
    );
    if list.transport_id_bytes as usize != id.len() {
        return Err(Condition::parameter_list_length());
    }
    let host = match TransportId::parse_strictly(id) {
        Some((id, [])) => port_of(&id).ok_or(wrong(LIST_BYTES))?,
        _ => return Err(wrong(LIST_BYTES)),
    };
    let service = target_port(list.relative_port, context).ok_or(wrong(18))?;
    Ok(Move {
        existing: list.key,
        key: list.new_key,
        to: NexusName { host, service },
        unregister: list.unregister,
        persist_through_power_loss: persists(list.persist, bit(17, 0), context)?,
    })
}

/// Returns the target port with this RELATIVE TARGET PORT IDENTIFIER, if it is in use.
fn target_port(relative: u16, context: &ListContext<'_>) -> Option<TargetPort> {
    let mut ports = context
        .attached
        .iter()
        .chain([context.by])
        .map(|nexus| &nexus.service);
    ports
        .find(|port| port.name == context.by.service.name && port.relative_port == relative)
        .cloned()
}

/// Returns APTPL, or an error if it is set and registrations cannot be saved.
fn persists(wanted: bool, field: Condition, context: &ListContext<'_>) -> Result<bool, Condition> {
    if wanted && !context.can_persist {
        Err(field)
    } else {
        Ok(wanted)
    }
}

fn wrong(at: usize) -> Condition {
    Condition::invalid_parameter(u16::try_from(at).unwrap_or(u16::MAX))
}

fn bit(byte: u16, bit: u8) -> Condition {
    Condition::invalid_parameter(byte).at_field(false, byte, Some(bit))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{nexus, through};
    use super::super::transport_id;
    use super::*;

    fn cdb(action: u8, scope_type: u8, length: u32) -> [u8; 10] {
        let [a, b, c, d] = length.to_be_bytes();
        [0x5f, action, scope_type, 0, 0, a, b, c, d, 0]
    }

    fn list(key: u64, second: u64, flags: u8) -> Vec<u8> {
        [
            &key.to_be_bytes()[..],
            &second.to_be_bytes(),
            &[0, 0, 0, 0, flags, 0, 0, 0],
        ]
        .concat()
    }

    fn read(action: u8, scope_type: u8, list: &[u8]) -> Result<Change, Condition> {
        let by = nexus(1);
        let attached = [nexus(1), nexus(2), through(2, 2)];
        let context = ListContext {
            by: &by,
            attached: &attached,
            can_persist: true,
        };
        Request::parse(&cdb(action, scope_type, list.len() as u32))?.read(list, &context)
    }

    #[test]
    fn keys_and_flags_of_register() {
        let expected = Register {
            existing: Some(1),
            key: 2,
            all_ports: true,
            persist_through_power_loss: true,
            others: None,
        };
        assert_eq!(
            read(0, 0, &list(1, 2, 0x05)),
            Ok(Change::Register(expected.clone()))
        );
        let ignoring = Register {
            existing: None,
            ..expected
        };
        assert_eq!(
            read(6, 0, &list(1, 2, 0x05)),
            Ok(Change::Register(ignoring))
        );
    }

    #[test]
    fn scope_and_type_count_where_a_reservation_is_made_or_ended() {
        assert_eq!(
            read(1, 3, &list(1, 0, 0)),
            Ok(Change::Reserve {
                key: 1,
                kind: ReservationType::ExclusiveAccess
            })
        );
        assert_eq!(
            read(1, 0x13, &list(1, 0, 0)),
            Err(Condition::invalid_bit(2, 7))
        );
        assert_eq!(
            read(2, 2, &list(1, 0, 0)),
            Err(Condition::invalid_bit(2, 3))
        );
        assert_eq!(read(3, 0x1f, &list(1, 0, 0)), Ok(Change::Clear { key: 1 }));
        let preempt = Change::Preempt {
            key: 1,
            victims: 2,
            kind: None,
            abort: true,
        };
        assert_eq!(read(5, 0, &list(1, 2, 0)), Ok(preempt));
    }

    #[test]
    fn a_list_of_another_length_is_wrong() {
        for action in [0, 1, 2, 3, 4, 5, 6, 7] {
            let short = Request::parse(&cdb(action, 1, 23));
            assert_eq!(short, Err(Condition::parameter_list_length()), "{action}");
        }
        assert_eq!(
            Request::parse(&cdb(1, 1, 28)),
            Err(Condition::parameter_list_length())
        );
        assert_eq!(
            Request::parse(&cdb(0, 1, u32::MAX)),
            Err(Condition::invalid_field(5))
        );
        let mut longer = list(0, 1, 0);
        longer.extend([0; 4]);
        assert_eq!(read(0, 0, &longer), Err(Condition::parameter_list_length()));
    }

    #[test]
    fn a_list_the_initiator_cut_short_is_wrong() {
        let by = nexus(1);
        let context = ListContext {
            by: &by,
            attached: &[],
            can_persist: true,
        };
        let request = Request::parse(&cdb(3, 0, 24)).unwrap();
        assert_eq!(
            request.read(&list(1, 0, 0)[..20], &context),
            Err(Condition::parameter_list_length())
        );
    }

    #[test]
    fn an_unknown_service_action_is_pointed_at() {
        assert_eq!(
            Request::parse(&cdb(8, 0, 24)),
            Err(Condition::invalid_bit(1, 4))
        );
    }

    fn with_ids(flags: u8, ids: &[Vec<u8>]) -> Vec<u8> {
        let ids = ids.concat();
        [
            list(0, 9, flags),
            (ids.len() as u32).to_be_bytes().to_vec(),
            ids,
        ]
        .concat()
    }

    #[test]
    fn spec_i_pt_lists_initiator_ports() {
        let list = with_ids(
            0x08,
            &[
                transport_id(&nexus(5).host).write(),
                transport_id(&nexus(6).host).write(),
            ],
        );
        let Ok(Change::Register(register)) = read(0, 0, &list) else {
            panic!("it is a registration")
        };
        assert_eq!(register.others, Some(vec![nexus(5).host, nexus(6).host]));
    }

    #[test]
    fn a_name_without_isid_means_the_ports_that_are_there() {
        let device = |name: &str| {
            let mut id = vec![0x05, 0, 0, 28];
            id.extend(name.as_bytes());
            id.resize(32, 0);
            id
        };
        let list = with_ids(0x08, &[device("iqn.2026-11.test:host2")]);
        let Ok(Change::Register(register)) = read(0, 0, &list) else {
            panic!("it is a registration")
        };
        assert_eq!(register.others, Some(vec![nexus(2).host]));
        let nobody = with_ids(0x08, &[device("iqn.2026-11.test:host9")]);
        assert_eq!(read(0, 0, &nobody), Err(Condition::invalid_parameter(28)));
    }

    #[test]
    fn transport_ids_that_do_not_fill_their_list_are_wrong() {
        let mut list = with_ids(0x08, &[transport_id(&nexus(5).host).write()]);
        list.push(0);
        assert_eq!(read(0, 0, &list), Err(Condition::parameter_list_length()));
        let garbage = with_ids(0x08, &[vec![0xff; 24]]);
        assert_eq!(read(0, 0, &garbage), Err(Condition::invalid_parameter(28)));
    }

    #[test]
    fn only_register_takes_spec_i_pt() {
        assert_eq!(read(6, 0, &list(0, 1, 0x08)), Err(bit(20, 3)));
    }

    #[test]
    fn persistence_is_refused_where_nothing_can_be_kept() {
        let by = nexus(1);
        let context = ListContext {
            by: &by,
            attached: &[],
            can_persist: false,
        };
        let request = Request::parse(&cdb(0, 0, 24)).unwrap();
        assert_eq!(request.read(&list(0, 1, 0x01), &context), Err(bit(20, 0)));
    }

    fn move_list(flags: u8, relative: u16, id: &[u8]) -> Vec<u8> {
        let mut list = list(1, 2, 0);
        list[17] = flags;
        list[18..20].copy_from_slice(&relative.to_be_bytes());
        list[20..24].copy_from_slice(&(id.len() as u32).to_be_bytes());
        [&list, id].concat()
    }

    #[test]
    fn a_move_names_its_new_holder() {
        let id = transport_id(&nexus(2).host).write();
        let expected = Move {
            existing: 1,
            key: 2,
            to: through(2, 2),
            unregister: true,
            persist_through_power_loss: true,
        };
        assert_eq!(
            read(7, 0, &move_list(3, 2, &id)),
            Ok(Change::Move(expected))
        );
        assert_eq!(
            read(7, 0, &move_list(3, 9, &id)),
            Err(Condition::invalid_parameter(18))
        );
        assert_eq!(
            read(7, 0, &move_list(3, 2, &[0; 24])),
            Err(Condition::invalid_parameter(24))
        );
    }
}
