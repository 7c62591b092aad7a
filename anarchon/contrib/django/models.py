"""What the admin and the permissions need: a name for a job. Nothing of it is kept in the site's database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from django.db.models import QuerySet

__all__ = ["Job"]


class NoRows(models.Manager["Job"]):
    """There is no table: whoever asks for all rows, as ``dumpdata`` does, finds none and no error."""

    def get_queryset(self) -> QuerySet[Job]:
        none: QuerySet[Job] = super().get_queryset().none()
        return none


class Job(models.Model):
    """A scheduled job, by its name. It has the permissions ``anarchon.view_job`` and ``anarchon.run_job``."""

    name: models.CharField[str, str] = models.CharField(max_length=200, primary_key=True)

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)
        permissions = (("run_job", "Can run job now"),)
        verbose_name = "job"
        verbose_name_plural = "jobs"

    def __str__(self) -> str:
        return self.name
