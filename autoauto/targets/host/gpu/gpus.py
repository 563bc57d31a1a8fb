"""The GPUs of this machine as nvidia-smi describes them: `Gpu`, `gpus`, `gpus_named`, `used_bytes`, `gpu_links`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from autoauto.records.errors import BadInput, did_you_mean
from autoauto.records.units import MIB

GPU_PREFIX = "cuda:"
"""The name of a GPU before its number, as in PyTorch."""
_FIELDS = ("uuid", "name", "memory.total", "clocks.max.sm", "compute_cap", "driver_version")
_TIMEOUT_S = 60.0
"""The first call after a start of the machine loads the driver, which takes seconds."""

Ask = Callable[[Sequence[str]], str | None]


class Gpu(NamedTuple):
    """A GPU.

    Attributes:
        number: the number after "cuda:", among the GPUs that this process may use.
        uuid: the name by which a process is given this GPU and no other.
        memory_bytes: all memory; a part may be reserved.
        clock_hz: the highest clock of its multiprocessors; 0 if it is not known.
        compute_capability: as (major, minor); (0, 0) if it is not known.
    """

    number: int
    uuid: str
    name: str
    memory_bytes: int
    clock_hz: float
    compute_capability: tuple[int, int]
    driver: str

    @property
    def has_tf32(self) -> bool:
        """True if the GPU multiplies in tf32: Ampere or newer, compute capability 8.0 [tf32]."""
        return self.compute_capability >= (8, 0)

    @property
    def has_fp16(self) -> bool:
        """True if the GPU multiplies matrices in fp16: Volta or newer, compute capability 7.0 [tf32]."""
        return self.compute_capability >= (7, 0)


def nvidia_smi(arguments: Sequence[str]) -> str | None:
    """The text that nvidia-smi prints; None if it is not installed; raises BadInput if it fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"nvidia-smi must list the GPUs, it does not run: {error}; check the driver") from error
    if done.returncode:
        reason = " ".join((done.stdout + done.stderr).split())
        raise BadInput(f"nvidia-smi must list the GPUs, it says: {reason or f'exit code {done.returncode}'}")
    return done.stdout


def gpus(ask: Ask = nvidia_smi) -> tuple[Gpu, ...]:
    """The GPUs that this process may use, numbered in their order on the bus; none without nvidia-smi.

    CUDA_VISIBLE_DEVICES, if it is set, names them by number or by the beginning of the UUID, in its order and up to the
    first that is not there [cuda-environment].

    Raises:
        BadInput: nvidia-smi fails, or prints something else.
    """
    text = ask([f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"])
    rows = [line for line in (text or "").splitlines() if line.strip()]
    detected = [_gpu(number, line) for number, line in enumerate(rows)]
    return tuple(gpu._replace(number=number) for number, gpu in enumerate(_visible(detected)))


def _visible(detected: Sequence[Gpu]) -> list[Gpu]:
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(detected)
    chosen = []
    for word in map(str.strip, text.split(",")):
        if not word:
            break
        if word.isascii() and word.isdigit():
            matches = [gpu for gpu in detected if gpu.number == int(word)]
        else:
            matches = [gpu for gpu in detected if gpu.uuid.startswith(word)]
        if len(matches) != 1:
            break
        chosen += matches
    return chosen


def _gpu(number: int, line: str) -> Gpu:
    words = [word.strip() for word in line.split(",")]
    try:
        uuid, name, memory_mib, clock_mhz, capability, driver = words
        major, minor = capability.split(".") if _is_known(capability) else ("0", "0")
        return Gpu(
            number=number,
            uuid=uuid,
            name=name,
            memory_bytes=int(memory_mib) * MIB,
            clock_hz=float(clock_mhz) * 1e6 if _is_known(clock_mhz) else 0.0,
            compute_capability=(int(major), int(minor)),
            driver=driver,
        )
    except ValueError as error:
        raise BadInput(
            f"nvidia-smi must print {', '.join(_FIELDS)} of every GPU, got {line!r}; a newer driver may help"
        ) from error


def _is_known(word: str) -> bool:
    return not word.startswith("[") and word not in ("", "N/A")


def gpus_named(text: str, ask: Ask = nvidia_smi) -> tuple[Gpu, ...]:
    """The GPUs of a text like "cuda:0,cuda:1"; one may be named several times.

    Raises:
        BadInput: this machine has no such GPU, or they are not all alike.
    """
    known = {f"{GPU_PREFIX}{gpu.number}": gpu for gpu in gpus(ask)}
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            here = f"this machine has {', '.join(known)}" if known else "nvidia-smi finds no GPU of NVIDIA here"
            hint = did_you_mean(word, known, "`autoauto clusters --detect` lists the GPUs")
            raise BadInput(f"--device takes GPUs of this machine, {here}, got {word!r}; {hint}")
    chosen = tuple(known[word] for word in words)
    kinds = sorted({(gpu.name, gpu.memory_bytes) for gpu in chosen})
    if len(kinds) > 1:
        names = ", ".join(f"{name} of {n_bytes // MIB} MiB" for name, n_bytes in kinds)
        raise BadInput(f"the devices of --device must be alike, since layers are profiled on one, got {names}")
    return chosen


def used_bytes(uuid: str, ask: Ask = nvidia_smi) -> int:
    """Memory of a GPU that is in use now, by all processes; raises BadInput if nvidia-smi does not tell."""
    text = ask([f"--id={uuid}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]) or ""
    if not text.strip().isdigit():
        raise BadInput(f"nvidia-smi must print the used memory of {uuid} in MiB, got {text.strip()!r}")
    return int(text) * MIB


def gpu_links(ask: Ask = nvidia_smi) -> dict[tuple[int, int], str]:
    """The connection of every two GPUs in the words of `nvidia-smi topo -m`, for example "NV18" or "PHB".

    The keys are numbers of nvidia-smi, hence of all GPUs of the machine.
    """
    text = re.sub(r"\x1b\[\d*m", "", ask(["topo", "-m"]) or "")  # the first line is underlined
    columns: list[str] = []
    links = {}
    for words in map(str.split, text.splitlines()):
        if not columns and words[:1] == ["GPU0"] and "X" not in words[1:2]:  # the header has no connections
            columns = [word for word in words if word.startswith("GPU") and word[3:].isdigit()]
        elif words and words[0] in columns:
            for column, word in zip(columns, words[1:], strict=False):
                if word != "X":
                    links[int(words[0][3:]), int(column[3:])] = word
    return links
