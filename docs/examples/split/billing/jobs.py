"""What is to be done, and when."""

from __future__ import annotations

import logging

from anarchon import RunContext, Scheduler

from billing import books

#: How long the mail relay takes for a letter.
A_LETTER_S = 0.1

logger = logging.getLogger("billing")


def register(scheduler: Scheduler) -> None:
    scheduler.every("totals", "1s", totals)
    scheduler.every("mail", "5s", mail, timeout="10m")
    scheduler.cron("digest", "0 8 * * 1-5", digest)


def totals(ctx: RunContext) -> None:
    """A point for the chart."""
    books.add_total(ctx.slot, ctx.instance_id)


def mail(ctx: RunContext) -> None:
    """Mails the invoices that have not been mailed yet, one by one, and may be told to stop between two of them."""
    for invoice in books.not_mailed():
        ctx.raise_if_cancelled()
        ctx.signal.wait(A_LETTER_S)  # in earnest: smtp.send_message(...)
        books.mark_mailed(invoice, ctx.instance_id, ctx.fence)


def digest(ctx: RunContext) -> None:
    """Tells the accountants where things stand."""
    logger.info("Digest of %s: %s", ctx.slot.date(), books.summary())
