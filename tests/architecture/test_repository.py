"""The repository around the code: no local paths, no registry addresses, one set of checks."""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.architecture.source_files import ROOT, repository_files

# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = [
    "/wo" + "rk/",
    "/tm" + "p/w",
    "/ro" + "ot/",
    "pypi" + ".org",
    "files.python" + "hosted.org",
    "repo1.maven" + ".org",
    "repo.maven" + ".apache.org",
    "deb.debian" + ".org",
    "registry.npm" + "js.org",
    "crates" + ".io",
    "proxy.golang" + ".org",
]
LARGEST_BYTES = 1_000_000


def forbidden_in(text: str) -> list[str]:
    """Local paths and registry addresses in `text`, with the number of the line."""
    return [
        f"line {number}: {word}"
        for number, line in enumerate(text.splitlines(), start=1)
        for word in FORBIDDEN
        if word in line.lower()
    ]


def _text(path: Path) -> str | None:
    """The file's text; None for a binary file."""
    content = path.read_bytes()
    return None if b"\0" in content else content.decode("utf-8", "replace")


def makefile_targets() -> tuple[set[str], dict[str, str]]:
    """The phony targets of the Makefile, and the documented ones with their line."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = {
        name for line in re.findall(r"^\.PHONY:(.*)$", text, re.MULTILINE) for name in line.split()
    }
    documented = dict(re.findall(r"^([a-z-]+):.*?## *(\S.*)$", text, re.MULTILINE))
    return phony, documented


def test_no_local_path_and_no_registry_address() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in repository_files()
        if (text := _text(path)) is not None and (lines := forbidden_in(text))
    }
    assert found == {}


def test_the_search_for_forbidden_words_can_fail() -> None:
    for word in FORBIDDEN:
        assert forbidden_in(f"fine\nsee https://{word}/simple") == [f"line 2: {word}"]
    assert forbidden_in("see ./docs and /var/lib and example.org") == []


def test_repository_files_are_found() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in repository_files()}
    assert {"pyproject.toml", "requirements.lock", "Makefile", ".ci/run"} <= names
    assert not any(name.startswith((".venv/", ".git/")) for name in names)


def test_no_data_is_committed() -> None:
    large = [str(path) for path in repository_files() if path.stat().st_size > LARGEST_BYTES]
    assert large == []
    suffixes = {".gz", ".zst", ".parquet", ".safetensors", ".jar", ".gguf", ".whl", ".pt"}
    assert [str(path) for path in repository_files() if path.suffix in suffixes] == []


def test_the_lock_file_has_names_versions_and_hashes_only() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    package = re.compile(r"[a-z0-9._-]+==[^\s;]+( ; .+?)?( \\)?")
    digest = re.compile(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?")
    strange = [
        line
        for line in lines
        if line and not package.fullmatch(line) and not digest.fullmatch(line)
    ]
    assert strange == []
    hashed = {
        line.split("==")[0]
        for line, following in itertools.pairwise(lines)
        if package.fullmatch(line) and digest.fullmatch(following)
    }
    assert hashed == {line.split("==")[0] for line in lines if package.fullmatch(line)}


def test_the_lock_file_covers_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {name.lower() for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)}
    names = {re.split(r"[<>=!~ \[]", item)[0].lower().replace("_", "-") for item in wanted}
    assert names - locked == set()


def test_every_target_is_documented() -> None:
    phony, documented = makefile_targets()
    assert {"install", "demo", "test", "check", "fmt", "kafka", "redis", "help"} <= phony
    assert phony - set(documented) == set()
    assert set(documented) - phony == set()


def test_ci_runs_what_a_person_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [
        line.strip()
        for line in script.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert commands[-1].removeprefix("exec ") == "make check"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^check:([^#]*)", makefile, re.MULTILINE)
    assert {"lint", "types", "imports", "test"} <= set(parts.split())


def test_the_pre_commit_hook_is_part_of_the_same_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repo,) = config["repos"]
    assert repo["repo"] == "local"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^check:([^#]*)", makefile, re.MULTILINE)
    for hook in repo["hooks"]:
        make, *targets = hook["entry"].split()
        assert make == "make"
        assert set(targets) <= set(parts.split())
        assert hook["language"] == "system"
        assert hook["pass_filenames"] is False


@pytest.mark.parametrize("number", [1, 2, 3])
def test_decisions_are_one_page_in_one_form(number: int) -> None:
    (path,) = (ROOT / "docs" / "decisions").glob(f"{number:04d}-*.md")
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {number:04d} ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.splitlines()) <= 60


def test_the_licence_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Version 2.0" in licence
