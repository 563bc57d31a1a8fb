"""What is written when an object is gone, and when: never inside another transaction, and not lost at the end."""

from __future__ import annotations

import gc
import subprocess
import sys

from autoauto.profile.last_writes import write_waiting, write_when_gone

AT_THE_END = """
from weakref import finalize
class Owner: pass
early = Owner()
{first}
from autoauto.profile.last_writes import write_when_gone
gone, alive = Owner(), Owner()
write_when_gone(gone, lambda: print("gone"))
write_when_gone(alive, lambda: print("alive"))
del gone
"""


class Owner:
    """An object that only the garbage collector ends."""

    def __init__(self) -> None:
        self.itself = self


def test_the_end_of_an_object_writes_nothing_until_it_is_said() -> None:
    written: list[str] = []
    write_waiting()
    owner = Owner()
    write_when_gone(owner, lambda: written.append("a"))
    write_waiting()
    assert not written
    del owner
    gc.collect()  # as in the middle of a transaction
    assert not written
    write_waiting()
    write_waiting()
    assert written == ["a"]


def test_nothing_is_lost_at_the_end_of_a_process_whatever_ends_first() -> None:
    for first in ("", "finalize(early, print, 'early')"):
        program = AT_THE_END.format(first=first)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert sorted(done.stdout.split()) == sorted(["gone", "alive", *(["early"] if first else [])])
