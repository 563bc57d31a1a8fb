"""Both ends of the only pipeline where it is one process: `ProcessExchange`.

    whoever waits ── ring ──▶ stage ── ring ──▶ whoever waits

A caller that has an event loop waits for `filled_fd` itself, without a thread between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autoauto.records.layers import Port
from autoauto.records.units import Array
from autoauto.targets.host.transport.messages import FailedMessage
from autoauto.targets.host.transport.shared_memory import Ring, arrays, message_bytes, writable


class ProcessExchange:
    """Sends micro-batches to a process and receives its outputs, in order.

    Attributes:
        capacity: micro-batches that may be in flight, without a wait for a free slot. A process releases the slot of
            its inputs after it has sent the outputs, so one slot is left for that.
    """

    def __init__(self, inputs: Ring, outputs: Ring, received: Sequence[Port], sent: Sequence[Port]) -> None:
        self._inputs, self._outputs = inputs, outputs
        self._received, self._sent = received, sent
        self._input_bytes = message_bytes(received)
        self.capacity = inputs.n_slots - 1
        self.n_bytes = self._input_bytes + message_bytes(sent)
        self.filled_fd = outputs.filled_fd

    def send(self, write: Callable[[Mapping[str, Array]], None]) -> None:
        """Send a micro-batch, whose inputs `write` writes into arrays."""
        write(writable(self._inputs.reserve(), self._received))
        self._inputs.commit(self._input_bytes)

    def receive(self, take: Callable[[Mapping[str, Array]], None]) -> str | None:
        """Wait for the next outputs, and have `take` read them; the arrays are valid until it returns.

        Returns:
            The reason for which the model refuses the micro-batch, then without outputs; None where it does not.
        """
        reason = None
        try:
            message = self._outputs.peek()
        except FailedMessage as failure:
            reason = str(failure)
        else:
            assert message is not None  # nothing ends the stream
            take(arrays(message, self._sent))
        self._outputs.release()
        return reason
