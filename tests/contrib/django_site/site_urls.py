"""Pages of the site, and the JSON views below a path of its own choice."""

from django.contrib import admin
from django.urls import include, path
from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("cron/", include("anarchon.contrib.django.urls")),
    path("hits", views.hits),
    path("run/<path:name>", views.run),
    path("run-after/<path:name>", views.run_after),
]
