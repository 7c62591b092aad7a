"""Pages of the site: some use the database, some run a job by hand."""

import os

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse

from anarchon.contrib.django import scheduler
from shop.models import Sale


def hits(request: HttpRequest) -> JsonResponse:
    """Uses the database, which need not have any table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return JsonResponse({"pid": os.getpid()})


def run(request: HttpRequest, name: str) -> JsonResponse:
    """Runs a job in the middle of the request, which may fail after it."""
    record = scheduler.run_now(name)
    Sale.objects.create(job="after")
    if "then" in request.GET:
        raise ValueError(request.GET["then"])
    return JsonResponse(record.to_dict())


def run_after(request: HttpRequest, name: str) -> JsonResponse:
    """Writes something, and runs the job that is to see it."""
    Sale.objects.create(job="before")
    transaction.on_commit(lambda: scheduler.run_now(name))
    return JsonResponse({})


def everybody(request: HttpRequest) -> bool:
    return True
