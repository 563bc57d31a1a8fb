"""Exports of two pools: what starts servers of prompts, servers of answers, and what is in front of both."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from autoauto.engines.registry import ENGINES
from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.exporter import Check
from autoauto.exporters.registry import exporter_named, write_artifact
from autoauto.space.knobs import Knobs
from tests.decoders import decoder_folder
from tests.exporters.manifests import check_documents, check_services

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
yaml: Any = pytest.importorskip("yaml", reason="YAML is read by a package of extra gpu")
WITH_FRONT = [name for name in ENGINES if ENGINES[name].launcher.front]


def written(folder: Path, engine: str, cluster: str = "h100_sxm-8", **values: Any) -> tuple[Path, Any, list[Check]]:
    """An artifact of two replicas of two GPUs and three servers of prompts, its deployment, and its checks."""
    model = decoder_folder(folder / "small")
    flow = load_flow(model, cluster, "gpu")
    options: dict[str, Any] = {"tensor_parallel": 2, "input_tokens": 512, "output_tokens": 128, "prefill_workers": 3}
    knobs = Knobs(1, 10, 2, **{"engine": engine, **options, "prefill_batch_size": 4, **values})
    trial = flow.expect(knobs)
    assert trial.runs, trial.reason
    made, target = deployment(flow, str(model), trial), folder / "export"
    return target, made, write_artifact(made, ENGINES[engine].launcher.to, target, check=True)


def words(path: Path) -> list[str]:
    """The command that a script starts."""
    lines = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    (command,) = [line for line in lines if line.startswith("exec ")]
    return shlex.split(command)[1:]


def variables(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))


@pytest.mark.parametrize("engine", WITH_FRONT)
def test_every_server_has_gpus_of_its_own_and_the_checks_pass(tmp_path: Path, engine: str) -> None:
    folder, _, checks = written(tmp_path, engine)
    assert [each for each in checks if each.passed is False] == []
    assert sum(bool(each.passed) for each in checks) >= 7
    scripts = sorted(path.name for path in folder.glob("*-*.sh"))
    assert scripts == ["prefill-0.sh", "prefill-1.sh", "prefill-2.sh", "replica-0.sh", "replica-1.sh"]
    gpus = [variables(folder / name)["CUDA_VISIBLE_DEVICES"] for name in scripts]
    assert gpus == ["4", "5", "6", "0,1", "2,3"]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "3 servers compute prompts alone" in readme
    assert "| prefill-2 | 0 | h100_sxm 6 | 8004 |" in readme, readme
    assert 'url="${1:-http://127.0.0.1:8080}"' in (folder / "check.sh").read_text(encoding="utf-8")
    assert "--concurrency 20 " in (folder / "check.sh").read_text(encoding="utf-8")


def test_vllm_gives_caches_on_separate_ports(tmp_path: Path) -> None:
    folder, _, _ = written(tmp_path, "vllm")
    roles, ports = [], []
    for path in sorted(folder.glob("*-*.sh")):
        command = words(path)
        roles.append(json.loads(command[command.index("--kv-transfer-config") + 1]))
        ports.append(int(variables(path)["VLLM_NIXL_SIDE_CHANNEL_PORT"]))
        assert variables(path)["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "127.0.0.1"
    assert [each["kv_role"] for each in roles] == ["kv_producer"] * 3 + ["kv_consumer"] * 2
    assert {each["kv_connector"] for each in roles} == {"NixlConnector"}
    assert len(set(ports)) == 5
    assert min(b - a for a, b in zip(sorted(ports), sorted(ports)[1:], strict=False)) >= 72  # of ranks of the attention
    front = words(folder / "front.sh")
    assert front[0] == "vllm-router"
    assert "--vllm-pd-disaggregation" in front
    assert [front[i + 1] for i, word in enumerate(front) if word == "--prefill"] == [
        f"http://127.0.0.1:{port}" for port in (8002, 8003, 8004)
    ]
    assert [front[i + 1] for i, word in enumerate(front) if word == "--decode"] == [
        f"http://127.0.0.1:{port}" for port in (8000, 8001)
    ]


def test_sglang_servers_know_their_pool_and_the_router_their_bootstrap_ports(tmp_path: Path) -> None:
    folder, _, _ = written(tmp_path, "sglang")
    bootstrap = {}
    for path in sorted(folder.glob("*-*.sh")):
        given = ENGINES["sglang"].launcher.syntax.parse(words(path))
        is_prefill = path.name.startswith("prefill")
        assert given["--disaggregation-mode"] == ("prefill" if is_prefill else "decode")
        assert ("--disaggregation-bootstrap-port" in given) is is_prefill
        assert given["--max-running-requests"] == (4 if is_prefill else 10)
        if is_prefill:
            bootstrap[f"http://127.0.0.1:{given['--port']}"] = str(given["--disaggregation-bootstrap-port"])
    front = words(folder / "front.sh")
    routed = {front[i + 1]: front[i + 2] for i, word in enumerate(front) if word == "--prefill"}
    assert routed == bootstrap
    assert len(set(bootstrap.values())) == 3


def test_tensorrt_llm_has_a_file_of_both_pools_and_buffers_for_the_longest_request(tmp_path: Path) -> None:
    folder, _, _ = written(tmp_path, "trtllm")
    pools = yaml.safe_load((folder / "pools.yaml").read_text())
    assert words(folder / "front.sh") == ["trtllm-serve", "disaggregated", "-c", "pools.yaml"]
    assert pools["port"] == 8080
    assert pools["context_servers"] == {"num_instances": 3, "urls": [f"127.0.0.1:{p}" for p in (8002, 8003, 8004)]}
    assert pools["generation_servers"] == {"num_instances": 2, "urls": ["127.0.0.1:8000", "127.0.0.1:8001"]}
    prefill = yaml.safe_load((folder / "prefill-1-llm_api.yaml").read_text())
    decode = yaml.safe_load((folder / "replica-1-llm_api.yaml").read_text())
    assert prefill["disable_overlap_scheduler"] is True
    assert "disable_overlap_scheduler" not in decode
    for content in (prefill, decode):
        assert content["cache_transceiver_config"]["backend"] == "DEFAULT"
        assert content["cache_transceiver_config"]["max_tokens_in_buffer"] >= 512 + 128


@pytest.mark.parametrize("engine", WITH_FRONT)
def test_kubernetes_names_every_pod_for_the_front(tmp_path: Path, engine: str) -> None:
    folder, _, _ = written(tmp_path, engine)
    documents = list(yaml.safe_load_all((folder / "kubernetes.yaml").read_text()))
    check_documents(documents)
    check_services(yaml.safe_load((folder / "compose.yaml").read_text())["services"], folder)
    by_kind = {
        kind: [each for each in documents if each["kind"] == kind] for kind in ("StatefulSet", "Deployment", "Service")
    }
    assert [each["spec"]["replicas"] for each in by_kind["StatefulSet"]] == [2, 3]
    (front,) = by_kind["Deployment"]
    (container,) = front["spec"]["template"]["spec"]["containers"]
    text = " ".join(container["command"]) + json.dumps(documents)
    headless = {each["metadata"]["name"] for each in by_kind["Service"] if each["spec"].get("clusterIP") == "None"}
    for each in by_kind["StatefulSet"]:
        name = each["metadata"]["name"]
        assert each["spec"]["serviceName"] in headless
        for pod in range(each["spec"]["replicas"]):
            assert f"{name}-{pod}.{name}:8000" in text
        assert f"{name}-{each['spec']['replicas']}.{name}" not in text
        environment = each["spec"]["template"]["spec"]["containers"][0]["env"]
        assert environment[0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    (service,) = [each for each in by_kind["Service"] if each["spec"].get("clusterIP") != "None"]
    assert service["spec"]["selector"] == front["spec"]["selector"]["matchLabels"]
    assert service["spec"]["ports"] == [{"port": 8000, "targetPort": 8080}]


def test_addresses_of_several_machines_are_variables(tmp_path: Path) -> None:
    folder, _, checks = (
        written(tmp_path, "vllm", "h100_sxm-16", replicas=None)
        if False
        else written(
            tmp_path, "vllm", "h100_sxm-16", prefill_workers=8, prefill_tensor_parallel=1, prefill_batch_size=1
        )
    )
    assert [each for each in checks if each.passed is False] == []
    front = (folder / "front.sh").read_text()
    assert '"${MACHINE_0_ADDR:?is the address of machine 0}"' in front
    assert '"${MACHINE_1_ADDR:?is the address of machine 1}"' in front
    assert '"http://${MACHINE_1_ADDR}:8006"' in front
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert services["front"]["depends_on"] == ["replica-0", "replica-1", *(f"prefill-{i}" for i in range(4))]
    assert services["prefill-5"]["environment"]["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "${MACHINE_1_ADDR}"
    assert "MACHINE_0_ADDR to MACHINE_1_ADDR" in (folder / "README.md").read_text()


def test_a_front_without_a_server_fails_its_check(tmp_path: Path) -> None:
    folder, made, _ = written(tmp_path, "sglang")
    path = folder / "front.sh"
    path.write_text(path.read_text().replace("--decode http://127.0.0.1:8001", ""))
    failed = [each.what for each in exporter_named("sglang").check(made, folder) if each.passed is False]
    assert failed == ["front.sh has every server"]


def test_a_graph_of_dynamo_starts_the_workers_of_the_scripts(tmp_path: Path) -> None:
    folder, _, _ = written(tmp_path, "vllm")
    graph = yaml.safe_load((folder / "dynamo.yaml").read_text())
    assert (graph["apiVersion"], graph["kind"]) == ("nvidia.com/v1alpha1", "DynamoGraphDeployment")
    frontend, decode, prefill = graph["spec"]["services"].values()
    assert frontend["componentType"] == "frontend"
    assert [each["subComponentType"] for each in (decode, prefill)] == ["decode", "prefill"]
    assert [each["replicas"] for each in (decode, prefill)] == [2, 3]
    assert [each["resources"]["limits"]["gpu"] for each in (decode, prefill)] == ["2", "1"]
    assert "envs" not in decode  # where it is, Dynamo says
    for each, script in ((decode, "replica-0.sh"), (prefill, "prefill-0.sh")):
        main = each["extraPodSpec"]["mainContainer"]
        assert main["command"] == ["python3", "-m", "dynamo.vllm"]
        args = main["args"]
        assert args[:1] == ["--model"]
        assert args[-2:] == ["--disaggregation-mode", each["subComponentType"]]
        started = words(folder / script)[3:]  # vllm serve MODEL
        assert args[2:-2] == [word for word in started if word not in ("--host", "0.0.0.0", "--port", "8000", "8002")]


def test_sglang_workers_of_dynamo_say_their_pool_once(tmp_path: Path) -> None:
    folder, _, _ = written(tmp_path, "sglang")
    graph = yaml.safe_load((folder / "dynamo.yaml").read_text())
    assert not (folder / "llm-d-values.yaml").exists()
    for each in list(graph["spec"]["services"].values())[1:]:
        args = each["extraPodSpec"]["mainContainer"]["args"]
        assert args.count("--disaggregation-mode") == 1
        assert args[args.index("--disaggregation-mode") + 1] == each["subComponentType"]
        assert "--port" not in args


def test_values_of_llm_d_fit_the_schema_of_its_chart(tmp_path: Path) -> None:
    jsonschema: Any = pytest.importorskip("jsonschema", reason="jsonschema is installed with extra dev")
    folder, _, _ = written(tmp_path, "vllm")
    values = yaml.safe_load((folder / "llm-d-values.yaml").read_text())
    schema = json.loads((Path(__file__).parent / "llm_d_values.schema.json").read_text())
    jsonschema.validate(values, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values, "routing": {"port": 8000}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values, "decode": {**values["decode"], "replicas": "2"}}, schema)
    for role, port, n_gpus, replicas in (("decode", 8200, "2", 2), ("prefill", 8000, "1", 3)):
        (container,) = values[role]["containers"]
        assert values[role]["replicas"] == replicas
        assert container["ports"][0]["containerPort"] == port
        assert container["args"][container["args"].index("--port") + 1] == str(port)
        assert container["resources"]["limits"] == {"nvidia.com/gpu": n_gpus}
        hosts = [each for each in container["env"] if each["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST"]
        assert hosts == [
            {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        ]
