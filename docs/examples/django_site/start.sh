#!/bin/sh
# Makes what a first start lacks, a secret key and the tables, and serves the site. SIGTERM or Ctrl-C stops it.
set -eu
cd "$(dirname "$0")"
PATH="$PWD/.venv/bin:$PATH"

mkdir -p var
if [ -z "${DJANGO_SECRET_KEY:-}" ] && [ ! -s var/secret_key ]; then
    (umask 077 && python -c 'import secrets; print(secrets.token_urlsafe(50))' > var/secret_key)
fi
python manage.py migrate --no-input --verbosity 0
exec gunicorn
