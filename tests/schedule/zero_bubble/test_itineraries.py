from __future__ import annotations

from autoauto.schedule.zero_bubble.list_scheduling import NEVER
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem
from autoauto.schedule.zero_bubble.search import ONE_STAGE_A_DEVICE, Itinerary, itineraries, steady_priorities


def equal(devices: tuple[int, ...], m: int, limit: int, link: int = 0) -> ZeroBubbleProblem:
    n = len(devices)
    return ZeroBubbleProblem(devices, (10,) * 3 * n, (0, *(link,) * n), (link,) * n, m, limit)


def test_an_itinerary_goes_down_and_up() -> None:
    """F two units a step, half a unit of rest, B one unit a step, W three units later."""
    travel = steady_priorities(equal((0, 1, 2), 2, 3), Itinerary(2, 1, 1, 0, 3, NEVER), unit=10, period=30)
    assert travel[:3] == [[0, 30], [20, 50], [40, 70]]
    assert travel[3:6] == [[80, 110], [70, 100], [60, 90]]
    assert [row[0] for row in travel[6:]] == [120, 110, 100]


def test_a_step_is_no_shorter_than_an_action_and_its_message() -> None:
    travel = steady_priorities(equal((0, 1), 1, 2, link=15), Itinerary(2, 2, 0, 0, 0, NEVER), unit=10, period=30)
    assert [row[0] for row in travel] == [0, 25, 60, 35, 70, 45]


def test_a_v_shape_goes_down_and_up_twice() -> None:
    travel = steady_priorities(equal((0, 1, 1, 0), 1, 4), Itinerary(3, 1, 2, 5, 0, NEVER), unit=10, period=60)
    assert [row[0] for row in travel[:4]] == [0, 30, 40, 50]
    assert [row[0] for row in travel[7:3:-1]] == [80, 110, 170, 180]


def test_itineraries_that_just_fill_the_memory_come_first() -> None:
    v = (0, 1, 2, 3, 3, 2, 1, 0)
    hops = [sum(itineraries(equal(v, 8, limit))[0][:2]) for limit in (3, 4, 8)]
    assert hops == [2, 3, 6]
    assert itineraries(equal((0, 1), 8, 2)) == ONE_STAGE_A_DEVICE
