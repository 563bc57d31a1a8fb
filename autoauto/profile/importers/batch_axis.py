"""Compare the batch size that is given for a profile with the shapes in it: `batch_note`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from autoauto.records.errors import BadInput


def batch_note(shapes: Iterable[Sequence[int]], batch_size: int, path: Path, must: str, hint: str) -> tuple[str, ...]:
    """A note on the batch size where the shapes leave it open; none where most of them have an axis of it.

    Not every model has an axis of samples, so shapes contradict a batch size only where all begin with another length.
    Shapes of one axis are left out: they need not have one of samples.

    Args:
        shapes, path: of the tensors that pass between layers, and of the file that has them.
        batch_size: given for the profile.
        must, hint: the beginning of the error, up to the batch size, and its end, after the first shape.

    Raises:
        BadInput: all shapes begin with one other length, and fewer than half have an axis of the batch size.

    >>> batch_note([(8, 3), (8, 64)], 8, Path("a"), "", ""), batch_note([(8,)], 1, Path("a"), "", "")
    ((), ())
    >>> batch_note([(128, 768), (12, 128, 128)], 1, Path("a"), "", "")
    ('a: batch size 1 is assumed, although 2 of 2 shapes have no axis of it',)
    """
    known = [shape for shape in shapes if len(shape) > 1]
    n_without = 0
    for shape in known:
        # Samples may lie along the first axis, or along the second, behind that of a sequence.
        has_samples = shape[0] == batch_size or (len(shape) > 2 and shape[1] == batch_size)
        n_without += not has_samples
    if 2 * n_without <= len(known):
        return ()
    if len({shape[0] for shape in known}) == 1:
        raise BadInput(f"{path}: {must} {batch_size}, got {[*known[0]]}{hint}")
    return (
        f"{path.name}: batch size {batch_size} is assumed, although {n_without} of {len(known)} shapes have no axis of "
        "it",
    )
