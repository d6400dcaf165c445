"""The settings of every process. All values come from the environment; nothing here starts a process."""

import os
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from mailhub import environment
from mailhub.environment import celery_url, is_rabbitmq, secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
MAILHUB_HOME = environment.home("MAILHUB_HOME")

DATABASE_URL = environment.text("DATABASE_URL", "postgres://mailhub@/mailhub")
REDIS_URL = environment.redis("REDIS_URL", "redis://127.0.0.1:6379/0")  # the throttle's windows
BROKER_URL = os.environ.get("BROKER_URL", celery_url(REDIS_URL))
# The result servers (document 002). Add new ones at the end, because sessions store an index into this list.
RESULT_URLS = environment.redis_servers("RESULT_URLS", REDIS_URL)
RESULT_TTL = environment.days("RESULT_DAYS", 7)
# Seconds that a request waits for Redis or the broker before it gets a 503.
STORE_PATIENCE = environment.number("STORE_PATIENCE", 1)
# Private networks that webhooks may reach, such as 10.0.0.0/8; by default only the public network.
WEBHOOK_NETWORKS = environment.networks("WEBHOOK_NETWORKS")
WEBHOOK_PORTS = environment.ports("WEBHOOK_PORTS")  # empty: those of vendors/webhook_http.py
DNS_SERVERS = environment.servers("DNS_SERVERS", port=53)  # used by `doctor`; default: this machine's
# For tests: PostgreSQL may have settings under which a crash loses commits.
STORES_MAY_LOSE = os.environ.get("STORES_MAY_LOSE", "") == "1"

