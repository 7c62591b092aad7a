"""What is to be done, and when. anarchon finds this file by its name; every web worker registers what is in it."""

import logging
from datetime import timedelta

from anarchon.contrib.django import scheduler

from billing.models import Invoice, Total

#: How long the mail relay takes for a letter.
A_LETTER_S = 0.1

logger = logging.getLogger(__name__)


@scheduler.every("totals", "1s")
def totals(ctx):
    """A point for the chart, which shows one day."""
    Total.objects.create(slot=ctx.slot, invoices=Invoice.objects.count(), counted_by=ctx.instance_id)
    Total.objects.filter(slot__lt=ctx.slot - timedelta(days=1)).delete()


@scheduler.every("mail", "5s", timeout="10m")
def mail(ctx):
    """Mails the invoices that have not been mailed yet, one by one, and may be told to stop between two of them."""
    for invoice in Invoice.objects.filter(mailed_by=""):
        ctx.raise_if_cancelled()
        ctx.signal.wait(A_LETTER_S)  # in earnest: send_mail(...)
        Invoice.objects.filter(pk=invoice.pk).update(mailed_by=ctx.instance_id)


@scheduler.cron("digest", "0 8 * * 1-5")
def digest(ctx):
    """Tells the accountants where things stand."""
    logger.info("Digest of %s: %s invoices", ctx.slot.date(), Invoice.objects.count())
