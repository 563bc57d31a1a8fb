"""What people who use a target call the parts of a configuration: `TargetWords`."""

from __future__ import annotations

from typing import NamedTuple


class TargetWords(NamedTuple):
    """The words of a target, as its results are shown; options, files and databases keep the names of knobs.

    Attributes:
        device: a part of a pipeline, which runs a stage.
        unit: what a cluster consists of; a device may have several.
        is_unit_alone: whether a device of one unit is called like the unit.
        joint: between a device and its units, as in "session of 2 cores".
        names: pairs of a knob and what it is called; of others underscores are written as blanks. Without any pairs
            knobs are shown by their names.
        pipeline_option: the option of the number of stages, where people know another one than that of IPUs.
        has_auto_pipeline: whether results are compared with what Graphcore's auto_pipeline would choose.
    """

    device: str = "device"
    unit: str = "device"
    is_unit_alone: bool = True
    joint: str = "of"
    names: tuple[tuple[str, str], ...] = ()
    pipeline_option: str = "--n-ipu"
    has_auto_pipeline: bool = True

    def name(self, knob: str) -> str:
        """The name by which a knob is shown.

        >>> words = TargetWords(names=(("n_ipu", "stages"),))
        >>> words.name("n_ipu"), words.name("batch_size"), TargetWords().name("batch_size")
        ('stages', 'batch size', 'batch_size')
        """
        if not self.names:
            return knob
        return dict(self.names).get(knob, knob.replace("_", " "))

    def single(self, n_units: int) -> str:
        """A device of `n_units` units, in words."""
        size = self.size(n_units)
        return f"{self.device}{size}" if size else self.unit

    def replicas(self, n: int, n_units: int) -> str:
        """`n` devices side by side, in words."""
        size = self.size(n_units)
        return f"{n} {self.device}s{size}" if size else f"{n} replicas of one {self.unit}"

    def size(self, n_units: int) -> str:
        """The number of units of a device in words, after a blank; empty where a device is one unit.

        >>> TargetWords("session", "core").size(2), TargetWords("session", "core").size(1)
        (' of 2 cores', '')
        """
        if n_units == 1 and self.is_unit_alone:
            return ""
        plural = "s" if n_units > 1 else ""
        return f" {self.joint} {n_units} {self.unit}{plural}"
