"""The token that a worker knows its callers by: where it comes from, what will do for one, and how it is compared.

Guarantees:

- No message, log line or ``repr`` has a token in it. There is no command line option for one either, for every user of
  a host can read command lines.
- Comparing takes as long for a token that is nearly right as for one that is not, whatever bytes come.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Mapping

from anarchon.errors import ConfigurationError, shown

__all__ = ["TOKEN_VARIABLE", "TokenGuard", "check_token", "find_token"]

_logger = logging.getLogger("anarchon")

TOKEN_VARIABLE = "ANARCHON_TOKEN"

#: Sixteen random characters are more than can be tried over a network; longer ones than these fit into no header.
_SHORTEST = 16
_LONGEST = 1_024


def check_token(token: object, name: str = "The token") -> str:
    """Returns the token, if it can stand in a header and is not soon guessed.

    Args:
        name: what to call it where it will not do.

    Raises:
        ConfigurationError: not text, too short or too long, or with other characters than visible ASCII.
    """
    if not isinstance(token, str):
        raise ConfigurationError(f"{name} must be text, not {type(token).__name__}.")
    if not token:
        raise ConfigurationError(f"{name} is empty.")
    if not all("!" <= character <= "~" for character in token):
        raise ConfigurationError(f"{name} must be of visible ASCII characters, without spaces.")
    if not _SHORTEST <= len(token) <= _LONGEST:
        raise ConfigurationError(f"{name} must have {_SHORTEST} to {_LONGEST} characters, not {len(token)}.")
    return token


def find_token(file: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token in the file; without a file, the one in ``ANARCHON_TOKEN``; None where there is neither.

    Raises:
        ConfigurationError: the file cannot be read, or anybody may write it; or what is there will not do.
    """
    if file is not None:
        return check_token(_read(file), f"The token in {shown(file)}")
    token = environment.get(TOKEN_VARIABLE)
    # One that is there and empty is a mistake in a deployment, not the wish to have none.
    return None if token is None else check_token(token, TOKEN_VARIABLE)


class TokenGuard:
    """Knows the right token when it sees it, and keeps only a digest. May be asked on any thread."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(check_token(token))

    def admits(self, authorization: str | None) -> bool:
        """Whether a header ``Authorization`` bears the token."""
        scheme, _, token = (authorization or "").partition(" ")
        return hmac.compare_digest(self._digest, _digest(token.strip(" "))) and scheme.lower() == "bearer"


def _digest(token: str) -> bytes:
    # Of digests, too, so that not even the token's length shows in how long a comparison takes.
    return hashlib.sha256(token.encode("utf-8", "backslashreplace")).digest()


def _read(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            raw = opened.read(_LONGEST + 3)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"The token file {shown(file)} cannot be read: {why}.") from None
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        raise ConfigurationError(f"The token file {shown(file)} may be written by every user of this host: chmod 600.")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        _logger.warning("The token file %s may be read by every user of this host.", shown(file))
    # The end of the line is the editor's. What is no ASCII is refused like a token that is none.
    return raw.decode("latin-1").strip("\r\n")
