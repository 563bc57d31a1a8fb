"""Engines for tests, in a module whose imports are light, because every device's process imports it."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, NoReturn

import numpy as np

from autoauto.programs.sharded_engine.engine import Reader, ShardedEngine, Writer
from autoauto.programs.sharded_engine.peers import SharedEvent
from autoauto.records.units import Array


class Line(ShardedEngine):
    """Device d adds 10**d; the loop is that of [sharding-book, Pipelining]."""

    def __init__(self) -> None:
        self.term: Any = 10**self.device_id

    def load_checkpoint(self, params: dict[str, Array]) -> None:
        self.term = params.get("term", 1) * self.term

    def forward(self, x: Array) -> Array:
        return np.asarray(x + self.term)

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            for x in iter(input_stream):
                out = self.forward(x)
                self.send_on(out, output_stream)
        else:
            while True:
                x = self.receive(self.device_id - 1)
                out = self.forward(x)
                self.send_on(out, output_stream)

    def send_on(self, out: Array, output_stream: Writer[Array]) -> None:
        if self.device_id == self.num_devices - 1:
            output_stream.write(out)
        else:
            self.send(self.device_id + 1, out)


class Overlapping(Line):
    """The second forward of device 0 and the first one of device 1 wait for each other's start."""

    def __init__(self, *started: SharedEvent) -> None:
        super().__init__()
        self.started = started
        self.n_forwards = 0

    def forward(self, x: Array) -> Array:
        self.n_forwards += 1
        if self.device_id + self.n_forwards == 2:
            self.started[self.device_id].set()
            os.eventfd_read(self.started[1 - self.device_id].fd)
        return super().forward(x)


class Collectives(Line):
    """Every device reads all inputs and writes the results of collectives."""

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


class EndingEarly(Line):
    """Device 1 receives one message and ends."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            for x in input_stream:
                self.send(1, x)
        else:
            output_stream.write(self.receive(0))


class Asking(Line):
    """Device 0 waits for answers that device 1 does not send."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            for x in input_stream:
                self.send(1, x)
                self.receive(1)
        else:
            self.receive(0)


class NotReceiving(Line):
    """Device 1 does not receive the message of device 0, which fits into the ring."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        if self.device_id == 0:
            self.send(1, 1)
        self.barrier()


class Printing(Line):
    """Prints its process number, then sleeps."""

    def load_checkpoint(self, params: dict[str, Array]) -> None:
        pass

    def forward(self, x: Array) -> Array:
        print(os.getpid(), flush=True)
        time.sleep(600)
        return x


class Imported(Line):
    """Writes the heavy packages that its process has imported."""

    def forward(self, x: Array) -> Array:
        return np.array(sorted({"onnx", "onnxruntime", "optuna", "pandas", "sklearn"} & set(sys.modules)))
