"""The Lua scripts, one a verb, read from the package's data."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

__all__ = ["VERBS", "Script", "load_scripts", "lua"]

VERBS = ("claim", "heartbeat", "finish", "release", "save_result", "forget")


class Script(NamedTuple):
    """A script's text, and the name under which a server that has seen it knows it."""

    text: bytes
    sha: str


@cache
def lua(name: str) -> str:
    """The text of one Lua file."""
    return (files("anarchon.backends") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


@cache
def load_scripts(clock: str) -> dict[str, Script]:
    """Each verb's script: the clock, what the verbs share, and the verb itself."""
    texts = {verb: "\n".join((clock, lua("job"), lua(verb))).encode() for verb in VERBS}
    return {verb: Script(text, sha1(text, usedforsecurity=False).hexdigest()) for verb, text in texts.items()}
