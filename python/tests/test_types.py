"""The stubs describe the module that was built."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import linerate
from conftest import ROOT
from linerate import _linerate


def names_in_stub() -> dict[str, set[str]]:
    stub = ast.parse(Path(linerate.__file__).with_name("_linerate.pyi").read_text())
    classes = {node.name: node.body for node in stub.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    named = {name: {item.name for item in body if isinstance(item, ast.FunctionDef)} for name, body in classes.items()}
    return {"": functions, **named}


def test_the_stub_has_what_the_module_has():
    stub = names_in_stub()
    functions = {name for name in dir(_linerate) if not name.startswith("__") and name != "Lun"}
    assert stub[""] == functions
    methods = {name for name in vars(_linerate.Lun) if not name.startswith("__")}
    assert stub["Lun"] == methods


def test_everything_public_is_documented():
    for name in linerate.__all__:
        thing = getattr(linerate, name)
        assert name == "__version__" or thing.__doc__, name
    for name, method in vars(linerate.Lun).items():
        assert name.startswith("_") or method.__doc__, name


def test_an_exception_is_its_sentence():
    for name in linerate.__all__:
        kind = getattr(linerate, name)
        if isinstance(kind, type) and issubclass(kind, linerate.Error) and kind is not linerate.ScsiError:
            error = kind("a sentence", 7)
            assert str(error) == "a sentence" and error.lba == 7 and error.args == ("a sentence",), name


def test_the_module_has_the_version_of_the_program():
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    ours = tomllib.loads((ROOT / "python/Cargo.toml").read_text())["package"]
    assert linerate.__version__ == package["version"]
    for key in ["version", "edition", "rust-version", "license", "repository"]:
        assert ours[key] == package[key], key
