"""Schemas of the resources that Kubernetes itself does not know, as far as a daemon needs them.

Strict: a field that is not here is refused, as a server refuses or drops one that it does not know.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION = {"type": "string", "pattern": r"^(\d+(ms|s|m|h))+$"}
BOOLEAN_TEXT = {"enum": ["true", "false"]}
NUMBER_TEXT = {"type": "string", "pattern": r"^[1-9]\d*$"}
HOST_PORT = r"[a-zA-Z0-9.-]+:\d{1,5}"


def record(required: list[str] | None = None, **properties: Schema) -> Schema:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required or [],
        "additionalProperties": False,
    }


METADATA = record(
    ["name"],
    name={"type": "string", "pattern": r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
    namespace=TEXT,
    labels=LABELS,
    annotations=LABELS,
)

_POLICY = record(
    ["type", "value", "periodSeconds"],
    type={"enum": ["Pods", "Percent"]},
    value={"type": "integer", "minimum": 1},
    periodSeconds={"type": "integer", "minimum": 1, "maximum": 1800},
)
_SCALING_RULES = record(
    stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
    selectPolicy={"enum": ["Max", "Min", "Disabled"]},
    policies={"type": "array", "items": _POLICY, "minItems": 1},
)
_HPA = record(name=TEXT, behavior=record(scaleUp=_SCALING_RULES, scaleDown=_SCALING_RULES))

# The trigger's metadata is a map of texts, so a number without quotes is refused.
_KAFKA = record(
    ["bootstrapServers", "consumerGroup", "lagThreshold"],
    bootstrapServers={"type": "string", "pattern": rf"^{HOST_PORT}(,{HOST_PORT})*$"},
    consumerGroup=TEXT,
    topic=TEXT,
    lagThreshold=NUMBER_TEXT,
    activationLagThreshold={"type": "string", "pattern": r"^\d+$"},
    offsetResetPolicy={"enum": ["earliest", "latest"]},
    allowIdleConsumers=BOOLEAN_TEXT,
    scaleToZeroOnInvalidOffset=BOOLEAN_TEXT,
    excludePersistentLag=BOOLEAN_TEXT,
    limitToPartitionsWithLag=BOOLEAN_TEXT,
    ensureEvenDistributionOfPartitions=BOOLEAN_TEXT,
    partitionLimitation=TEXT,
    version={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
    tls={"enum": ["enable", "disable"]},
    sasl={
        "enum": ["none", "plaintext", "scram_sha256", "scram_sha512", "gssapi", "oauthbearer"],
    },
)
# The scaler refuses idle consumers together with the limit, and the limit without a topic.
_KAFKA["if"] = {
    "properties": {"limitToPartitionsWithLag": {"const": "true"}},
    "required": ["limitToPartitionsWithLag"],
}
_KAFKA["then"] = {
    "properties": {"allowIdleConsumers": {"const": "false"}},
    "required": ["topic"],
}

_TRIGGER = record(
    ["type", "metadata"],
    type={"const": "kafka"},
    name=TEXT,
    metadata=_KAFKA,
    metricType={"enum": ["AverageValue", "Value"]},
    useCachedMetrics={"type": "boolean"},
    authenticationRef=record(
        ["name"],
        name=TEXT,
        kind={"enum": ["TriggerAuthentication", "ClusterTriggerAuthentication"]},
    ),
)

SCALED_OBJECT = record(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "keda.sh/v1alpha1"},
    kind={"const": "ScaledObject"},
    metadata=METADATA,
    spec=record(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=record(
            ["name"], apiVersion=TEXT, kind=TEXT, name=TEXT, envSourceContainerName=TEXT
        ),
        pollingInterval={"type": "integer", "minimum": 1},
        cooldownPeriod=COUNT,
        initialCooldownPeriod=COUNT,
        idleReplicaCount=COUNT,
        minReplicaCount=COUNT,
        maxReplicaCount={"type": "integer", "minimum": 1},
        fallback=record(
            ["failureThreshold", "replicas"],
            failureThreshold=COUNT,
            replicas=COUNT,
            behavior=TEXT,
        ),
        advanced=record(
            restoreToOriginalReplicaCount={"type": "boolean"}, horizontalPodAutoscalerConfig=_HPA
        ),
        triggers={"type": "array", "items": _TRIGGER, "minItems": 1},
    ),
)
"""A KEDA ScaledObject with triggers of the type `kafka`."""

POD_MONITOR = record(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "monitoring.coreos.com/v1"},
    kind={"const": "PodMonitor"},
    metadata=METADATA,
    spec=record(
        ["selector"],
        jobLabel=TEXT,
        selector=record(matchLabels=LABELS),
        namespaceSelector=record(any={"type": "boolean"}, matchNames={"type": "array"}),
        podTargetLabels={"type": "array", "items": TEXT},
        podMetricsEndpoints={
            "type": "array",
            "minItems": 1,
            "items": record(
                port=TEXT,
                path={"type": "string", "pattern": "^/"},
                scheme={"enum": ["http", "https"]},
                interval=DURATION,
                scrapeTimeout=DURATION,
                honorLabels={"type": "boolean"},
                filterRunning={"type": "boolean"},
            ),
        },
    ),
)
"""A PodMonitor of the Prometheus operator."""

KUSTOMIZATION = record(
    ["apiVersion", "kind", "resources"],
    apiVersion={"const": "kustomize.config.k8s.io/v1beta1"},
    kind={"const": "Kustomization"},
    namespace=TEXT,
    resources={"type": "array", "items": TEXT, "uniqueItems": True, "minItems": 1},
    replicas={"type": "array", "items": record(["name", "count"], name=TEXT, count=COUNT)},
    configMapGenerator={
        "type": "array",
        "items": record(["name", "files"], name=TEXT, files={"type": "array", "items": TEXT}),
    },
    images={
        "type": "array",
        "items": record(["name"], name=TEXT, newName=TEXT, newTag=TEXT, digest=TEXT),
    },
)
"""What kustomize reads, as far as it is used here."""
