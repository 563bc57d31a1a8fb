"""Tensors whose lengths depend on data, in messages of a fixed size."""

import numpy as np
import pytest

from autoauto.records.layers import Port
from autoauto.targets.host.memory_budget import shared_array
from autoauto.targets.host.transport.bounded import memory_of, read, write
from autoauto.targets.host.transport.shared_memory import arrays, message_bytes, writable

BOXES = Port("boxes", (10, 3), "int64", data_dependent=True)
MASKS = Port("masks", (2, 5), "bool", data_dependent=True)
FIXED = Port("fixed", (2, 2), "float32")
PORTS = [FIXED, MASKS, BOXES]


def test_every_message_of_a_slot_has_the_lengths_of_its_own() -> None:
    slot = memoryview(bytearray(message_bytes(PORTS)))
    for n in (10, 0, 3):
        boxes, masks = np.arange(3 * n).reshape(n, 3), np.ones((2, n // 2), bool)
        written = writable(slot, PORTS)
        written["fixed"][...] = n
        write(written["boxes"], BOXES, boxes)
        write(written["masks"], MASKS, masks)
        message = arrays(slot, PORTS)
        np.testing.assert_array_equal(message["boxes"], boxes)
        np.testing.assert_array_equal(message["masks"], masks)
        assert message["masks"].dtype == bool
        assert message["fixed"].tolist() == [[n, n], [n, n]]


def test_memory_of_a_port_is_that_of_its_largest_tensor_and_of_its_lengths() -> None:
    assert memory_of(FIXED) is FIXED
    memory = shared_array(BOXES)
    assert memory.nbytes == 2 * 8 + 10 * 3 * 8
    write(memory, BOXES, np.full((10, 3), 7).T.copy().T)  # not one row behind the other
    np.testing.assert_array_equal(read(memory, BOXES), np.full((10, 3), 7))


@pytest.mark.parametrize("array", [np.zeros((11, 3), np.int64), np.zeros((2, 3), np.int32), np.zeros(3, np.int64)])
def test_what_is_no_such_tensor_is_refused(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^output 'boxes' is int.. of shape .*, at most int64 of \[10, 3\] was exp"):
        write(shared_array(BOXES), BOXES, array)
