//! libiscsi's small programs: discovery, INQUIRY, READ CAPACITY, write protection, load.

use crate::capture::watched;
use crate::program::{installed, run, says};
use crate::server::{Server, ask, has_ipv6};

#[test]
fn discovery_lists_the_target_with_its_size() {
    needs!(installed(&["iscsi-ls"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let said = watched(&server, || {
        ask("iscsi-ls", &["-s"], &format!("iscsi://{}", server.portal()))
    });
    says(
        &said,
        &[&format!(
            "Target:{} Portal:{},1",
            server.target_name("disk"),
            server.portal()
        )],
    );
    assert!(said.contains("Type:DIRECT_ACCESS (Size:63M)"), "{said}"); // it rounds (last LBA * block) down
}

#[test]
fn ipv6_serves_as_well() {
    needs!(installed(&["iscsi-ls"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    if server.is_ours() && has_ipv6() {
        let said = watched(&server, || {
            ask(
                "iscsi-ls",
                &["-s"],
                &format!("iscsi://[::1]:{}", server.port()),
            )
        });
        says(&said, &[&format!("Portal:[::1]:{},1", server.port())]);
        assert!(said.contains("Type:DIRECT_ACCESS"), "{said}");
    }
}

#[test]
fn every_vital_product_data_page_listed_is_there() {
    needs!(installed(&["iscsi-inq"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let url = server.url("disk");
    watched(&server, || {
        let standard = ask("iscsi-inq", &[], &url);
        says(&standard, &["Peripheral Device Type:DIRECT_ACCESS"]);
        let list = ask("iscsi-inq", &["-e", "1", "-c", "0"], &url);
        let pages: Vec<u8> = list.lines().filter_map(listed_page).collect();
        assert!(pages.contains(&0x83) && pages.contains(&0xb0), "{list}");
        for page in pages {
            let ended = run("iscsi-inq", &["-e", "1", "-c", &page.to_string(), &url]);
            let undecoded = !DECODED.contains(&page) && ended.said.contains("failed to unmarshall");
            assert!(
                ended.status.success() || undecoded,
                "page {page:02x}h: {}",
                ended.said
            );
        }
    });
}

/// The pages that libiscsi can decode; for others it prints that it cannot, once they have arrived.
const DECODED: &[u8] = &[0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2];

/// The number in a line such as `Page:0xb0 BLOCK_LIMITS`.
fn listed_page(line: &str) -> Option<u8> {
    let (_, number) = line.split_once("0x")?;
    u8::from_str_radix(number.get(..2)?, 16).ok()
}

#[test]
fn capacity_and_block_lengths_are_as_specified() {
    needs!(installed(&["iscsi-readcapacity16"]));
    let server = Server::serving(&["disk=ram:64MiB", "large=ram:64MiB?block=4096"]);
    watched(&server, || {
        let said = ask("iscsi-readcapacity16", &[], &server.url("disk"));
        says(&said, &["RETURNED LOGICAL BLOCK ADDRESS:131071"]);
        assert!(said.contains("LOGICAL BLOCK LENGTH IN BYTES:512"), "{said}");
        assert!(said.contains("LBPME:1 LBPRZ:1"), "{said}");
        if server.is_ours() {
            let said = ask("iscsi-readcapacity16", &[], &server.url("large"));
            says(&said, &["RETURNED LOGICAL BLOCK ADDRESS:16383"]);
            says(&said, &["LOGICAL BLOCK LENGTH IN BYTES:4096"]);
        }
    });
}

#[test]
fn software_write_protect_can_be_turned_on_and_off() {
    needs!(installed(&["iscsi-swp", "qemu-io"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let url = server.url("disk");
    let write = || run("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 0 64k", &url]);
    watched(&server, || {
        assert!(ask("iscsi-swp", &[], &url).contains("SWP:0"));
        ask("iscsi-swp", &["-s", "on"], &url);
        assert!(ask("iscsi-swp", &[], &url).contains("SWP:1"));
        write().expect_failure();
        ask("iscsi-swp", &["-s", "off"], &url);
        write().expect_success();
    });
}

#[test]
fn a_second_of_random_reads_has_no_error() {
    needs!(installed(&["iscsi-perf"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let said = watched(&server, || {
        ask(
            "iscsi-perf",
            &["-m", "32", "-b", "8", "-t", "1", "-r"],
            &server.url("disk"),
        )
    });
    assert!(said.contains("iops average"), "{said}");
    assert!(!said.contains("iops average 0 "), "{said}");
}
