"""The site's settings. What differs between machines, and what is secret, comes from the environment."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = BASE_DIR / "var"

# start.sh makes the file where the environment has no key.
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or (VAR / "secret_key").read_text().strip()
DEBUG = os.environ.get("DJANGO_DEBUG") == "true"
ALLOWED_HOSTS = os.environ.get("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1").split(",")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "anarchon.contrib.django",
    "billing",
]

# The jobs themselves are in billing/jobs.py.
ANARCHON = {
    "BACKEND": os.environ.get("REDIS_URL") or f"sqlite:///{VAR}/jobs.db",
    "PREFIX": "billing:cron:" if os.environ.get("REDIS_URL") else None,
    "LEASE": os.environ.get("JOBS_LEASE", "30s"),
    "AUTOSTART": True,
    "PERMISSION": "billing.views.may_read",
}

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR / "site.db",
        # Several processes write: each waits for its turn, from the beginning of its transaction on.
        "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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

ROOT_URLCONF = "website.urls"
WSGI_APPLICATION = "website.wsgi.application"
STATIC_URL = "static/"
TIME_ZONE = "Europe/Athens"
USE_TZ = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"billing": {"level": "INFO"}},
}
