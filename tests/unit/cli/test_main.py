"""The entry: fast help, lazy commands, errors as one line and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version

import click
import pytest

import streamfreq.cli
from streamfreq import errors
from streamfreq.cli import COMMANDS, cli
from streamfreq.commands import blotted, forget_secrets, keep_secret
from tests.unit.cli.samples import STREAMFREQ, invoke

HEAVY = (
    "torch", "numpy", "pydantic", "redis", "kafka", "tokenizers", "gigatoken", "rich",
    "phonenumbers", "stdnum", "jieba", "pyarrow", "prometheus_client", "apscheduler", "safetensors",
)  # fmt: skip


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Makes `streamfreq init` raise an error."""

    def fail_with(error: BaseException | Callable[[], BaseException]) -> None:
        @click.command()
        def init() -> None:
            raise error if isinstance(error, BaseException) else error()

        monkeypatch.setattr(streamfreq.cli, "_failing", init, raising=False)
        commands = {**COMMANDS, "init": ("streamfreq.cli:_failing", "")}
        monkeypatch.setattr(cli, "lazy", commands)

    return fail_with


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["nonsense"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom streamfreq.cli import main\n"
        f"try:\n    main()\nfinally:\n    print([n for n in {HEAVY} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["count", "snapshot", "check", "init"])
def test_the_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    script = (
        "import sys\nfrom streamfreq.cli import main\n"
        "try:\n    main()\nfinally:\n    print([n for n in ('torch', 'redis', 'kafka') "
        "if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, command, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_version() -> None:
    assert invoke("--version").stdout == f"streamfreq {version('streamfreq')}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_has_its_line(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.help
    assert f"  {name}" in invoke("--help").stdout
    assert COMMANDS[name][1].endswith(".")


def test_an_unknown_command_is_answered_with_the_nearest() -> None:
    result = invoke("cuont")
    assert result.exit_code == 2
    assert "did you mean count?" in result.stderr
    assert "did you mean" not in invoke("qqq").stderr


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.StreamfreqError)
    ],
)
def test_our_errors_become_one_line_and_their_exit_code(failing, kind: type) -> None:
    failing(kind("what is wrong; what to do"))
    result = invoke("init")
    assert result.exit_code == kind.exit_code
    assert result.stderr == "streamfreq: what is wrong; what to do\n"
    assert result.stdout == ""


def test_each_line_of_a_message_has_our_name(failing) -> None:
    failing(errors.ConfigError("one\ntwo"))
    assert invoke("init").stderr == "streamfreq: one\nstreamfreq: two\n"


def test_an_unforeseen_error_is_a_fault_of_ours(failing) -> None:
    failing(ValueError("first line\nsecond line"))
    result = invoke("init", env={"STREAMFREQ_DEBUG": "0"})
    assert result.exit_code == 1
    assert result.stderr == (
        "streamfreq: a fault of ours: ValueError: first line; "
        "run with STREAMFREQ_DEBUG=1 for the traceback\n"
    )


def test_the_traceback_is_there_for_those_who_ask(failing) -> None:
    failing(errors.ConfigError("wrong"))
    result = invoke("init", env={"STREAMFREQ_DEBUG": "1"})
    assert "Traceback" in result.stderr
    assert result.exit_code == 2


def test_secrets_are_blotted_out_of_errors(failing) -> None:
    for debug in ("0", "1"):
        failing(lambda: keep_secret(["s3cr3t", ""]) or ValueError("password s3cr3t refused"))
        result = invoke("init", env={"STREAMFREQ_DEBUG": debug})
        assert "s3cr3t" not in result.output
        assert "password ******** refused" in result.stderr
    forget_secrets()
    assert blotted("s3cr3t") == "s3cr3t"


def test_ctrl_c_ends_with_130(failing) -> None:
    failing(KeyboardInterrupt())
    result = invoke("init")
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_a_signal_ends_a_count_with_130() -> None:
    process = subprocess.Popen(
        [*STREAMFREQ, "count", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        # More than a pipe holds: when all is written, the count is reading.
        process.stdin.write(b"some words\n" * 30_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*STREAMFREQ, "init", "-"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
