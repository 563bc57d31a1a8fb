"""Everything autoauto raises on purpose, in one tree.

AutoautoError
|-- BadInput (ValueError)       the user can mend it; the CLI exits with 2
|   `-- UnreadableModel         the model file is not one we can read
|-- MissingExtra (ImportError)  an optional dependency is not installed; the CLI exits with 2
|-- MeasurementsFailed          one measurement after the other failed; the CLI exits with 2
|-- EndOfStream (EOFError)      a device has sent its last message; receivers that wait for more end
|-- WorkerLost                  a worker process was killed; the CLI exits with 2
`-- DoesNotFit                  an outcome, not a crash; the CLI exits with 3, a search continues
    |-- Infeasible              no plan respects the limits (known before anything is compiled)
    |-- OutOfMemory             the target compiled or ran it, and memory did not suffice
    `-- Unsupported (BadInput)  a runtime does not read or run the model, another one may; the CLI exits with 2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from typing_extensions import override

from autoauto.records.installation import install_command

if TYPE_CHECKING:
    from autoauto.records.layers import LayerRange


class AutoautoError(Exception):
    """The root of everything autoauto raises on purpose; `exit_code` is that of a command that ends with it."""

    exit_code = 2


class BadInput(AutoautoError, ValueError):
    """Input that the user can mend; the message says what must hold, what was given, what to try."""


class Mismatch(BadInput):
    """Values each of which is legal, but which cannot be combined."""


class UnreadableModel(BadInput):
    """A model file that cannot be read: missing, truncated, cyclic, or with a construct that has no static shape."""


class MissingExtra(AutoautoError, ImportError):
    """An optional dependency is needed; the message names the extra, and the command that installs it."""


def missing_extra(what: str, extra: str) -> MissingExtra:
    """The error of something that needs a package of an extra."""
    return MissingExtra(f"{what} needs the extra {extra}; try: {install_command(extra)}")


class EndOfStream(AutoautoError, EOFError):
    """A sender has ended as planned, so a receiver that waits for more gets nothing."""


class WorkerLost(AutoautoError):
    """A worker process ended without an exception: somebody killed it, or the kernel when memory ran out."""


class MeasurementsFailed(AutoautoError):
    """Measuring processes crash, hang or raise one after the other; the message describes the last failure."""


class DoesNotFit(AutoautoError):
    """A configuration that cannot run.

    Attributes:
        excess_bytes: how many bytes are missing on the tightest device; 0 when memory is not the reason.
        layers: the range of layers that lacks most, where there is one.
        memory_bytes: what that range needs, by category, where it is known.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        excess_bytes: int,
        layers: LayerRange | None = None,
        memory_bytes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.excess_bytes = excess_bytes
        self.layers = layers
        self.memory_bytes = dict(memory_bytes or {})

    def __reduce__(self) -> tuple[type[DoesNotFit], tuple[object, ...]]:
        """Pickle all attributes, so that a worker's failure reaches the process that waits for it."""
        return type(self), (str(self), self.excess_bytes, self.layers, self.memory_bytes)


class Infeasible(DoesNotFit):
    """No partition of the layers respects the limits: an estimate shows it, nothing was compiled."""


class OutOfMemory(DoesNotFit):
    """The target compiled or ran a range of layers and its memory did not suffice."""


class Unsupported(DoesNotFit, BadInput):
    """A runtime does not read or run a range of layers: an outcome of the configurations that have this runtime."""

    exit_code = 2

    def __init__(self, message: str, layers: LayerRange | None = None) -> None:
        super().__init__(message, 0, layers)

    @override
    def __reduce__(self) -> tuple[type[Unsupported], tuple[object, ...]]:
        return type(self), (str(self), self.layers)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for an unknown word: known words that begin with it or contain it, else the closest ones.

    Where there is none, `otherwise`.

    >>> did_you_mean("serch", ["search", "report"]), did_you_mean("x", ["search"], "try search")
    ("did you mean 'search'?", 'try search')
    >>> did_you_mean("--max-lat", ["--max-latency-s", "--mode"]), did_you_mean("--budget", ["--target"])
    ("did you mean '--max-latency-s'?", '')
    >>> did_you_mean("--budget", ["--target", "--time-budget"]), did_you_mean("batch-size", ["batch", "batch_size"])
    ("did you mean '--time-budget'?", "did you mean 'batch_size'?")
    """
    names = list(map(str, known))
    parts = _parts(word)
    equal = [name for name in names if _parts(name) == parts]
    begin = [name for name in names if word.strip("-") and name.startswith(word)]
    holding = [name for name in names if parts and set(parts) <= set(_parts(name))]
    near = next((some for some in (equal, begin, holding) if 0 < len(some) <= _MAX_OFFERED), [])
    if not near:
        # The name that is closest, the dashes before both aside, which all options have.
        plain = {name.lstrip("-"): name for name in names}
        near = [plain[closest] for closest in get_close_matches(word.lstrip("-"), plain, 1)]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise


def _parts(name: str) -> list[str]:
    """The words of an option or a key."""
    return name.lower().replace("-", "_").strip("_").split("_") if name.strip("-_") else []


_MAX_OFFERED = 3
