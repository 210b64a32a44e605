//! CHAP users of node ACLs and portal groups.

use zeroize::Zeroizing;

use super::super::json::Object;
use super::super::san::{Account, Chap, Target};
use super::super::{Note, Place};

/// The credentials of a node ACL, or of a portal group for anybody.
pub(super) struct Login {
    account: Result<Account, Note>,
    mutual: Option<(Result<Account, Note>, Place)>,
}

/// The CHAP credentials of a node ACL or portal group, if it has a user.
pub(super) fn login(object: &Object<'_>, initiator: Option<&str>) -> Option<Login> {
    let read = |user: &str, secret: &str, initiator: Option<&str>| {
        let secret = Zeroizing::new(object.scalar(secret).unwrap_or_default());
        let user = object.scalar(user).filter(|user| !user.is_empty())?;
        let initiators = initiator.map(|name| vec![name.to_owned()]);
        Some(Account::new(&user, &secret, initiators, &object.place_of("chap_userid")))
    };
    let mutual = read("chap_mutual_userid", "chap_mutual_password", None);
    let mutual = mutual.map(|mutual| (mutual, object.place_of("chap_mutual_userid")));
    Some(Login { account: read("chap_userid", "chap_password", initiator)?, mutual })
}

/// What initiators must prove. One whose user cannot be carried over may not log in.
pub(super) fn chap(target: &mut Target, wanted: bool, logins: Vec<Login>, place: &Place) {
    if !wanted {
        if !logins.is_empty() {
            target.note(place, "users and secrets are not carried over: authentication is off, so that nobody is asked for them");
        }
        return;
    }
    let mut chap = Chap::default();
    for Login { account, mutual } in logins {
        match account {
            Err(note) => target.notes.push(note),
            Ok(account) => match chap.accounts.iter_mut().find(|other| other.user == account.user) {
                None => chap.accounts.push(account),
                Some(other) if other.secret == account.secret => {
                    let names = account.initiators.into_iter().flatten();
                    other.initiators.get_or_insert_default().extend(names);
                }
                Some(_) => target.note(
                    place,
                    format_args!(
                        "the user `{}` is not carried over a second time: a user has one secret here",
                        account.user
                    ),
                ),
            },
        }
        match mutual {
            None => {}
            Some((Err(note), _)) => target.notes.push(note),
            Some((Ok(mutual), place)) => match &chap.mutual {
                None => chap.mutual = Some(mutual),
                Some(first) if *first == mutual => {}
                Some(_) => target.note(&place, "`chap_mutual_userid` is not carried over: a target has one user and secret of its own here"),
            },
        }
    }
    if let Some(mutual) = &chap.mutual
        && chap.accounts.iter().any(|account| account.secret == mutual.secret)
    {
        target.note(place, "`chap_mutual_password` is not carried over: it is also an initiator's secret");
        chap.mutual = None;
    }
    let proved = |name: &String| {
        chap.accounts
            .iter()
            .any(|account| account.initiators.as_ref().is_none_or(|names| names.contains(name)))
    };
    if let Some(names) = &mut target.initiators {
        names.retain(proved);
    }
    match chap.accounts.is_empty() {
        false => target.chap = Some(chap),
        true => target.leave_out("it wants CHAP, and none of its users could be carried over", place),
    }
}
