"""Invoices in the admin."""

from django.contrib import admin

from billing.models import Invoice


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    list_display = ["customer", "cents", "mailed_by"]
