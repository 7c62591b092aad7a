"""anarchon in a Django site: the settings ``ANARCHON``, each app's ``jobs.py``, commands, views, and start in workers.

``scheduler`` is the site's. It is made of the settings when it is first used::

    # shop/jobs.py
    from anarchon.contrib.django import scheduler

    @scheduler.every("sync", "10s")
    def sync(ctx): ...
"""

from __future__ import annotations

from anarchon.contrib.django.site import scheduler

__all__ = ["scheduler"]
