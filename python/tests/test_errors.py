"""Failures, and the exceptions that callers get."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import linerate
import pytest
from linerate import SenseKey

from conftest import Linerate, free_port


def test_a_url_that_is_wrong_is_refused():
    for url in [
        "nfs://host/x",
        "iscsi://host",
        "iscsi://host/iqn.2026-01.x:y/notalun",
        "iscsi://host/iqn.x:y/0?tempo=9",
    ]:
        with pytest.raises(linerate.RefusedError) as refused:
            linerate.connect(url)
        assert isinstance(refused.value, ValueError) and str(refused.value)
    with pytest.raises(linerate.RefusedError, match="unknown setting"):
        linerate.connect("iscsi://127.0.0.1/iqn.2026-01.x:y/0", tempo=9)


def test_who_is_not_there_is_unreachable():
    with pytest.raises(linerate.UnreachableError, match="cannot connect") as error:
        linerate.connect(f"iscsi://127.0.0.1:{free_port()}/iqn.2026-01.x:y/0")
    assert isinstance(error.value, ConnectionError)


def test_a_target_or_lun_that_does_not_exist_is_not_found(target):
    url, lun = target.url().rsplit("/", 1)
    with pytest.raises(linerate.NotFoundError):
        linerate.connect(f"{url}/99")
    with pytest.raises(linerate.NotFoundError):
        linerate.connect(f"{url}x/{lun}")


def test_requests_beyond_the_end_fail(target):
    with linerate.connect(target.url()) as lun:
        for request in [
            lambda: lun.read(lun.blocks),
            lambda: lun.read(2**63, 2**63),
            lambda: lun.read(0, 2**62),
            lambda: lun.write(lun.blocks - 1, bytes(2 * lun.block_size)),
            lambda: lun.read_bytes(lun.size - 1, 2),
            lambda: lun.write_bytes(2**64 - 1, b"xy"),
            lambda: lun.submit_read(lun.blocks),
        ]:
            with pytest.raises(linerate.OutOfRangeError) as error:
                request()
            assert error.value.sense_key is SenseKey.ILLEGAL_REQUEST
        with pytest.raises(ValueError, match="whole number of blocks"):
            lun.write(0, b"short")
        assert lun.read(0)  # the session still works


def test_a_write_to_a_read_only_lun_fails():
    server = Linerate("--volume", "disk=ram:16MiB?read-only")
    try:
        with linerate.connect(server.url()) as lun:
            assert lun.read_only
            with pytest.raises(linerate.ReadOnlyError) as error:
                lun.write(0, bytes(512))
            assert error.value.sense_key is SenseKey.DATA_PROTECT
    finally:
        server.stop()


def test_a_scsi_command_gives_status_sense_and_data(target):
    with linerate.connect(target.url()) as lun:
        inquiry = lun.scsi(bytes([0x12, 0, 0, 0, 96, 0]), data_in=96).check()
        assert inquiry.ok and inquiry.data[0] == 0 and len(inquiry.data) >= 36
        assert inquiry.data[8:16].decode().strip() == lun.vendor

        written = lun.scsi(bytes([0x2A, 0, 0, 0, 0, 5, 0, 0, 1, 0]), data_out=b"\x33" * 512)
        assert written.status == 0
        assert lun.read(5) == b"\x33" * 512

        refused = lun.scsi(bytes([0x28, 0, *(0xFFFF_FFF0).to_bytes(4, "big"), 0, 0, 1, 0]), data_in=512)
        assert not refused.ok and refused.status == 2 and refused.status_name == "CHECK CONDITION"
        assert refused.sense.key is SenseKey.ILLEGAL_REQUEST and (refused.sense.asc, refused.sense.ascq) == (0x21, 0)
        with pytest.raises(linerate.ScsiError) as error:
            refused.check()
        assert error.value.sense_key is SenseKey.ILLEGAL_REQUEST and error.value.status == 2

        for cdb in [b"", bytes(17)]:
            with pytest.raises(ValueError):
                lun.scsi(cdb)
        with pytest.raises(ValueError):
            lun.scsi(bytes(6), data_in=1, data_out=b"x")


def test_a_lun_that_is_closed_says_so(server):
    lun = linerate.connect(server.url())
    lun.close()
    lun.close()
    for request in [lambda: lun.read(0), lambda: lun.blocks, lambda: lun.flush(), lambda: lun.submit_read(0)]:
        with pytest.raises(linerate.ClosedError):
            request()


def test_a_target_that_is_lost_for_good_fails_its_requests(server):
    lun = linerate.connect(server.url(), reconnect_time=0)
    server.pause()
    reads = [lun.submit_read(lba) for lba in range(8)]  # outstanding when the server is killed
    server.kill()
    for read in reads:
        with pytest.raises(linerate.NotReadyError):
            read.result()
    with pytest.raises(linerate.NotReadyError):
        lun.write(0, bytes(512))
    lun.close()


def test_requests_survive_a_restart_of_the_target(tmp_path):
    server = Linerate("--volume", f"disk=file:{tmp_path / 'image'}?size=16MiB")
    try:
        with linerate.connect(server.url()) as lun:
            lun.write(0, b"\x44" * 512)
            lun.flush()
            server.kill()
            read = lun.submit_read(0)
            server.start()
            assert read.result() == b"\x44" * 512
            assert lun.statistics()["incidents"]["reconnects"] >= 1
    finally:
        server.stop()


def test_closing_ends_outstanding_requests(server):
    lun = linerate.connect(server.url())
    server.pause()
    read = lun.submit_read(0)
    closer = threading.Thread(target=lun.close)
    closer.start()
    server.resume()
    closer.join()
    try:
        assert read.result() == bytes(512)  # it may complete before the close
    except linerate.NotReadyError:
        pass


def test_a_future_that_is_cancelled_ends_its_request(server):
    with linerate.connect(server.url()) as lun:
        server.pause()
        read = lun.submit_read(0)
        assert read.cancel() and read.cancelled()
        server.resume()
        assert lun.read(0) == bytes(512)


# If a shell starts these tests in the background, it ignores the signal, and children inherit that.
HEAR_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


def test_ctrl_c_ends_a_call_that_waits(server):
    program = textwrap.dedent(
        f"""
        {HEAR_CTRL_C}
        import linerate, sys
        lun = linerate.connect({server.url()!r})
        print("connected", flush=True)
        sys.stdin.readline()
        try:
            print("reading", flush=True)
            lun.read(0)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.stdin.readline()
            print(len(lun.read(0)), flush=True)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "connected\n"
    server.pause()
    child.stdin.write("read\n")
    child.stdin.flush()
    # A signal after `try`, before or during the call, must raise KeyboardInterrupt. It usually arrives during the call, but
    # not always: a thread that waits on a futex may also be waiting for the interpreter's lock.
    assert child.stdout.readline() == "reading\n"
    wait_until_blocked(child)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    server.resume()
    child.stdin.write("go on\n")
    child.stdin.flush()
    assert child.stdout.readline() == "512\n"
    assert child.wait() == 0


