"""The collective: what workers tell each other, one operation only: a message from everyone to everyone.

Sums are made of it by adding in order of rank, so that every worker has the same bits. Messages are raw bytes of arrays
whose type and shape both sides know; nothing is unpickled. Every wait has a time limit.
"""

from __future__ import annotations

import hmac
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from contradpp.errors import ClusterError

_LENGTH = struct.Struct("<Q")
_HELLO = struct.Struct("<32sI")
_AT_ONCE = 1 << 15  # bytes that a connection always takes without the other side reading
Address = tuple[str, int]
Part = bytes | bytearray | memoryview
Message = Sequence[Part]  # parts that are sent one after the other


class Collective(Protocol):
    """Workers numbered 0..size−1 that all call the same operations in the same order."""

    rank: int
    size: int
    sent: int  # bytes, all operations so far

    def exchange(
        self, messages: Sequence[Message], places: Sequence[Sequence[memoryview]] | None = None
    ) -> Sequence[Part]:
        """Tell every worker something, in order of rank, and hear what they tell us.

        With places, what worker r says is written there, part by part, and nothing is given back.
        """
        ...


class Alone:
    """One worker: there is nobody to tell."""

    rank, size, sent = 0, 1, 0

    def exchange(
        self, messages: Sequence[Message], places: Sequence[Sequence[memoryview]] | None = None
    ) -> Sequence[Part]:
        """See `Collective`."""
        return [b"".join(messages[0])] if places is None else []


