"""Text that a decoder generates: `Generation`, and its knobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from autoauto.records.errors import BadInput
from autoauto.records.knob import Knob, whole
from autoauto.records.layers import LayerRange
from autoauto.space.modes.mode import Mode

MAX_TOKENS = 2**24  # of a prompt or an answer

INPUT_TOKENS = Knob(
    "input_tokens",
    whole(MAX_TOKENS),
    1024,
    "tokens of the prompt of a request, where a decoder generates text",
    "N",
    ("1024", "1024"),
    absent=0,
    label="input tokens",
    is_shown=True,
)
OUTPUT_TOKENS = Knob(
    "output_tokens",
    whole(MAX_TOKENS),
    1024,
    "tokens of its answer",
    "N",
    ("1024", "1024"),
    absent=0,
    label="output tokens",
    is_shown=True,
)


@dataclass(frozen=True, slots=True)
class Generation(Mode):
    """Text that a decoder generates by pipelines, each with as many micro-batches of sequences in flight as stages.

    A step of a micro-batch gives a token of every sequence. The only token of an answer comes with the prompt.
    """

    knobs: ClassVar[tuple[Knob, ...]] = (INPUT_TOKENS, OUTPUT_TOKENS)
    purpose: ClassVar[str] = "text that decoders generate"
    option: ClassVar[str] = "--target gpu"
    sample: ClassVar[str] = "token"
    parts: ClassVar[str] = "blocks"
    input_tokens: int = INPUT_TOKENS.default
    output_tokens: int = OUTPUT_TOKENS.default

    def __post_init__(self) -> None:
        if min(self.input_tokens, self.output_tokens) < 1:
            raise BadInput(
                f"input and output tokens must be 1 or more, got {self.input_tokens} and {self.output_tokens}; "
                "give a language model on GPUs both, and other models none"
            )

    @override
    def parts_of(self, layers: LayerRange, n_layers: int) -> str:
        """The number of blocks; the first layer is the embedding, the last two are norm and head."""
        return str(max(0, min(layers.stop, n_layers - 2) - max(layers.start, 1)))

    @override
    def parts_short(self, layers: LayerRange, n_layers: int) -> str:
        return f"({self.parts_text(layers, n_layers)})"

    @override
    def parts_text(self, layers: LayerRange, n_layers: int) -> str:
        n_blocks = self.parts_of(layers, n_layers)
        return f"{n_blocks} block{'' if n_blocks == '1' else 's'}"
