"""The files of the page: what is vendored is unmodified, nothing makes markup of text, all of it is small and typed."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom.core.presentation import show_hidden
from postroom.dashboard.files import STATIC, read_files
from tests.dashboard import browser

NPM = runpy.run_path(str(Path(__file__).parent.parent.parent / "tools" / "npm.py"))
MOST_BYTES = 60 * 1024  # of all files as they are sent
TYPESCRIPT = "typescript@5.9.3"
# What would make markup, code or a request of text. `setAttribute("href", …)` stands in two checked places.
FORBIDDEN = (
    *(r"\binnerHTML\b", r"\bouterHTML\b", r"insertAdjacentHTML", r"document\.write", r"\beval\b", r"new Function"),
    *(
        r"unsafe\w*HTML",
        r"unsafeSVG",
        r"unsafeStatic",
        r"<script",
        r"\sstyle=",
        r"\son[a-z]+=\"",
        r"\.href\s*=[^=]",
    ),
    *(r"javascript:", r"createContextualFragment", r"DOMParser", r"srcdoc", r"\bimport\(\""),
)
# Addresses that stand in our files and are not asked for.
ADDRESSES = ("http://www.w3.org/2000/svg",)


def own_files() -> dict[str, str]:
    """The files that we wrote, as they are sent."""
    sent = read_files(STATIC)
    found = {name: file.content.decode() for name, file in sent.by_path.items() if not name.startswith("vendor/")}
    return found | {"index.html": sent.page.content.decode()}


def unvendored(folder: Path) -> list[str]:
    """What is wrong with the vendored files, by their manifest."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    wrong = []
    named = {"manifest.json"}
    for name, package in manifest.items():
        wrong += [
            f"{name}: {field}" for field in ("version", "license", "source", "files") if not package.get(field)
        ]
        wrong += [] if f"{name}/LICENSE" in package["files"] else [f"{name}: no licence"]
        for file, expected in package["files"].items():
            named.add(file)
            if hashlib.sha256((folder / file).read_bytes()).hexdigest() != expected:
                wrong.append(f"{file} was modified")
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return wrong + [f"{one} is not in the manifest" for one in sorted(there - named) if not one.endswith(".d.ts")]


def test_vendored_files_are_unmodified_and_have_their_licence() -> None:
    assert [] == unvendored(STATIC / "vendor")


@pytest.mark.parametrize("change", ["modified", "added"])
def test_a_vendored_file_that_was_changed_is_found(tmp_path: Path, change: str) -> None:
    for path in (STATIC / "vendor").rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(STATIC / "vendor")
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(path.read_bytes())
    target = tmp_path / "lit-html" / ("lit-html.js" if change == "modified" else "more.js")
    target.write_bytes((target.read_bytes() if target.exists() else b"") + b"\n")
    assert [] != unvendored(tmp_path)


def size_of(folder: Path) -> int:
    sent = read_files(folder)
    return sum(len(file.packed or file.content) for file in (sent.page, *sent.by_path.values()))


def test_all_files_together_are_small() -> None:
    assert size_of(STATIC) <= MOST_BYTES


def test_a_large_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").touch()
    (tmp_path / "large.js").write_text("".join(hashlib.sha256(b"%d" % each).hexdigest() for each in range(2000)))
    assert size_of(tmp_path) > MOST_BYTES


def forbidden_in(text: str) -> list[str]:
    found = [pattern for pattern in FORBIDDEN if re.search(pattern, text)]
    return found + [one for one in re.findall(r"https?://[\w./-]+", text) if one not in ADDRESSES]


@pytest.mark.parametrize("name", own_files())
def test_a_file_makes_no_markup_of_text_and_names_no_other_address(name: str) -> None:
    text = own_files()[name]
    if name == "index.html":  # its only scripts are files
        assert [] == re.findall(r"<script(?![^>]* src=)", text)
        text = text.replace("<script", "")
    assert [] == forbidden_in(text)


@pytest.mark.parametrize(
    "line",
    [
        "element.innerHTML = text", "box.insertAdjacentHTML('beforeend', text)", "eval(text)", "new Function(text)",
        'html`<p style="color: red">`', 'html`<p onclick="x()">`', "link.href = address", "unsafeHTML(text)",
        "fetch('https://cdn.example/x.js')", "document.write(text)", 'import("./late.js")',
    ],
)  # fmt: skip
def test_a_line_that_would_is_found(line: str) -> None:
    assert [] != forbidden_in(line)


