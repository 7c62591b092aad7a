"""This site, set up in the process of the tests, once, whichever of them comes first."""

from __future__ import annotations

import atexit
import shutil
import tempfile

import django
import site_settings
from django.conf import settings

__all__ = ["set_up_once"]


def set_up_once() -> None:
    """Django, for this process. It can be done once, and must be done before a test imports a model."""
    if settings.configured:
        return
    # A file, not a database in memory: requests and runs have connections of their own.
    directory = tempfile.mkdtemp(prefix="django-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    values = {name: value for name, value in vars(site_settings).items() if name.isupper()}
    values["DATABASES"] = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{directory}/db.sqlite3"}}
    # Not by DJANGO_SETTINGS_MODULE, which every process that a test starts would inherit.
    settings.configure(**values)
    django.setup()
