"""The Python examples in the documents run unchanged against our server."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from conftest import ROOT

PAGES = [ROOT / "docs/python.md", ROOT / "python/README.md", ROOT / "README.md"]
URL = re.compile(r"iscsi://(san1|10\.0\.0\.7)/iqn\.[^/\"]+/0")
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/first-hour.md"], ids=lambda page: page.name)
def test_no_script_hides_a_module_of_python(page):
    scripts = re.findall(r"\b(\w+)\.py\b", page.read_text())
    assert not sys.stdlib_module_names.intersection(scripts)


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code, server, tmp_path, monkeypatch):
    assert URL.search(code)
    Path(tmp_path, "disk.img").write_bytes(bytes(range(256)) * 9001)
    monkeypatch.chdir(tmp_path)
    exec(compile(URL.sub(server.url(), code), "example", "exec"), {"__name__": "__main__"})
