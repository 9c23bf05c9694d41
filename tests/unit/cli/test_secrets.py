"""A canary stands wherever a secret may stand; no command ever shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.redis import free_port
from tests.unit.cli.samples import invoke, settings

CANARY = "c4n4ry-sEcrEt"
PORT = free_port()

SECRETS = (
    f"kafka.sasl_password={CANARY}",
    f"kafka.ssl_password={CANARY}",
    f"redis.password={CANARY}",
    f"redis.url=redis://user:{CANARY}@127.0.0.1:{PORT}/0",
    f"kafka.options={{sasl_oauth_token_provider='{CANARY}', jaas='{CANARY}'}}",
)
BROKEN = (
    (),
    ("kafka.max_poll_records=0",),
    ("redis.timeout_ms=0", "redis.cluster=perhaps"),
    ("kafka.options.request_timeout_ms=soon",),
    ("kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=PLAIN", "kafka.sasl_username=u"),
    ("kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=NONSENSE"),
    ("kafka.security_protocol=SSL", "kafka.ssl_certfile=missing.pem"),
    ("redis.cluster=true",),
)
COMMANDS = (
    ("check",),
    ("check", "--json"),
    ("check", "--show-config"),
    ("count", "--show-config"),
    ("count", "missing.txt"),
    ("snapshot", "list"),
    ("snapshot", "show"),
    ("snapshot", "pin", "1"),
    ("snapshot", "list", "--show-config"),
    ("run", "--show-config"),
    ("run", "--nonsense"),
)
KAFKA = ("kafka.topics=t", f"kafka.bootstrap_servers=127.0.0.1:{free_port()}")
FILES = ("source.kind=files", "files.paths=missing.txt")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("broken", BROKEN, ids=" ".join)
@pytest.mark.parametrize("debug", ["", "1"], ids=["", "debug"])
def test_no_command_shows_a_secret(
    command: tuple[str, ...], broken: tuple[str, ...], debug: str
) -> None:
    source = FILES if command[0] == "check" else KAFKA
    result = invoke(
        *command, *settings(*source, *SECRETS, *broken), env={"STREAMFREQ_DEBUG": debug}
    )
    assert CANARY not in result.output
    assert CANARY not in str(result.exception)


@pytest.mark.parametrize("command", [("check",), ("snapshot", "list")], ids=" ".join)
def test_secrets_from_the_environment_and_the_file(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        f'[kafka]\nsasl_password = "{CANARY}"\nmax_poll_records = 0\n'
        f'[redis]\npassword = ["{CANARY}"]\npasword = "{CANARY}"\n'
    )
    env = {
        "STREAMFREQ__KAFKA__SSL_PASSWORD": CANARY,
        "STREAMFREQ__KAFKA__SASL_PASWORD": CANARY,
        "STREAMFREQ__REDIS__URL": f"redis://:{CANARY}@h",
    }
    result = invoke(*command, "-c", path, env=env)
    assert result.exit_code == 2
    assert "redis.password: must be text" in result.output
    assert "kafka.sasl_pasword: no such field" in result.output
    assert CANARY not in result.output
