"""A small real data set: `digits`."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from autoauto.targets.host.network import Samples


def digits() -> Samples:
    """1797 handwritten digits of 8 x 8 pixels from 0 to 1, installed with scikit-learn (UCI, Alpaydin and Kaynak).

    >>> images, labels = digits()
    >>> images.shape, images.dtype, images.min(), images.max(), labels[:4]
    ((1797, 64), dtype('float32'), np.float32(0.0), np.float32(1.0), array([0, 1, 2, 3]))
    """
    images, labels = load_digits(return_X_y=True)
    return Samples((images / 16).astype(np.float32), labels)
