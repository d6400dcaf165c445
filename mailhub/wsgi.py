"""The WSGI application: Django, after a check that its database keeps sessions."""

import gc
import os
import warnings
from importlib import import_module

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application

from mailhub import checks

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
warnings.filterwarnings(
    "ignore", message="No directory at"
)  # without collectstatic WhiteNoise serves the apps' own files
django.setup()
import_module("mailhub.static_files").collect_static()  # before WhiteNoise looks for them
application = get_wsgi_application()
import_module(settings.ROOT_URLCONF)  # pages and API, which Django would otherwise load at the first request
checks.refuse_on_error(checks.check_database())
gc.collect()
gc.freeze()  # objects created so far stay for good, so the collector can skip them
gc.set_threshold(20_000, 20, 20)  # requests leave few cycles, so it may run rarely