def test_ctrl_c_ends_a_measurement(server):
    program = textwrap.dedent(
        f"""
        {HEAR_CTRL_C}
        import linerate
        try:
            linerate.bench({server.url()!r}, seconds=3600)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    while not is_connected_to(server.port):
        assert child.poll() is None, "it has ended"
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.communicate()[0] == "interrupted\n"
    assert child.returncode == 0


def is_connected_to(port: int) -> bool:
    with open("/proc/net/tcp") as file:
        fields = [line.split() for line in file.readlines()[1:]]
    established = "01"
    return any(field[2].endswith(f":{port:04X}") and field[3] == established for field in fields)


def wait_until_blocked(child: subprocess.Popen) -> None:
    """Waits until the main thread is blocked on a futex rather than on standard input."""
    futex = {"x86_64": "202", "aarch64": "98"}[os.uname().machine]
    while True:
        assert child.poll() is None, "it has ended"
        with open(f"/proc/{child.pid}/syscall") as file:
            if file.read().split(maxsplit=1)[:1] == [futex]:
                return
        time.sleep(0.01)


def test_a_child_of_fork_is_told_to_connect_again(server):
    with linerate.connect(server.url()) as lun:
        pid = os.fork()
        if pid == 0:
            try:
                lun.read(0)
            except linerate.ClosedError as error:
                os._exit(0 if "fork" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert lun.read(0) == bytes(512)
