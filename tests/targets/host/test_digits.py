"""The data set is whole."""

from __future__ import annotations

import numpy as np

from autoauto.targets.host.digits import digits


def test_every_class_is_there() -> None:
    images, labels = digits()
    assert len(images) == len(labels)
    assert np.bincount(labels).min() > 170
    assert len(np.bincount(labels)) == 10
