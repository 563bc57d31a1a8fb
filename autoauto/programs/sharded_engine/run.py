"""An engine on several processes of this machine: `run_sharded`, which returns a `ShardedRun`.

               ╭──▶ device 0 ──╮
inputs ──rings─┤      ▲▼       ├─rings──▶ outputs         rings between any two devices, each way
               ╰──▶ device 1 ──╯
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import permutations, tee
from time import perf_counter_ns

import numpy.typing as npt

from autoauto.programs.sharded_engine.channel import Receiver, Sender, SharedArrays
from autoauto.programs.sharded_engine.engine import DeviceRun, DeviceTask, ShardedEngine, serve
from autoauto.programs.sharded_engine.peers import N_SLOTS, SLOT_BYTES, SharedEvent
from autoauto.records.errors import BadInput, EndOfStream
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import FORWARD, Codes, Order, Schedule
from autoauto.records.target import Origin
from autoauto.records.units import Array
from autoauto.targets.host.processes import Workers, waiter_of
from autoauto.targets.host.transport.shared_memory import Ring

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A device is one core, so one thread multiplies its matrices."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardedRun:
    """The outputs and times of a run.

    Attributes:
        written: the outputs of every device, in order.
        seconds: time from when all devices were ready until all outputs were received.
    """

    written: tuple[tuple[Array, ...], ...]
    devices: tuple[DeviceRun, ...]
    seconds: float

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The outputs of the last device that has any."""
        return next((written for written in reversed(self.written) if written), ())

    @property
    def sends(self) -> tuple[int, ...]:
        """Number of messages that each device sent, without collectives."""
        return tuple(sum(device.sent) for device in self.devices)

    @property
    def receives(self) -> tuple[int, ...]:
        """Number of messages that each device received, without collectives."""
        return tuple(sum(device.received) for device in self.devices)

    def rows(self) -> Iterator[str]:
        """A table as text, a row a device: how many messages it sent and received, and how many forwards it ran."""
        yield "device  sends  receives  forwards"
        for number, device in enumerate(self.devices):
            yield f"{number:<6}{self.sends[number]:>7}{self.receives[number]:>10}{len(device.forwards):>10}"

    def timeline(self) -> Timeline:
        """The forwards and transfers of all devices; forward n is that of micro-batch n, and 1 cycle = 1 ns.

        Raises BadInput if there were no forwards, or devices had different numbers of them.
        """
        n_forwards = [len(device.forwards) for device in self.devices]
        if min(n_forwards) != max(n_forwards) or not max(n_forwards):
            raise BadInput(f"a timeline needs one forward of every device for each input, got {n_forwards} forwards")
        codes = Codes(len(self.devices), n_forwards[0])
        programs = tuple(codes.of(FORWARD, stage, range(n_forwards[0])) for stage in range(len(self.devices)))
        start_ns = min(int(device.forwards[0, 0]) for device in self.devices)
        forwards = [device.forwards - start_ns for device in self.devices]
        transfers = [(device.transfers - start_ns).clip(min=0) for device in self.devices]
        return Timeline(
            schedule=Schedule(Order.INFERENCE, tuple(range(len(self.devices))), n_forwards[0], programs),
            starts=tuple(spans[:, 0] for spans in forwards),
            stops=tuple(spans[:, 1] for spans in forwards),
            exchanges=tuple(transfers),
            stop_tick=max(int(spans.max(initial=0)) for spans in (*forwards, *transfers)),
            origin=Origin.MEASURED,
        )


