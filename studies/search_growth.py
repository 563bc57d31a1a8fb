"""How the cost of a first search grows with layers, devices and configurations: `python studies/search_growth.py`.

Decoders are exported from PyTorch, 92 nodes a block. Every search is a command in a process of its own with an empty
cache; CPU seconds are user and system time of the whole command, "MiB" the peak of its resident memory. "x" is the CPU
time over that of the row before. `--small` makes two searches of the smallest decoders.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from studies.search_cost import HERE, first_and_again

WIDTH, N_HEADS, N_TOKENS, VOCABULARY = 512, 8, 128, 4096
NARROW = "--batch-size 1:16 --memory-proportion 0.3,0.6"


class Search(NamedTuple):
    """A search of a table: what grows, and the options of the command."""

    what: str
    options: str


def decoder(n_blocks: int) -> Any:
    """A decoder of PyTorch: embeddings, blocks of causal attention and a gated feed-forward part, and a head."""
    torch = import_module("torch")

    class Norm(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            linear = torch.nn.Linear
            self.before, self.between = Norm(), Norm()
            self.query, self.key, self.value, self.out = (linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.gate, self.up = linear(WIDTH, 4 * WIDTH, bias=False), linear(WIDTH, 4 * WIDTH, bias=False)
            self.down = linear(4 * WIDTH, WIDTH, bias=False)

        def forward(self, x: Any, cosine: Any, sine: Any, mask: Any) -> Any:
            normed = self.before(x)
            query, key, value = (
                layer(normed).view(-1, N_TOKENS, N_HEADS, WIDTH // N_HEADS).transpose(1, 2)
                for layer in (self.query, self.key, self.value)
            )
            query, key = (_turned(torch, part, cosine, sine) for part in (query, key))
            scores = query @ key.transpose(-1, -2) / (WIDTH // N_HEADS) ** 0.5 + mask
            attended = (scores.softmax(-1) @ value).transpose(1, 2).reshape(-1, N_TOKENS, WIDTH)
            x = x + self.out(attended)
            normed = self.between(x)
            return x + self.down(torch.nn.functional.silu(self.gate(normed)) * self.up(normed))

    class Decoder(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(n_blocks))
            self.norm, self.head = Norm(), torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
            angles = torch.outer(torch.arange(N_TOKENS), 10_000 ** -torch.linspace(0, 1, WIDTH // N_HEADS // 2))
            self.register_buffer("angles", torch.cat([angles, angles], dim=-1))
            self.register_buffer("mask", torch.full((N_TOKENS, N_TOKENS), -1e4).triu(1))

        def forward(self, tokens: Any) -> Any:
            x, cosine, sine = self.embedding(tokens), self.angles.cos(), self.angles.sin()
            for block in self.blocks:
                x = block(x, cosine, sine, self.mask)
            return self.head(self.norm(x))

    return Decoder().eval()


def _turned(torch: Any, x: Any, cosine: Any, sine: Any) -> Any:
    """Rotary positions."""
    left, right = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-right, left], dim=-1) * sine


def export(n_blocks: int, path: Path, n_nodes: Any) -> None:
    """Write the ONNX file of a decoder, and send how many nodes it has."""
    torch = import_module("torch")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        tokens = torch.ones((1, N_TOKENS), dtype=torch.int64)
        torch.onnx.export(
            decoder(n_blocks), (tokens,), path, dynamo=False, input_names=["tokens"], dynamic_axes={"tokens": {0: "n"}}
        )
    n_nodes.send(len(onnx.load(path).graph.node))


def exported(n_blocks: int, folder: Path) -> tuple[Path, int]:
    """The ONNX file of a decoder, and how many nodes it has.

    Another process makes it: the peak of memory of processes that this one starts is never below its own.
    """
    path, context = folder / f"decoder{n_blocks}.onnx", get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=export, args=(n_blocks, path, sender))
    process.start()
    sender.close()
    try:
        n_nodes: int = receiver.recv()
    except EOFError:
        sys.exit(f"a decoder of {n_blocks} blocks was not exported; search_growth needs torch and onnxscript")
    process.join()
    return path, n_nodes


def tables(folder: Path, small: bool) -> Iterable[tuple[str, list[Search]]]:
    """The tables by their titles."""
    depths = (1, 2) if small else (6, 12, 24, 48)
    decoders = {n: exported(n, folder) for n in depths}
    yield (
        "layers, 4 devices",
        [Search(f"{n} blocks, {nodes} nodes", f"{path} {NARROW}") for n, (path, nodes) in decoders.items()],
    )
    if small:
        return
    clusters = {4: "bow-2000", 16: "bow-pod16", 64: "bow-pod64"}
    yield (
        "devices, 12 blocks",
        [Search(f"{n} devices", f"{decoders[12][0]} {NARROW} --cluster {name}") for n, name in clusters.items()],
    )
    spaces = {
        "batch 1:16": NARROW,
        "batch 1:64": "--batch-size 1:64 --memory-proportion 0.3,0.6",
        "batch 1:256, 4 proportions": "--batch-size 1:256 --memory-proportion 0.2,0.4,0.6,0.8",
    }
    yield "configurations, 6 blocks", [Search(what, f"{decoders[6][0]} {chosen}") for what, chosen in spaces.items()]
    yield (
        "training with all orders",
        [
            Search(
                f"{n} blocks, all orders",
                f"{decoders[n][0]} --mode training --batch-size 1:4 --n-micro-batches 8 --memory-proportion 0.6 "
                "--schedule popart,gpipe,1f1b,zb1p,zb2p,popart-ring,interleaved,zbv,v-half,v-min",
            )
            for n in (6, 12)
        ],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two searches")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        for title, searches in tables(Path(folder), args.small):
            width = max(len(title), *(len(search.what) for search in searches))
            print(f"{title:{width}}{'CPU s':>9}{'x':>7}{'again s':>9}{'MiB':>6}{'forecasts':>11}{'compilations':>14}")
            before = None
            for search in searches:
                first, again = first_and_again(search.options, HERE)
                growth = "" if before is None else f"{first.cpu_s / before:.2f}"
                calls = f"{first.n_forecasts:11}{first.n_compilations:14}"
                print(
                    f"{search.what:{width}}{first.cpu_s:9.2f}{growth:>7}{again.cpu_s:9.2f}{first.peak_mib:6.0f}{calls}",
                    flush=True,
                )
                before = first.cpu_s
    return 0


if __name__ == "__main__":
    sys.exit(main())
