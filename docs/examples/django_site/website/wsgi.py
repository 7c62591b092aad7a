"""The site as gunicorn serves it."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "website.settings")

# The admin's style sheets; a web server in front, or whitenoise, serves them faster.
application = StaticFilesHandler(get_wsgi_application())
