"""How the admin's pages write instants, lengths of time and how a run ended."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.html import format_html

from anarchon.records import RunRecord, iso
from anarchon.tables import measured

register = template.Library()


@register.filter
def instant(value: datetime) -> str:
    """An aware datetime in the site's current time zone; with the zone, for a clock may show one hour twice."""
    shown = value.astimezone(timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S %Z")
    return format_html('<time datetime="{}">{}</time>', iso(value), shown)


@register.filter
def length_of_time(seconds: float) -> str:
    """Seconds, as the command line writes them: ``0.120s`` or ``1h2m3s``."""
    return measured(seconds)


@register.filter
def option(value: object) -> object:
    """An option's value; lengths of time are seconds among them, and True is none."""
    if value is None:
        return "none"
    return measured(value) if isinstance(value, float) else value


@register.filter
def status(record: RunRecord) -> str:
    """How an attempt ended: the word says it, the colour repeats it."""
    word = f"{record.status} (lease lost)" if record.lease_lost else record.status
    return format_html('<span class="anarchon-status anarchon-{}">{}</span>', record.status, word)
