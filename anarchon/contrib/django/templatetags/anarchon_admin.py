"""How the admin's pages write instants, lengths of time and how a run ended."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.html import format_html

from anarchon.durations import format_duration
from anarchon.records import RunRecord, iso
from anarchon.tables import measured

register = template.Library()


@register.filter
def instant(value: datetime) -> str:
    """An aware datetime in the site's current time zone; with the zone, for a clock may show one hour twice."""
    return _written(value, "%Y-%m-%d %H:%M:%S %Z")


@register.filter
def instant_after(value: datetime, before: datetime) -> str:
    """An instant beside an earlier one, whose day it need not repeat."""
    zone = timezone.get_current_timezone()
    same_day = value.astimezone(zone).date() == before.astimezone(zone).date()
    return _written(value, "%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")


@register.filter
def length_of_time(seconds: float) -> str:
    """Seconds, as the command line writes them: ``0.120s`` or ``1h2m3s``."""
    return measured(seconds)


@register.filter
def option(value: object) -> object:
    """An option's value, as it would be given: of ``JobInfo.options``, lengths of time alone are floats."""
    if value is None:
        return "none"
    return format_duration(round(value * 1000)) if isinstance(value, float) else value


@register.filter
def status(record: RunRecord) -> str:
    """How an attempt ended: the word says it, the colour repeats it."""
    word = f"{record.status} (lease lost)" if record.lease_lost else record.status
    return format_html('<span class="anarchon-status anarchon-{}">{}</span>', record.status, word)


def _written(value: datetime, form: str) -> str:
    local = value.astimezone(timezone.get_current_timezone())
    return format_html('<time datetime="{}">{}</time>', iso(value), local.strftime(form))
