"""The aimed storms: their vocabulary does what it says, and under each aim the library is beyond reproach."""

from __future__ import annotations

import os

import pytest
from acts import Again, HoldUp, Kill, Late, LetGo, Lose, StandStill
from aimed import weather_an_aimed_storm
from aiming import Act, Aim, Struck, after, at, strike
from aims import AIMS
from fleet_of_hosts import JobPlan
from sweep import swept

#: Each takes less than a second, on a busy machine a few.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_log")]

#: Due at 20 s, and at work for 2 s.
_JOB = (JobPlan("job", "20s", (2_000, 2_000), options=dict(lease="3s", max_late="15s", jitter="5ms")),)
_ALONE = dict(hosts=1, seconds=45, judged=False)


class Seen(list[tuple[int, int]]):
    """What the store has of the job when a strike comes: when that was, and how many unfinished runs there are."""

    def look(self) -> Act:
        def look(struck: Struck) -> None:
            runs = struck.fleet.server.store.active("job")
            self.append((struck.fleet.kernel.now_ms, len(runs)))

        return look


def test_a_strike_comes_at_the_nth_step_that_fits_and_the_next_so_long_after_it() -> None:
    """
    1. the claims for the slots of 0 s (where the host finds that due), 20 s and 40 s are sent
    2. the second answer ``won`` is on its way: the first strike
    3. 500 ms later: the second
    4. a claim of another mode, and a step of another host, are none
    """
    seen = Seen()
    strikes = (strike(at("claim done", 2, answer="won", host="host1"), seen.look()), strike(after(500), seen.look()))
    never = (strike(at("claim done", mode="takeover"), Kill()), strike(at("claim sent", host="host2"), Kill()))
    weather_an_aimed_storm(Aim(_JOB, strikes, never, **_ALONE), 0)
    (first_ms, _), (second_ms, _) = seen
    assert second_ms - first_ms == 500
    assert first_ms // 1000 in (20, 40)


def test_a_lost_request_is_not_done_and_a_call_whose_answer_is_lost_is() -> None:
    """
    1. the first claim is sent, and lost on its way: half a second later the store knows of no run
    2. it is sent again, done, and its answer is lost: the store has the run, and its host does not know
    3. it is sent once more, and answered ``won``, attempt 1: only then does the handler begin
    """
    seen = Seen()
    strikes = (
        strike(at("claim sent"), Lose()),
        strike(after(500), seen.look()),
        strike(at("claim done", answer="won"), Lose()),
        strike(after(500), seen.look()),
        strike(at("handler", attempt=1), seen.look()),
    )
    outcome = weather_an_aimed_storm(Aim(_JOB, strikes, **_ALONE), 0)
    assert [runs for _, runs in seen] == [0, 1, 1]
    assert outcome.reached["a call without an answer"] == 2
    assert outcome.complaints() == []


def test_a_late_request_is_done_when_its_sender_is_long_gone() -> None:
    """
    1. the first claim is sent, and takes 5 s; 100 ms later its sender is killed
    2. 4.8 s later the store knows of no run; 200 ms after that it has one that nobody works on
    """
    seen = Seen()
    strikes = (
        strike(at("claim sent"), Late(5_000)),
        strike(after(100), Kill()),
        strike(after(4_800), seen.look()),
        strike(after(200), seen.look()),
    )
    outcome = weather_an_aimed_storm(Aim(_JOB, strikes, **_ALONE), 0)
    assert [runs for _, runs in seen] == [0, 1]
    assert outcome.reached["event: start"] == 0


def test_what_is_held_up_is_done_at_the_step_that_lets_it_go() -> None:
    """
    1. host1 sends its first claim, which is held up
    2. host2 claims the same slot, and is granted it
    3. in that millisecond the claim of host1 is let go: it is answered ``running``, and changes nothing
    """
    answered: list[int] = []

    def count(struck: Struck) -> None:
        answered.append(struck.fleet.reached["claim: start running"])

    strikes = (
        strike(at("claim sent", host="host1"), HoldUp()),
        strike(at("claim done", host="host2", answer="won"), count, LetGo(), count),
    )
    outcome = weather_an_aimed_storm(Aim(_JOB, strikes, hosts=2, seconds=45, judged=False), 0)
    assert answered == [0, 1]
    assert outcome.complaints() == []


