"""Where RedisBackend's client comes from: made here from a URL (``OwnClient``), or given by the user (``GivenClient``).

Guarantees:

- Nothing connects before the first call.
- A child never uses a client of its parent. If another thread was inside the pool's lock at the fork, that lock is
  locked for ever in the child, and redis-py takes it before it notices the fork. The parent's client is kept, unused,
  so that it is not finalised either.
- redis-py's own repeats are off, and every wait has its time-out, in the client made here; a client of the user's is
  measured against the same bound (``redis_limits.py``).
- No error tells a password, not even through its cause.
"""

from __future__ import annotations

# Python imports this when the first name is looked up. A fork in the middle of that would leave the import locked in
# the child, which then could not look up any.
import encodings.idna  # noqa: F401
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from anarchon.backends.redis_fork import renewed
from anarchon.backends.redis_groups import PATIENCE_MS, GroupingRedis
from anarchon.backends.redis_limits import check_bound, is_cluster, place_of, pools_of
from anarchon.backends.redis_replicas import NotReplicated, serves_no_longer
from anarchon.backends.redis_url import read_redis_url
from anarchon.errors import BackendError, ConfigurationError
from anarchon.forks import in_child, meet_fork
from anarchon.records import shorten_error

__all__ = ["ClientSource", "GivenClient", "OwnClient"]

_T = TypeVar("_T")

CONNECT_S = 1.0
READ_S = 2.0

#: More than one process has in flight; redis-py 8 raises at 100 unless told otherwise.
MAX_CONNECTIONS = 1000

_UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, RedisClusterException, OSError)

# Which descendant of the first process this is. Process ids come round again, this does not.
_generation = 0


def _count_fork() -> None:
    global _generation
    _generation += 1


in_child(_count_fork)

# Nor in the middle of this: redis-py gives a pool a random name, and looks up its own version for each connection, for
# which Python imports half a dozen modules. This one never connects.
redis.ConnectionPool().make_connection()


class ClientSource(ABC):
    """Hands out this process's client, and turns whatever goes wrong with it into ``BackendError``.

    Attributes:
        text: what is connected to, for people.
        place: the same, for messages.
        wait_replicas: how many replicas a call may have to wait for, which takes time; None or 0: for none.
        has_nodes: whether it is a cluster.
    """

    text: str
    place: str
    wait_replicas: int | None = None
    has_nodes = False
    _secrets: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._clients: dict[int, Any] = {}

    def ask(self, question: Callable[[Any], _T]) -> _T:
        """Calls ``question(client)``: the one door to Redis. Nothing but ``BackendError`` comes out of it."""
        meet_fork()
        try:
            client = self._clients.get(_generation)
            if client is None:
                # Without a lock, which a fork could leave locked: two threads may both make one, and use the first.
                client = self._clients.setdefault(_generation, self._make())
            return question(client)
        except BackendError:
            raise  # It came, and what it says has been put into words already.
        except Exception as error:
            if serves_no_longer(error):
                self._look_anew()
            failure = self._failure(error)
        # Outside the clause: what the driver said, password and all, would be chained as the context.
        raise failure

    def need_replicas(self, replicas: int) -> None:
        """Sets how many replicas a call may have to wait for."""
        if self.wait_replicas is not None:
            raise ConfigurationError("wait_replicas is given twice, as an argument and in the URL.")
        self.wait_replicas = replicas

    @abstractmethod
    def bound(self, limit_ms: int) -> None:
        """Sees to it that one call's time-outs add up to no more than this."""

    def close(self) -> None:
        """Closes what was opened here."""

    @abstractmethod
    def _make(self) -> Any:
        """A new client for this process."""

    def _look_anew(self) -> None:
        """Has the next call connect anew: Sentinel, or the host's name, may stand for another server by now.

        A primary that is cut off from its replicas, or was made one of them, goes on answering whoever is connected. A
        cluster's client reads the cluster's map by itself.
        """
        client = self._clients.get(_generation)
        if client is not None and not is_cluster(client):
            if isinstance(client, GroupingRedis):
                client.hang_up()
            pool = client.connection_pool
            if not isinstance(pool, redis.BlockingConnectionPool):
                pool.disconnect(inuse_connections=False)

    def _failure(self, error: Exception) -> BackendError:
        text = shorten_error(self._scrubbed(f"{error}" or type(error).__name__))
        if isinstance(error, _UNREACHABLE):
            failure = BackendError(f"could not reach Redis at {self.place}: {text}")
        elif isinstance(error, NotReplicated):
            failure = BackendError(f"Redis at {self.place} may lose the call: {text}")
        elif isinstance(error, redis.RedisError):
            failure = BackendError(f"Redis at {self.place} refused the call: {text}")
        else:
            failure = BackendError(f"Redis at {self.place} gave an answer that cannot be read: {text}")
        told = any(self._scrubbed(words) != words for link in _chain(error) for words in (f"{link}", f"{link!r}"))
        failure.__cause__ = redis.RedisError(f"{type(error).__name__}: {text}") if told else error
        return failure

    def _scrubbed(self, text: str) -> str:
        for secret in self._secrets:
            for form in (secret, quote(secret, safe=""), repr(secret)[1:-1]):
                text = text.replace(form, "***")
        return text