def run_sharded(
    engine_class: type[ShardedEngine],
    n_devices: int,
    checkpoint: Mapping[str, npt.ArrayLike],
    inputs: Iterable[npt.ArrayLike],
    *args: object,
) -> ShardedRun:
    """Run the inference loop of `engine_class(*args)` on `n_devices` processes until all have ended.

    Every device can read all inputs; they are sent as soon as its ring has room, and stay in memory until the end. A
    device ends when its loop returns, or when it receives from a device that has ended and has sent nothing more. So
    the end of the inputs passes from device to device. A new process must be able to import the class.

    With n devices 4 n (n + 1) descriptors are open: the usual limit of 1,024 suffices for 14 devices.

    Raises:
        OSError: memory or file descriptors do not suffice for the rings.
        BadInput: there is no device, or a device has ended without receiving all messages to it.
        WorkerLost: a device was killed.
        Exception: the first exception of a device, with the device's traceback as its cause.
    """
    if n_devices < 1:
        raise BadInput(f"an engine runs on at least 1 device, got {n_devices}")
    with ExitStack() as stack:
        tasks = _tasks(engine_class, args, n_devices, checkpoint, stack)
        workers = stack.enter_context(Workers(ENVIRONMENT))
        for task in tasks:
            workers.start(f"device {task.device_id}", serve, task)
        for number in range(n_devices):
            workers.receive(number)
        start_ns = perf_counter_ns()
        for number in range(n_devices):
            workers.send(number, None)
        written = _stream(workers, tasks, inputs)
        seconds = (perf_counter_ns() - start_ns) * 1e-9
        devices = tuple(workers.receive(number) for number in range(n_devices))
    for sender, receiver in permutations(range(n_devices), 2):
        sent, received = devices[sender].sent[receiver], devices[receiver].received[sender]
        if sent > received:
            raise BadInput(
                f"a device must receive all that is sent to it, but device {receiver} ended with "
                f"{sent - received} of {sent} messages of device {sender} left"
            )
    return ShardedRun(written, devices, seconds)


def _tasks(
    engine_class: type[ShardedEngine],
    args: tuple[object, ...],
    n_devices: int,
    checkpoint: Mapping[str, npt.ArrayLike],
    stack: ExitStack,
) -> list[DeviceTask]:
    """The task of every device; the stack closes their rings, events and arrays."""

    def ring() -> Ring:
        return stack.enter_context(closing(Ring.create(N_SLOTS, SLOT_BYTES)))

    between = {pair: ring() for pair in permutations(range(n_devices), 2)}
    ended = tuple(stack.enter_context(closing(SharedEvent())) for _ in range(n_devices))
    parameters = stack.enter_context(closing(SharedArrays.create(checkpoint)))
    tasks = []
    for device in range(n_devices):
        task = DeviceTask(
            device_id=device,
            engine_class=engine_class,
            args=args,
            checkpoint=parameters,
            destinations={receiver: own for (sender, receiver), own in between.items() if sender == device},
            sources={sender: own for (sender, receiver), own in between.items() if receiver == device},
            ended=ended,
            inputs=ring(),
            outputs=ring(),
        )
        tasks.append(task)
    return tasks


def _stream(
    workers: Workers, tasks: list[DeviceTask], inputs: Iterable[npt.ArrayLike]
) -> tuple[tuple[Array, ...], ...]:
    """Send all inputs to every device, one slot of a ring at a time, until all outputs are received."""
    written: list[list[Array]] = [[] for _ in tasks]
    streams: dict[int, Iterator[bool]] = {}  # by the descriptor that is readable when a stream can go on
    draining: set[int] = set()
    for task, own_inputs, own_outputs in zip(tasks, tee(inputs, len(tasks)), written, strict=True):
        streams[task.inputs.free_fd] = _feed(Sender(task.inputs), own_inputs)
        streams[task.outputs.filled_fd] = _drain(Receiver(task.outputs), own_outputs)
        draining.add(task.outputs.filled_fd)
    ready = waiter_of([workers])
    # A device may end before it has received all inputs, but not before its outputs are at their end.
    while streams.keys() & draining:
        for fd in ready(streams):
            if not next(streams[fd], False):
                del streams[fd]
    return tuple(map(tuple, written))


def _feed(sender: Sender, inputs: Iterable[npt.ArrayLike]) -> Iterator[bool]:
    """Send all inputs and the end of the stream, one slot a step; yields True while there is more."""
    for array in inputs:
        sender.load(array)
        while not sender.step():
            yield True
        yield True
    sender.ring.finish()


def _drain(receiver: Receiver, outputs: list[Array]) -> Iterator[bool]:
    """Receive outputs up to the end of the stream, one slot a step; yields True while there is more."""
    with suppress(EndOfStream):
        while True:
            if message := receiver.step():
                outputs.append(message.array)
            yield True
