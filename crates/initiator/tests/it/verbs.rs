//! What other people's targets answer to the commands that block devices in general do not have.

use initiator::verbs::{Identity, Sanitize, SanitizeManner};
use initiator::{CommandError, Management, TaskManagementResult};

use crate::scenes::{attach, with};
use crate::tgt::Tgt;

#[test]
fn a_function_is_answered_until_the_target_dies() {
    with(Tgt::start(), async |mut tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let reset = Management::LogicalUnitReset(unit.lun());
        assert_eq!(unit.target().manage(reset).await, Ok(TaskManagementResult::FunctionComplete));
        tgt.kill();
        assert_eq!(unit.target().manage(reset).await, Err(CommandError::ConnectionLost));
    });
}

#[test]
fn tgt_says_who_it_is() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let inquiry = unit.inquiry().await.expect("INQUIRY");
        assert_eq!((inquiry.vendor.as_str(), inquiry.product.as_str()), ("IET", "VIRTUAL-DISK"));
        for page in unit.vpd_pages().await.expect("the list of pages") {
            let page = unit.vpd(page).await.expect("a page on the list");
            assert_eq!(page.bytes.get(1), Some(&page.code), "{page}");
        }
        let identity = unit.identity().await.expect("an identity");
        assert!(matches!(identity, Identity::Designators(_)), "{identity}");
        let controller = unit.target().unit(0).identity().await.expect("an identity");
        assert!(!identity.is_same_device(&controller), "{identity} and {controller}");
    });
}

#[test]
fn what_tgt_does_not_know_is_refused_in_words() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let manner = SanitizeManner::default();
        let refused = unit.sanitize(&Sanitize::BlockErase, manner).await.expect_err("tgt cannot");
        assert!(refused.is_unsupported());
        let words =
            "the target refused SANITIZE: ILLEGAL REQUEST, the target does not know the command (05/20/00)";
        assert_eq!(refused.to_string(), words);
    });
}

#[test]
fn a_lun_that_is_not_there_answers_inquiry_only() {
    with(Tgt::start(), async |tgt| {
        let nobody = attach(&tgt.url("", 1, "")).await.target().unit(99);
        assert!(!nobody.inquiry().await.expect("any LUN answers INQUIRY").is_there());
        let refused = nobody.test_unit_ready().await.expect_err("nobody is there");
        assert!(refused.to_string().contains("there is no such LUN (05/25/00)"), "{refused}");
    });
}
