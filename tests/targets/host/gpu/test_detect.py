"""GPUs by what nvidia-smi prints; the texts are from public reports, named beside them."""

import subprocess
from collections.abc import Callable, Sequence

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.units import MIB
from autoauto.targets.host.gpu.gpus import Ask, gpu_links, gpus, gpus_named, nvidia_smi, used_bytes

# Values of a GeForce RTX 2080: Ricks-Lab/gpu-utils#83; the driver of that time tells no compute capability.
RTX_2080 = "GPU-22b2c6ac-2d49-4863-197c-9c469071178a, GeForce RTX 2080, 7979, 1965, [N/A], 440.64"
# Memory of an H100: modal-labs/modal-client#2797; name, clock and driver as seen on such a machine.
H100 = "GPU-{0}aaaaaaa-0000-0000-0000-000000000000, NVIDIA H100 80GB HBM3, 81559, 1980, 9.0, 580.159.04"
TWO_H100 = f"{H100.format(1)}\n{H100.format(2)}\n"
# sgl-project/sglang#13973, and the lines of the first three GPUs.
NVLINK = """\
        GPU0    GPU1    GPU2    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NV18    PIX     NODE    0-23,96-119     0               N/A
GPU1    NV18     X      NV18    NODE    PIX     0-23,96-119     0               N/A
GPU2    NV18    NV18     X      NODE    NODE    0-23,96-119     0               N/A
NIC0    PIX     NODE    NODE     X      NODE
"""
# noonghunna/club-3090#1229, with the underline that nvidia-smi prints on a terminal.
PCIE = """\
\x1b[4m\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tPHB\t0-63\t0\t\tN/A
GPU1\tPHB\t X \t0-63\t0\t\tN/A

Legend:

  X    = Self
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
"""


@pytest.fixture(autouse=True)
def all_gpus_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def printing(text: str | None) -> Ask:
    return lambda _: text


def test_name_memory_clock_and_capability_are_read() -> None:
    first, second = gpus(printing(TWO_H100))
    assert (first.number, second.number) == (0, 1)
    assert (first.name, first.memory_bytes, first.clock_hz) == ("NVIDIA H100 80GB HBM3", 81559 * MIB, 1.98e9)
    assert (first.compute_capability, first.has_tf32, first.driver) == ((9, 0), True, "580.159.04")
    assert second.uuid.startswith("GPU-2aaa")


def test_what_nvidia_smi_does_not_know_is_left_out() -> None:
    (gpu,) = gpus(printing(RTX_2080))
    assert (gpu.name, gpu.memory_bytes, gpu.has_tf32) == ("GeForce RTX 2080", 7979 * MIB, False)
    (silent,) = gpus(printing(RTX_2080.replace("1965", "[Not Supported]")))
    assert silent.clock_hz == 0


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_no_nvidia_smi_and_no_rows_are_no_gpu(text: str | None) -> None:
    assert gpus(printing(text)) == ()


@pytest.mark.parametrize("text", ["GPU-1, A, 80", "GPU-1, A, [N/A], 1980, 9.0, 580", "GPU-1, A, 80, 1980, nine, 580"])
def test_rows_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"nvidia-smi must print uuid, name, memory\.total, "):
        gpus(printing(text))


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [("1", [2]), ("1,0", [2, 1]), ("0,-1,1", [1]), ("", []), ("GPU-2a", [2]), ("GPU-2a,GPU-1a", [2, 1]), ("MIG-1", [])],
)
def test_numbers_are_those_of_the_visible_gpus(visible: str, uuids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    chosen = gpus(printing(TWO_H100))
    assert [int(gpu.uuid[4]) for gpu in chosen] == uuids
    assert [gpu.number for gpu in chosen] == list(range(len(uuids)))


def test_devices_are_named_as_in_pytorch_and_may_repeat() -> None:
    ask = printing(TWO_H100)
    assert [gpu.number for gpu in gpus_named("cuda:1,cuda:0", ask)] == [1, 0]
    assert [gpu.number for gpu in gpus_named("cuda:0, cuda:0", ask)] == [0, 0]
    with pytest.raises(BadInput, match=r"this machine has cuda:0, cuda:1, got 'cuda:2'; did you mean 'cuda:"):
        gpus_named("cuda:0,cuda:2", ask)
    with pytest.raises(BadInput, match="nvidia-smi finds no GPU of NVIDIA here, got 'cuda:0'"):
        gpus_named("cuda:0", printing(None))


def test_unlike_gpus_are_no_devices_of_one_cluster() -> None:
    ask = printing(f"{TWO_H100}{RTX_2080}\n")
    with pytest.raises(BadInput, match=r"must be alike.*GeForce RTX 2080 of 7979 MiB, NVIDIA H100 80GB HBM3 of 81559"):
        gpus_named("cuda:1,cuda:2", ask)
    assert len(gpus_named("cuda:2", ask)) == 1


def test_used_memory_is_that_of_one_gpu() -> None:
    asked: list[str] = []

    def ask(arguments: Sequence[str]) -> str:
        asked.extend(arguments)
        return "1024\n"

    assert used_bytes("GPU-1", ask) == 1024 * MIB
    assert "--id=GPU-1" in asked
    with pytest.raises(BadInput, match=r"must print the used memory of GPU-1 in MiB, got '\[N/A\]'"):
        used_bytes("GPU-1", printing("[N/A]"))


def test_links_between_gpus() -> None:
    assert gpu_links(printing(NVLINK)) == {(i, j): "NV18" for i in range(3) for j in range(3) if i != j}
    assert gpu_links(printing(PCIE)) == {(0, 1): "PHB", (1, 0): "PHB"}
    assert gpu_links(printing(None)) == {}
    assert gpu_links(printing("\tGPU0\tCPU Affinity\nGPU0\t X \t0-15\n")) == {}


def fails_with(code: int, out: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda command, **_: subprocess.CompletedProcess(command, code, out, "")


def test_a_driver_that_is_not_loaded_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is that of NVIDIA/nvidia-docker#988."""
    text = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure\n"
        "that the latest NVIDIA driver is installed and running.\n"
    )
    monkeypatch.setattr(subprocess, "run", fails_with(9, text))
    with pytest.raises(BadInput, match=r"it says: NVIDIA-SMI has failed .* Make sure that the latest") as failure:
        gpus()
    assert "\n" not in str(failure.value)
    monkeypatch.setattr(subprocess, "run", fails_with(1, ""))
    with pytest.raises(BadInput, match="it says: exit code 1"):
        gpus()


def test_a_machine_without_nvidia_smi_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert nvidia_smi(["--list-gpus"]) is None
