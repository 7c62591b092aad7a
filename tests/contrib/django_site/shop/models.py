"""What the jobs write and the pages show."""

from django.db import models


class Sale(models.Model):
    """One line that a handler or a page has written."""

    job = models.CharField(max_length=200)
    slot = models.DateTimeField(null=True)
