"""Small networks of PyTorch and what they are trained on, for `studies/real_training.py`: `Network`.

A residual network for handwritten digits, and a transformer for the characters of Python's help topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from autoauto.programs.phased_training.network import read_samples


class Residual(nn.Module):
    """Two matrices beside an identity."""

    def __init__(self, width: int, n_hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, n_hidden), nn.GELU(), nn.Linear(n_hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) in and out."""
        y: Tensor = x + self.mlp(self.norm(x))
        return y


class Decoder(Residual):
    """A block of a transformer, in which no character sees a later one."""

    def __init__(self, width: int, n_characters: int, n_heads: int = 4) -> None:
        super().__init__(width, 4 * width)
        self.before, self.n_heads = nn.LayerNorm(width), n_heads
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        later = torch.full((n_characters, n_characters), -1e4).triu(1)
        self.register_buffer("later", later, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, characters, width) in and out."""
        batch, length, width = x.shape
        heads = self.query_key_value(self.before(x)).view(batch, length, 3, self.n_heads, width // self.n_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) * (self.n_heads / width) ** 0.5 + self.later
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch, length, width)
        return super().forward(x + self.out(mixed))


class Chain(nn.Module):
    """What comes first, blocks, what comes last."""

    def __init__(self, first: nn.Module, blocks: Sequence[nn.Module], width: int, n_classes: int) -> None:
        super().__init__()
        self.first, self.layers = first, nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (..., classes)."""
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        y: Tensor = self.head(self.norm(x))
        return y


class Embedding(nn.Module):
    """Of characters and their positions."""

    def __init__(self, n_codes: int, n_characters: int, width: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(n_codes, width)
        self.positions = nn.Parameter(0.02 * torch.randn(n_characters, width))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, characters) to (batch, characters, width)."""
        y: Tensor = self.characters(x) + self.positions
        return y


class Network(NamedTuple):
    """What is trained, with how many blocks of which width, on how many samples a micro-batch.

    Attributes:
        name: of the data.
        width: of an activation.
        batch_size: samples of a micro-batch.
        n_steps: how often the optimizer updates the weights.
        n_characters: of a sample; 0 for digits.
    """

    name: str
    width: int
    batch_size: int
    n_steps: int
    n_characters: int = 0

    def module(self) -> nn.Module:
        """The network with the same weights every time."""
        torch.manual_seed(1)
        width, length = self.width, self.n_characters
        if length:
            blocks = [Decoder(width, length) for _ in range(4)]
            return Chain(Embedding(128, length, width), blocks, width, 128)
        return Chain(nn.Linear(64, width), [Residual(width, width) for _ in range(4)], width, 10)

    def samples(self) -> tuple[Tensor, Tensor]:
        """Inputs and their classes, those that are not trained on last."""
        if not self.n_characters:
            digits = read_samples(Path(__file__).parents[1] / "data/samples/digits.csv.gz")
            return torch.tensor(digits.inputs), torch.tensor(digits.labels)
        text = torch.tensor([min(ord(character), 127) for character in "".join(topics.values())])
        windows = text[: len(text) // (self.n_characters + 1) * (self.n_characters + 1)].view(-1, self.n_characters + 1)
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    def batches(self, n_micro_batches: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Random samples of the first four fifths, the same every time: inputs and classes of every step."""
        inputs, target = self.samples()
        random = torch.Generator().manual_seed(2)
        for _ in range(self.n_steps):
            rows = torch.randint(len(inputs) * 4 // 5, (n_micro_batches * self.batch_size,), generator=random)
            yield inputs[rows], target[rows]

    def right(self, module: nn.Module) -> float:
        """The share of the last fifth, 1,000 samples at most, of which the module predicts the class."""
        inputs, target = (samples[-min(len(samples) // 5, 1000) :] for samples in self.samples())
        with torch.no_grad():
            return float((module(inputs).argmax(-1) == target).float().mean())

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(parameters, lr=1e-3)


def loss_of(scores: Tensor, target: Tensor) -> Tensor:
    """The mean cross entropy."""
    return nn.functional.cross_entropy(scores.flatten(0, -2), target.flatten())
