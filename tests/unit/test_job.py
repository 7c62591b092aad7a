"""Jobs: which handlers can be called, and with what; which names every store can hold."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from anarchon import ConfigurationError
from anarchon.job import check_job_name, make_call

CTX: Any = object()


class Taking:
    """Callables of many kinds; each gives back what it was called with."""

    def bound(self, ctx: Any) -> tuple[Any, ...]:
        return (ctx,)

    def bound_nothing(self) -> tuple[Any, ...]:
        return ()

    @classmethod
    def of_class(cls, ctx: Any) -> tuple[Any, ...]:
        return (ctx,)

    @staticmethod
    def static(ctx: Any) -> tuple[Any, ...]:
        return (ctx,)

    def __call__(self, run: Any) -> tuple[Any, ...]:
        return (run,)


class Built:
    """A class as a handler: calling it makes one."""

    def __init__(self, ctx: Any) -> None:
        self.given = (ctx,)

    def __eq__(self, other: object) -> bool:
        return self.given == other

    __hash__ = None  # type: ignore[assignment]


def takes_ctx(ctx: Any) -> tuple[Any, ...]:
    return (ctx,)


def takes_another_name(run: Any) -> tuple[Any, ...]:
    return (run,)


def takes_nothing() -> tuple[Any, ...]:
    return ()


def optional_ctx(ctx: Any = None) -> tuple[Any, ...]:
    return (ctx,)


def optional_context(context: Any = None, verbose: bool = False) -> tuple[Any, ...]:
    return (context,)


def optional_other(verbose: Any = "default") -> tuple[Any, ...]:
    return (verbose,)


def ctx_and_options(ctx: Any, retries: int = 3, *, verbose: bool = False) -> tuple[Any, ...]:
    return (ctx,)


def anything(*args: Any) -> tuple[Any, ...]:
    return args


def anything_named(**kwargs: Any) -> tuple[Any, ...]:
    return tuple(kwargs)


def optional_keyword_only(*, ctx: Any = "default") -> tuple[Any, ...]:
    return (ctx,)


def positional_only(run: Any, /) -> tuple[Any, ...]:
    return (run,)


def two(a: Any, b: Any) -> tuple[Any, ...]:
    return (a, b)


def keyword_only(*, ctx: Any) -> None:
    pass


async def coroutine(ctx: Any) -> None:
    pass


async def async_generator() -> AsyncIterator[None]:
    yield


def generator(ctx: Any) -> Iterator[None]:
    yield


class AsyncCallable:
    async def __call__(self, ctx: Any) -> None:
        pass

    async def method(self) -> None:
        pass


class GeneratorCallable:
    def __call__(self) -> Iterator[None]:
        yield


@functools.wraps(takes_nothing)
def wrapped(*args: Any) -> tuple[Any, ...]:
    return args


@pytest.mark.parametrize(
    ("handler", "given"),
    [
        (takes_ctx, (CTX,)),
        (takes_another_name, (CTX,)),
        (takes_nothing, ()),
        (optional_ctx, (CTX,)),
        (optional_context, (CTX,)),
        (optional_other, ("default",)),
        (ctx_and_options, (CTX,)),
        (anything, (CTX,)),
        (anything_named, ()),
        (optional_keyword_only, ("default",)),
        (positional_only, (CTX,)),
        (functools.partial(two, 1), (1, CTX)),
        (functools.partial(two, 1, 2), (1, 2)),
        (functools.partial(two, b=2), (CTX, 2)),
        (functools.partial(functools.partial(two, 1), 2), (1, 2)),
        (Taking(), (CTX,)),
        (Taking().bound, (CTX,)),
        (Taking().bound_nothing, ()),
        (Taking.of_class, (CTX,)),
        (Taking.static, (CTX,)),
        (lambda: (), ()),
        (lambda c: (c,), (CTX,)),
        (Built, (CTX,)),
        (Mock(side_effect=anything), (CTX,)),
        (wrapped, ()),
    ],
)
def test_a_handler_takes_the_context_or_nothing(handler: Callable[..., Any], given: tuple[Any, ...]) -> None:
    assert make_call(handler, "x")(CTX) == given


def test_a_callable_that_tells_nothing_of_its_arguments_is_given_the_context() -> None:
    assert make_call(type, "x")(CTX) is object
    assert make_call(functools.partial(type), "x")(CTX) is object


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (None, "must be callable, not NoneType"),
        ("sync", "must be callable, not str"),
        (two, r"must take the context or nothing; two\(a: 'Any', b: 'Any'\) -> .* takes something else"),
        (keyword_only, "must take the context or nothing; keyword_only"),
        (functools.partial(two, 1, 2, 3), "is a partial whose function cannot take its arguments"),
        (lambda a, b: None, "must take the context or nothing; .*<lambda>"),
        (coroutine, "is a coroutine function"),
        (functools.partial(coroutine, None), "is a coroutine function"),
        (AsyncCallable(), "is a coroutine function"),
        (AsyncCallable().method, "is a coroutine function"),
        (async_generator, "is a coroutine function"),
        (generator, "is a generator function: calling it runs nothing"),
        (GeneratorCallable(), "is a generator function"),
    ],
)
def test_a_handler_that_cannot_be_run_is_refused(handler: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The handler of job 'sync' {words}"):
        make_call(handler, "sync")


def test_what_the_refusal_of_a_coroutine_function_advises_is_right() -> None:
    async def work() -> None:
        ran.append(True)

    ran: list[bool] = []
    make_call(lambda: asyncio.run(work()), "x")(CTX)
    assert ran == [True]


@pytest.mark.parametrize("name", ["a", "sync", "billing:daily", "ημερήσια", "x" * 200, "a/b.c-d_e", "🕐"])
def test_a_good_name_is_given_back(name: str) -> None:
    assert check_job_name(name) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "must be text, not NoneType"),
        (b"sync", "must be text, not bytes"),
        (["sync"], "must be text, not list"),
        ("", "must not be empty"),
        ("x" * 201, "at most 200 characters, not 201"),
        ("a b", "white space"),
        ("a\tb", "white space"),
        ("a\u00a0b", "white space"),
        ("a\u2028b", "white space"),
        ("a\x00b", "control characters"),
        ("a\x7fb", "control characters"),
        ("a\x85b", "white space, control characters"),
        ("a\ud800b", "control characters"),
        ("a{b", "braces"),
        ("a}b", "braces"),
    ],
)
def test_a_bad_name_says_why(name: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_job_name(name)
