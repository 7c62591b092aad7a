"""``path("jobs-api/", include("anarchon.contrib.django.urls"))``: the JSON views under the site's own path."""

from __future__ import annotations

from django.urls import path

from anarchon.contrib.django import views

app_name = "anarchon"

# A job's name may have slashes; what follows it is the last part.
urlpatterns = [
    path("jobs", views.jobs, name="jobs"),
    path("jobs/<path:name>/runs", views.runs, name="runs"),
    path("jobs/<path:name>/last", views.last, name="last"),
    path("jobs/<path:name>/active", views.active, name="active"),
]
