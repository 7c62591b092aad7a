"""What the tests with real processes share: fleets of workers, and scenarios that are played side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest
from fleet import Fleet
from stage import Stage

from anarchon.backends import redis_client

Scenario = Callable[[Stage], None]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "at_once(scenario): what this test looks at, played side by side with others")


@pytest.fixture
def patient_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend's own clients wait for half a minute: a host that has too much to do may not answer in two seconds."""
    monkeypatch.setattr(redis_client, "CONNECT_S", 30.0)
    monkeypatch.setattr(redis_client, "READ_S", 30.0)


@pytest.fixture
def stage(tmp_path: Path, redis_url: str) -> Iterator[Stage]:
    """A stage of the test's own."""
    with closing(Stage(tmp_path, redis_url)) as stage:
        yield stage


@pytest.fixture
def make_fleet(stage: Stage) -> Callable[[str], Fleet]:
    """Makes a fleet on a new, empty store of a kind: ``redis`` or ``sqlite``."""
    return stage.fleet


@pytest.fixture
def played(request: pytest.FixtureRequest, all_played: dict[Scenario, Future[None]]) -> Callable[[], None]:
    """Raises what the test's own scenario has raised, if anything."""
    return all_played[_scenarios(request.node)[0]].result


@pytest.fixture(scope="session")
def all_played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> dict[Scenario, Future[None]]:
    """The scenarios of all tests of this run of pytest, played when the first of these tests comes."""
    scenarios = [scenario for item in request.session.items for scenario in _scenarios(item)]
    directories = [tmp_path_factory.mktemp("stage") for _ in scenarios]

    def play(scenario: Scenario, directory: Path) -> None:
        with closing(Stage(directory, redis_url)) as stage:
            scenario(stage)

    with ThreadPoolExecutor(len(scenarios)) as pool:
        # Takeovers, which take longest, are in the last file: they are to begin first.
        ordered = reversed(list(zip(scenarios, directories)))
        playing = {scenario: pool.submit(play, scenario, directory) for scenario, directory in ordered}
        wait(playing.values())
    return playing


def _scenarios(item: pytest.Item) -> list[Scenario]:
    return [mark.kwargs["scenario"] for mark in item.iter_markers("at_once")]
