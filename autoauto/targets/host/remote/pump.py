"""A thread that hands messages on from one channel to another: `Pump`.

The process that feeds pipelines waits for many channels at once, and must not wait for one. So where a pipeline begins
or ends on another machine it has a ring as always, and a pump between the ring and the connection.
"""

from __future__ import annotations

import os
import select
import threading

from autoauto.records.errors import WorkerLost
from autoauto.targets.host.transport.ring import FailedMessage
from autoauto.targets.host.transport.tcp import MessageReader, MessageWriter, TcpReader, TcpWriter


class Pump:
    """Hands messages on until the end of the stream; one of both ends is `connection`.

    Attributes:
        lost_fd: readable when the connection was lost.
    """

    def __init__(self, reader: MessageReader, writer: MessageWriter, connection: TcpReader | TcpWriter) -> None:
        self._reader, self._writer, self._connection = reader, writer, connection
        self._stop_fd, self.lost_fd = os.eventfd(0), os.eventfd(0)
        self._error: WorkerLost | None = None
        self._thread = threading.Thread(target=self._run, name="autoauto pump", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise WorkerLost when the connection was lost."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the connection and the thread."""
        os.eventfd_write(self._stop_fd, 1)
        self._connection.end()
        self._thread.join()
        self._connection.close()
        os.close(self._stop_fd)
        os.close(self.lost_fd)

    def _run(self) -> None:
        try:
            while self._next():
                pass
        except WorkerLost as error:
            self._error = error
            os.eventfd_write(self.lost_fd, 1)

    def _next(self) -> bool:
        """Hand the next message on; whether there may be more."""
        if not self._may(self._reader.filled_fd):
            return False
        is_message = self._reader.wait()
        if not self._may(self._writer.free_fd):
            return False
        if not is_message:
            self._writer.finish()
            return False
        slot = self._writer.reserve()
        try:
            message = self._reader.peek()
        except FailedMessage as failure:
            self._writer.fail(str(failure))
        else:
            assert message is not None
            slot[: len(message)] = message
            self._writer.commit(len(message))
        self._reader.release()
        return True

    def _may(self, descriptor: int) -> bool:
        """Wait until a descriptor is readable; False when the pump is to stop."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._stop_fd, select.POLLIN)
        return all(ready != self._stop_fd for ready, _ in poll.poll())
