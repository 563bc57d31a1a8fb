"""Launch commands of serving engines: what a shell starts, what YAML says, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from autoauto.engines.registry import ENGINES
from autoauto.evaluate.export import deployment, export
from autoauto.evaluate.open import load_flow
from autoauto.exporters.exporter import Deployment
from autoauto.exporters.registry import exporter_named, write_artifact
from autoauto.exporters.serving.replicas import served_replicas
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, DeviceKind, Link
from autoauto.records.target import Origin
from autoauto.space.knobs import Knobs
from tests.decoders import decoder_folder
from tests.exporters.manifests import check_documents, check_services
from tests.exporters.test_conformance import contents

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
yaml: Any = pytest.importorskip("yaml", reason="YAML is read by a package of extra gpu")

SERVED = {engine.launcher.to: engine for engine in ENGINES.values()}
REQUESTS: dict[str, Any] = {"input_tokens": 512, "output_tokens": 128}
N_BLOCKS = 6
Deploy = Callable[..., Deployment]
by_format = pytest.mark.parametrize("to", SERVED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder_folder(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def deployed(folder: Path) -> Deploy:
    """The best plan of the small decoder on GPUs, by its format, stages, replicas and knobs."""

    @cache
    def made(to: str, n: int = 3, replicas: int = 1, cluster: str = "h100_sxm-8", **knobs: Any) -> Deployment:
        flow = load_flow(folder, cluster, "gpu")
        chosen = {"engine": SERVED[to].name, "tensor_parallel": 2, "batch_size": 10, **REQUESTS, **knobs}
        return deployment(flow, str(folder), flow.expect(Knobs(n, replicas=replicas, **chosen)))

    return made


def started(artifact: Path, script: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """What a script starts, and what its process gets of variables: a program of that name prints both."""
    programs = artifact.parent / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("vllm", "python3", "trtllm-serve"):
        text = '#!/bin/sh\nprintenv >"$STARTED.env"\nfor word in "$0" "$@"; do echo "$word"; done >"$STARTED.words"\n'
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    seen = artifact.parent / "started"
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "STARTED": str(seen), **variables}
    subprocess.run(["sh", str(artifact / script)], env=environment, check=True, capture_output=True, timeout=20)
    words = seen.with_suffix(".words").read_text().splitlines()
    lines = seen.with_suffix(".env").read_text().splitlines()
    return [Path(words[0]).name, *words[1:]], dict(line.split("=", 1) for line in lines)


def options(words: list[str]) -> dict[str, str]:
    """The value of every option of a command line, "" where it has none."""
    pairs = zip(words, [*words[1:], "--"], strict=True)
    return {word: "" if value.startswith("--") else value for word, value in pairs if word.startswith("--")}


@by_format
@pytest.mark.parametrize(("n", "replicas"), [(1, 1), (2, 2), (3, 1)])
def test_a_configuration_is_written_and_checked(
    to: str, n: int, replicas: int, deployed: Deploy, tmp_path: Path
) -> None:
    made = deployed(to, n, replicas)
    checks = write_artifact(made, to, tmp_path / "a", check=True)
    assert [each for each in checks if each.passed is False] == []
    assert [each.what for each in checks if each.passed is None] == [f"{SERVED[to].title} serves the model"]
    assert checks[-1].detail.startswith("nothing was started")
    write_artifact(made, to, tmp_path / "again")
    assert contents(tmp_path / "a") == contents(tmp_path / "again")
    scripts = {path.name for path in (tmp_path / "a").glob("replica-*.sh")}
    assert scripts == {f"replica-{number}.sh" for number in range(replicas)}


@by_format
def test_a_read_me_has_what_was_modelled(to: str, deployed: Deploy, tmp_path: Path) -> None:
    made = deployed(to, 2, 2)
    write_artifact(made, to, tmp_path / "a")
    text = (tmp_path / "a" / "README.md").read_text(encoding="utf-8")
    assert made.performance.origin is Origin.MODELLED
    assert made.performance.tokens is not None
    assert f"{made.performance.tokens.tokens_per_s:,.0f} tokens/s" in text
    assert "(TTFT)" in text
    assert "(TPOT) (modelled)" in text
    assert "prompts of 512 tokens and answers of 128" in text
    assert "| replica-1 | 0 | h100_sxm 4, 5, 6, 7 | 8001 |" in text


def test_vllm_is_started_with_the_configuration(deployed: Deploy, folder: Path, tmp_path: Path) -> None:
    made = deployed("vllm", 3)
    write_artifact(made, "vllm", tmp_path / "a")
    words, variables = started(tmp_path / "a", "replica-0.sh")
    assert words[:3] == ["vllm", "serve", str(folder)]
    assert options(words) == {
        "--host": "0.0.0.0",
        "--port": "8000",
        "--tensor-parallel-size": "2",
        "--pipeline-parallel-size": "3",
        "--max-num-seqs": "30",
        "--max-num-batched-tokens": "8192",
        "--max-model-len": "768",
        "--gpu-memory-utilization": "0.92",
    }
    partition = [int(n) for n in variables["VLLM_PP_LAYER_PARTITION"].split(",")]
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5"
    ends = made.plan.partition
    assert partition == [ends[1] - 1, ends[2] - ends[1], ends[3] - ends[2] - 2]  # without embedding, norm and head
    assert sum(partition) == N_BLOCKS


@pytest.mark.parametrize(
    ("to", "option"),
    [
        ("vllm", ("--enable-expert-parallel", "")),
        ("sglang", ("--ep-size", "4")),
        ("tensorrt-llm", ("--moe_expert_parallel_size", "4")),
    ],
)
def test_experts_are_dealt_among_gpus_by_an_option_of_every_engine(
    to: str, option: tuple[str, str], tmp_path: Path
) -> None:
    name, value = option
    flow = load_flow("Qwen/Qwen3-30B-A3B", "h100_sxm-4", "gpu")
    for n_dealt in (1, 4):
        chosen = {"engine": SERVED[to].name, "tensor_parallel": 4, "expert_parallel": n_dealt, **REQUESTS}
        made = deployment(flow, "Qwen/Qwen3-30B-A3B", flow.expect(Knobs(1, 10, **chosen)))
        checks = write_artifact(made, to, tmp_path / str(n_dealt), check=True)
        assert [each for each in checks if each.passed is False] == []
        words, _ = started(tmp_path / str(n_dealt), "replica-0.sh")
        assert options(words).get(name) == (None if n_dealt == 1 else value)


DRAFTS: dict[str, object] = {"accept_length": 2.5, "draft_tokens": 3, "cached_share": 0.5}
HEAD = "a/head"


def drafting(to: str, folder: Path, target: Path, **options: object) -> tuple[dict[str, str], str]:
    """The options of the first script of a drafting configuration, and its README; its checks pass."""
    flow = load_flow(folder, "h100_sxm-1", "gpu", options=DRAFTS | options)
    made = deployment(flow, str(folder), flow.expect(Knobs(1, 600, engine=SERVED[to].name, **REQUESTS)))
    checks = write_artifact(made, to, target, check=True)
    assert [each for each in checks if each.passed is False] == []
    words, _ = started(target, "replica-0.sh")
    return options_of(words, target), (target / "README.md").read_text(encoding="utf-8")


def options_of(words: list[str], artifact: Path) -> dict[str, str]:
    """The options of a command line, and the keys of the file that one names."""
    given = options(words)
    if "--extra_llm_api_options" in given:
        content = yaml.safe_load((artifact / given["--extra_llm_api_options"]).read_text(encoding="utf-8"))
        given |= {key: json.dumps(value) for key, value in content.items()}
    return given


@pytest.mark.parametrize(
    ("to", "by_layers", "by_head"),
    [
        (
            "vllm",
            {"--speculative-config": {"method": "mtp", "num_speculative_tokens": 3}},
            {"--speculative-config": {"method": "eagle3", "num_speculative_tokens": 3, "model": HEAD}},
        ),
        (
            "sglang",
            {"--speculative-algorithm": "EAGLE", "--speculative-num-steps": 3, "--speculative-num-draft-tokens": 4},
            {"--speculative-algorithm": "EAGLE3", "--speculative-draft-model-path": HEAD},
        ),
        (
            "tensorrt-llm",
            {"speculative_config": {"decoding_type": "MTP", "max_draft_len": 3}},
            {"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": HEAD}},
        ),
    ],
)
def test_drafts_and_cached_prompts_have_options_of_every_engine(
    to: str, by_layers: dict[str, object], by_head: dict[str, object], tmp_path: Path
) -> None:
    folder = decoder_folder(tmp_path / "own", num_nextn_predict_layers=1)
    for name, more, expected in (("layers", {}, by_layers), ("head", {"draft_model": HEAD}, by_head)):
        given, text = drafting(to, folder, tmp_path / name, **more)
        for option, value in expected.items():
            shown = given[option]
            assert (shown if isinstance(value, str) else json.loads(shown)) == value
        assert "Modelled with 3 drafted tokens a step, 2.5 tokens a step accepted" in text
        assert "50% of every prompt in the prefix cache" in text
        assert "do not draft" not in text
        assert given.get("--enable-prefix-caching") == ("" if to == "vllm" else None)
        assert "--disable-radix-cache" not in given
        if to == "tensorrt-llm":
            assert json.loads(given["kv_cache_config"])["enable_block_reuse"] is True
        if to == "vllm":
            assert given["--max-cudagraph-capture-size"] == "2400"


@by_format
def test_without_a_draft_model_the_read_me_says_what_to_add(to: str, folder: Path, tmp_path: Path) -> None:
    given, text = drafting(to, folder, tmp_path / "a")
    assert "**these commands do not draft**: export again\nwith --draft-model" in text
    assert not [name for name in given if "speculative" in name]


@by_format
def test_neither_drafts_nor_cached_prompts_are_said_where_there_are_none(
    to: str, deployed: Deploy, tmp_path: Path
) -> None:
    write_artifact(deployed(to, 1), to, tmp_path / "a")
    words, _ = started(tmp_path / "a", "replica-0.sh")
    given = options_of(words, tmp_path / "a")
    assert not [name for name in given if "speculative" in name or "prefix" in name]
    assert "Modelled with" not in (tmp_path / "a" / "README.md").read_text(encoding="utf-8")


def test_sglang_is_started_with_the_configuration(deployed: Deploy, folder: Path, tmp_path: Path) -> None:
    write_artifact(deployed("sglang", 2, 2, max_batched_tokens=2048), "sglang", tmp_path / "a")
    words, variables = started(tmp_path / "a", "replica-1.sh")
    assert words[:3] == ["python3", "-m", "sglang.launch_server"]
    given = options(words)
    assert 0.8 < float(given.pop("--mem-fraction-static")) < 0.9
    assert given == {
        "--model-path": str(folder),
        "--host": "0.0.0.0",
        "--port": "8001",
        "--tp-size": "2",
        "--pp-size": "2",
        "--max-running-requests": "20",
        "--pp-max-micro-batch-size": "10",
        "--chunked-prefill-size": "2048",
        "--context-length": "768",
        "--cuda-graph-max-bs-decode": "10",
    }
    assert variables["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert sum(map(int, variables["SGLANG_PP_LAYER_PARTITION"].split(","))) == N_BLOCKS


def test_tensorrt_llm_counts_the_sequences_of_a_micro_batch(deployed: Deploy, tmp_path: Path) -> None:
    write_artifact(deployed("tensorrt-llm", 3, kv_cache_precision=WeightFormat.FP8), "tensorrt-llm", tmp_path / "a")
    words, _ = started(tmp_path / "a", "replica-0.sh")
    given = options(words)
    assert (given["--max_batch_size"], given["--max_num_tokens"], given["--max_seq_len"]) == ("10", "8192", "768")
    content = yaml.safe_load((tmp_path / "a" / given["--extra_llm_api_options"]).read_text(encoding="utf-8"))
    assert content["kv_cache_config"] == {"free_gpu_memory_fraction": 0.9, "dtype": "fp8"}
    assert content["cuda_graph_config"] == {"enable_padding": True, "max_batch_size": 10}
    assert sum(content["pp_partition"]) == N_BLOCKS


@pytest.mark.parametrize(
    ("written", "changed", "reason"),
    [
        ("enable_padding", "enable_paddings", "reads no cuda_graph_config.enable_paddings"),
        ("pp_partition", "pp_partitions", "reads no pp_partitions"),
        ('"max_batch_size": 10', '"max_batch_size": 8', "10 sequences"),
    ],
)
def test_a_changed_file_of_an_engine_fails(
    written: str, changed: str, reason: str, deployed: Deploy, tmp_path: Path
) -> None:
    made = deployed("tensorrt-llm", 3)
    write_artifact(made, "tensorrt-llm", tmp_path / "a")
    path = tmp_path / "a" / "replica-0-llm_api.yaml"
    text = path.read_text(encoding="utf-8")
    assert written in text
    path.write_text(text.replace(written, changed), encoding="utf-8")
    failed = [each for each in exporter_named("tensorrt-llm").check(made, tmp_path / "a") if each.passed is False]
    assert failed
    assert reason in failed[0].detail or reason == "10 sequences"


def test_a_variable_that_an_engine_does_not_read_fails(deployed: Deploy, tmp_path: Path) -> None:
    made = deployed("vllm", 3)
    write_artifact(made, "vllm", tmp_path / "a")
    script = tmp_path / "a" / "replica-0.sh"
    script.write_text(script.read_text(encoding="utf-8").replace("exec", "export VLLM_PARTITION=2,2,2\nexec"))
    failed = [each.detail for each in exporter_named("vllm").check(made, tmp_path / "a") if each.passed is False]
    assert failed == ["vllm serve reads no VLLM_PARTITION"]


@by_format
def test_one_stage_needs_no_partition(to: str, deployed: Deploy, tmp_path: Path) -> None:
    write_artifact(deployed(to, 1), to, tmp_path / "a")
    _, variables = started(tmp_path / "a", "replica-0.sh")
    assert not [name for name in variables if "PARTITION" in name]
    assert not [path for path in (tmp_path / "a").glob("*llm_api.yaml") if "pp_partition" in path.read_text()]


@by_format
def test_containers_have_the_commands_and_gpus_of_the_scripts(to: str, deployed: Deploy, tmp_path: Path) -> None:
    write_artifact(deployed(to, 2, 2), to, tmp_path / "a")
    services = yaml.safe_load((tmp_path / "a" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for number in (0, 1):
        service = services[f"replica-{number}"]
        words, variables = started(tmp_path / "a", f"replica-{number}.sh")
        assert service["entrypoint"] == words
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert ",".join(device["device_ids"]) == variables["CUDA_VISIBLE_DEVICES"]
        assert service["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"  # a container counts its own
    check_services(services, tmp_path / "a")
    documents = list(yaml.safe_load_all((tmp_path / "a" / "kubernetes.yaml").read_text(encoding="utf-8")))
    check_documents(documents)
    (pods,) = (each["spec"] for each in documents if each["kind"] == "Deployment")
    (container,) = pods["template"]["spec"]["containers"]
    assert (pods["replicas"], container["resources"]["limits"]) == (2, {"nvidia.com/gpu": 4})
    assert pods["selector"]["matchLabels"] == pods["template"]["metadata"]["labels"]
    if to == "tensorrt-llm":
        (files,) = (each["data"] for each in documents if each["kind"] == "ConfigMap")
        assert set(files) == {options(container["command"])["--extra_llm_api_options"]}


@by_format
def test_pods_start_slowly_and_keep_their_weights(to: str, deployed: Deploy, tmp_path: Path) -> None:
    write_artifact(deployed(to, 1, 2, tensor_parallel=4), to, tmp_path / "folder")
    flow = load_flow("Qwen/Qwen3-8B", "h100_sxm-8", "gpu")
    knobs = Knobs(1, replicas=2, batch_size=10, engine=SERVED[to].name, tensor_parallel=4, **REQUESTS)
    write_artifact(deployment(flow, "Qwen/Qwen3-8B", flow.expect(knobs)), to, tmp_path / "named")
    folder, named = (
        list(yaml.safe_load_all((tmp_path / name / "kubernetes.yaml").read_text(encoding="utf-8")))
        for name in ("folder", "named")
    )
    check_documents(folder)
    check_documents(named)
    assert [each for each in folder if each["kind"] == "PersistentVolumeClaim"] == []
    (claim,) = (each for each in named if each["kind"] == "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "21Gi"  # 8.2e9 weights in 2 bytes, a quarter more
    (pods,) = (each["spec"] for each in named if each["kind"] == "Deployment")
    assert pods["strategy"] == {"type": "Recreate"}
    pod = pods["template"]["spec"]
    assert [each["key"] for each in pod["tolerations"]] == ["nvidia.com/gpu"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["weights"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    (container,) = pod["containers"]
    assert {"name": "HF_HOME", "value": "/huggingface"} in container["env"]
    assert {each["mountPath"] for each in container["volumeMounts"]} >= {"/huggingface", "/dev/shm"}
    probe = container["startupProbe"]
    assert probe["httpGet"] == container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert probe["periodSeconds"] * probe["failureThreshold"] == 3600


@by_format
def test_an_artifact_of_another_plan_fails(to: str, deployed: Deploy, tmp_path: Path) -> None:
    write_artifact(deployed(to, 3), to, tmp_path / "a")
    checks = exporter_named(to).check(deployed(to, 2), tmp_path / "a")
    assert [each for each in checks if each.passed is False]


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("--max-num-seqs 30", "--max-num-seqs 31"),
        ("--max-num-seqs", "--max-num-sequences"),
        ("--pipeline-parallel-size 3", "--pipeline-parallel-size 2"),
        ("0.92", "0.9"),
        ("DEVICES=0,1,", "DEVICES=1,1,"),
        ("PARTITION=", "PARTITION=1,"),
        ("/small", "/other"),
    ],
)
def test_a_changed_script_fails(written: str, changed: str, deployed: Deploy, tmp_path: Path) -> None:
    made = deployed("vllm", 3)
    write_artifact(made, "vllm", tmp_path / "a")
    script = tmp_path / "a" / "replica-0.sh"
    text = script.read_text(encoding="utf-8")
    assert written in text
    script.write_text(text.replace(written, changed), encoding="utf-8")
    checks = exporter_named("vllm").check(made, tmp_path / "a")
    assert [each for each in checks if each.passed is False]


@pytest.mark.parametrize("file", ["compose.yaml", "kubernetes.yaml"])
def test_a_changed_file_for_containers_fails(file: str, deployed: Deploy, tmp_path: Path) -> None:
    made = deployed("vllm", 3)
    write_artifact(made, "vllm", tmp_path / "a")
    path = tmp_path / "a" / file
    path.write_text(path.read_text(encoding="utf-8").replace("'30'", "'29'"), encoding="utf-8")
    failed = [each.what for each in exporter_named("vllm").check(made, tmp_path / "a") if not each.passed]
    assert failed[0].startswith(file)


@by_format
def test_an_option_that_no_source_defines_is_refused(to: str) -> None:
    syntax = SERVED[to].launcher.syntax
    words = [*syntax.program, *["model"] * syntax.takes_model, "--speed", "high"]
    with pytest.raises(BadInput, match="has no option --speed"):
        syntax.parse(words)
    with pytest.raises(BadInput, match="refuses its options"):
        syntax.parse([*words[:-2], "--port", "eight"])


def mixed() -> Cluster:
    """Two H100 and two L40S, in any order."""
    from autoauto.targets.gpu.systems import system_named

    kinds = [
        DeviceKind(system.device, 2, system.link(same_node=False), Link(system.host_bytes_per_s, 0))
        for system in map(system_named, ("h100_sxm", "l40s"))
    ]
    return Cluster.of_kinds("mixed", "gpu", kinds)


def on_unlike_gpus(folder: Path, to: str, n: int, replicas: int) -> Deployment:
    flow = load_flow(folder, mixed(), "gpu")
    knobs = Knobs(n, replicas=replicas, batch_size=10, engine=SERVED[to].name, tensor_parallel=1, **REQUESTS)
    return deployment(flow, str(folder), flow.expect(knobs))


@pytest.mark.parametrize("to", ["vllm", "sglang"])
def test_a_replica_of_unlike_gpus_has_a_process_on_every_machine(to: str, folder: Path, tmp_path: Path) -> None:
    made = on_unlike_gpus(folder, to, 2, 2)
    checks = write_artifact(made, to, tmp_path / "a", check=True)
    assert [each for each in checks if each.passed is False] == []
    with pytest.raises(subprocess.CalledProcessError):
        started(tmp_path / "a", "replica-1-machine-0.sh")
    given = [
        options(started(tmp_path / "a", f"replica-1-machine-{machine}.sh", MASTER_ADDR="10.0.0.7")[0])
        for machine in (0, 1)
    ]
    assert {each["--nnodes"] for each in given} == {"2"}
    assert sorted(each["--node-rank"] for each in given) == ["0", "1"]
    addresses = {each.get("--dist-init-addr") or f"{each['--master-addr']}:{each['--master-port']}" for each in given}
    assert addresses == {"10.0.0.7:29501"}
    assert not (tmp_path / "a" / "kubernetes.yaml").exists()
    services = yaml.safe_load((tmp_path / "a" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert {tuple(each["profiles"]) for each in services.values()} == {("machine-0",), ("machine-1",)}
    if to == "sglang":  # it derives its share of the memory from the kind of a GPU
        assert len({each["--mem-fraction-static"] for each in given}) == 2
    else:
        assert ["--headless" in each for each in given] == [each["--node-rank"] == "1" for each in given]


def test_replicas_whose_plans_differ_have_pods_of_their_own(folder: Path, tmp_path: Path) -> None:
    made = on_unlike_gpus(folder, "vllm", 1, 4)
    assert len(made.plan.plans) == 2
    checks = write_artifact(made, "vllm", tmp_path / "a", check=True)
    assert [each for each in checks if each.passed is False] == []
    documents = list(yaml.safe_load_all((tmp_path / "a" / "kubernetes.yaml").read_text(encoding="utf-8")))
    check_documents(documents)
    pods = [each["spec"] for each in documents if each["kind"] == "Deployment"]
    assert [each["replicas"] for each in pods] == [2, 2]
    labels = {each["template"]["spec"]["nodeSelector"]["autoauto/gpu"] for each in pods}
    assert labels == {"h100_sxm", "l40s"}
    parts = [(r.parts[0].kind, r.parts[0].machine, r.parts[0].gpus) for r in served_replicas(made, SERVED["vllm"])]
    assert parts == [("h100_sxm", 0, (0,)), ("h100_sxm", 0, (1,)), ("l40s", 1, (0,)), ("l40s", 1, (1,))]


def test_gpus_are_counted_in_their_machine(deployed: Deploy) -> None:
    replicas = served_replicas(deployed("vllm", 4, 2, "h100_sxm-16"), SERVED["vllm"])
    assert [(part.machine, part.gpus) for r in replicas for part in r.parts] == [(0, (*range(8),)), (1, (*range(8),))]


def test_a_replica_has_as_many_gpus_of_every_machine(folder: Path) -> None:
    knobs = Knobs(6, replicas=2, batch_size=10, engine="vllm", tensor_parallel=1, **REQUESTS)
    uneven, even = (load_flow(folder, f"h100_sxm-{gpus}", "gpu").expect(knobs) for gpus in ("12", "6+6"))
    assert (
        "or as many in each of several nodes, got 2 x 6 stages of 1 GPU on nodes with groups for 8 + 4" in uneven.reason
    )
    assert even.fits
    across = load_flow(folder, "h100_sxm-4+4", "gpu").expect(replace(knobs, replicas=1))
    made = deployment(load_flow(folder, "h100_sxm-4+4", "gpu"), str(folder), across)
    (replica,) = served_replicas(made, SERVED["vllm"])
    assert [(part.machine, part.gpus) for part in replica.parts] == [(0, (0, 1, 2)), (1, (0, 1, 2))]


def test_tensorrt_llm_refuses_a_replica_on_several_machines(folder: Path, tmp_path: Path) -> None:
    flow = load_flow(folder, "h100_sxm-16", "gpu")
    knobs = Knobs(2, batch_size=10, engine="trtllm", tensor_parallel=8, **REQUESTS)
    assert flow.expect(knobs).reason.startswith("trtllm has the stages of a replica in one node, got 1 x 2 stages")
    assert flow.expect(Knobs(2, batch_size=10, engine="vllm", tensor_parallel=8, **REQUESTS)).fits


not_made = pytest.mark.parametrize(
    ("to", "knobs", "line"),
    [
        (
            "vllm",
            {"precision": WeightFormat.FP8},
            "vLLM makes fp8-dynamic or fp8-block of a checkpoint in bf16 .* in fp8; try",
        ),
        (
            "sglang",
            {"precision": WeightFormat.FP8_BLOCK},
            "SGLang makes fp8-dynamic of a checkpoint in bf16 .* in fp8-block; try",
        ),
        ("tensorrt-llm", {"precision": WeightFormat.FP8}, "TensorRT-LLM makes nothing else of a checkpoint in bf16"),
    ],
)


@not_made
def test_what_export_refuses_is_said_of_a_configuration(
    to: str, knobs: dict[str, Any], line: str, folder: Path
) -> None:
    setting = load_flow(folder, "h100_sxm-2", "gpu").setting
    asked = Knobs(1, engine=SERVED[to].name, **REQUESTS, **knobs).session
    assert setting.needs(asked) == f"{SERVED[to].name} needs a checkpoint that is published in {knobs['precision']}"
    assert setting.needs(Knobs(1, engine=SERVED[to].name, **REQUESTS).session) == ""


@not_made
def test_what_an_engine_cannot_is_refused(
    to: str, knobs: dict[str, object], line: str, deployed: Deploy, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=line):
        write_artifact(deployed(to, 3, **knobs), to, tmp_path / "a")
    assert [*tmp_path.iterdir()] == []


def test_formats_that_are_made_at_load_have_their_option(deployed: Deploy, tmp_path: Path) -> None:
    made = deployed("vllm", 2, precision=WeightFormat.FP8_BLOCK, kv_cache_precision=WeightFormat.FP8)
    write_artifact(made, "vllm", tmp_path / "a")
    given = options(started(tmp_path / "a", "replica-0.sh")[0])
    assert (given["--quantization"], given["--kv-cache-dtype"]) == ("fp8_per_block", "fp8")


def test_a_checkpoint_in_fp8_needs_no_option_for_its_weights(tmp_path: Path) -> None:
    quantised = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    folder = decoder_folder(tmp_path / "small")
    (folder / "hf_quant_config.json").write_text(json.dumps(quantised))
    flow = load_flow(folder, "h100_sxm-2", "gpu")
    trial = flow.expect(Knobs(2, batch_size=10, engine="vllm", tensor_parallel=1, **REQUESTS))
    write_artifact(deployment(flow, str(folder), trial), "vllm", tmp_path / "a")
    given = options(started(tmp_path / "a", "replica-0.sh")[0])
    assert "--quantization" not in given
    assert given["--kv-cache-dtype"] == "fp8"


def test_another_engine_and_another_format_are_refused(deployed: Deploy, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--to sglang starts the engine sglang, got a configuration for vllm; try"):
        write_artifact(deployed("vllm", 2), "sglang", tmp_path / "a")
    for to in ("torch", "onnx", "auto-pipeline", "schedule-csv"):
        with pytest.raises(BadInput, match=f"--to {to} is not for text that decoders generate; try --to sglang"):
            write_artifact(deployed("vllm", 2), to, tmp_path / "a")
    with pytest.raises(BadInput, match="parts are cut out of an ONNX file"):
        deployed("vllm", 2).source.carried(deployed("vllm", 2).graph, 1, 1)


def test_headroom_is_a_smaller_share_where_the_share_is_of_all_memory(folder: Path, tmp_path: Path) -> None:
    flow = load_flow(folder, "h100_sxm-4", "gpu", headroom=0.25)
    knobs = Knobs(2, batch_size=10, engine="vllm", tensor_parallel=2, **REQUESTS)
    write_artifact(deployment(flow, str(folder), flow.expect(knobs)), "vllm", tmp_path / "a")
    assert options(started(tmp_path / "a", "replica-0.sh")[0])["--gpu-memory-utilization"] == "0.69"
    for engine in ("sglang", "trtllm"):
        refused = flow.expect(Knobs(2, batch_size=10, engine=engine, tensor_parallel=2, **REQUESTS))
        assert "takes a share of what is free, so a plan has all memory of h100_sxm, got 75.0% of it" in refused.reason


def test_python_exports_what_a_search_found(folder: Path, tmp_path: Path) -> None:
    flow = load_flow(folder, "h100_sxm-4", "gpu")
    trial = flow.evaluate(Knobs(2, batch_size=10, engine="vllm", tensor_parallel=2, **REQUESTS))
    checks = export(folder, trial, "vllm", tmp_path / "a", "h100_sxm-4", "gpu", check=True)
    assert [each for each in checks if each.passed is False] == []
    assert started(tmp_path / "a", "replica-0.sh")[0][2] == str(folder)