def test_a_call_is_done_again_by_something_between_the_two() -> None:
    """
    1. the first claim is granted, its run begins, ends after 2 s and is finished
    2. 3 s after the grant the claim is done once more: ``done``, finished
    """
    outcome = weather_an_aimed_storm(Aim(_JOB, (strike(at("claim done", answer="won"), Again(3_000)),), **_ALONE), 0)
    assert outcome.reached["claim: start done (finished)"] == 1
    assert outcome.complaints() == []


def test_one_thread_stands_still_and_the_others_of_its_host_go_on() -> None:
    """
    1. the thread that is to run the first slot comes 25 s late
    2. meanwhile the timer fires the next slot, whose run begins and ends
    3. the first one's lease is over, and it must not begin: it is told that it is lost
    """
    seen = Seen()
    strikes = (strike(at("LeasedRun.run"), StandStill(25_000)), strike(at("handler"), seen.look()))
    outcome = weather_an_aimed_storm(Aim(_JOB, strikes, **_ALONE), 1)
    [(began_ms, _)] = seen
    assert began_ms % 20_000 < 100
    assert outcome.reached["heartbeat: lost"] == 1
    assert outcome.complaints() == []


def test_an_aimed_storm_replays_exactly() -> None:
    aim = AIMS["a manual run comes between a dead holder and its backups"]
    assert weather_an_aimed_storm(aim, 11) == weather_an_aimed_storm(aim, 11)


#: Half a second each and more: these are for the long version.
_LONG_AIMS = {
    "one holder after another falls silent",
    "many hosts start",
    "several slots come due while one run goes on",
}


@pytest.mark.parametrize("name", [name for name in AIMS if name not in _LONG_AIMS])
def test_the_library_is_beyond_reproach_under_an_aim(name: str) -> None:
    outcome = weather_an_aimed_storm(AIMS[name], 0)
    assert outcome.complaints() == []


def test_the_library_is_beyond_reproach_under_strikes_here_and_there() -> None:
    """One of a hundred and thirty-one of the sweep."""
    found = []
    for number, (name, aim) in enumerate(swept()):
        if number % 131 == 0:
            found += [f"{name}: {complaint}" for complaint in weather_an_aimed_storm(aim, number).complaints()]
    assert found == []


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_library_is_beyond_reproach_whatever_befalls_it_at_whatever_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The whole sweep, from the seed ``ANARCHON_SOAK_FROM`` on: one for every thousand of ``ANARCHON_SOAK_SEEDS``."""
    first, seeds = int(os.environ.get("ANARCHON_SOAK_FROM", "0")), int(os.environ.get("ANARCHON_SOAK_SEEDS", "1000"))
    found, storms, struck = [], 0, 0
    for seed in range(first, first + max(1, seeds // 1000)):
        for number, (name, aim) in enumerate(swept()):
            outcome = weather_an_aimed_storm(aim, 10_000 * seed + number)
            found += [f"{name}: {complaint}" for complaint in outcome.complaints()]
            storms, struck = storms + 1, struck + outcome.reached["struck: 3"]
    with capsys.disabled():
        print(f"\n{storms} storms, {struck} of them struck")
    assert found == []


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_library_is_beyond_reproach_under_every_aim_in_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth of ``ANARCHON_SOAK_SEEDS`` seeds each, at least ten; and every strike of every aim strikes in some."""
    first, seeds = int(os.environ.get("ANARCHON_SOAK_FROM", "0")), int(os.environ.get("ANARCHON_SOAK_SEEDS", "1000"))
    found, idle = [], []
    for name, aim in AIMS.items():
        struck: set[str] = set()
        for seed in range(first, first + max(10, seeds // 10)):
            outcome = weather_an_aimed_storm(aim, seed)
            found += [f"{name}: {complaint}" for complaint in outcome.complaints()]
            struck |= {what for what in outcome.reached if what.startswith("struck: ")}
        numbers = [str(number + 1) for number in range(len(aim.strikes))] + ["always"] * bool(aim.always)
        idle += [f"{name}: {number}" for number in numbers if f"struck: {number}" not in struck]
        with capsys.disabled():
            print(f"{name}: {max(10, seeds // 10)} seeds", flush=True)
    assert (found, idle) == ([], [])
