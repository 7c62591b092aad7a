"""What is to be done, and when. Each run has an app context of its own, and so its own connection to the books."""

from __future__ import annotations

from anarchon import RunContext
from anarchon.contrib.flask import Anarchon
from flask import current_app

from billing import books

#: How long the mail relay takes for a letter.
A_LETTER_S = 0.1

cron = Anarchon()


@cron.every("totals", "1s")
def totals(ctx: RunContext) -> None:
    """A point for the chart."""
    books.add_total(ctx.slot, ctx.instance_id)


@cron.every("mail", "5s", timeout="10m")
def mail(ctx: RunContext) -> None:
    """Mails the invoices that have not been mailed yet, one by one, and may be told to stop between two of them."""
    for number in books.not_mailed():
        ctx.raise_if_cancelled()
        ctx.signal.wait(A_LETTER_S)  # in earnest: smtp.send_message(...)
        books.mark_mailed(number, ctx.instance_id)


@cron.cron("digest", "0 8 * * 1-5")
def digest(ctx: RunContext) -> None:
    """Tells the accountants where things stand."""
    current_app.logger.warning("Digest of %s: %s", ctx.slot.date(), books.summary())
