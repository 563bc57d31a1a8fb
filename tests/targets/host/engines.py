"""Engines for tests; what their processes import is light."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, NoReturn

import numpy as np

from autoauto.runtimes.sharded_engine.engine import Reader, ShardedEngine, Writer
from autoauto.targets.host.transport.array_file import Array


class Line(ShardedEngine):
    """Device d adds 10**d, after some seconds; the loop is written as the seed writes it."""

    def __init__(self, delay_s: float = 0) -> None:
        self.delay_s = delay_s
        self.term: Any = 10**self.device_id

    def load_checkpoint(self, params: dict[str, Array]) -> None:
        self.term = params.get("term", 1) * self.term

    def forward(self, x: Array) -> Array:
        time.sleep(self.delay_s)
        return np.asarray(x + self.term)

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            for x in iter(input_stream):
                out = self.forward(x)
                self.give(out, output_stream)
        else:
            while True:
                x = self.receive(self.device_id - 1)
                out = self.forward(x)
                self.give(out, output_stream)

    def give(self, out: Array, output_stream: Writer[Array]) -> None:
        if self.device_id == self.num_devices - 1:
            output_stream.write(out)
        else:
            self.send(self.device_id + 1, out)


class Collectives(Line):
    """All devices read everything and write what collectives make of it."""

    def forward(self, x: Array) -> Array:
        mine = np.array_split(x, self.num_devices)[self.device_id]
        self.barrier()
        whole = self.all_gather(mine)
        doubled = self.all_to_all(self.all_to_all(whole)) * 2
        return self.all_reduce(doubled + self.device_id, "max")

    inference_loop = ShardedEngine.inference_loop


class Failing(Line):
    """Device 1 fails with its second input."""

    def forward(self, x: Array) -> Array:
        if self.device_id == 1 and x > 2:
            self.fail()
        return super().forward(x)

    def fail(self) -> NoReturn:
        raise KeyError("deep inside")


class Killed(Failing):
    def fail(self) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class Impatient(Line):
    """Device 1 takes one message and ends."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            for x in input_stream:
                self.send(1, x)
        else:
            output_stream.write(self.receive(0))


class Asking(Line):
    """Device 0 waits for answers that device 1 does not give."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            for x in input_stream:
                self.send(1, x)
                self.receive(1)
        else:
            self.receive(0)


class Deaf(Line):
    """Device 1 does not receive what device 0 sends, which fits into the ring."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            self.send(1, 1)
        self.barrier()


class Telling(Line):
    """Tells its process number, then works for ever."""

    def load_checkpoint(self, params: dict[str, Array]) -> None:
        pass

    def forward(self, x: Array) -> Array:
        print(os.getpid(), flush=True)
        time.sleep(60)
        return x


class Imported(Line):
    """Writes whether this process has imported what only others need."""

    def forward(self, x: Array) -> Array:
        return np.array(sorted({"onnx", "onnxruntime", "optuna", "pandas", "sklearn"} & set(sys.modules)))
