//! Tests of tables on terminals of 80 and 120 columns: no line may be wider.

use crate::program::{LINERATE, installed, run};
use crate::remote::{attached, in_a_world};
use crate::server::Server;

#[test]
fn no_line_of_a_table_is_wider_than_the_terminal() {
    needs!(installed(&["script", "stty"]));
    let long = "iqn.2026-01.com.example:a-target-whose-name-is-as-long-as-they-are-on-machines-that-make-them-up";
    let served = Server::configured(&format!(
        "[[portal]]\nlisten = \"127.0.0.1:{{port}}\"\n[volume.a]\nspec = \"delay:1ms:[ram:8MiB]\"\n\
         [[target]]\nname = \"{long}\"\nlun = [{{ lun = 0, volume = \"a\" }}]\n"
    ));
    let Some(mut served) = served else { return };
    let url = format!("iscsi://127.0.0.1:{}/{long}/0", served.port());
    let control = served.state().join("control").display().to_string();
    let commands = [
        "bench --list".to_owned(),
        "diagnose limits".to_owned(),
        "diagnose limits --link 100G --mtu 9000 --rtt 50ms --window 1MiB --connections 64 --depth 32"
            .to_owned(),
        "report published".to_owned(),
        "scsi sanitize --help".to_owned(),
        "scsi compare-and-write --help".to_owned(),
        format!("scsi modes {url}"),
        format!("scsi vpd {url} b0"),
        format!("server volumes --control {control}"),
        format!("server sessions --control {control}"),
    ];
    in_a_world(async {
        let lun = attached(&url).await;
        for columns in [80, 120] {
            for command in &commands {
                let shell = format!(
                    "stty cols {columns} rows 50 && exec env NO_COLOR=1 {LINERATE} {command}"
                );
                let said = run("script", &["-qec", &shell, "/dev/null"]).expect_success();
                assert!(said.lines().count() > 1, "{command}: {said}");
                for line in said.lines() {
                    let line = line.trim_end();
                    assert!(
                        line.chars().count() <= columns,
                        "{command}, {columns} columns:\n{line}"
                    );
                }
            }
        }
        lun.close().await;
    });
    served.stop();
}
