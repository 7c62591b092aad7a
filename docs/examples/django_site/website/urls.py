"""The site's pages: the invoices, the admin, and what the jobs do as JSON."""

from django.contrib import admin
from django.urls import include, path

from billing import views

urlpatterns = [
    path("", views.home),
    path("admin/", admin.site.urls),
    path("cron/", include("anarchon.contrib.django.urls")),
]
