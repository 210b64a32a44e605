"""Servers for the tests: `linerate serve` of this tree, and tgt.

LINERATE_BIN is the path of the program; the default is cargo's build in target/debug.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIZE = 64 << 20
PATIENCE_S = 120
"""Time limit for a server to start, even on a loaded machine. No test depends on its value."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Linerate:
    """A running server with one volume, on a port that stays the same across restarts."""

    def __init__(self, *arguments: str, configuration: str | None = None) -> None:
        self.state = tempfile.TemporaryDirectory()
        self.port = free_port()
        program = os.environ.get("LINERATE_BIN", str(ROOT / "target/debug/linerate"))
        if not Path(program).exists():
            pytest.fail(f"{program} does not exist: cargo build, or set LINERATE_BIN")
        self.command = [program, "--log", "warn", "serve", "--state", self.state.name]
        self.command += ["--control", f"{self.state.name}/control", "--listen", f"127.0.0.1:{self.port}"]
        if configuration is not None:
            path = Path(self.state.name, "linerate.toml")
            path.touch(mode=0o600)
            path.write_text(configuration)
            self.command += ["--config", str(path)]
        self.command += arguments
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "ready":
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        pytest.fail(f"the server has ended: {self.process.wait()}")

    def url(self, volume: str = "disk") -> str:
        return f"iscsi://127.0.0.1:{self.port}/iqn.2026-01.io.linerate:{volume}/0"

    @property
    def portal(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pause(self) -> None:
        """Stops all threads of the server, and waits until they have stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.resume()  # a failed test may have left it stopped
        self.process.wait()
        self.state.cleanup()


class Tgt:
    """tgtd with one thin logical unit, which is LUN 1."""

    NAME = "iqn.2026-01.io.linerate:tgt"

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.control = str(self.port % 32_000 + 1)
        image = Path(self.folder.name, "image")
        with image.open("wb") as file:
            file.truncate(SIZE)
        command = ["tgtd", "--foreground", "--control-port", self.control]
        command += ["--iscsi", f"portal=127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while self.administer("--op", "show", "--mode", "sys", check=False) != 0:
            assert time.monotonic() < until and self.process.poll() is None, "tgtd does not answer"
            time.sleep(0.05)
        unit = ["--mode", "logicalunit", "--tid", "1", "--lun", "1"]
        self.administer("--op", "new", "--mode", "target", "--tid", "1", "--targetname", self.NAME)
        self.administer("--op", "new", *unit, "--backing-store", str(image))
        self.administer("--op", "update", *unit, "--params", "thin_provisioning=1")
        self.administer("--op", "bind", "--mode", "target", "--tid", "1", "--initiator-address", "ALL")

    def administer(self, *arguments: str, check: bool = True) -> int:
        command = ["tgtadm", "--control-port", self.control, "--lld", "iscsi", *arguments]
        return subprocess.run(command, check=check, capture_output=True).returncode

    def url(self) -> str:
        return f"iscsi://127.0.0.1:{self.port}/{self.NAME}/1"

    @property
    def portal(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


@pytest.fixture
def server():
    """A server whose volume only this test uses."""
    server = Linerate("--volume", f"disk=ram:{SIZE}B")
    yield server
    server.stop()


@pytest.fixture(params=["linerate", "tgt"])
def target(request):
    """Our server, and tgt."""
    if request.param == "tgt" and not (shutil.which("tgtd") and shutil.which("tgtadm")):
        pytest.skip("tgt is not installed")
    target = Linerate("--volume", f"disk=ram:{SIZE}B") if request.param == "linerate" else Tgt()
    yield target
    target.stop()
