"""Two pools as values of a chart of llm-d [llm-d-values]: the workers of the scripts, behind a front of its own."""

from __future__ import annotations

from typing import Any

from autoauto.exporters.serving.files import TOKEN_SECRET, label
from autoauto.exporters.serving.front import has_front, pod_sets, pool_front, role_of
from autoauto.exporters.serving.platforms.kubernetes import starts_pods
from autoauto.exporters.serving.platforms.platform import Platform, Started
from autoauto.exporters.serving.replicas import FIRST_PORT

_BEHIND_SIDECAR = 8200
"""Where a server of answers listens behind the program that llm-d puts before it."""


def _values(started: Started) -> dict[str, Any]:
    """The values of the chart llm-d-modelservice, which has one kind of pods a pool: that of the most pods."""
    engine, model = started.engine, started.model
    pools: dict[str, dict[str, Any]] = {}
    for each in sorted(pod_sets(label(model), started.processes), key=lambda each: each.n_pods):
        role = role_of(each.process)
        port = FIRST_PORT if role == "prefill" else _BEHIND_SIDECAR
        command = engine.launcher.command(each.process.launch, port)
        own = each.process.launch.pool
        assert own is not None
        environment: list[dict[str, Any]] = []
        addresses: list[dict[str, Any]] = []
        for name, value in command.environment.items():
            if value == own.address:  # a pod knows its own address only when it runs
                addresses.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
            else:
                environment.append({"name": name, "value": value})
        n_gpus = len(each.process.part.gpus)
        container = {
            "name": "engine",
            "image": pool_front(engine).llm_d_image,
            "modelCommand": "custom",
            "command": list(command.words[:1]),
            "args": list(command.words[1:]),
            "env": environment + addresses,
            "ports": [{"containerPort": port, "protocol": "TCP"}],
            "resources": {"limits": {"nvidia.com/gpu": str(n_gpus)}, "requests": {"nvidia.com/gpu": str(n_gpus)}},
            "mountModelVolume": False,
        }
        pools[role] = {"create": True, "replicas": each.n_pods, "containers": [container]}
    artifacts = {"name": model, "uri": f"hf://{model}", "size": "1Mi", "authSecretName": TOKEN_SECRET}
    routing = {"servicePort": FIRST_PORT, "proxy": {"targetPort": _BEHIND_SIDECAR, "connector": "nixlv2"}}
    return {"modelArtifacts": artifacts, "routing": routing, **pools}


def _starts(started: Started) -> bool:
    return has_front(started.processes) and starts_pods(started) and bool(pool_front(started.engine).llm_d_image)


PLATFORM = Platform("llm-d-values.yaml", "", starts=_starts, content=_values)
