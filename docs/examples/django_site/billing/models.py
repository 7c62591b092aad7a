"""Invoices, and how many there were."""

from django.db import models


class Invoice(models.Model):
    """What a customer owes. ``mailed_by`` is the process that mailed it, or empty."""

    customer = models.CharField(max_length=100)
    cents = models.PositiveIntegerField()
    mailed_by = models.CharField(max_length=200, blank=True, editable=False)

    def __str__(self) -> str:
        return f"{self.customer}, {self.cents / 100:.2f}"


class Total(models.Model):
    """A point of the chart: how many invoices there were, and which process counted them."""

    slot = models.DateTimeField(db_index=True)
    invoices = models.PositiveIntegerField()
    counted_by = models.CharField(max_length=200)

    def __str__(self) -> str:
        return f"{self.slot:%F %T}: {self.invoices}"
