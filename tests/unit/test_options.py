"""Options: what is wrong is said where it is given, with what was expected, what came, and the nearest right name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from anarchon import ConfigurationError, MemoryBackend, Scheduler
from anarchon.options import JobOptions, parse_options, resolve_options


def options(interval_ms: int | None = None, defaults: dict[str, Any] | None = None, **own: Any) -> JobOptions:
    return resolve_options(parse_options(defaults or {}), parse_options(own), interval_ms)


def refusal(interval_ms: int | None = None, **own: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        options(interval_ms, **own)
    return str(refused.value)


def handler() -> None:
    pass


# -- defaults


def test_the_defaults_are_those_of_the_docs() -> None:
    assert options().shown() == {
        "lease": 30.0,
        "heartbeat": 6.0,
        "jitter": 0.5,
        "max_late": 60.0,
        "catch_up": None,
        "overlap": "skip",
        "max_attempts": 3,
        "timeout": None,
        "history_limit": 200,
    }


def test_the_default_heartbeat_is_a_fifth_of_the_lease() -> None:
    assert options(lease="10s").heartbeat_ms == 2_000


@pytest.mark.parametrize(("interval_ms", "jitter_ms"), [(60_000, 500), (5_000, 500), (4_000, 400), (10, 1)])
def test_the_default_jitter_is_a_tenth_of_a_short_interval(interval_ms: int, jitter_ms: int) -> None:
    assert options(interval_ms).jitter_ms == jitter_ms


def test_the_default_jitter_stays_below_a_short_max_late() -> None:
    assert options(max_late="1s").jitter_ms == 100
    assert options(max_late="1ms").jitter_ms == 0


def test_a_jobs_own_options_go_before_the_schedulers_and_those_before_the_defaults() -> None:
    chosen = options(defaults=dict(lease="12s", timeout="1m", overlap="allow"), overlap="skip", timeout=None)
    assert (chosen.lease_ms, chosen.heartbeat_ms) == (12_000, 2_400)
    assert (chosen.overlap, chosen.timeout_ms) == ("skip", None)
    assert chosen.max_attempts == 3


def test_a_heartbeat_of_the_schedulers_is_checked_against_a_jobs_own_lease() -> None:
    with pytest.raises(ConfigurationError, match="heartbeat must be at most a third of the lease"):
        options(defaults=dict(heartbeat="10s"), lease="15s")


def test_durations_may_be_texts_timedeltas_or_seconds() -> None:
    chosen = options(lease=timedelta(seconds=12), heartbeat=2, max_late=1.5, catch_up="1h30m")
    assert (chosen.lease_ms, chosen.heartbeat_ms, chosen.max_late_ms) == (12_000, 2_000, 1_500)
    assert chosen.catch_up_ms == 5_400_000


def test_options_are_frozen() -> None:
    with pytest.raises(AttributeError):
        options().lease_ms = 1  # type: ignore[misc]


# -- refusals


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (dict(lease="soon"), ["lease must be a duration such as", "'soon'"]),
        (dict(lease="0.5s"), ["lease must be a duration such as", "'0.5s'"]),
        (dict(lease=0.5), ["lease must be at least 1s", "500ms"]),
        (dict(lease=True), ["lease must be a duration", "True"]),
        (dict(lease=None), ["lease must be a duration", "None"]),
        (dict(lease=-5), ["lease must not be negative", "-5"]),
        (dict(lease=float("nan")), ["lease must be a duration", "nan"]),
        (dict(lease="11000d"), ["lease must not be over ten years", "'11000d'"]),
        (dict(heartbeat="0s"), ["heartbeat must be more than zero"]),
        (dict(heartbeat="11s"), ["heartbeat must be at most a third of the lease", "11s", "10s", "lease 30s"]),
        (dict(lease="1s", heartbeat="334ms"), ["heartbeat must be at most a third", "334ms", "333ms"]),
        (dict(jitter="1m"), ["jitter must be less than max_late", "1m", "is not less than 1m"]),
        (dict(jitter="2s", max_late="1s"), ["jitter must be less than max_late", "2s", "1s"]),
        (dict(jitter=-1), ["jitter must not be negative"]),
        (dict(max_late=0), ["max_late must be more than zero"]),
        (dict(max_late=0.0004), ["max_late must be a whole number of milliseconds"]),
        (dict(catch_up="0s"), ["catch_up must be more than zero"]),
        (dict(catch_up=[]), ["catch_up must be a duration", "[]"]),
        (dict(overlap="wait"), ["overlap must be 'skip' or 'allow'", "'wait'"]),
        (dict(overlap=True), ["overlap must be 'skip' or 'allow'", "True"]),
        (dict(overlap=["skip"]), ["overlap must be 'skip' or 'allow'"]),
        (dict(max_attempts=0), ["max_attempts must be a whole number from 1", "0"]),
        (dict(max_attempts=2.0), ["max_attempts must be a whole number", "2.0"]),
        (dict(max_attempts=True), ["max_attempts must be a whole number", "True"]),
        (dict(max_attempts="3"), ["max_attempts must be a whole number", "'3'"]),
        (dict(timeout="0ms"), ["timeout must be more than zero"]),
        (dict(timeout="never"), ["timeout must be a duration", "'never'"]),
        (dict(history_limit=0), ["history_limit must be a whole number from 1", "0"]),
        (dict(history_limit=1_000_001), ["history_limit", "1000001"]),
        (
            dict(leese="10s"),
            ["Unknown option 'leese'", "Did you mean 'lease'?", "Expected one of: catch_up, "],
        ),
        (dict(attempts=3), ["Unknown option 'attempts'", "Did you mean 'max_attempts'?"]),
        (dict(zzz=1), ["Unknown option 'zzz'. Expected one of"]),
    ],
)
def test_a_bad_option_says_what_was_expected_and_what_came(own: dict[str, Any], words: list[str]) -> None:
    said = refusal(**own)
    assert [word for word in words if word not in said] == [], said


def test_jitter_must_be_less_than_the_interval_of_an_every_job() -> None:
    assert "jitter must be less than the interval: 2s is not less than 2s" in refusal(2_000, jitter="2s")
    assert options(2_001, jitter="2s").jitter_ms == 2_000
    assert options(None, jitter="2s").jitter_ms == 2_000


def test_the_bounds_themselves_are_allowed() -> None:
    assert options(lease="1s", heartbeat="333ms").heartbeat_ms == 333
    assert options(lease=1).lease_ms == 1_000
    assert options(jitter="59s999ms").jitter_ms == 59_999
    assert options(jitter=0).jitter_ms == 0


# -- where they are given


def test_a_scheduler_refuses_bad_defaults_at_once() -> None:
    with pytest.raises(ConfigurationError, match="heartbeat must be at most a third"):
        Scheduler(MemoryBackend(), lease="2s", heartbeat="1s")


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("timezon", "timezone"), ("instance", "instance_id"), ("arround_run", "around_run"), ("max_lat", "max_late")],
)
def test_a_misspelt_argument_of_a_scheduler_has_its_nearest_named(given: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Unknown option '{given}'. Did you mean '{nearest}'"):
        Scheduler(MemoryBackend(), **{given: "UTC"})  # type: ignore[arg-type]


def test_a_misspelt_argument_of_a_job_has_its_nearest_named() -> None:
    scheduler = Scheduler(MemoryBackend())
    with pytest.raises(ConfigurationError, match="Unknown option 'second'. Did you mean 'seconds'"):
        scheduler.cron("x", "* * * * *", handler, second=True)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="Unknown option 'seconds'"):
        scheduler.every("x", "1m", handler, seconds=True)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="Unknown option 'timezone'"):
        scheduler.every("x", "1m", handler, timezone="UTC")  # type: ignore[call-overload]
    assert scheduler.jobs() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(timezone="Europe/Athen"), "Europe/Athens"),
        (dict(timezone=3), "timezone must be"),
        (dict(instance_id=""), "instance_id must be 1 to 200 printable characters, not ''"),
        (dict(instance_id="a\nb"), "instance_id must be"),
        (dict(instance_id=7), "instance_id must be"),
        (dict(instance_id="x" * 201), "instance_id must be"),
        (dict(log="yes"), "log must be True, a Logger or None, not str"),
        (dict(around_run=3), "around_run must be callable, not 3"),
    ],
)
def test_what_only_a_scheduler_takes_is_checked_too(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Scheduler(MemoryBackend(), **arguments)


@pytest.mark.parametrize("backend", [None, 3, object(), MemoryBackend])
def test_a_backend_is_an_object_or_a_url(backend: Any) -> None:
    with pytest.raises(ConfigurationError, match="backend must be a backend object or a URL"):
        Scheduler(backend)


def test_a_url_opens_its_backend() -> None:
    assert isinstance(Scheduler("memory://")._backend, MemoryBackend)


def test_a_configuration_error_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        options(lease="soon")
