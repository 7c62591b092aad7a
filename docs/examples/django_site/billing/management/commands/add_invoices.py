"""``manage.py add_invoices 300``: half a minute's work for whoever mails them."""

from django.core.management.base import BaseCommand

from billing.models import Invoice


class Command(BaseCommand):
    help = "Adds invoices, for something to do."

    def add_arguments(self, parser):
        parser.add_argument("count", type=int)

    def handle(self, *, count, **options):
        Invoice.objects.bulk_create(
            Invoice(customer=f"Customer {number}", cents=1000 + number) for number in range(count)
        )
