from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.units import GIB
from autoauto.targets.host import devices, entry
from autoauto.targets.host.detect import usable_cores
from autoauto.targets.host.gpu.cluster import GpuLinkTimes, gpu_cluster
from autoauto.targets.host.gpu.gpus import Gpu
from autoauto.targets.host.runtimes import registry
from autoauto.targets.host.runtimes.registry import SESSIONS
from tests.cli.conftest import RunCli


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("host", ("--io-tiles", "32"), "--io-tiles is for --target ipu, got "),
        ("host", ("--synthetic-data",), "has no --synthetic-data"),
        ("ipu", ("--tensor-parallel", "2"), "--tensor-parallel is for --target gpu, got none; leave it out"),
        ("host", ("--partials", "fp16"), "has no --partials"),
        ("ipu", ("--device-memory-gib", "1"), "--device-memory-gib is for --target host or --profile; leave it out"),
        ("host", ("--precision", "fp8"), "got --precision fp8; leave it out"),
        ("host", ("--precision", "fp32,bf16"), "one configuration has one precision, got several; try search"),
        ("host", ("--runtime", "onnxruntime", "--precision", "bf16"), "onnxruntime does not compute in bf16"),
        ("ipu", ("--precision", "fp16,fp32"), "--target ipu has one --precision, got fp16, fp32"),
        ("ipu", ("--precision", "bf16"), "precision is one of fp16, fp32, fp8, got 'bf16'"),
        ("ipu", ("--device", "cuda:0"), "--target ipu has no --device"),
        ("ipu", ("--runtime", "openvino"), "has no --runtime; leave it out, or try --target host"),
        ("host", ("--cluster", "bow-2000"), "is for 'ipu'; try --target ipu"),
        ("host", ("--mode", "training"), "runs inference"),
    ],
)
def test_options_of_another_target_are_refused(
    run_cli: RunCli, target: str, options: tuple[str, ...], message: str
) -> None:
    code, _, err = run_cli("predict", "resnet50", "--target", target, *options)
    assert code == 2
    assert message in err


@pytest.mark.parametrize("command", [("profile", "resnet50", "--sweep", "memory-proportion"), ("phased", "resnet50")])
def test_commands_for_a_cost_model_are_refused_on_the_host(run_cli: RunCli, command: tuple[str, ...]) -> None:
    code, _, err = run_cli(*command, "--target", "host")
    assert code == 2
    assert "--target ipu, got host" in err


HOST = """
name = "four-cores"
target = "host"
n_devices = {n_devices}
[device]
name = "core"
clock_hz = {clock_hz}
memory_bytes = 100000000
n_tiles = 1
tile_memory_bytes = 100000000
[host_link]
bytes_per_s = 1e10
idle_cycles = 1000
[device_link]
bytes_per_s = 1e10
idle_cycles = 1000
"""


@pytest.mark.parametrize(
    ("n_devices", "clock_hz", "options", "message"),
    [
        (4096, "1e9", (), "has 4096 cores, this process may use"),
        (1, "2e9", (), "clock_hz must be 1e9"),
        (1, "1e9", ("--device-memory-gib", "0.0625"), "write memory_bytes into the cluster file"),
        (1, "1e9", ("--cores-per-device", "0"), "cores"),
    ],
)
def test_a_described_host_must_be_this_machine(
    run_cli: RunCli, tmp_path: Path, n_devices: int, clock_hz: str, options: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "host.toml"
    path.write_text(HOST.format(n_devices=n_devices, clock_hz=clock_hz))
    code, _, err = run_cli("predict", "resnet50", "--target", "host", "--cluster", str(path), *options)
    assert code == 2
    assert message in err


def test_a_host_passes_tensors_on_in_a_line(run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_text('topology = "all-to-all"\n' + HOST.format(n_devices=1, clock_hz="1e9"))
    code, _, err = run_cli("predict", "resnet50", "--target", "host", "--cluster", str(path))
    assert code == 2
    assert "pass tensors on in a line" in err


def test_the_kinds_of_a_host_have_no_more_cores_than_there_are(run_cli: RunCli, tmp_path: Path) -> None:
    head, tables = HOST.format(n_devices=1, clock_hz="1e9").split("n_devices = 1\n")
    path = tmp_path / "host.toml"
    path.write_text(
        head + "[[kinds]]\nn_devices = 9999\n" + tables.replace("\n[", "\n[kinds.").replace("[dev", "[kinds.dev")
    )
    code, _, err = run_cli("predict", "resnet50", "--target", "host", "--cluster", str(path))
    assert code == 2
    assert err == f"autoauto: four-cores has 9999 cores, this process may use {usable_cores()}; try fewer\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cluster", ""), "a cluster is bow-2000"),
        (("--float-operators", "Relu,gelu"), "takes ONNX operators, got 'gelu'; try Gelu"),
    ],
)
def test_unknown_names_are_refused(run_cli: RunCli, options: tuple[str, ...], message: str) -> None:
    code, out, err = run_cli("predict", "resnet50", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_operators_that_a_model_lacks_may_be_named(run_cli: RunCli) -> None:
    assert run_cli("predict", "resnet50", "--float-operators", "Relu,Gelu").code == 0


def test_gpus_need_their_runtime(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda: ("onnxruntime",))
    code, out, err = run_cli("predict", "resnet50", "--target", "host", "--device", "cuda:0")
    assert (code, out) == (2, "")
    assert "--device cuda:0 needs the extra cuda; try: " in err
    assert err.count("\n") == 1


def test_gpus_that_are_not_there_are_refused(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda: tuple(SESSIONS))
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = run_cli("predict", "resnet50", "--target", "host", "--device", "cuda:0")
    assert code == 2
    assert "--device takes GPUs of this machine, nvidia-smi finds no GPU of NVIDIA here, got 'cuda:0'" in err


def a_gpu(uuid: str) -> Gpu:
    return Gpu(0, uuid, "H100", 80 * GIB, 0.0, (9, 0), "580")


def test_a_file_of_gpus_has_as_many_as_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda: tuple(SESSIONS))
    monkeypatch.setattr(devices, "gpus_named", lambda text: tuple(map(a_gpu, text.split(","))))
    times = GpuLinkTimes(1e-6, 1e-6, 1e9, 1e9, 1.0)
    cluster = gpu_cluster([a_gpu("a"), a_gpu("b")], GIB, times)
    assert entry.HOST.devices(cluster, entry.HOST.read_options({"device": "a,b"})) == cluster
    with pytest.raises(BadInput, match="cuda-x2 has 2 x H100, --device names 1 x H100; `autoauto clusters --detect"):
        entry.HOST.devices(cluster, entry.HOST.read_options({"device": "a"}))
