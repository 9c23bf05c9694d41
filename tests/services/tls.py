"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate authority (PEM file) and a certificate for 127.0.0.1 and localhost."""

    ca: Path
    certificate: Path
    key: Path

    def client_context(self) -> ssl.SSLContext:
        """Trusts this authority only."""
        return ssl.create_default_context(cafile=str(self.ca))


def have_openssl() -> bool:
    return shutil.which("openssl") is not None


def make_certificates(folder: Path) -> Certificates:
    """A new authority and a certificate signed by it, valid for two days."""
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    ca_key, request, extensions = folder / "ca.key", folder / "server.csr", folder / "server.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(
        *("req", "-x509", *curve, "-keyout", ca_key, "-out", made.ca, "-days", "2"),
        *("-subj", "/CN=streamfreq test authority"),
        *("-addext", "keyUsage=critical,keyCertSign"),
    )
    _openssl("req", *curve, "-keyout", made.key, "-out", request, "-subj", "/CN=localhost")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", made.ca, "-CAkey", ca_key, "-CAcreateserial"),
        *("-days", "2", "-extfile", extensions, "-out", made.certificate),
    )
    return made


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
