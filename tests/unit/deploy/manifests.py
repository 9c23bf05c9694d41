"""The manifests of deploy/kubernetes, read as a cluster would get them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from streamfreq.config import Config
from streamfreq.config.load import ENV_PREFIX, load_config
from tests.unit.deploy import schemas

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
CONFIG = FOLDER / "streamfreq.toml"
KUBERNETES_VERSIONS = ("1.31", "1.34", "1.37")
"""The manifests have to be valid in each of these."""

Manifest = dict[str, Any]

OWN_SCHEMAS = {
    "ScaledObject": schemas.SCALED_OBJECT,
    "PodMonitor": schemas.POD_MONITOR,
    "Kustomization": schemas.KUSTOMIZATION,
}


@cache
def _documents() -> tuple[tuple[str, Manifest], ...]:
    return tuple(
        (path.name, document)
        for path in sorted(FOLDER.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document is not None
    )


def files() -> list[str]:
    """The names of the YAML files."""
    return sorted({name for name, _ in _documents()})


def in_file(name: str) -> Manifest:
    """The one manifest of a file."""
    (manifest,) = (document for file, document in _documents() if file == name)
    return manifest


def container() -> Manifest:
    """The daemon's container."""
    (only,) = in_file("deployment.yaml")["spec"]["template"]["spec"]["containers"]
    found: Manifest = only
    return found


def environment(secrets: Mapping[str, str] | None = None) -> dict[str, str]:
    """The container's variables; those of secrets get the value of their key, or are not set."""
    given = secrets or {}
    found = {}
    for variable in container()["env"]:
        if "value" in variable:
            found[variable["name"]] = variable["value"]
        elif (key := variable["valueFrom"]["secretKeyRef"]["key"]) in given:
            found[variable["name"]] = given[key]
    return found


def configuration(secrets: Mapping[str, str] | None = None) -> Config:
    """What a pod's daemon gets: the file of the ConfigMap under the container's variables."""
    ours = {k: v for k, v in environment(secrets).items() if k.startswith(ENV_PREFIX)}
    return load_config(CONFIG, env=ours)


def probe_port(probe: Manifest) -> int:
    """The port that a probe asks, by number or by the name of one of the container's ports."""
    asked = probe["httpGet"]["port"]
    named = {port["name"]: port["containerPort"] for port in container()["ports"]}
    return int(named.get(asked, asked))


def validate(manifest: Manifest, kubernetes_version: str = KUBERNETES_VERSIONS[-1]) -> None:
    """Raises jsonschema.ValidationError for what a server would refuse."""
    own = OWN_SCHEMAS.get(manifest["kind"])
    if own is not None:
        jsonschema.Draft202012Validator(own).validate(manifest)
    else:
        kubernetes_validate.validate(manifest, kubernetes_version, strict=True)