def test_the_page_loads_every_module_at_once() -> None:
    files = own_files()
    loaded = set(re.findall(r'(?:src|href)="/dashboard/\w+/([\w./-]+)"', files["index.html"]))
    modules = {name for name in files if name.endswith(".js")} | {"vendor/lit-html/lit-html.js"}
    assert modules == {name for name in loaded if name.endswith(".js")}


def test_imports_between_modules_lead_to_files() -> None:
    for name, text in own_files().items():
        for target in re.findall(r'^import .* from "([^"]+)";', text, re.MULTILINE):
            assert (STATIC / name).parent.joinpath(target).resolve().is_file(), f"{name} imports {target}"


def test_scripts_are_sent_without_comments_and_with_all_their_lines() -> None:
    for name, text in own_files().items():
        if name.endswith(".js"):
            assert "/**" not in text
            assert (STATIC / name).read_text(encoding="utf-8").count("\n") == text.count("\n")


def comments_in_text(script: str) -> list[str]:
    """The lines on which what looks like a comment stands behind an open quote, or is no type."""
    found = [line for line in script.splitlines() if re.search(r"\S.*/\*\*(?! @type )", line)]
    beside = [(line, line[: at.start()]) for line in script.splitlines() if (at := re.search(r"(?<=\s)// ", line))]
    return found + [line for line, before in beside if any(before.count(quote) % 2 for quote in "\"'`")]


def test_no_text_of_a_script_is_sent_away_as_a_comment() -> None:
    for path in STATIC.rglob("*.js"):
        if "vendor" not in path.parts:
            assert [] == comments_in_text(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("line", ['hint = "see // there";', "html`<p>a // b</p>`;", 'show("a /** b **/");'])
def test_text_that_would_be_is_found(line: str) -> None:
    assert [] != comments_in_text(line)


def test_hidden_characters_are_those_of_the_command_line() -> None:
    """The page's set is written from ours; every character of the plane that it names is compared."""
    pattern = re.search(r"/(\[.*)/gu;", (STATIC / "hidden.js").read_text(encoding="utf-8"))
    assert pattern is not None
    python = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), pattern[1])
    ours = re.compile(python)
    codes = [
        *range(0xD800),
        *range(0xE000, 0x10000),
        *range(0x1D100, 0x1D200),
        *range(0xDFFF0, 0xE1010),
        *range(0x1F000, 0x1F700),
    ]
    assert [] == [
        hex(code) for code in codes if bool(ours.match(chr(code))) != (show_hidden(chr(code)) != chr(code))
    ]


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    compiler = NPM["place_of"](TYPESCRIPT) / "node_modules/.bin/tsc"
    if not compiler.exists():
        pytest.skip(f"the types are not checked: python tools/npm.py {TYPESCRIPT}")
    return subprocess.run([compiler, "-p", folder / "jsconfig.json"], capture_output=True, text=True, check=False)


def test_types_are_right() -> None:
    done = checked(STATIC.parent)
    assert (0, "") == (done.returncode, done.stdout)


def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    (tmp_path / "static").mkdir()
    (tmp_path / "jsconfig.json").write_bytes((STATIC.parent / "jsconfig.json").read_bytes())
    (tmp_path / "static/wrong.js").write_text("/** @type {number} */\nexport const many = 'four';\n")
    assert 0 != checked(tmp_path).returncode


def test_the_page_s_set_is_written_by_make_pages() -> None:
    done = subprocess.run(
        [sys.executable, "tools/pages.py", "--check"], capture_output=True, text=True, check=False
    )
    assert "hidden.js" not in done.stdout + done.stderr


def test_tests_in_a_browser_are_skipped_only_where_none_can_be_had() -> None:
    nothing = dict.fromkeys(["apt-get"], "/usr/bin/apt-get").get
    assert browser.excuse(must_run=True, find=nothing, user=0) == ""
    assert "make browser" in browser.excuse(must_run=False, find=nothing, user=0)
    assert "make browser" in browser.excuse(must_run=True, find=lambda _: None, user=0)
    assert "make browser" in browser.excuse(must_run=True, find=nothing, user=1000)


def test_no_line_of_a_script_is_longer_than_a_window() -> None:
    scripts = [path for path in STATIC.rglob("*.js") if "vendor" not in path.parts and path.name != "hidden.js"]
    lines = [(path.name, line) for path in scripts for line in path.read_text(encoding="utf-8").splitlines()]
    assert [] == [(name, line) for name, line in lines if len(line) > 120]
