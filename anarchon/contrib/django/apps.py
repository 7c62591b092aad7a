"""The app as Django knows it."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["AnarchonConfig"]


class AnarchonConfig(AppConfig):
    """What ``INSTALLED_APPS`` names; its ``ready`` finds the jobs and, where the settings say so, starts them."""

    name = "anarchon.contrib.django"
    label = "anarchon"
    verbose_name = "Scheduled jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Not above: Django reads this file while it still gathers the apps. The checks register themselves.
        from anarchon.contrib.django import checks, site  # noqa: F401

        site.begin()