class Mesh:
    """A connection between every two workers.

    A thread sends while the caller receives, so that large messages cannot block; small ones the caller sends itself.

    Parameters
    ----------
    rank : int
    addresses : list of (host, port)
        Where the workers listen, in order of rank.
    listener : socket
        Our own place in that list.
    token : bytes
        32 bytes that only these workers know; whoever connects without them is hung up on.
    timeout : float
        Seconds that any worker may be waited for.
    """

    def __init__(
        self, rank: int, addresses: Sequence[Address], listener: socket.socket, token: bytes, *, timeout: float
    ) -> None:
        self.rank, self.size, self.sent = rank, len(addresses), 0
        self._timeout = timeout
        self._peers: dict[int, socket.socket] = {}
        self._outbox: SimpleQueue[Sequence[Message] | None] = SimpleQueue()
        self._waiting, self._lock = 0, Lock()  # messages that the other thread has not sent yet
        self._failure: OSError | None = None
        try:
            self._meet(addresses, listener, token)
        except OSError as error:
            self.close()
            raise ClusterError(f"worker {rank} could not reach the others within {timeout:g} s: {error}") from error
        self._sender = Thread(target=self._send_on, daemon=True, name=f"contradpp-sender-{rank}")
        self._sender.start()

    def _meet(self, addresses: Sequence[Address], listener: socket.socket, token: bytes) -> None:
        """Call those before us, and be called by those after us."""
        deadline = time.monotonic() + self._timeout
        for peer in range(self.rank):
            connection = socket.create_connection(addresses[peer], timeout=self._timeout)
            connection.sendall(_HELLO.pack(token, self.rank))
            self._keep(peer, connection)
        while len(self._peers) < self.size - 1:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            connection, _ = listener.accept()
            connection.settimeout(max(min(deadline - time.monotonic(), 5.0), 0.001))
            try:
                said, peer = _HELLO.unpack(_receive(connection, _HELLO.size))
            except OSError:  # someone else, who does not know what to say
                connection.close()
                continue
            if hmac.compare_digest(said, token) and self.rank < peer < self.size and peer not in self._peers:
                self._keep(peer, connection)
            else:
                connection.close()

    def _keep(self, peer: int, connection: socket.socket) -> None:
        connection.settimeout(self._timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[peer] = connection

    def exchange(
        self, messages: Sequence[Message], places: Sequence[Sequence[memoryview]] | None = None
    ) -> Sequence[Part]:
        """See `Collective`."""
        self._refuse_broken()
        lengths = [sum(len(part) for part in message) for message in messages]
        self.sent += sum(lengths) - lengths[self.rank]
        if self._waiting == 0 and max(lengths) <= _AT_ONCE:
            self._send(messages)
        else:
            with self._lock:
                self._waiting += 1
            self._outbox.put(messages)
        heard: list[Part] = [b""] * self.size
        heard[self.rank] = b"".join(messages[self.rank]) if places is None else b""
        for shift in range(1, self.size):  # whoever sends to us first
            peer = (self.rank - shift) % self.size
            try:
                (length,) = _LENGTH.unpack(_receive(self._peers[peer], _LENGTH.size))
                if places is None:
                    heard[peer] = _receive(self._peers[peer], length)
                    continue
                if length != sum(len(place) for place in places[peer]):
                    raise ClusterError(f"worker {peer} is at another step than worker {self.rank}")
                for place in places[peer]:
                    _receive_into(self._peers[peer], place)
            except TimeoutError as error:
                raise ClusterError(f"worker {peer} has not answered for {self._timeout:g} s") from error
            except OSError as error:
                raise ClusterError(f"the connection to worker {peer} broke: {self._failure or error}") from error
        self._refuse_broken()
        return heard

    def _refuse_broken(self) -> None:
        """What could not be sent whole leaves the others with half a message: nothing may follow it."""
        if self._failure is not None:
            raise ClusterError(f"worker {self.rank} could not send: {self._failure}") from self._failure

    def _send(self, messages: Sequence[Message]) -> None:
        try:
            for shift in range(1, self.size):  # everyone begins with another, lest all send to one at once
                to = (self.rank + shift) % self.size
                _send_all(self._peers[to], _LENGTH.pack(sum(len(part) for part in messages[to])))
                for part in messages[to]:
                    _send_all(self._peers[to], part)
        except OSError as error:
            self._failure = error
            self._hang_up()

    def _send_on(self) -> None:
        while (messages := self._outbox.get()) is not None:
            if self._failure is None:
                self._send(messages)
            with self._lock:
                self._waiting -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._outbox.put(None)
        if kind is None:  # the others may still need what we said last
            self._sender.join()  # which has its own time limit
        self.close()

    def close(self) -> None:
        """Hang up at once; whoever waits for us gets an error."""
        self._outbox.put(None)
        self._hang_up()

    def _hang_up(self) -> None:
        for connection in self._peers.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def listen(host: str) -> socket.socket:
    """A socket on this address at a port of the system's choice."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen()
    return listener


def _send_all(connection: socket.socket, part: Part) -> None:
    """Send it piece by piece: the time limit is that of a piece, not of the whole as with `sendall`."""
    left = memoryview(part)
    while left:
        left = left[connection.send(left) :]


def _receive(connection: socket.socket, length: int) -> memoryview:
    try:
        data = np.empty(length, dtype=np.uint8).data if length else memoryview(b"")
    except (MemoryError, ValueError) as error:
        raise ClusterError(f"a message of {length:,} bytes was announced, for which there is no room") from error
    _receive_into(connection, data)
    return data


def _receive_into(connection: socket.socket, place: memoryview) -> None:
    while place:
        count = connection.recv_into(place)
        if count == 0:
            raise ConnectionResetError("the other side hung up")
        place = place[count:]


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array."""
    return array.data.cast("B") if array.size else memoryview(b"")


def gather(collective: Collective, data: Part) -> Sequence[Part]:
    """What every worker gave, in order of rank."""
    return collective.exchange([[data]] * collective.size)


def gather_arrays(collective: Collective, array: NDArray[Any]) -> list[NDArray[Any]]:
    """Everyone's one-dimensional array of the same type, in order of rank."""
    return [
        np.frombuffer(part, dtype=array.dtype) for part in gather(collective, bytes_of(np.ascontiguousarray(array)))
    ]


def total(collective: Collective, array: NDArray[Any]) -> NDArray[Any]:
    """The sum over workers of arrays of the same shape, added in order of rank."""
    parts = gather_arrays(collective, array.reshape(-1))
    if any(len(part) != array.size for part in parts):
        raise ClusterError(f"the workers disagree: sums of {sorted({len(part) for part in parts})} numbers")
    result: NDArray[Any] = np.sum(parts, axis=0).reshape(array.shape)
    return result


def fill(collective: Collective, arrays: Sequence[tuple[NDArray[Any], Sequence[int]]]) -> None:
    """Fill in what others know of contiguous arrays: worker r has the entries ends[r]..ends[r + 1] of each."""
    places = [
        [bytes_of(array[ends[rank] : ends[rank + 1]]) for array, ends in arrays] for rank in range(collective.size)
    ]
    collective.exchange([places[collective.rank]] * collective.size, places)
