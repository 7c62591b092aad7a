"""The Lua scripts, one a verb, read from the package's data."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

__all__ = ["VERBS", "Script", "load_scripts", "lua"]

#: The verbs, each with the files whose functions it uses. No others: a server builds a script's functions at each call.
VERBS = {
    "claim": ("job", "leases", "ends", "history"),
    "heartbeat": ("job", "leases"),
    "finish": ("job", "ends", "history"),
    "release": ("job", "ends", "history"),
    "save_result": ("job", "history"),
    "forget": ("job",),
}


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
    """Each verb's script: the clock, the files that it uses, and the verb itself."""
    texts = {verb: "\n".join((clock, *map(lua, used), lua(verb))).encode() for verb, used in VERBS.items()}
    return {verb: Script(text, sha1(text, usedforsecurity=False).hexdigest()) for verb, text in texts.items()}
