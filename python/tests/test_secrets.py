"""CHAP, both ways."""

from __future__ import annotations

import linerate
import pytest

from conftest import Linerate

CONFIGURATION = """
[volume.disk]
spec = "ram:16MiB"

[[target]]
name = "iqn.2026-01.io.linerate:disk"

[[target.lun]]
lun = 0
volume = "disk"

[target.chap]
[[target.chap.account]]
user = "alice"
secret = "twelve-bytes-and-more"

[target.chap.mutual]
user = "disks"
secret = "another-long-secret"
"""
PASSWORD = "twelve-bytes-and-more"


@pytest.fixture(scope="module")
def guarded():
    server = Linerate(configuration=CONFIGURATION)
    yield server
    server.stop()


def test_a_password_is_an_argument_or_comes_from_the_environment(guarded, monkeypatch):
    with linerate.connect(guarded.url(), user="alice", password=PASSWORD) as lun:
        assert lun.read(0) == bytes(512)
    monkeypatch.setenv("LINERATE_SECRET", PASSWORD)
    with linerate.connect(guarded.url().replace("//", "//alice@")) as lun:
        assert lun.blocks == 32768


def test_a_wrong_password_is_told_from_other_refusals(guarded):
    for options in [{}, {"user": "alice", "password": "wrong-wrong-wrong"}, {"user": "bob", "password": PASSWORD}]:
        with pytest.raises(linerate.AuthenticationError) as error:
            linerate.connect(guarded.url(), **options)
        assert PASSWORD not in str(error.value) and "wrong-wrong" not in str(error.value)
    with pytest.raises(linerate.RefusedError):
        linerate.connect(guarded.url(), password=PASSWORD)


def test_the_target_proves_itself_too(guarded):
    ours = {"user": "alice", "password": PASSWORD, "target_user": "disks"}
    with linerate.connect(guarded.url(), **ours, target_password="another-long-secret") as lun:
        assert lun.read(0)
    with pytest.raises(linerate.AuthenticationError):
        linerate.connect(guarded.url(), **ours, target_password="not-the-secret")
