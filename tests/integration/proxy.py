"""A network between the workers of a test and their server: each worker's way there can be cut, stalled and delayed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

__all__ = ["Network", "Way"]


class Network:
    """Ways to one server of this host, all of them kept by one thread. Close it, and every connection is gone."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ways: list[Way] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def way(self) -> Way:
        """A new way to the server, on a port of its own."""
        way = Way(self._loop, self._port)
        self._loop.call_soon_threadsafe(way._open)
        self._ways.append(way)
        return way

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _close(self) -> None:
        for way in self._ways:
            way._close()
        while asyncio.all_tasks() - {asyncio.current_task()}:
            for way in self._ways:
                way._cut_all()
            await asyncio.sleep(0)


class Way:
    """A port that stands for the server. Each fault lasts as long as its ``with``; one at a time.

    Attributes:
        port: where to connect.
        lost: how many bytes of answers have been lost.
    """

    lost = 0

    def __init__(self, loop: asyncio.AbstractEventLoop, server_port: int) -> None:
        self._loop = loop
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        # Whatever is open. The tasks, too, for asyncio itself does not keep them.
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Future[list[None]]] = set()
        self._passable = asyncio.Event()
        self._passable.set()
        self._cut = False
        self._loses_answers = False
        self._there_s = self._back_s = 0.0

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Every connection is reset, and so is each new one."""
        with self._for_a_while(self._cut_all, self._mend):
            yield

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Nothing goes through. What was sent arrives in the end, though its sender may have given up on it."""
        with self._for_a_while(self._passable.clear, self._passable.set):
            yield

    @contextmanager
    def delayed(self, there_s: float, back_s: float) -> Iterator[None]:
        """Everything takes so much longer, there and back."""
        with self._for_a_while(lambda: self._delay(there_s, back_s), lambda: self._delay(0, 0)):
            yield

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        """What is asked gets through, and nothing comes back."""
        with self._for_a_while(lambda: self._lose(True), lambda: self._lose(False)):
            yield

    @contextmanager
    def _for_a_while(self, begin: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
        self._loop.call_soon_threadsafe(begin)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(end)

    # -- on the network's thread

    def _cut_all(self) -> None:
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()
        for pumps in self._pumps:
            pumps.cancel()

    def _mend(self) -> None:
        self._cut = False

    def _delay(self, there_s: float, back_s: float) -> None:
        self._there_s, self._back_s = there_s, back_s

    def _lose(self, loses: bool) -> None:
        self._loses_answers = loses

    # Not asyncio's own server: one that is closed forgets what it has just accepted, and leaves it open.

    def _open(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _close(self) -> None:
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it may have gone again
            connection, _ = self._listening.accept()
            task = self._loop.create_task(self._carry(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, connection: socket.socket) -> None:
        """Carries what is said both ways, until one side hangs up or the way is cut; then both are."""
        writers = []
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
            writers.append(writer)
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            writers.append(server_writer)
            if not self._cut:
                there = self._pump(reader, server_writer, answers=False)
                back = self._pump(server_reader, writer, answers=True)
                await self._until_cut(writers, asyncio.gather(there, back))
        except (OSError, asyncio.CancelledError):
            pass  # The server is away, or this connection to it was cut.
        finally:
            for writer in writers:
                writer.transport.abort()

    async def _until_cut(self, writers: Sequence[asyncio.StreamWriter], pumps: asyncio.Future[list[None]]) -> None:
        self._writers.update(writers)
        self._pumps.add(pumps)
        try:
            await pumps
        finally:
            self._pumps.discard(pumps)
            self._writers.difference_update(writers)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await asyncio.sleep(self._back_s if answers else self._there_s)
                await self._passable.wait()
                if answers and self._loses_answers:
                    self.lost += len(data)
                    continue
                target.write(data)
                await target.drain()
        # Who hangs up, hangs up on the other side, too.
        target.close()
