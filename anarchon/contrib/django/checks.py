"""System checks: what is wrong with ``ANARCHON``, all of it at once, before anything starts."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Warning, register

from anarchon.backends.memory import MemoryBackend
from anarchon.contrib.django import site
from anarchon.contrib.django.settings import option

__all__ = ["check_jobs", "check_settings", "check_store"]


@register("anarchon")
def check_settings(app_configs: object, **options: Any) -> list[CheckMessage]:
    """What keeps the scheduler from being made."""
    return [*site.errors()]


@register("anarchon")
def check_jobs(app_configs: object, **options: Any) -> list[CheckMessage]:
    """Web processes that are to run jobs, and have none."""
    if site.errors() or not option("AUTOSTART") or site.scheduler.jobs():
        return []
    return [
        Warning(
            "ANARCHON['AUTOSTART'] is on, but no job is registered.",
            hint="Jobs are found in the module 'jobs' of each installed app, or the one that JOBS_MODULE names.",
            id="anarchon.W001",
        )
    ]


@register("anarchon", deploy=True)
def check_store(app_configs: object, **options: Any) -> list[CheckMessage]:
    """A store that other processes do not share."""
    if site.errors() or not isinstance(site.scheduler.backend, MemoryBackend):
        return []
    return [
        Warning(
            "ANARCHON['BACKEND'] is in memory: every process has a store of its own, and runs every slot.",
            hint="For a deployment, give it the URL of a Redis or of an SQLite file.",
            id="anarchon.W002",
        )
    ]