DEBUG = os.environ.get("DEBUG", "") == "1"
SECRET_KEY = os.environ.get("SECRET_KEY") or secret_key(MAILHUB_HOME)
SECRET_KEY_FALLBACKS = environment.listed("SECRET_KEY_FALLBACKS")  # rotate_keys
ALLOWED_HOSTS = environment.listed("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
# Public URL of the pages below /unsubscribe/. Without it letters have no link to unsubscribe.
PUBLIC_URL = environment.public_url("PUBLIC_URL")
if PUBLIC_URL:
    ALLOWED_HOSTS.append(urlsplit(PUBLIC_URL).hostname or "")

INSTALLED_APPS = [
    "mailhub.apps.MailhubConfig",
    "campaigns.apps.CampaignsConfig",
    "vendors.apps.VendorsConfig",
    "waiter.apps.WaiterConfig",
    "sandbox.apps.SandboxConfig",
    "django_celery_beat",
    "django.contrib.admin.apps.SimpleAdminConfig",  # mailhub/urls.py loads its pages, which commands do not need
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "mailhub.static_files.CompressedPages",
    "mailhub.front.problems.ProblemMiddleware",
    "mailhub.front.problems.NulMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "mailhub.languages.PagesLanguage",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "mailhub.devices.DeviceMiddleware",
    "mailhub.operations.views.ViewerMiddleware",
    "mailhub.operations.views.PollMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
API_MIDDLEWARE = [  # without sessions: an API client sends a key, a vendor signs
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "mailhub.front.problems.ProblemMiddleware",
    "mailhub.front.problems.NulMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "mailhub.urls"
WSGI_APPLICATION = "mailhub.wsgi.application"
# The files of the API's documentation. As an installed app, ninja would slow the start of every command.
NINJA = Path(find_spec("ninja").submodule_search_locations[0])  # type: ignore[union-attr,index]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [NINJA / "templates"],
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

DATABASES = {"default": environment.database("DATABASE_URL", DATABASE_URL)}
DATABASES["default"].setdefault("OPTIONS", {}).update(connect_timeout=5, application_name="mailhub")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TIME_ZONE = environment.zone("TIME_ZONE", "UTC")
USE_TZ = True
LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = ["mailhub.formats"]
LANGUAGES = [("en", "English"), ("de", "Deutsch")]  # for pages; a user's choice overrides the browser's
LANGUAGE_COOKIE_HTTPONLY, LANGUAGE_COOKIE_SAMESITE, LANGUAGE_COOKIE_AGE = True, "Lax", 365 * 24 * 3600
FORM_RENDERER = "mailhub.languages.FaultsInLanguage"
LOCALE_PATHS = [BASE_DIR / "mailhub" / "locale"]
STATIC_URL = "static/"
STATIC_FOLDER = MAILHUB_HOME / "static"  # mailhub/static_files.py keeps a folder in it for each version
STATIC_ROOT = Path(os.environ.get("STATIC_ROOT") or STATIC_FOLDER)
STATICFILES_DIRS = [NINJA / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "mailhub.static_files.HashedStorage"},
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 1024 * 1024
FILE_UPLOAD_HANDLERS = [
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "mailhub.front.body_gate.NamelessUploads",
]
LIST_BYTES = int(environment.number("LIST_MEGABYTES", 100, most=1000)) * 1_000_000  # for a list uploaded on a page
# For the bodies that a web process reads or answers; and free disk space below which larger ones are refused.
SPOOL_BYTES = int(environment.number("SPOOL_MEGABYTES", 2000) * 1_000_000)
SPOOL_FREE_BYTES = int(environment.number("SPOOL_FREE_MEGABYTES", 500, zero=True, most=1e9) * 1_000_000)
WEB_THREADS = int(environment.number("WEB_THREADS", 8))  # threads for Django in each web process
# Steps (campaigns/content/cost.py) per minute for a sponsor's templates: about ten seconds of a processor.
RENDER_STEPS = int(environment.number("RENDER_STEPS", 40_000_000, most=1e12))
# Parent of the folders of vendors that take print files from this machine.
PRINT_FOLDER = environment.text("PRINT_FOLDER", str(MAILHUB_HOME / "print"))
METRICS_TOKEN = environment.text("METRICS_TOKEN")  # without one, /metrics answers nobody
BODY_SECONDS = environment.number("BODY_SECONDS", 10)  # for a body to arrive; large ones need a minimal rate

# HSTS for all subdomains, and in browsers' preload lists, is for the owner of the domain to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if os.environ.get("HTTPS") == "1":
    SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Times. A lease must be much longer than the pause between two heartbeats. Tasks due later than the horizon wait in a
# table (document 004), because a broker redelivers messages it holds too long.
SWEEP_SECONDS = environment.number("SWEEP_SECONDS", 10)
# After a longer silence an installation asks a person before it sends what fell due meanwhile; 0: never.
AWAY_SECONDS = environment.number("AWAY_SECONDS", 3600, zero=True)
LEASE_SECONDS = environment.number("LEASE_SECONDS", 15)
HEARTBEAT_SECONDS = environment.number("HEARTBEAT_SECONDS", 3)
PUT_OFF = environment.days("PUT_OFF_DAYS", 5)  # RFC 5321, 4.5.4.1: a sender gives up after four to five days
# Whether changing a vendor's destination or account needs a second person; auto: with more than one sponsor.
VENDOR_SECOND_PERSON = environment.choice("VENDOR_SECOND_PERSON", "auto", "yes", "no")
EQUAL_REFUSALS = int(environment.number("EQUAL_REFUSALS", 20, zero=True))
# Address where `receive_bounces` listens, and the mailbox that `read_bounces` reads; empty: not used.
BOUNCE_RECEIVER = environment.mail_server("BOUNCE_RECEIVER", "lmtp://127.0.0.1:2424", ("lmtp", "smtp"))
BOUNCE_MAILBOX = environment.mail_server("BOUNCE_MAILBOX", "imaps://user:password@host/INBOX", ("imaps", "imap"))
# An address with soft bounces on this many days within the window is suppressed; 0: never.
SOFT_BOUNCES = int(environment.number("SOFT_BOUNCES", 5, zero=True))
SOFT_BOUNCE_WINDOW = environment.days("SOFT_BOUNCE_DAYS", 90)
EVENTS_KEPT = environment.days("EVENT_DAYS", 730)  # bounces and complaints as rows; never less than that window
BOUNCE_LIMIT = environment.number("BOUNCE_LIMIT", 8, zero=True, most=100)  # percent of those answered
BOUNCE_LEAST = int(environment.number("BOUNCE_LEAST", 200))
COMPLAINT_LIMIT = environment.number("COMPLAINT_LIMIT", 0.3, zero=True, most=100)  # percent of those accepted
COMPLAINT_LEAST = int(environment.number("COMPLAINT_LEAST", 1000))
# Complaints about a sponsor's e-mails of a day to one provider, in percent of those accepted: operators are warned, and
# then its bulk mail to that provider pauses.
RECEIVER_COMPLAINT_WARNING = environment.number("RECEIVER_COMPLAINT_WARNING", 0.1, zero=True, most=100)
RECEIVER_COMPLAINT_LIMIT = environment.number("RECEIVER_COMPLAINT_LIMIT", 0.3, zero=True, most=100)
RECEIVER_COMPLAINT_LEAST = int(environment.number("RECEIVER_COMPLAINT_LEAST", 1000))
PAUSE_SECONDS = environment.number("PAUSE_SECONDS", 3)  # between two checks of running campaigns
TRANSACTION_IDLE_SECONDS = environment.number("TRANSACTION_IDLE_SECONDS", 60, zero=True)
WAITER_HORIZON = environment.minutes("WAITER_HORIZON_MINUTES", 15)
WAITER_SWEEP = environment.minutes("WAITER_SWEEP_MINUTES", 5)
WAITER_EXCLUDED_QUEUES = environment.listed("WAITER_EXCLUDED_QUEUES")
VISIBILITY_TIMEOUT = timedelta(hours=1)
QUEUE_LOOK_SECONDS = environment.number("QUEUE_LOOK_SECONDS", 15)  # between two checks of a worker for new vendors

CELERY_BROKER_URL = BROKER_URL
CELERY_RESULT_BACKEND = os.environ.get("RESULT_BACKEND", celery_url(REDIS_URL))
CELERY_TIMEZONE = "UTC"
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = CELERY_EVENT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = CELERY_RESULT_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "hub"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = CELERY_TASK_REJECT_ON_WORKER_LOST = (
    True  # repeats are harmless, as rows are claimed in the database
)
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = CELERY_TASK_SEND_SENT_EVENT = CELERY_TASK_TRACK_STARTED = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# Otherwise a worker ends at an unknown answer, and on RabbitMQ when a message waited in it for too long.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_RESULT_EXPIRES = timedelta(days=1)
_REDIS = {
    "visibility_timeout": int(VISIBILITY_TIMEOUT.total_seconds()),
    "socket_keepalive": True,
    "health_check_interval": 25,
}
# One list per queue: there are no priorities, and with kombu's four a worker would poll four lists per vendor.
CELERY_BROKER_TRANSPORT_OPTIONS = {**_REDIS, "priority_steps": [0]}
if is_rabbitmq(BROKER_URL):
    CELERY_TASK_DEFAULT_QUEUE_TYPE = CELERY_TASK_CREATE_MISSING_QUEUE_TYPE = "quorum"
    # Delayed messages reach a queue by its exchange's pattern (waiter/delays.py).
    CELERY_TASK_DEFAULT_EXCHANGE_TYPE = CELERY_TASK_CREATE_MISSING_QUEUE_EXCHANGE_TYPE = "topic"
    CELERY_BROKER_TRANSPORT_OPTIONS = {"confirm_publish": True}
    CELERY_EVENT_QUEUE_TTL = 60.0  # seconds; after the default of 5, a delayed Flower misses tasks for ever
else:
    CELERY_WORKER_DISABLE_PREFETCH = True  # takes a task it can begin, even while it runs acknowledged ones
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {
    **_REDIS,
    "retry_policy": {
        "max_retries": 2,
        "interval_max": 0.2,
    },  # results only end a chord sooner; nothing waits for them
}
CELERY_BEAT_SCHEDULER = "mailhub.beat:ClockedScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 5
CELERY_BEAT_SYNC_EVERY = 1  # store each sent task immediately: /readyz learns from it whether beat runs
DJANGO_CELERY_BEAT_TZ_AWARE = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)-7s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": os.environ.get("LOG_LEVEL", "INFO")},
    "loggers": {
        "celery": {"level": os.environ.get("CELERY_LOG_LEVEL", "WARNING")},
        "kombu": {"level": "WARNING"},
        "django_celery_beat": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        "flufl.bounce": {"level": "CRITICAL"},  # logs each of its steps
        "mail.log": {"level": "ERROR"},  # aiosmtpd logs each command with its addresses
        "flower": {"level": "ERROR"},  # logs an error for each worker that does not answer yet
    },
}
