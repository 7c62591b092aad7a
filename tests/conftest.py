"""What every test may use: real Redis servers, one for the session and private ones."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import redis
from servers import (
    ClockedRedisBackend,
    MemcachedServer,
    NoServer,
    PostgresDatabase,
    PostgresServer,
    RedisServer,
)

# A job in the background of a shell, or under nohup, is started with Ctrl-C ignored, and its children would be, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_files_in_memory() -> None:
    """Temporary files, those of every process that a test starts included, are kept in memory where there is plenty.

    Stores wait for the disk with every commit, of which there are some ten thousand here. What that is good for, the
    host's own crash, no test can bring about; and a disk that is kept busy makes any of them slow. TMPDIR in the
    environment says otherwise.
    """
    memory = "/dev/shm"
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK | os.X_OK):
        return
    # The copies of the examples have scripts that are run where they are.
    if os.statvfs(memory).f_flag & os.ST_NOEXEC or shutil.disk_usage(memory).free < 2 * 1024**3:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = memory


_keep_files_in_memory()


#: How long whoever talks to the session's server waits for it: on a busy machine it may take its time, like everybody.
_PATIENTLY = "socket_connect_timeout=30&socket_timeout=30"


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real server: REDIS_URL from the environment, else one that is started for this run of the tests."""
    given = os.environ.get("REDIS_URL")
    if given:
        yield f"{given}{'&' if '?' in given else '?'}{_PATIENTLY}"
        return
    server = RedisServer(tmp_path_factory.mktemp("redis"), appendonly="no")
    yield f"{server.start().url}?{_PATIENTLY}"
    server.kill()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Makes private servers, which a test may stop, start again, pause and configure; all are gone at its end."""
    servers: list[RedisServer] = []

    def make(**options: str) -> RedisServer:
        servers.append(RedisServer(tmp_path / f"redis-{len(servers)}", **options))
        return servers[-1]

    yield make
    for server in servers:
        server.kill()


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A key prefix that no other test has. What the test leaves under it on the session's server is removed."""
    prefix = f"test:{uuid.uuid4().hex}:"
    yield prefix
    if "redis_url" in request.fixturenames:
        with redis.Redis.from_url(request.getfixturevalue("redis_url"), protocol=2) as client:
            for key in client.scan_iter(match=f"{prefix}*", count=1000):
                client.delete(key)


@pytest.fixture
def redis_clocked_backend(redis_url: str, prefix: str) -> Iterator[ClockedRedisBackend]:
    """A Redis backend on a real server, its clock in the test's hand (``now_ms``)."""
    backend = ClockedRedisBackend(redis_url, prefix=prefix)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def memcached_server() -> Iterator[MemcachedServer]:
    """A memcached for this run of the tests; what a test keeps there has a prefix of its own."""
    try:
        server = MemcachedServer()
    except NoServer as lacking:
        _without(lacking)
    yield server.start()
    server.kill()


@pytest.fixture
def memcached(memcached_server: MemcachedServer) -> str:
    """The address of a real memcached, such as ``127.0.0.1:41213``."""
    return memcached_server.address


@pytest.fixture
def memcached_alone() -> Iterator[Callable[..., MemcachedServer]]:
    """Makes private servers, which a test may stop, start again, pause and give options; all are gone at its end."""
    servers: list[MemcachedServer] = []

    def make(*options: str) -> MemcachedServer:
        try:
            servers.append(MemcachedServer(*options))
        except NoServer as lacking:
            _without(lacking)
        return servers[-1]

    yield make
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL for this run of the tests; each test has a database of its own on it."""
    try:
        server = PostgresServer()
    except NoServer as lacking:
        _without(lacking)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """A new, empty database on a real PostgreSQL; ``postgres.django`` is its entry in Django's DATABASES."""
    database = postgres_server.database()
    yield database
    database.remove()


def _without(lacking: NoServer) -> NoReturn:
    """A test that lacks its server is skipped where somebody works, and fails where everything must be tested."""
    if os.environ.get("CI"):
        pytest.fail(str(lacking))
    pytest.skip(str(lacking))
