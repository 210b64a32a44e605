"""Discovery, measurements and diagnoses."""

from __future__ import annotations

import json
import subprocess

import linerate
import pytest


def test_a_portal_tells_its_targets(target):
    [found] = linerate.discover(target.portal)
    assert found.name in target.url()
    assert any(target.portal in address for address in found.addresses)
    assert linerate.discover(f"iscsi://{target.portal}/") == [found]


def test_a_workload_is_measured(server):
    measured = linerate.bench(server.url(), block="4KiB", depth=4, seconds=0.3)
    assert measured["iops"] > 0 and measured["ios"] > 0 and measured["errors"] == 0
    assert measured["reads"] == measured["ios"]
    assert measured["latency_us"]["p50"] <= measured["latency_us"]["p99"]
    assert measured["device_bytes"] == 64 << 20


def test_what_is_measured_is_what_the_command_prints(server):
    measured = linerate.bench(server.url(), depth=2, seconds=0.2)
    program = server.command[0]
    command = [program, "bench", server.url(), "--depth", "2", "--seconds", "0.2", "--json"]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert measured.keys() - {"cell", "round"} == printed.keys() - {"cell", "round"}


def test_a_workload_that_writes_must_be_allowed_to(server):
    with pytest.raises(linerate.Error):
        linerate.bench(server.url(), read=0, seconds=0.1)
    measured = linerate.bench(server.url(), read=0, seconds=0.2, allow_write=True, data="stamped")
    assert measured["ios"] > 0 and measured["reads"] == 0


def test_what_is_on_a_lun_is_not_overwritten_unasked(server):
    with linerate.connect(server.url()) as lun:
        lun.write(0, bytes(510) + b"\x55\xaa")
        lun.write(1, b"EFI PART" + bytes(504))
        lun.flush()
    with pytest.raises(linerate.RefusedError, match="use --yes"):
        linerate.bench(server.url(), read=0, seconds=0.1, allow_write=True)
    with linerate.connect(server.url()) as lun:
        assert lun.read(1)[:8] == b"EFI PART"
    assert linerate.bench(server.url(), read=0, seconds=0.1, allow_write=True, yes=True)["ios"] > 0


def test_lists_and_unknown_keywords_are_refused(server):
    with pytest.raises(linerate.RefusedError, match="bench_suite"):
        linerate.bench(server.url(), depth=[1, 2])
    with pytest.raises(linerate.RefusedError):
        linerate.bench(server.url(), tempo=3)


def test_a_suite_of_ones_own_is_measured(tmp_path):
    suite = tmp_path / "mine.toml"
    suite.write_text(
        """
        name = "mine"
        title = "Two depths"
        about = "Reads."
        [[step]]
        stop = { time = "100ms" }
        [[step.cell]]
        name = "read-{depth}"
        block = "4KiB"
        depth = [1, 2]
        read = 100
        random = 100
        """
    )
    runs = linerate.bench_suite("ram:1MiB", str(suite))
    assert [run["cell"] for run in runs] == ["read-1", "read-2"]


def test_a_path_is_diagnosed(server):
    diagnosis = linerate.diagnose(server.url(), seconds=6)
    assert diagnosis["format"] == 1 and diagnosis["says"]
    assert diagnosis["linerate"] == linerate.__version__


def test_blocks_that_were_never_written_are_told(server):
    with pytest.warns(linerate.MeasurementWarning, match="written|hole|allocated"):
        linerate.bench(server.url(), seconds=0.1)
