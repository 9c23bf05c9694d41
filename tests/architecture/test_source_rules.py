"""Rules that every module of the packages keeps: documented, small, one clock, one environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.architecture.source_files import (
    Function,
    Source,
    calls_and_names,
    parse_text,
    sources,
)

MOST_LINES_OF_A_FILE = 450
MOST_LINES_OF_A_FUNCTION = 60

WALL_CLOCK = frozenset(
    {
        *("time.time", "time.time_ns", "time.localtime", "time.ctime"),
        *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
        *("datetime.date.today", "datetime.now", "datetime.utcnow", "datetime.today"),
    }
)
ENVIRONMENT = frozenset({"os.environ", "os.environb", "os.getenv", "os.getenvb"})
ENVIRONMENT_READERS = {
    "streamfreq/config/load.py": "the configuration",
    "streamfreq/commands/group.py": "STREAMFREQ_DEBUG, before there is a configuration",
    "streamfreq/faults.py": "the trial that starts the process",
    "streamfreq/tokenization/loading.py": "sets the thread counts that the engines read",
}

Rule = Callable[[Source], list[str]]


def undocumented(source: Source) -> list[str]:
    """Public modules, classes, functions and methods without a docstring."""
    found = [] if ast.get_docstring(source.tree) or not source.text.strip() else [source.path]
    found += [
        source.at(node, node.name)
        for node, in_protocol in _definitions(source.tree)
        if not ast.get_docstring(node) and not (in_protocol and _is_attribute(node))
    ]
    return found


def _definitions(
    node: ast.Module | ast.ClassDef, in_protocol: bool = False
) -> Iterator[tuple[ast.ClassDef | Function, bool]]:
    for child in node.body:
        if not isinstance(child, ast.ClassDef | Function) or child.name.startswith("_"):
            continue
        if _is_marked(child, "overload") or _is_marked(child, "setter"):
            continue
        yield child, in_protocol
        if isinstance(child, ast.ClassDef):
            is_protocol = any("Protocol" in ast.unparse(base) for base in child.bases)
            yield from _definitions(child, is_protocol)


def _is_marked(node: ast.ClassDef | Function, name: str) -> bool:
    return any(ast.unparse(item).split(".")[-1] == name for item in node.decorator_list)


def _is_attribute(node: ast.ClassDef | Function) -> bool:
    """A property of a Protocol, which the class's own docstring tells about."""
    return _is_marked(node, "property") and ast.unparse(node.body[-1]) == "..."


def too_long(source: Source) -> list[str]:
    """Files and functions that are longer than a reader can hold."""
    lines = len(source.text.splitlines())
    found = [f"{source.path} has {lines} lines"] if lines > MOST_LINES_OF_A_FILE else []
    for node in ast.walk(source.tree):
        if isinstance(node, Function) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > MOST_LINES_OF_A_FUNCTION:
                found.append(source.at(node, f"{node.name} has {length} lines"))
    return found


def wall_clock(source: Source) -> list[str]:
    """Readings of the wall clock that pass by the Clock port."""
    if source.path == "streamfreq/clock.py":
        return []
    return [source.at(node, name) for node, name in calls_and_names(source) if name in WALL_CLOCK]


def environment(source: Source) -> list[str]:
    """Looks at the environment outside the places that may."""
    if source.path in ENVIRONMENT_READERS:
        return []
    return [source.at(node, name) for node, name in calls_and_names(source) if name in ENVIRONMENT]


def prints(source: Source) -> list[str]:
    """Output for people outside the commands and outside what `python -m` runs."""
    if source.path.startswith(("streamfreq/cli/", "streamfreq/commands/", "trainer/cli/")):
        return []
    names = {"print", "sys.stdout.write", "sys.stderr.write", "click.echo"}
    scripts = {
        id(inner)
        for node in source.tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
        for inner in ast.walk(node)
    }
    return [
        source.at(node, name)
        for node, name in calls_and_names(source)
        if name in names and id(node) not in scripts
    ]


def keys_command(source: Source) -> list[str]:
    """Uses of the command KEYS, which stops a Redis server for as long as it has keys."""
    docstrings = _docstrings(source.tree)
    found = [
        source.at(node, "KEYS")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str | bytes)
        and node.value not in docstrings
        and _names_keys(node.value if isinstance(node.value, str) else node.value.decode("latin1"))
    ]
    if "redis" in source.path:
        found += [
            source.at(node, ".keys(pattern)")
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "keys"
            and node.args
        ]
    return found


def _names_keys(text: str) -> bool:
    """The command alone, before a pattern, or in a script; the KEYS[1] of a script is another."""
    called = re.search(r"call\(\s*['\"]keys['\"]", text, re.IGNORECASE)
    return bool(called) or re.fullmatch(r"\s*KEYS(\s+\S*)?\s*", text) is not None


def _docstrings(tree: ast.Module) -> set[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = (node for node in ast.walk(tree) if isinstance(node, kinds))
    return {ast.get_docstring(node, clean=False) or "" for node in documented} - {""}


RULES: list[Rule] = [undocumented, too_long, wall_clock, environment, prints, keys_command]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("source", sources(), ids=lambda source: source.module)
def test_every_module_keeps_the_rules(rule: Rule, source: Source) -> None:
    assert rule(source) == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (undocumented, "x = 1\n"),
        (undocumented, '"""Module."""\nclass A:\n    pass\n'),
        (undocumented, '"""Module."""\nclass A:\n    """A."""\n    def b(self): ...\n'),
        (undocumented, '"""Module."""\nasync def a():\n    pass\n'),
        (too_long, "x = 1\n" * 451),
        (too_long, "def f():\n" + "    x = 1\n" * 60),
        (wall_clock, "import time\ntime.time()\n"),
        (wall_clock, "from time import time_ns as now\nnow()\n"),
        (wall_clock, "import datetime\ndatetime.datetime.now()\n"),
        (wall_clock, "from datetime import datetime as d, UTC\nd.now(UTC)\n"),
        (wall_clock, "import datetime as dt\ndt.date.today()\n"),
        (environment, "import os\nos.environ['A']\n"),
        (environment, "from os import getenv\ngetenv('A')\n"),
        (prints, "print('x')\n"),
        (prints, "import sys\nsys.stdout.write('x')\n"),
        (keys_command, "client.execute_command('KEYS', '*')\n"),
        (keys_command, "SCRIPT = \"return redis.call('keys', ARGV[1])\"\n"),
        (keys_command, "client.execute_command(b'KEYS')\n"),
    ],
)
def test_each_rule_can_fail(rule: Rule, code: str) -> None:
    assert rule(parse_text(code)) != []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (undocumented, '"""Module."""\ndef _a():\n    pass\n'),
        (
            undocumented,
            '"""M."""\nclass A(Protocol):\n    """A."""\n    @property\n    def b(self): ...\n',
        ),
        (wall_clock, "import time\ntime.monotonic()\ntime.perf_counter()\n"),
        (wall_clock, "clock.now_ms()\n"),
        (environment, "import os\nos.path.join('a')\n"),
        (prints, "def printer(): ...\nprinter()\n"),
        (prints, "if __name__ == '__main__':\n    print('x')\n"),
        (keys_command, "SCRIPT = \"redis.call('get', KEYS[1])\"\n"),
        (keys_command, "names = {'a': 1}.keys()\n"),
    ],
)
def test_each_rule_lets_good_code_pass(rule: Rule, code: str) -> None:
    assert rule(parse_text(code)) == []
