"""Messages over TCP: order, credits, bounds, what ends a connection, and who may connect."""

import hmac
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from autoauto.records.errors import WorkerLost
from autoauto.targets.host.transport import tcp
from autoauto.targets.host.transport.messages import FailedMessage
from autoauto.targets.host.transport.tcp import Gate, TcpReader, TcpWriter, dial

N_SLOTS, SLOT_BYTES = 2, 1 << 20
TOKEN = bytes(range(16))
Ends = tuple[TcpWriter, TcpReader]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "_GRACE_S", 0.0)


@pytest.fixture
def ends() -> Iterator[Ends]:
    first, second = socket.socketpair()
    writer, reader = TcpWriter(first, SLOT_BYTES), TcpReader(second, SLOT_BYTES)
    reader.grant(N_SLOTS)
    yield writer, reader
    writer.close()
    reader.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate("127.0.0.1", TOKEN)
    yield gate
    gate.close()


def send(writer: TcpWriter, content: bytes) -> None:
    writer.reserve()[: len(content)] = content
    writer.commit(len(content))


def test_messages_of_any_length_arrive_in_order_and_then_the_end(ends: Ends) -> None:
    writer, reader = ends
    sent = [b"ab", b"", bytes(SLOT_BYTES), b"c" * 777]

    def write() -> None:
        for content in sent:
            send(writer, content)
        writer.finish()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    received = []
    while (message := reader.peek()) is not None:
        received.append(bytes(message))
        reader.release()
    thread.join()
    assert received == sent
    assert not reader.wait()
    assert reader.peek() is None  # in every later call, too


def test_a_writer_waits_without_a_credit(ends: Ends) -> None:
    writer, reader = ends
    written: list[int] = []

    def write() -> None:
        for i in range(5):
            send(writer, bytes([i]))
            written.append(i)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    for i in range(5):
        message = reader.peek()
        assert message is not None
        assert len(written) <= i + N_SLOTS
        assert message[0] == i
        reader.release()
    thread.join()


def test_a_reason_is_sent_instead_of_a_message(ends: Ends) -> None:
    writer, reader = ends
    writer.reserve()
    writer.fail("too large" * 1000)
    with pytest.raises(FailedMessage, match=r"^(too large)+"):
        reader.peek()
    reader.release()
    send(writer, b"next")
    message = reader.peek()
    assert message is not None
    assert bytes(message) == b"next"


@pytest.mark.parametrize("length", [SLOT_BYTES + 1, -5000])
def test_a_length_out_of_bounds_is_refused_before_it_is_read(ends: Ends, length: int) -> None:
    writer, reader = ends
    writer._connection.sendall(length.to_bytes(8, "little", signed=True))
    with pytest.raises(WorkerLost, match=f"a message has at most {SLOT_BYTES} bytes, one of {length} arrives"):
        reader.wait()


def test_both_ends_notice_that_the_other_is_gone(ends: Ends) -> None:
    writer, reader = ends
    writer._connection.sendall(b"\1")  # in the middle of a head
    writer._connection.shutdown(socket.SHUT_WR)
    with pytest.raises(WorkerLost, match="the connection to a process of another machine was lost: it was closed"):
        reader.wait()
    reader.close()
    for _ in range(N_SLOTS):
        writer.reserve()  # the credits that were there
    with pytest.raises(WorkerLost, match="was lost"):
        writer.reserve()


def test_who_knows_the_token_is_let_in_by_number(gate: Gate) -> None:
    with ThreadPoolExecutor(2) as pool:
        dialled = {number: pool.submit(dial, gate.address, TOKEN, number) for number in (7, 5)}
        for number in (5, 7):
            admitted, other = gate.admit(number), dialled[number].result()
            admitted.sendall(bytes([number]))
            assert other.recv(1) == bytes([number])
            admitted.close()
            other.close()


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(68), TOKEN + bytes(52), TOKEN, b""])
def test_strangers_are_refused_and_keep_nobody_out(gate: Gate, words: bytes) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        socket.create_connection(gate.address),  # says nothing
        socket.create_connection(gate.address) as stranger,
    ):
        stranger.sendall(words)
        stranger.shutdown(socket.SHUT_WR)
        friend = pool.submit(dial, gate.address, TOKEN, 1)
        admitted = gate.admit(1)
        answer = b""
        with suppress(ConnectionResetError):
            while more := stranger.recv(100):
                answer += more
        assert len(answer) == 32  # the nonce; then it was closed
        admitted.close()
        friend.result().close()


def test_a_proof_is_for_one_connection_and_may_come_in_pieces(gate: Gate) -> None:
    """What was said on one connection opens no other, and the secret is never said."""
    said = bytearray()

    def greet(pieces: int) -> socket.socket:
        connection = socket.create_connection(gate.address)
        nonce, words = connection.recv(32, socket.MSG_WAITALL), (1).to_bytes(4, "little") + bytes(32)
        said[:] = words + hmac.digest(TOKEN, b"dial" + nonce + words, "sha256")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(said), pieces):
            connection.sendall(said[start : start + pieces])
        assert connection.recv(32, socket.MSG_WAITALL) == hmac.digest(TOKEN, b"gate" + nonce + words, "sha256")
        return connection

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(greet, 1)
        gate.admit(1).close()
        first.result().close()
        assert TOKEN not in said
        with socket.create_connection(gate.address) as again:
            again.sendall(said)
            friend = pool.submit(dial, gate.address, TOKEN, 2)
            gate.admit(2).close()
            friend.result().close()
            assert 1 not in gate._admitted


def test_who_dials_sends_nothing_to_a_gate_that_does_not_know_the_secret() -> None:
    with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", 0)) as liar:
        dialled = pool.submit(dial, liar.getsockname(), TOKEN, 1)
        connection, _ = liar.accept()
        connection.sendall(bytes(32))
        connection.recv(68, socket.MSG_WAITALL)
        connection.sendall(bytes(32))
        with pytest.raises(WorkerLost, match="must know the secret of the run"):
            dialled.result()
        connection.close()


def test_a_gate_without_visitors_and_a_port_without_a_gate_are_one_line(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "START_S", 0.0)
    with pytest.raises(WorkerLost, match="a process of another machine must connect within 0 s, it did not"):
        gate.admit(1)
    monkeypatch.undo()
    address = gate.address
    gate.close()
    with pytest.raises(WorkerLost, match=f"must take connections at 127.0.0.1:{address[1]}, got .*refused"):
        dial(address, TOKEN, 1)
