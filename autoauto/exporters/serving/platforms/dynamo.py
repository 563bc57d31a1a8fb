"""Two pools as a graph of Dynamo [dynamo-graph]: the workers of the scripts, which learn addresses from Dynamo."""

from __future__ import annotations

from typing import Any

from autoauto.exporters.serving.files import TOKEN_SECRET, label
from autoauto.exporters.serving.front import has_front, pod_sets, pool_front, role_of
from autoauto.exporters.serving.platforms.kubernetes import starts_pods
from autoauto.exporters.serving.platforms.platform import Platform, Started
from autoauto.exporters.serving.replicas import FIRST_PORT

_OF_SERVERS = ("--host", "--port")


def _graph(started: Started) -> dict[str, Any]:
    app, engine = label(started.model), started.engine
    sets, of_engine = pod_sets(app, started.processes), pool_front(engine).dynamo
    assert of_engine is not None
    module, image = of_engine
    main: dict[str, Any] = {"image": image}
    services: dict[str, Any] = {
        "Frontend": {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": main}}
    }
    for number, each in enumerate(sets):
        role = role_of(each.process)
        command = engine.launcher.command(each.process.launch, FIRST_PORT)
        words: list[str] = []
        given = command.words[len(engine.launcher.syntax.program) :]
        for index, word in enumerate(given):
            if word not in _OF_SERVERS and (index == 0 or given[index - 1] not in _OF_SERVERS):
                words.append(word)
        if engine.launcher.syntax.takes_model:  # without an option, which the worker has for it
            words = ["--model", *words]
        if "--disaggregation-mode" not in words:
            words += ["--disaggregation-mode", role]
        own = each.process.launch.pool
        assert own is not None
        variables: list[dict[str, str]] = []
        for name, value in command.environment.items():
            if value not in (own.address, str(own.port)):  # Dynamo sets these
                variables.append({"name": name, "value": value})
        worker: dict[str, Any] = {
            "componentType": "worker",
            "subComponentType": role,
            "envFromSecret": TOKEN_SECRET,
            "replicas": each.n_pods,
            "resources": {"limits": {"gpu": str(len(each.process.part.gpus))}},
        }
        if variables:
            worker["envs"] = variables
        container = {"image": image, "command": ["python3", "-m", module], "args": words}
        services[f"{role.capitalize()}Worker{number}"] = worker | {"extraPodSpec": {"mainContainer": container}}
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": app},
        "spec": {"services": services},
    }


def _starts(started: Started) -> bool:
    return has_front(started.processes) and starts_pods(started) and pool_front(started.engine).dynamo is not None


PLATFORM = Platform("dynamo.yaml", "", starts=_starts, content=_graph)
