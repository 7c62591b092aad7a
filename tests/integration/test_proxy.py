"""What the tests' network does to a connection; otherwise a storm that it brings would be none."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from proxy import Network, Way
from servers import free_port

#: A machine that is kept busy may take its time; what must not come is waited for a moment only.
PATIENTLY_S = 30
A_MOMENT_S = 0.2


class Echo:
    """A server that sends back what it hears, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.came = threading.Semaphore(0)
        # Not a port that the kernel deals out, which might be anybody's once this server is closed.
        self._listening = socket.create_server(("127.0.0.1", free_port()))
        self.port = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):  # closed already
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(PATIENTLY_S)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(100):
                self.heard += data
                self.came.release()
                connection.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as echo:
        yield echo


@pytest.fixture
def way(echo: Echo) -> Iterator[Way]:
    with closing(Network(echo.port)) as network:
        yield network.way()


@pytest.fixture
def client(way: Way) -> Iterator[socket.socket]:
    with connect(way) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        yield client


def connect(way: Way) -> socket.socket:
    return socket.create_connection(("127.0.0.1", way.port), PATIENTLY_S)


def hears(echo: Echo, words: bytes) -> None:
    """Returns when the server has heard all of this."""
    while echo.heard != words:
        assert echo.came.acquire(timeout=PATIENTLY_S), echo.heard


def says_nothing(client: socket.socket) -> bool:
    client.settimeout(A_MOMENT_S)
    try:
        client.recv(100)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENTLY_S)
    return False


def is_gone(client: socket.socket) -> bool:
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_cut_resets_what_is_open_and_what_is_opened_until_it_is_over(way: Way, client: socket.socket) -> None:
    with way.cut():
        assert is_gone(client)
        with connect(way) as another:
            assert is_gone(another)
    with connect(way) as another:
        another.sendall(b"again")
        assert another.recv(100) == b"again"


def test_what_was_sent_into_a_stall_arrives_though_its_sender_has_given_up(
    echo: Echo, way: Way, client: socket.socket
) -> None:
    with way.stalled():
        client.sendall(b"late")
        assert says_nothing(client)
        assert echo.heard == b"hello"
        client.close()
    hears(echo, b"hellolate")


def test_where_answers_are_lost_the_question_gets_through(echo: Echo, way: Way, client: socket.socket) -> None:
    with way.losing_answers():
        client.sendall(b"asked")
        hears(echo, b"helloasked")
        end = time.monotonic() + PATIENTLY_S
        while way.lost < len(b"asked"):
            assert time.monotonic() < end
            time.sleep(0.01)
    client.sendall(b"again")
    assert client.recv(100) == b"again"


@pytest.mark.parametrize("delay", [(60.0, 0.0), (0.0, 60.0)], ids=["there", "back"])
def test_a_delay_holds_up_either_direction(
    echo: Echo, way: Way, client: socket.socket, delay: tuple[float, float]
) -> None:
    there_s, back_s = delay
    with way.delayed(there_s, back_s):
        client.sendall(b"slow")
        if back_s:
            hears(echo, b"helloslow")
        assert says_nothing(client)
        assert (echo.heard == b"hello") == bool(there_s)


def test_who_connects_while_the_server_is_away_is_hung_up_on(echo: Echo, way: Way) -> None:
    echo.close()
    with connect(way) as client:
        assert is_gone(client)


def test_a_server_that_hangs_up_is_known_to_its_client(echo: Echo, way: Way, client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)
    assert is_gone(client)


def test_a_network_that_is_closed_leaves_nothing_open_though_clients_keep_coming(echo: Echo) -> None:
    for _ in range(10):
        with ExitStack() as clients, closing(Network(echo.port)) as network:
            way = network.way()
            for _ in range(20):
                clients.enter_context(connect(way))
    gc.collect()  # which complains of what was left open, and so fails this test
