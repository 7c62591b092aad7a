"""The aims: each a rare meeting, how it is brought about, and the mutants that it was written for.

Most slots of these fleets are twenty seconds apart, so that one meeting is over before the next could be: the first is
due at 20 s, unless a host that starts at 0 s finds that one due.
"""

from __future__ import annotations

from acts import (
    Again,
    CutOff,
    Forget,
    HoldUp,
    Kill,
    Late,
    LetGo,
    Lose,
    Pause,
    Refuse,
    Restart,
    RunNow,
    StandStill,
    Start,
    StepClock,
    StepStore,
    Stop,
    StopInside,
    StoreAway,
    StoreEmpty,
)
from aiming import ALL, OTHERS, Aim, after, at, strike
from fleet_of_hosts import JobPlan

__all__ = ["AIMED_AT", "AIMS"]


def _job(interval: str, work_ms: int, stubborn: int = 0, fails: int = 0, **options: object) -> tuple[JobPlan]:
    """One job: a lease of three seconds (so a call is given up after one), and hardly any jitter."""
    given = dict(lease="3s", max_late="10s", jitter="5ms") | options
    return (JobPlan("job", interval, (work_ms, work_ms), fails, stubborn, given),)


_SHORT, _LONG = _job("20s", 100), _job("20s", 12_000)
_FIRST = dict(mode="start")
_WON = dict(mode="start", answer="won")

