"""Samples with labels from a CSV file: `read_samples`."""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.units import Array

MAX_CLASSES = 1000


class Samples(NamedTuple):
    """A data set.

    Attributes:
        inputs: (n_samples, n_inputs), float32.
        labels: (n_samples,), int64, from 0.
    """

    inputs: Array
    labels: Array


def read_samples(path: Path) -> Samples:
    """Read a CSV file, also a compressed one (`.gz`), whose rows are the numbers of a sample and its label.

    Inputs are divided by the largest of them, so that none is above 1. Raises BadInput if the file cannot be read, a
    cell is no finite number, or a label is no whole number from 0 to 999.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy warns of an empty file, which is refused below
            table = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BadInput(f"{path}: samples are a CSV file of numbers: {error}") from None
    if table.shape[0] < 1 or table.shape[1] < 2 or not np.isfinite(table).all():
        raise BadInput(f"{path}: a sample is a row of one finite number or more and its label, got {table.shape}")
    inputs, labels = table[:, :-1], table[:, -1].astype(np.int64)
    if (labels != table[:, -1]).any() or labels.min() < 0 or labels.max() >= MAX_CLASSES:
        raise BadInput(f"{path}: labels are whole numbers from 0 to {MAX_CLASSES - 1}, the last number of each row")
    largest = np.abs(inputs).max()
    return Samples((inputs / (largest or 1)).astype(np.float32), labels)
