import gc
import os
import warnings

from django.core.wsgi import get_wsgi_application

from mailhub import checks

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
warnings.filterwarnings("ignore", message="No directory at")  # without collectstatic the apps' own files are served
application = get_wsgi_application()
checks.refuse(checks.sessions_are_kept())
gc.collect()
gc.freeze()  # what is there now stays for good: the collector need not look at it again and again,
gc.set_threshold(20_000, 20, 20)  # nor at every request: hardly anything of one is a cycle
