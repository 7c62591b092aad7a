"""The site of the tests. What a test wants otherwise stands in the environment variable SITE, as JSON."""

import json
import os
from pathlib import Path
from typing import Any

_given: dict[str, Any] = json.loads(os.environ.get("SITE", "{}"))

SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "Europe/Athens"
ROOT_URLCONF = "site_urls"
WSGI_APPLICATION = "site_wsgi.application"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "anarchon.contrib.django",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(__file__).with_name("db.sqlite3"))}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

ANARCHON: Any = {"BACKEND": "memory://"}

globals().update(_given)
