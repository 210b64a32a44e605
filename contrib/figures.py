#!/usr/bin/env python3
"""Count the source tree: lines, files, functions, assertions, public items, import cycles of files.

    contrib/figures.py [--commit REV] [FOLDER...]

Each FOLDER (default: all crates, xtask with measurements, and the rest) is one row. Every file is first formatted by rustfmt with
its default settings, so that commits with different layouts are comparable. A line of code is neither blank nor a comment. Test
code is everything in `tests`, `testing`, `benches`, `tests.rs`, the crate `testkit`, and modules under `#[cfg(test)]`; the rest is
production code. A function is short if its body has up to three lines. A circle is a set of files that import each other.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TEST_PARTS = {"tests", "testing", "benches", "testkit", "tests.rs", "testing.rs"}
FUNCTION = re.compile(r"( *)(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?(?:unsafe )?fn \w")
TEST_MODULE = re.compile(
    r"^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[[^\n]*\n)*(?:pub(?:\([a-z]+\))? )?mod \w+ \{\n.*?^\}\n", re.S | re.M
)
ASSERTION = re.compile(r"\b(?:debug_)?assert(?:_eq|_ne)?!")
PUBLIC = re.compile(r"^ *pub (?:const |async |unsafe )*(?:fn|struct|enum|trait|type|const|static|mod|use|macro)\b", re.M)
USE = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?use ([^;]*);", re.M)
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")


def code_lines(text):
    """The number of lines that are neither blank nor a comment."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def function_bodies(text):
    """The number of lines of each function's body. In formatted code, a body ends at the function's indentation."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not (match := FUNCTION.match(line)):
            continue
        if line.endswith("}"):
            yield 1
            continue
        opening = start
        while opening < len(lines) and not lines[opening].endswith(("{", ";", "}")):
            opening += 1
        if opening == len(lines) or lines[opening].endswith(";"):
            continue  # a declaration in a trait
        closing = next((at for at in range(opening, len(lines)) if lines[at] == match[1] + "}"), opening + 1)
        yield closing - opening - 1


def expanded(tree):
    """The single paths of a `use` tree: `a::{b, c::d}` gives `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        return [tree.split(" as ")[0].strip()]
    parts, depth, part = [], 0, ""
    for character in rest[: rest.rfind("}")]:
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    parts.append(part)
    return [path for part in parts if part.strip() for path in expanded(head.strip() + part.strip())]


def circles(sources):
    """The strongly connected components (Tarjan) with more than one file. `sources`: production text by path."""
    modules = {}
    for path in sources:
        root, _, inner = path.partition("/src/")
        names = inner.removesuffix(".rs").split("/")
        if names[-1] in ("mod", "lib", "main"):
            names.pop()
        modules[root, tuple(names)] = path
    edges = {path: set() for path in sources}
    for (root, names), path in modules.items():
        text = re.sub(r"//[^\n]*", "", sources[path])
        text = USE.sub(lambda use: " ".join(expanded(re.sub(r"\s+", " ", use[1]))) + ";", text)
        for found in PATH.findall(text):
            segments = found.split("::")
            target = [] if segments[0] == "crate" else list(names)
            while segments and segments[0] in ("crate", "self", "super"):
                if segments.pop(0) == "super" and target:
                    target.pop()
            for segment in segments:
                if (root, (*target, segment)) not in modules:
                    break
                target.append(segment)
            imported = modules.get((root, tuple(target)))
            if imported and imported != path:
                edges[path].add(imported)
    index, low, stack, found = {}, {}, [], []

    def visit(path):
        index[path] = low[path] = len(index)
        stack.append(path)
        for other in edges[path]:
            if other not in index:
                visit(other)
                low[path] = min(low[path], low[other])
            elif other in stack:
                low[path] = min(low[path], index[other])
        if low[path] == index[path]:
            at = stack.index(path)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for path in edges:
        if path not in index:
            visit(path)
    return found


def row(name, texts):
    """Prints the figures of one folder. `texts`: texts by path."""
    production, sizes, bodies = {}, [], []
    tests = assertions = public = 0
    for path, text in texts.items():
        if TEST_PARTS & set(path.split("/")):
            tests += code_lines(text)
            continue
        shipped = TEST_MODULE.sub("", text)
        tests += code_lines(text) - code_lines(shipped)
        production[path] = shipped
        sizes.append(code_lines(shipped))
        bodies += function_bodies(shipped)
        assertions += len(ASSERTION.findall(re.sub(r"//[^\n]*", "", shipped)))
        public += len(PUBLIC.findall(shipped))
    found = circles(production)
    print(
        f"{name:<28}{sum(sizes):>8}{tests:>8}{len(sizes):>7}{statistics.median(sizes or [0]):>8.0f}{sum(s < 60 for s in sizes):>6}"
        f"{len(bodies):>8}{sum(b <= 3 for b in bodies):>7}{assertions:>8}{100 * assertions / max(1, len(bodies)):>8.1f}"
        f"{public:>8}{len(found):>9}{sum(map(len, found)):>7}"
    )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="HEAD", help="the commit to count (default HEAD)")
    parser.add_argument("--circles", action="store_true", help="list the files of each circle")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="a folder of the tree, one row each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", arguments.commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        os.chdir(folder)
        Path("rustfmt.toml").write_text('edition = "2024"\n')
        paths = sorted(str(path) for path in Path().rglob("*.rs"))
        for at in range(0, len(paths), 200):
            subprocess.run(["rustfmt", "--edition", "2024", *paths[at : at + 200]], check=False, stderr=subprocess.DEVNULL)
        texts = {path: Path(path).read_text() for path in paths}
    print(
        f"{'':<28}{'lines of code':>16}{'files of production code':>26}{'functions':>10}{'assertions':>16}{'public':>8}{'circles':>9}\n"
        f"{'folder':<28}{'product':>8}{'tests':>8}{'count':>7}{'median':>8}{'<60':>6}"
        f"{'count':>8}{'short':>7}{'count':>8}{'per 100':>8}{'items':>8}{'count':>9}{'files':>7}"
    )
    groups = arguments.folders or ["crates", *(f"crates/{part}" for part in PARTS), "xtask measurements", "fuzz", "python"]
    for group in groups:
        prefixes = tuple(prefix.rstrip("/") + "/" for prefix in group.split())
        found = row(group, {path: text for path, text in texts.items() if path.startswith(prefixes)})
        if arguments.circles:
            for files in found:
                print("  circle: " + " ".join(files))


PARTS = ("wire", "storage", "serve", "remote", "runtime", "measure", "linerate")

if __name__ == "__main__":
    main()
