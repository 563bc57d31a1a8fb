from autoauto.plan.phase_buffers import NO_ROWS, number_graphs, share_buffers
from autoauto.records.phased import BufferLayout


def test_equal_phases_need_not_be_neighbours() -> None:
    assert [tuple(found) for found in number_graphs("abab")] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_one_size_makes_one_buffer() -> None:
    assert share_buffers("x", [8, 8], [8, 8], 4).buffers == (BufferLayout("x", 2, 4, 8),)


def test_every_size_has_a_buffer_of_its_own() -> None:
    shared = share_buffers("dx", [8, 2, 8], [8, 2, 8], 4)
    assert shared.buffers == (BufferLayout("dx0", 2, 4, 8), BufferLayout("dx1", 1, 4, 2))


def test_nothing_needs_no_buffer() -> None:
    assert share_buffers("x", [], [], 4) == NO_ROWS
