"""Where a token comes from, which will do, and that it is told to nobody."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from anarchon import ConfigurationError
from anarchon.web.tokens import TokenGuard, check_token, find_token

TOKEN = "correct-horse-battery-staple"
OTHER = "another-horse-another-staple"


def written(tmp_path: Path, content: bytes, mode: int = 0o600) -> str:
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(mode)
    return str(file)


@pytest.mark.parametrize("token", [TOKEN, "x" * 16, "x" * 1_024, "!~" * 8, "YWJjZGVmZ2hpamtsbW5vcA=="])
def test_a_token_of_visible_ascii_will_do(token: str) -> None:
    assert check_token(token) == token


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "is empty"),
        ("x" * 15, "must have 16 to 1024 characters, not 15"),
        ("x" * 1_025, "must have 16 to 1024 characters, not 1025"),
        (f"{TOKEN}\n", "visible ASCII"),
        (f" {TOKEN}", "visible ASCII"),
        ("né" * 10, "visible ASCII"),
        ("\ud800" * 20, "visible ASCII"),
        (None, "must be text, not NoneType"),
        (TOKEN.encode(), "must be text, not bytes"),
    ],
)
def test_a_token_that_will_not_do_is_refused_without_being_repeated(token: object, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        check_token(token)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n"])
def test_a_file_has_the_token_and_the_end_of_its_line_is_none_of_it(tmp_path: Path, end: bytes) -> None:
    assert find_token(written(tmp_path, TOKEN.encode() + end), {}) == TOKEN


def test_a_file_goes_before_the_environment() -> None:
    read, write = os.pipe()
    os.write(write, OTHER.encode() + b"\n")
    os.close(write)
    try:
        # As bash's <(command) hands a secret over; nobody else can open it, whatever its mode.
        assert find_token(f"/dev/fd/{read}", {"ANARCHON_TOKEN": TOKEN}) == OTHER
    finally:
        os.close(read)


def test_without_a_file_the_environment_is_asked() -> None:
    assert find_token(None, {"ANARCHON_TOKEN": TOKEN}) == TOKEN
    assert find_token(None, {"TOKEN": TOKEN}) is None


def test_an_empty_token_is_a_mistake_and_not_the_wish_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ANARCHON_TOKEN is empty"):
        find_token(None, {"ANARCHON_TOKEN": ""})
    with pytest.raises(ConfigurationError, match="The token in '.*token' is empty"):
        find_token(written(tmp_path, b"\n"), {"ANARCHON_TOKEN": TOKEN})


@pytest.mark.parametrize("content", [b"user: me\n" + TOKEN.encode(), b"\xff\xfe" * 20, b"\x00" * 40, b"x" * 5_000])
def test_a_file_with_something_else_in_it_is_refused_without_being_repeated(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigurationError, match="The token in '.*token' must") as raised:
        find_token(written(tmp_path, content), {})
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("file", "why"),
    [("/nowhere/token", "No such file"), ("/", "Is a directory"), ("", "No such file"), ("a\x00b", "null")],
)
def test_a_file_that_cannot_be_read_is_named(file: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The token file .* cannot be read: .*{why}"):
        find_token(file, {"ANARCHON_TOKEN": TOKEN})


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ConfigurationError, match="visible ASCII"):
        find_token("/dev/zero", {})


def test_a_file_that_every_user_may_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="may be written by every user of this host: chmod 600"):
        find_token(written(tmp_path, TOKEN.encode(), 0o602), {})


def test_a_file_that_every_user_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_token(written(tmp_path, TOKEN.encode(), 0o640), {}) == TOKEN
        assert caplog.messages == []
        # As Kubernetes mounts a secret unless it is told otherwise: too usual to be refused.
        assert find_token(written(tmp_path, TOKEN.encode(), 0o644), {}) == TOKEN
    [message] = caplog.messages
    assert "may be read by every user" in message and TOKEN not in message


def test_a_guard_admits_whoever_bears_the_token_and_keeps_only_a_digest() -> None:
    guard = TokenGuard(TOKEN)
    assert guard.admits(f"Bearer {TOKEN}")
    assert not any(guard.admits(header) for header in (None, "", "Bearer", f"Bearer {OTHER}", f"Basic {TOKEN}"))
    assert TOKEN not in repr(guard) + repr(vars(guard))