AIMS: dict[str, Aim] = {
    # -- what the store must not fall for
    "a released run's claim is done once more": Aim(
        _LONG,
        (strike(at("claim done", **_WON), Again(3_000)), strike(at("handler"), Stop())),
        hosts=1,
        seconds=30,
        judged=False,
        sees=(
            "5: a late repeat wins a new attempt",
            "5: a released attempt is revived",
        ),
    ),
    "a claim whose token has released is done once more when its successor is dead": Aim(
        _LONG,
        (
            strike(at("claim done", **_WON), Again(9_000)),
            strike(at("handler"), Stop()),
            strike(at("handler", attempt=2), Kill()),
        ),
        seconds=35,
        judged=False,
        sees=("5: tokens that released the run are forgotten",),
    ),
    "the store comes back empty under a run, and another begins it anew": Aim(
        _job("20s", 8_000, jitter="2s"),
        (
            strike(at("handler"), StoreEmpty()),
            strike(at("save_result done"), Kill(OTHERS), Start()),
        ),
        hosts=3,
        seconds=38,
        judged=False,
        sees=(
            "8: lost is written over a result",
            "a lease that the store says is lost is told",
        ),
    ),
    "a claim is done once more in a store that came back empty, and its run is given back": Aim(
        _LONG,
        (
            strike(at("claim done", **_WON), Again(500)),
            strike(at("handler"), StoreEmpty()),
            strike(after(800), Stop()),
        ),
        hosts=1,
        seconds=30,
        judged=False,
        sees=("release: attempt and fence are the caller's",),
    ),
    "a host catches up on a slot whose end is forgotten": Aim(
        _job("20m", 100, catch_up="30m"),
        (
            strike(after(3_000), RunNow("host1")),
            *[strike(after(600), RunNow("host1"))] * 17,
            strike(after(630_000), RunNow("host1")),
            strike(after(1_000), Start()),
        ),
        hosts=1,
        seconds=680,
        judged=False,
        sees=("10: the newest slot has not passed",),
    ),
    "a host catches up on a slot whose end is old": Aim(
        _job("20m", 100, catch_up="30m"),
        (strike(after(640_000), RunNow("host1")), strike(after(1_000), Start())),
        hosts=1,
        seconds=680,
        judged=False,
        sees=("the newest ends are remembered whatever their age",),
    ),
    "a host catches up on a slot whose end is older than ten minutes, and its lease was as long": Aim(
        _job("20m", 100, catch_up="30m", lease="10m"),
        (
            strike(after(3_000), RunNow("host1")),
            *[strike(after(600), RunNow("host1"))] * 17,
            strike(after(630_000), RunNow("host1")),
            strike(after(1_000), Start()),
        ),
        hosts=1,
        seconds=680,
        judged=False,
        sees=("remembered: for ten minutes however long the lease",),
    ),
    "the claim of a dead host is done as the next slot is granted": Aim(
        _job("20s", 5_000, jitter="0s", max_late="40s"),
        (
            strike(at("claim sent", **_FIRST), HoldUp()),
            strike(after(10), Start(), Kill("host1")),
            strike(at("claim done", **_WON), LetGo()),
        ),
        hosts=1,
        longest_ms=0,
        seconds=50,
        judged=False,
        sees=("10: latest counts only in the past",),
    ),
    "the claim of a dead host is done at the very end of its window": Aim(
        _job("20s", 5_000, jitter="0s"),
        (strike(at("claim sent", **_FIRST), Late(to_the_end=True)), strike(after(10), Kill("host1"))),
        hosts=1,
        longest_ms=0,
        seconds=35,
        judged=False,
        sees=("11: late at the very end of the window",),
    ),
    "a manual run finds a lease over, and the store's clock steps back": Aim(
        _job("40s", 12_000),
        (
            strike(at("handler"), CutOff(20_000)),
            strike(after(3_004), RunNow(OTHERS)),
            strike(after(200), StepStore(-5_000)),
        ),
        true_time=False,
        judged=False,
        sees=(
            "7: a takeover minds no overlap",
            "14: a manual grant closes scheduled runs",
            "leases: a grant ends none for good",
            "leases: live though ended for good",
        ),
    ),
    "one of two leases that are over is renewed, and the store's clock steps back": Aim(
        _job("5s", 30_000, overlap="allow"),
        (
            strike(at("handler", 2), CutOff(4_000)),
            strike(after(3_500)),
            strike(at("heartbeat done", answer="ok"), StepStore(-5_000)),
        ),
        hosts=1,
        seconds=20,
        true_time=False,
        judged=False,
        sees=(
            "release: a lease that is over is an obstacle",
            "leases: a return to life ends none for good",
        ),
    ),
    "a host starts when the store's clock has stepped back": Aim(
        _LONG,
        (strike(at("handler"), CutOff(20_000)), strike(after(300), StepStore(-5_000), Start())),
        hosts=1,
        seconds=30,
        true_time=False,
        judged=False,
        sees=(
            "8: a lost attempt begins after its end",
            "leases: none is cut by a claim",
            "active: a lease is not cut",
        ),
    ),
    "somebody has the store forget a job": Aim(
        _SHORT,
        (strike(after(30_000), Forget()),),
        hosts=1,
        seconds=45,
        judged=False,
        sees=("forgetting a job removes all of it",),
    ),
    "a manual run is asked for once more when it is dead and a newer slot was granted": Aim(
        _job("20s", 100, overlap="allow"),
        (
            strike(after(19_000), RunNow("host1", once="x")),
            strike(at("handler"), Kill()),
            strike(after(4_000), RunNow("host2", once="x")),
        ),
        seconds=35,
        judged=False,
        sees=("4: manual runs are superseded", "6: a manual run has as many as are asked for"),
    ),
    "a run was given back, and a host with a short history has cut its record": Aim(
        (
            JobPlan(
                "job",
                "40s",
                (500, 500),
                options=dict(lease="3s", max_late="10s", jitter="5ms"),
                varied=dict(history_limit=(1, 5)),
            ),
        ),
        (strike(after(39_000)), strike(at("handler"), Stop()), strike(at("release done"), RunNow(OTHERS))),
        hosts=4,
        seconds=60,
        judged=False,
        sees=("8: a released attempt is recorded lost",),
    ),
    "the store's clock steps back to before all that was granted": Aim(
        _job("5s", 100),
        (strike(after(12_100), StepStore(-60_000)),),
        hosts=1,
        true_time=False,
        judged=False,
        sees=("10: a latest in the future stops the job", "14: latest is lowered"),
    ),
    "an older slot is granted when the store's clock has stepped back, and a newer run is dead": Aim(
        _job("5s", 100, overlap="allow"),
        (strike(after(9_000)), strike(at("handler"), Kill(), StepStore(-58_000), Start())),
        always=(strike(at("claim sent", mode="takeover"), Lose()),),
        hosts=1,
        seconds=30,
        true_time=False,
        judged=False,
        sees=("14: newer dead runs are closed",),
    ),
    "a lease is live when the store's clock steps back, and only another is renewed": Aim(
        _job("20s", 12_000, overlap="allow"),
        (
            strike(after(19_000)),
            strike(at("handler")),
            strike(after(500), RunNow(OTHERS)),
            strike(at("handler"), Kill(), StepStore(-5_000)),
        ),
        seconds=32,
        true_time=False,
        judged=False,
        sees=("leases: none is cut by a heartbeat",),
    ),
    "a renewal comes when its lease is over and a newer slot was granted": Aim(
        _job("5s", 30_000, overlap="allow"),
        (strike(at("handler", 2), CutOff(4_000)),),
        hosts=1,
        seconds=20,
        judged=False,
        sees=("heartbeat: a newer slot does not matter",),
    ),
    "a renewal comes when its lease is over and a manual run is in the way": Aim(
        _job("40s", 12_000),
        (strike(at("handler"), CutOff(4_000)), strike(after(3_004), RunNow(OTHERS))),
        seconds=75,
        sees=("heartbeat: an overlap does not matter",),
    ),
    "a run is given back, and the answer is lost": Aim(
        _job("40s", 12_000),
        (strike(at("handler"), Stop()), strike(at("release done"), Lose())),
        seconds=75,
        sees=("release: a repeat is lost",),
    ),
    "a run that has one attempt is given back by a stop": Aim(
        _job("40s", 12_000, max_attempts=1),
        (strike(at("handler"), Stop()),),
        seconds=75,
        sees=("release: every attempt counts",),
    ),
    "a run that was taken over ends in a history of one": Aim(
        _job("40s", 3_000, history_limit=1),
        (strike(at("handler"), Pause(12_000)),),
        seconds=75,
        judged=False,
        sees=("save_result: it keeps to another limit",),
    ),
    # -- leases and their deadlines
    "a renewal is done after the end of its run, and answered before it": Aim(
        _job("20s", 900),
        (strike(at("heartbeat sent"), Late(600)), strike(at("finish done"), Late(600))),
        hosts=1,
        sees=("a renewal that raced with the end alarms nobody",),
    ),
    "a renewal's answer is slow, and then no other comes": Aim(
        _LONG,
        (
            strike(at("heartbeat done", answer="ok"), Late(800)),
            strike(at("heartbeat heard"), CutOff(8_000)),
        ),
        hosts=1,
        sees=(
            "a margin is left before the lease is over",
            "the deadline is watched apart from the call that may hang",
            "a lease is counted from just before its renewal was sent",
        ),
    ),
    "a manual run's first answer is lost, and then no other call gets through": Aim(
        _LONG,
        (
            strike(after(5_000), RunNow("host1")),
            strike(at("claim done", mode="manual"), Lose()),
            strike(at("claim heard", mode="manual"), CutOff(8_000)),
        ),
        hosts=1,
        sees=("a manual run's lease is counted from before its first ask",),
    ),
    "a deadline rings as a renewal moves it": Aim(
        _job("40s", 20_000, lease="6s", heartbeat="2s"),
        (
            strike(at("heartbeat sent"), Lose()),
            strike(at("heartbeat done", answer="ok"), Late(1_430)),
            strike(at("Heartbeat._expired"), StandStill(300)),
        ),
        hosts=1,
        seconds=90,
        sees=("a deadline that a renewal has moved does not ring",),
    ),
    "a run's thread comes so late that another has its run": Aim(
        _LONG,
        (strike(at("LeasedRun.run"), StandStill(4_000)),),
        sees=("a run whose lease is lost before it began never begins",),
    ),
    "a run's thread comes when a stop has begun": Aim(
        _LONG,
        (strike(at("LeasedRun.run"), StandStill(300)), strike(after(50), Stop())),
        sees=("a run whose thread had not begun when the stop came never begins",),
    ),
    "a grant is long on its way, and cannot be renewed": Aim(
        _LONG,
        (
            strike(at("claim done", **_WON), Lose()),
            strike(at("claim done", **_WON), Lose()),
            strike(at("claim done", **_WON), Late(600)),
            strike(at("heartbeat sent"), Lose()),
        ),
        hosts=1,
        sees=("a lease that cannot be relied on before the run begins is lost",),
    ),
    "a lease is lost and nobody has taken the run": Aim(
        _job("40s", 20_000, max_attempts=1),
        (strike(at("handler"), CutOff(4_000)),),
        hosts=1,
        seconds=75,
        sees=(
            "release: no attempt counts",
            "what was given back is watched again here",
        ),
    ),
    # -- tokens
    "a grant that nobody heard of is passed over as the claim is given up": Aim(
        _job("7s", 3_000, lease="30s", max_late="20s"),
        (
            strike(at("claim done", **_WON), Lose()),
            strike(at("FirstClaims._give_up"), StandStill(50)),
        ),
        hosts=1,
        judged=False,
        sees=(
            "a claim that was given up may have been granted",
            "the backups know what may have been granted before the next claim is asked",
        ),
    ),
    "a run that was granted unseen is taken over, and its holder dies": Aim(
        _job("40s", 30_000, max_late="4s"),
        (
            strike(at("claim done", **_WON), Lose(), CutOff(6_000)),
            strike(at("handler", attempt=2)),
            strike(after(4_000), Kill()),
        ),
        seconds=79,
        sees=(
            "5: tokens of attempts before the last are forgotten",
            "a token that held the run unseen gives way to another",
        ),
    ),
    "a claim comes through long after it was given up": Aim(
        _job("10s", 3_000, lease="10s", max_late="30s"),
        (strike(at("claim sent", **_FIRST), Late(13_000)),),
        always=(strike(at("claim sent", **_FIRST), Lose()),),
        hosts=1,
        seconds=50,
        judged=False,
        sees=("a token of a claim that may still come through is kept",),
    ),
    "a manual run's claim is granted and never answered": Aim(
        _LONG,
        (strike(after(5_000), RunNow("host1")),),
        always=(strike(at("claim done", mode="manual"), Lose()),),
        hosts=1,
        sees=(
            "finish: attempt and fence are the caller's",
            "a manual run that may have been granted is withdrawn",
        ),
    ),
    # -- first claims
    "a slot is caught up on when a newer one is due and cannot be asked for": Aim(
        _job("30s", 100, jitter="20s", max_late="60s", catch_up="2m"),
        (strike(after(29_000), Start()), strike(after(500), CutOff(20_000, ALL))),
        hosts=0,
        seconds=80,
        sees=("an older slot does not take the place of a newer one",),
    ),
    "a host that is fast starts without a store": Aim(
        _job("2s", 100),
        (strike(after(0), StoreAway(3_000)),),
        hosts=1,
        skews_ms=(30_000,),
        sees=(
            "a backend is told how long its calls may take",
            "a slot to come gives way to one that is due",
        ),
    ),
    "a host that is an hour fast starts without a store": Aim(
        _job("5s", 100),
        (strike(after(0), StoreAway(5_000)),),
        hosts=1,
        skews_ms=(3_600_000,),
        seconds=120,
        sees=(
            "a store that is down at the start is asked again",
            "a clock that was set back is noticed",
        ),
    ),
    "a host is a little fast, and never told so before it asks": Aim(
        _job("10s", 100),
        (),
        always=(strike(at("time sent"), Refuse()),),
        hosts=1,
        skews_ms=(900,),
        sees=(
            "a store that is down at the start does not hold back the timers",
            "a slot that is still to come is asked for again",
        ),
    ),
    "a slot cannot be asked for until long after its window": Aim(
        _job("40s", 100, max_late="4s"),
        (strike(at("claim sent", **_FIRST), CutOff(20_000)),),
        hosts=1,
        seconds=75,
        sees=("a claim is repeated only while its slot may start",),
    ),
    "a claim is on its way until a newer slot is granted": Aim(
        _job("5s", 100, lease="30s", max_late="20s", jitter="4s"),
        (strike(at("claim sent", 3, **_FIRST), Late(5_500)), strike(after(500), Start())),
        hosts=1,
        sees=("a slot that was passed though it was asked for in time is late",),
    ),
    "the time is asked for at a slot, and the answer is lost": Aim(
        # Due 603 s after the start, when the time that was heard then is too old.
        _job("3 10 * * * *", 100, lease="30s", max_late="4s", seconds=True),
        (strike(at("time sent", 2), Lose()),),
        hosts=1,
        seconds=660,
        judged=False,
        sees=(
            "a slot that is late here is not claimed",
            "an old sample is refreshed",
        ),
    ),
    # -- backups
    "one holder after another falls silent": Aim(
        _job("20s", 15_000, max_attempts=50),
        (),
        always=(strike(at("handler"), CutOff(5_000)),),
        hosts=6,
        seconds=150,
        sees=(
            "leases: live at its very end",
            "release: the token is not remembered",
            "checks after a lease's end are spread",
        ),
    ),
    "a manual run comes between a dead holder and its backups": Aim(
        _job("40s", 8_000),
        (
            strike(at("claim done", **_WON), Again(4_000)),
            strike(at("handler"), Kill()),
            strike(after(3_002), RunNow(OTHERS)),
        ),
        hosts=3,
        seconds=75,
        sees=(
            "5: a late repeat minds no overlap",
            "an overlap keeps a backup watching",
        ),
    ),
    "several slots come due while one run goes on": Aim(
        _job("3s", 12_000, max_late="20s"),
        (),
        seconds=60,
        sees=("of the runs that nobody started the newest is watched",),
    ),
    # -- handlers and their ends
    "a stop comes before a timeout": Aim(
        _job("20s", 6_000, stubborn=1_000, timeout="2s"),
        (strike(at("handler")), strike(after(1_000), Stop("20s"))),
        sees=("a timeout is a failure whatever came before",),
    ),
    "a stop comes while a handler is at work": Aim(
        _job("20s", 4_000, stubborn=500),
        (strike(at("handler")), strike(after(1_000), Stop("20s"))),
        sees=(
            "a handler that returns after it was told to stop has succeeded",
            "what is raised after the signal was set is an interruption",
        ),
    ),
    "a handler goes on after its timeout": Aim(
        _job("20s", 6_000, stubborn=1_000, timeout="2s"),
        (),
        sees=("a timeout sets the signal",),
    ),
    "handlers raise what is no Exception": Aim(
        (JobPlan("job", "5s", (100, 100), 1_000, options=dict(lease="3s", jitter="5ms"), error=SystemExit),),
        (),
        sees=("whatever a handler raises is its failure",),
    ),
    "listeners raise": Aim(
        _job("5s", 100),
        (),
        listener_raises=ValueError,
        sees=("a listener that raises harms nobody",),
    ),
    "a handler is left behind, and its scheduler stopped and started": Aim(
        _job("10s", 25_000, stubborn=1_000, timeout="1s"),
        (strike(at("handler")), strike(after(2_000), Restart())),
        hosts=1,
        sees=("a handler that was left behind is remembered over a restart",),
    ),
    "a handler is left behind while the claim of the next slot is on its way": Aim(
        _job("2s", 9_000, stubborn=1_000, timeout="2500ms"),
        (strike(at("handler")), strike(at("claim sent", **_FIRST), Late(700))),
        hosts=1,
        seconds=30,
        sees=("a straggler blocks what was on its way to be granted",),
    ),
    "a handler is left behind while the claim of a manual run is on its way": Aim(
        _job("20s", 9_000, stubborn=1_000, timeout="500ms"),
        (
            strike(at("handler"), RunNow()),
            strike(at("claim sent", mode="manual"), HoldUp()),
            strike(at("finish done"), LetGo()),
        ),
        hosts=1,
        seconds=30,
        sees=("a straggler blocks a manual run that was on its way to be granted",),
    ),
    # -- stopping
    "a stop comes while a grant is on its way": Aim(
        _LONG,
        (strike(at("claim done", **_WON), Stop()),),
        sees=(
            "a stop waits for asks in flight",
            "a grant that arrives after a stop is given back",
            "no run begins after a stop began",
        ),
    ),
    "a stop comes while a manual run's grant is on its way": Aim(
        _LONG,
        (strike(after(5_000), RunNow("host1")), strike(at("claim done", mode="manual"), Stop())),
        sees=("a stop waits for manual claims too",),
    ),
    "a handler stops its scheduler": Aim(
        _job("20s", 8_000, stubborn=1_000),
        (strike(at("handler"), StopInside("5s")), strike(after(1_000), Stop("20s"))),
        sees=(
            "a handler does not wait for its own run",
            "an engine is kept until it is over",
        ),
    ),
    "a handler stops its scheduler and goes on": Aim(
        _job("20s", 8_000, stubborn=1_000),
        (strike(at("handler"), StopInside("5s")),),
        hosts=1,
        sees=("a stop from a handler leaves that run its heartbeat",),
    ),
    # -- clocks
    "a claim's answer is slow, and tells the time": Aim(
        _job("20s", 100, lease="30s"),
        (strike(at("claim done", 2, **_FIRST), Late(8_000)),),
        hosts=1,
        seconds=100,
        sees=("of the samples the one with the shortest round trip counts",),
    ),
    "a clock is stepped by less than can be noticed": Aim(
        _job("5s", 100),
        (strike(after(20_100), StepClock(900, ALL)),),
        hosts=1,
        sees=("a sample that contradicts the others replaces them",),
    ),
    "a clock is stepped between two slots": Aim(
        _job("2m", 100),
        (strike(after(30_000), StepClock(3_600_000, ALL)),),
        hosts=1,
        seconds=150,
        sees=("the clock is looked at after each wait",),
    ),
    "a clock is stepped, and the store does not tell the time": Aim(
        _job("2m", 100),
        (strike(after(30_000), StepClock(3_600_000, ALL)), strike(at("time sent"), Refuse())),
        hosts=1,
        seconds=150,
        sees=("a step of the host's clock is taken out",),
    ),
    "a clock is stepped as a manual run is asked for": Aim(
        _job("40s", 100),
        (strike(after(20_000), StepClock(3_600_000, ALL), RunNow(ALL)),),
        hosts=1,
        sees=("a manual run's slot is reckoned on the store's clock",),
    ),
    "a slow clock, and an hour between two slots": Aim(
        _job("1h", 100),
        (),
        hosts=1,
        seconds=3_660,
        drifts_ppm=(-900,),
        sees=("a wait is never longer than a minute",),
    ),
    # -- timers
    "a host stands still over a hundred and fifty slots": Aim(
        _job("1s", 100),
        (strike(after(5_100), Pause(150_000, ALL)),),
        hosts=1,
        seconds=200,
        sees=(
            "of several slots that came due the newest is fired",
            "missed slots are told one by one up to a hundred",
        ),
    ),
    "many slots with much jitter": Aim(
        _job("2s", 100, jitter="500ms"),
        (),
        hosts=3,
        seconds=60,
        sees=("jitter delays the timer",),
    ),
    "slots that are closer together than the jitter": Aim(
        _job("* * * * *", 100, jitter="100s", max_late="5m"),
        (),
        hosts=1,
        seconds=400,
        sees=("jitter does not delay a slot past the next",),
    ),
    # -- starting
    "many hosts start": Aim(
        _job("* * * * *", 100, jitter="1s", catch_up="2m"),
        (strike(after(500), Start()),) * 24,
        hosts=0,
        seconds=50,
        sees=("a catch-up waits for a random jitter",),
    ),
    "a host starts long after the newest slot": Aim(
        _job("10m", 100, catch_up="2m"),
        (strike(after(200_000), Start()),),
        hosts=0,
        seconds=240,
        sees=("a slot older than catch_up is not run",),
    ),
    "a slot comes due while a host that starts has no store": Aim(
        _job("* * * * *", 100, max_late="4s", jitter="1s", catch_up="2m"),
        (strike(after(54_000), StoreAway(16_000)), strike(after(1_000), Start())),
        hosts=0,
        seconds=110,
        sees=("slots after the start are the timer's",),
    ),
    "a host starts when a run is dead and a newer slot was due": Aim(
        _LONG,
        (strike(after(19_000)), strike(at("handler"), Kill()), strike(after(26_000), Start())),
        hosts=1,
        sees=("a run whose lease is over is left where a newer slot is due",),
    ),
    # -- a failing store
    "the store goes away while one job fails by itself": Aim(
        (*_job("2s", 100), JobPlan("broken", "2s", (100, 100), options=dict(lease="3s", max_late="5s", jitter="5ms"))),
        (strike(after(20_000), StoreAway(8_000)),),
        always=(strike(at("claim sent", job="broken"), Refuse(TypeError)),),
        hosts=1,
        judged=False,
        sees=("one broken job does not silence a store that goes away",),
    ),
}

#: By the mutant's name, the aim that was written for it.
AIMED_AT: dict[str, str] = {mutant: name for name, aim in AIMS.items() for mutant in aim.sees}
