"""Every manifest has the form that a cluster accepts, and a broken one is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import KUBERNETES_VERSIONS, OWN_SCHEMAS, Manifest

Break = Callable[[Manifest], Any]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("name", manifests.files())
def test_the_manifest_is_valid(name: str, version: str) -> None:
    manifests.validate(manifests.in_file(name), version)


@pytest.mark.parametrize("kind", OWN_SCHEMAS)
def test_our_schemas_are_schemas(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(OWN_SCHEMAS[kind])


def container(manifest: Manifest) -> Manifest:
    (only,) = manifest["spec"]["template"]["spec"]["containers"]
    found: Manifest = only
    return found


def trigger(manifest: Manifest) -> Manifest:
    found: Manifest = manifest["spec"]["triggers"][0]
    return found


BROKEN: dict[str, tuple[str, Break]] = {
    "a misspelt field": (
        "deployment.yaml",
        lambda item: container(item).update(livenesProbe=container(item).pop("livenessProbe")),
    ),
    "a number as text": (
        "deployment.yaml",
        lambda item: item["spec"]["template"]["spec"].update(terminationGracePeriodSeconds="45s"),
    ),
    "a missing field": ("deployment.yaml", lambda item: item["spec"].pop("selector")),
    "a variable that is no text": (
        "deployment.yaml",
        lambda item: container(item)["env"].append({"name": "N", "value": 2}),
    ),
    "an unknown field of the service": (
        "service.yaml",
        lambda item: item["spec"].update(publishNotReady=True),
    ),
    "an unknown field of the budget": (
        "poddisruptionbudget.yaml",
        lambda item: item["spec"].update(maxUnavailble=1),
    ),
    "a secret of numbers": (
        "secret.example.yaml",
        lambda item: item["stringData"].update({"redis-password": 1}),
    ),
    "a trigger's number without quotes": (
        "scaledobject.yaml",
        lambda item: trigger(item)["metadata"].update(lagThreshold=50_000),
    ),
    "a trigger's switch without quotes": (
        "scaledobject.yaml",
        lambda item: trigger(item)["metadata"].update(excludePersistentLag=True),
    ),
    "no consumer group": (
        "scaledobject.yaml",
        lambda item: trigger(item)["metadata"].pop("consumerGroup"),
    ),
    "idle consumers in spite of the limit": (
        "scaledobject.yaml",
        lambda item: trigger(item)["metadata"].update(allowIdleConsumers="true"),
    ),
    "the limit without a topic": (
        "scaledobject.yaml",
        lambda item: trigger(item)["metadata"].pop("topic"),
    ),
    "nothing to scale": ("scaledobject.yaml", lambda item: item["spec"].pop("scaleTargetRef")),
    "a window of two hours": (
        "scaledobject.yaml",
        lambda item: item["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"][
            "scaleDown"
        ].update(stabilizationWindowSeconds=7_200),
    ),
    "the Prometheus operator's old name of a field": (
        "podmonitor.yaml",
        lambda item: item["spec"].update(endpoints=item["spec"].pop("podMetricsEndpoints")),
    ),
    "a port by number": (
        "podmonitor.yaml",
        lambda item: item["spec"]["podMetricsEndpoints"][0].update(port=9108),
    ),
    "a kustomization's old field": (
        "kustomization.yaml",
        lambda item: item.update(bases=item.pop("resources")),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_is_refused(case: str) -> None:
    name, damage = BROKEN[case]
    manifest = copy.deepcopy(manifests.in_file(name))
    manifests.validate(manifest)
    damage(manifest)
    with pytest.raises(jsonschema.ValidationError):
        manifests.validate(manifest)
