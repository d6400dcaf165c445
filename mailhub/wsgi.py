"""The WSGI applications, all of Django and the API by itself, after a check that the database keeps sessions."""

import gc
import os
import warnings
from importlib import import_module
from typing import Any

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from mailhub import checks

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
warnings.filterwarnings(
    "ignore", message="No directory at"
)  # without collectstatic WhiteNoise serves the apps' own files
django.setup()


class ApiHandler(WSGIHandler):
    """Django with the middleware that the API needs: the rest is half of what a small request costs."""

    def load_middleware(self, *args: Any, **kwargs: Any) -> None:
        every, settings.MIDDLEWARE = settings.MIDDLEWARE, settings.API_MIDDLEWARE
        try:
            super().load_middleware(*args, **kwargs)
        finally:
            settings.MIDDLEWARE = every


import_module("mailhub.static_files").collect()  # before WhiteNoise looks for them
application, api_application = WSGIHandler(), ApiHandler()
import_module(settings.ROOT_URLCONF)  # the pages and the API, which Django would load at the first request
checks.refuse([*checks.sessions_are_kept(), *checks.tables_are_of_this_version()])
gc.collect()
gc.freeze()  # all objects until now stay for good: the collector need not look at them again
gc.set_threshold(20_000, 20, 20)  # requests leave few cycles, so it may run rarely
