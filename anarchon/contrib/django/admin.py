"""The jobs in Django's admin: what is registered, what was run, what runs now, and a button that runs a job now.

The pages read the scheduler and its store; nothing of what they show is in the site's database, but for the admin's own
log of who pressed the button. For an admin site of your own: ``site.register(Job, JobAdmin)``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.text import Truncator
from django.views.decorators.http import require_POST, require_safe

from anarchon.chance import SystemChance
from anarchon.contrib.django.admin_pages import JobPage, job_page, list_page
from anarchon.contrib.django.models import Job
from anarchon.durations import Duration
from anarchon.errors import BackendError, ConfigurationError, RunRefused
from anarchon.job import check_job_name
from anarchon.records import RunRecord
from anarchon.scheduler import Scheduler
from anarchon.tables import measured

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Job]
else:
    ModelAdmin = admin.ModelAdmin

__all__ = ["JobAdmin"]

#: How many attempts a job's page shows: the first of them, or another where it is asked for.
LIMITS = (20, 100, 500)

#: What a confirmed question brings back: it becomes a part of a run's id.
_TOKEN = re.compile("t[0-9a-f]{32}")

_LEVELS = {"success": messages.SUCCESS, "failed": messages.ERROR}


@admin.register(Job)
class JobAdmin(ModelAdmin):
    """Read-only pages over a scheduler, and the button.

    Attributes:
        wait: how long the request that starts a run waits for its end, so that a short one can be told about at once.
    """

    wait: Duration = "2s"

    def get_scheduler(self, request: HttpRequest) -> Scheduler:
        """The scheduler whose jobs are shown: the site's, unless a subclass says otherwise."""
        # Not above: it is made of the settings at its first use, and this file is read before they are checked.
        from anarchon.contrib.django import scheduler

        return scheduler

    # -- who may do what

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        return False

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether this user may run a job now: who sees the pages and has the permission ``anarchon.run_job``."""
        codename = get_permission_codename("run", self.opts)
        user: Any = request.user
        may: bool = user.has_perm(f"{self.opts.app_label}.{codename}")
        return may and self.has_view_permission(request)

    # -- pages

    def get_urls(self) -> list[URLPattern]:
        view = _outside_transactions(self.admin_site.admin_view(self.run_view))
        name = f"{self.opts.app_label}_{self.opts.model_name}_run"
        return [path("<path:object_id>/run/", view, name=name), *super().get_urls()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Job | None:
        """Any job that may have been run, here or elsewhere; None where that can be no job's name."""
        try:
            return Job(name=check_job_name(object_id))
        except ConfigurationError:
            return None

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The jobs of this process. With ``?name=`` it leads to the page of any job."""
        self._check_may_view(request)
        name = request.GET.get("name", "").strip()
        if name:
            try:
                return self._to_page_of(check_job_name(name))
            except ConfigurationError as error:
                self.message_user(request, str(error), messages.ERROR)
        page = list_page(self.get_scheduler(request))
        return self._page(request, "jobs.html", {"title": "Jobs", "page": page, **(extra_context or {})})

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One job: how it is registered, what runs now, and its newest attempts."""
        self._check_may_view(request)
        asked = request.GET.get("limit", "")
        limit = next((limit for limit in LIMITS if str(limit) == asked), LIMITS[0])
        page = self._page_of(request, object_id, limit)
        context = {"title": page.name, "page": page, "limit": limit, "limits": LIMITS, **(extra_context or {})}
        return self._page(request, "job.html", context)

    @method_decorator(require_POST)
    def run_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The button: asks once more, then starts the run in this process.

        What is confirmed names the newest manual run that was seen. A second click on "yes", or somebody else's, comes
        after another one: then the question is put again. It also has a token that the question brought, which the
        store grants one run: two clicks at the same moment reach two processes, and neither sees the other's run.
        """
        if not self.has_run_permission(request):
            raise PermissionDenied
        page = self._page_of(request, object_id, LIMITS[-1])
        confirmed = request.POST.get("confirmed")
        seen, _, once = (confirmed or "").partition(" ")
        if seen != page.newest_manual or not _TOKEN.fullmatch(once) or page.info is None or page.away:
            to_confirm = f"{page.newest_manual} {SystemChance().token()}"
            context = {"title": "Run this job now?", "page": page, "again": confirmed is not None}
            return self._page(request, "run_confirmation.html", {**context, "to_confirm": to_confirm})
        self._run(request, page.name, once)
        return self._to_page_of(page.name)

    # -- inside

    def _run(self, request: HttpRequest, name: str, once: str) -> None:
        """Starts a run, and says what came of it."""
        scheduler = self.get_scheduler(request)
        # Before the run: should it take this process down, it is known who asked for it.
        self.log_change(request, Job(name=name), "Asked for a run now.")
        try:
            record = scheduler._run_once(name, self.wait, once)
        except RunRefused as error:
            self.message_user(request, str(error), messages.WARNING)
        except BackendError:
            self.message_user(request, f"Job {name!r} was not run: the store could not be asked.", messages.ERROR)
        else:
            self._tell(request, name, scheduler, record)

    def _tell(self, request: HttpRequest, name: str, scheduler: Scheduler, record: RunRecord | None) -> None:
        if record is None:
            where = scheduler.instance_id
            text = f"Job {name!r} was started on {where!r}, and is still running. Reload the page to see how it ends."
            self.message_user(request, text, messages.INFO)
            return
        error = "" if record.error is None else f" {Truncator(record.error).chars(200)}"
        text = f"Job {name!r} was run, and took {measured(record.duration)}: {record.status}.{error}"
        self.message_user(request, text, _LEVELS.get(record.status, messages.WARNING))

    def _check_may_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _page_of(self, request: HttpRequest, object_id: str, limit: int) -> JobPage:
        try:
            return job_page(self.get_scheduler(request), unquote(object_id), limit)
        except ConfigurationError as error:
            raise Http404(str(error)) from None

    def _to_page_of(self, name: str) -> HttpResponse:
        name_of_page = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(reverse(name_of_page, args=[quote(name)], current_app=self.admin_site.name))

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        shown = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "subtitle": None,
            "may_run": self.has_run_permission(request),
            **context,
        }
        return TemplateResponse(request, f"admin/{self.opts.app_label}/{template}", shown)


def _outside_transactions(view: Any) -> Any:
    """Even with ``ATOMIC_REQUESTS``: a run has connections of its own, and must not wait for what a request locks."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view
