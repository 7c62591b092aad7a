"""Errors: one root, facts as attributes, and a message that says what to do."""

from __future__ import annotations

import pickle
import traceback

import pytest

from anarchon import errors
from anarchon.errors import (
    AnarchonError,
    BackendError,
    ConfigurationError,
    JobNotRegistered,
    RunInterrupted,
    RunRefused,
    shown,
)

EXAMPLES = [
    AnarchonError("something"),
    AnarchonError(),
    ConfigurationError("lease must be a duration"),
    JobNotRegistered("sink"),
    JobNotRegistered("sink", "sync"),
    RunRefused("sync", "web-1"),
    RunRefused("sync"),
    RunRefused("sync", "web-1", "Job 'sync' left a handler behind."),
    RunRefused("sync", why="Job 'sync' was not run: this scheduler is stopping.", stopping=True),
    BackendError("The store at localhost:6379 did not answer."),
    RunInterrupted("lease-lost"),
]


def test_every_error_has_the_one_root() -> None:
    found = [error for name in errors.__all__ if isinstance(error := getattr(errors, name), type)]
    assert all(issubclass(error, AnarchonError) for error in found)
    assert {type(example) for example in EXAMPLES} == set(found)


def test_errors_are_caught_as_the_builtins_that_callers_expect() -> None:
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(JobNotRegistered, LookupError)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
def test_an_error_survives_pickling_with_its_message_and_facts(error: AnarchonError, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("error", [BackendError, ConfigurationError, AnarchonError])
def test_the_docstring_is_the_default_message(error: type[AnarchonError]) -> None:
    assert str(error()) == error.__doc__
    assert str(error("")) == ""


def test_a_job_that_is_not_registered_is_named_with_the_nearest_that_is() -> None:
    error = JobNotRegistered("sink", "sync")
    assert (error.job, error.nearest) == ("sink", "sync")
    assert str(error) == "No job named 'sink' is registered on this scheduler. Did you mean 'sync'?"
    assert "Did you mean" not in str(JobNotRegistered("sink"))


def test_a_refused_run_names_its_holder_where_that_is_known() -> None:
    error = RunRefused("sync", "web-1")
    assert (error.job, error.holder) == ("sync", "web-1")
    assert str(error) == "Job 'sync' is already running on 'web-1', and its overlap rule is 'skip'."
    assert str(RunRefused("sync")) == "Job 'sync' is already running, and its overlap rule is 'skip'."


def test_an_interrupted_run_knows_the_reason() -> None:
    error = RunInterrupted("stop")
    assert error.reason == "stop"
    assert str(error) == "The run was told to stop: stop."


def test_the_cause_of_a_backend_error_is_shown_with_it() -> None:
    with pytest.raises(BackendError) as caught:
        try:
            raise OSError("connection refused")
        except OSError as cause:
            raise BackendError("The store did not answer.") from cause
    text = "".join(traceback.format_exception(caught.type, caught.value, caught.tb))
    assert "connection refused" in text
    assert "direct cause" in text


def test_a_value_is_shown_cut_to_size() -> None:
    assert shown("abc") == "'abc'"
    assert shown("x" * 78) == repr("x" * 78)
    assert shown("x" * 79) == "'" + "x" * 76 + "..."
    assert len(shown("x" * 10**6)) == 80
    assert shown("abcdef", most=6) == "'ab..."


def test_a_value_that_cannot_be_shown_is_told_by_its_type() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise KeyError("no")

    assert shown(Hostile()) == "<Hostile>"
