import os
import warnings

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
warnings.filterwarnings("ignore", message="No directory at")  # without collectstatic the apps' own files are served
application = get_wsgi_application()