class OwnClient(ClientSource):
    """The client that is made here from a URL: no repeats, and every wait bounded."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._address = read_redis_url(url)
        self.text, self.place, self._secrets = self._address.text, self._address.place, self._address.secrets
        self._connect_s: float = self._address.options.get("socket_connect_timeout", CONNECT_S)
        self._read_s: float = self._address.options.get("socket_timeout", READ_S)
        self.wait_replicas = self._address.wait_replicas

    @property
    def longest_call_s(self) -> float:
        """All that a call waits for: its turns among others, and the time-outs of every step."""
        return self._sends * (PATIENCE_MS / 1000 + self._timeouts_s)

    @property
    def _sends(self) -> int:
        """How often a call is sent: once more if the server did not know the script, or replicas are waited for."""
        return 3 if self.wait_replicas else 2

    @property
    def _timeouts_s(self) -> float:
        """Connecting, and an answer to each thing that a new connection says first; then the script, whose send and the
        answers to others before it may take as long as its own."""
        options = self._address.options
        answers = sum(1 for said in (options.get("password"), options["db"], options.get("client_name")) if said)
        if self._address.tls:
            answers += 2  # the handshake
        return self._connect_s + (answers + 2) * self._read_s

    def bound(self, limit_ms: int) -> None:
        share = (limit_ms / self._sends - PATIENCE_MS) / 1000 / self._timeouts_s
        if share < 1:
            self._connect_s *= share
            self._read_s *= share
            self.close()

    def close(self) -> None:
        meet_fork()
        client = self._clients.pop(_generation, None)
        if client is not None:
            _hang_up(client)

    def _make(self) -> redis.Redis:
        options = {"max_connections": MAX_CONNECTIONS, "protocol": 2, **self._address.options}
        options["socket_connect_timeout"], options["socket_timeout"] = self._connect_s, self._read_s
        options["retry"] = Retry(NoBackoff(), 0)
        kind: Any = _TLSConnection if self._address.tls else _Connection
        if "path" in options:
            kind = _SocketConnection
        return GroupingRedis(redis.ConnectionPool(connection_class=kind, **options))


class GivenClient(ClientSource):
    """The user's own client, used as it is and never closed; in a child, one like it that is made here."""

    def __init__(self, client: object) -> None:
        super().__init__()
        if not isinstance(client, (redis.Redis, RedisCluster)):
            raise ConfigurationError(
                "client must be a redis.Redis (Sentinel's master_for gives one) or a redis.cluster.RedisCluster, "
                f"not {type(client).__module__}.{type(client).__name__}."
            )
        self._given: Any = client
        self.has_nodes = is_cluster(client)
        self._clients[_generation] = client
        self.place = place_of(client)
        self.text = f"{type(client).__name__} at {self.place}"
        options = [pool.connection_kwargs for pool in pools_of(client)]
        passwords = {known.get(name) for known in options for name in ("password", "ssl_password")}
        self._secrets = tuple(password for password in passwords if isinstance(password, str) and password)

    def bound(self, limit_ms: int) -> None:
        check_bound(self._given, limit_ms, waits=bool(self.wait_replicas))

    def close(self) -> None:
        meet_fork()
        renewed = self._clients.get(_generation)
        if renewed is not None and renewed is not self._given:
            del self._clients[_generation]
            _hang_up(renewed)

    def _make(self) -> Any:
        return renewed(self._given)


class _Quiet:
    """A reader's account may do nothing but read: a new connection does not introduce itself (CLIENT SETINFO)."""

    def __init__(self: Any, **options: Any) -> None:
        super().__init__(**options)
        # How to turn it off changes from version to version; these are what the versions look at.
        for name in ("driver_info", "lib_name", "lib_version"):
            setattr(self, name, None)
        # redis-py 5.0.0 forgets it for a socket in the file system.
        self.socket_timeout = options["socket_timeout"]


class _DividesConnecting:
    """A name may stand for several addresses (localhost often does for two), and redis-py gives each the whole time."""

    _connect_budget_s: float | None = None

    def _connect(self: Any) -> Any:
        if self._connect_budget_s is None:
            self._connect_budget_s = self.socket_connect_timeout
        addresses = socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)
        self.socket_connect_timeout = self._connect_budget_s / max(1, len(addresses))
        return super()._connect()  # type: ignore[misc]


class _Connection(_Quiet, _DividesConnecting, redis.Connection):
    pass


class _TLSConnection(_Quiet, _DividesConnecting, redis.SSLConnection):
    pass


class _SocketConnection(_Quiet, redis.UnixDomainSocketConnection):
    def _connect(self: Any) -> socket.socket:
        # redis-py 5 leaves the socket open where connecting fails.
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self.socket_connect_timeout)
            connection.connect(self.path)
            connection.settimeout(self.socket_timeout)
        except BaseException:
            connection.close()
            raise
        return connection


def _hang_up(client: Any) -> None:
    if isinstance(client, GroupingRedis):
        client.hang_up()
    for pool in pools_of(client):
        if isinstance(pool, redis.BlockingConnectionPool):
            pool.disconnect()  # redis-py 5 can only close them all here
        else:
            # Those in use are closed when their call has ended and the pool is gone.
            pool.disconnect(inuse_connections=False)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
