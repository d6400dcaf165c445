"""The settings of every process. All values come from the environment; nothing here starts a process.

The docstrings below them, in Markdown, are the table of docs/reference/environment.md.
"""

import os
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from mailhub import environment
from mailhub.command import program_version
from mailhub.environment import is_rabbitmq, secret_key
from vendors.redis_addresses import celery_url, parse_sentinels

BASE_DIR = Path(__file__).resolve().parent.parent
MAILHUB_HOME = environment.home_folder("MAILHUB_HOME")
"""Folder of bundled servers and the generated secret key. Default: `.mailhub` beside manage.py; of a wheel
`~/.local/share/mailhub`."""

DATABASE_URL = environment.text_setting("DATABASE_URL", "postgres://mailhub@/mailhub")
"""`postgres://user:password@host/name`; of several hosts with commas, the one that takes writes. Default: the bundled
PostgreSQL."""
REDIS_URL = environment.redis_url("REDIS_URL", "redis://127.0.0.1:6379/0")
"""Throttle windows, vendors' health, limits of API keys: `redis://host:6379/0`, `rediss://` with TLS, `unix:///path`,
or [Sentinels](../how-to/scale.md#stores-that-fail-over). Default: the bundled Redis."""
BROKER_URL = environment.broker_url("BROKER_URL", REDIS_URL)
"""Celery's broker: Redis, or [RabbitMQ](../how-to/use-rabbitmq.md) as `amqp://user:password@host:5672//`. Default:
`REDIS_URL`."""
RESULT_URLS = environment.redis_servers("RESULT_URLS", REDIS_URL)
"""Result servers of the HTTP API (document 002), comma-separated; append new ones, because sessions store an index
into this list. Default: `REDIS_URL`."""
RESULT_TTL = environment.days_setting("RESULT_DAYS", 7)
"""Days that results stay on these servers; afterwards the rows answer."""
STORE_PATIENCE = environment.number_setting("STORE_PATIENCE", 1)
"""Seconds that an API request waits for Redis before 503."""
WEBHOOK_NETWORKS = environment.network_list("WEBHOOK_NETWORKS")
"""Private networks open to webhooks, as `10.0.0.0/8`; default: public only."""
WEBHOOK_PORTS = environment.port_numbers("WEBHOOK_PORTS")
"""Ports open to webhooks, comma-separated; default: 80, 443, and ports above 1023 unusual for databases, brokers
and caches."""
DNS_SERVERS = environment.server_addresses("DNS_SERVERS", port=53)
"""Servers for `doctor`, as `192.0.2.1,192.0.2.2:5353`. Default: those of this machine."""
STORES_MAY_LOSE = environment.flag_setting("STORES_MAY_LOSE")
"""`1`, for tests: warns of unsafe PostgreSQL settings instead of refusing them."""

MAILHUB_ROLE = environment.text_setting("MAILHUB_ROLE")
"""The process of the Procfile that `run` becomes and `alive` asks about, if they are given no name."""
DEBUG = environment.flag_setting("DEBUG")
"""`1`: Django's debug pages; never in production."""
SECRET_KEY = os.environ.get("SECRET_KEY") or secret_key(MAILHUB_HOME)
"""Signs sessions and **encrypts the vendors' secrets**: equal on every machine; without it secrets must be entered
anew. Default: generated, kept in the home."""
SECRET_KEY_FALLBACKS = environment.list_setting("SECRET_KEY_FALLBACKS")
"""Former keys, comma-separated, still valid for decrypting; see [Rotate keys](../how-to/rotate-keys.md)."""
ALLOWED_HOSTS = environment.list_setting("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
"""Host names of the pages."""
PUBLIC_URL = environment.public_url("PUBLIC_URL")
"""Public address of `web`, with the `api` below `/api/`, as `https://mail.example.org`; needed for [unsubscribe
links](../how-to/unsubscribe.md) and delivery reports."""
if PUBLIC_URL:
    ALLOWED_HOSTS.append(urlsplit(PUBLIC_URL).hostname or "")

INSTALLED_APPS = [
    "mailhub.apps.MailhubConfig",
    "campaigns.apps.CampaignsConfig",
    *(  # the features: their commands and pages of the admin; all models are of campaigns
        f"campaigns.{feature}"
        for feature in (
            *("approvals", "audience", "content", "integrations", "lists", "operations", "reporting"),
            *("senders", "suppression"),
        )
    ),
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
    "campaigns.doors.front.problems.ProblemMiddleware",
    "campaigns.doors.front.problems.NulMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "mailhub.languages.PagesLanguage",
    "mailhub.visitor_zones.VisitorZone",
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
    "campaigns.doors.front.problems.ProblemMiddleware",
    "campaigns.doors.front.problems.NulMiddleware",
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

DATABASES = {"default": environment.database_settings("DATABASE_URL", DATABASE_URL)}
DATABASES["default"].setdefault("OPTIONS", {}).update(
    connect_timeout=5, application_name=f"mailhub {program_version()}"
)  # `doctor` sees by it which processes run an older version
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TIME_ZONE = environment.time_zone_setting("TIME_ZONE", "UTC")
"""Zone of the admin, and new vendors' default."""
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
"""Target of `collectstatic`, for web servers that serve these files. Default: a folder for each version in
`MAILHUB_HOME/static`, made by `web`."""
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
    "campaigns.doors.front.body_gate.NamelessUploads",
]
LIST_BYTES = int(environment.number_setting("LIST_MEGABYTES", 100, most=1000)) * 1_000_000
"""Largest recipient list uploaded on a page."""
SPOOL_BYTES = int(environment.number_setting("SPOOL_MEGABYTES", 2000) * 1_000_000)
"""Larger bodies in work in each `web` or `api` process; one user, sponsor or kind of client gets an eighth."""
SPOOL_FREE_BYTES = int(environment.number_setting("SPOOL_FREE_MEGABYTES", 500, zero=True, most=1e9) * 1_000_000)
"""Free space kept on the disk of temporary files; below it larger bodies get 507."""
WEB_THREADS = int(environment.number_setting("WEB_THREADS", 8))
"""Request threads of a `web` or `api` process, each with a possible database connection."""
RENDER_STEPS = int(environment.number_setting("RENDER_STEPS", 40_000_000, most=1e12))
"""[Template steps](../api.md#what-a-template-may-cost) of a sponsor a minute at the API: about ten seconds of
a processor."""
PRINT_FOLDER = environment.text_setting("PRINT_FOLDER", str(MAILHUB_HOME / "print"))
"""Parent of local folders for [print files](../how-to/print.md). Default: `MAILHUB_HOME/print`."""
METRICS_TOKEN = environment.text_setting("METRICS_TOKEN")
"""Token for [`/metrics`](../how-to/watch.md#prometheus); without it, 404."""
BODY_SECONDS = environment.number_setting("BODY_SECONDS", 10)
"""Seconds for a request's body, else 408; large ones need 64 kB a second."""

# HSTS for all subdomains, and in browsers' preload lists, is for the owner of the domain to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if environment.flag_setting("HTTPS"):
    SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Times. A lease must be much longer than the pause between two heartbeats. Tasks due later than the horizon wait in a
# table (document 004), because a broker redelivers messages it holds too long.
SWEEP_SECONDS = environment.number_setting("SWEEP_SECONDS", 10)
"""Seconds between sweeps; after three missed ones each worker sweeps."""
AWAY_SECONDS = environment.number_setting("AWAY_SECONDS", 3600, zero=True)
"""After a longer standstill mailhub [asks a person](../how-to/back-up-and-restore.md#a-copy-a-move-or-days-away)
before sending overdue mail; `0`: never."""
LEASE_SECONDS = environment.number_setting("LEASE_SECONDS", 15)
"""A sender silent for longer counts as dead."""
HEARTBEAT_SECONDS = environment.number_setting("HEARTBEAT_SECONDS", 3)
"""Seconds between a sender's heartbeats; much shorter than a lease."""
JOURNAL = environment.choose_word("JOURNAL", "on", "off") == "on"
"""`off`: a sender keeps no [journal of calls](../explanation/recovery.md#a-sender-dies) in `MAILHUB_HOME/journals`."""
TURN_SECONDS = environment.number_setting("TURN_SECONDS", 5, zero=True)
"""A job that [another sponsor](../how-to/share-a-vendor.md) waits for gives its mailcaster up after so many seconds;
`0`: never."""
CLAIM_AHEAD_SECONDS = environment.number_setting("CLAIM_AHEAD_SECONDS", 0.1, zero=True)
"""Where calls are quick, a sender claims as many messages as it calls in so many seconds; `0`: as many as it has
connections."""
PUT_OFF = environment.days_setting("PUT_OFF_DAYS", 5)  # RFC 5321, 4.5.4.1: a sender gives up after four to five days
"""A message deferred by its vendor (HTTP 425, SMTP 4xx) for longer expires."""
VENDOR_SECOND_PERSON = environment.choose_word("VENDOR_SECOND_PERSON", "auto", "yes", "no")
"""A [second person](../how-to/add-a-vendor.md#a-second-person) confirms changes of vendors' destinations: `yes`,
`no`, `auto` (with several sponsors)."""
EQUAL_REFUSALS = int(environment.number_setting("EQUAL_REFUSALS", 20, zero=True))
"""Equally worded refusals in a row, none of them the recipients' fault, that pause a sponsor's campaigns, or the
account; `0`: never."""
BOUNCE_RECEIVER = environment.mail_server("BOUNCE_RECEIVER", "lmtp://127.0.0.1:2424", ("lmtp", "smtp"))
"""Address for [returned mail](../how-to/bounces.md), as `lmtp://127.0.0.1:2424` or `smtp://192.0.2.1:25`; empty:
none."""
BOUNCE_MAILBOX = environment.mail_server("BOUNCE_MAILBOX", "imaps://user:password@host/INBOX", ("imaps", "imap"))
"""Mailbox for `read_bounces`: `imaps://user:password@mail.example.com/INBOX`."""
SOFT_BOUNCES = int(environment.number_setting("SOFT_BOUNCES", 5, zero=True))
"""Days with a [soft bounce](../how-to/suppress-recipients.md#what-bounces-and-complaints-do) that suppress an
address; `0`: never."""
SOFT_BOUNCE_WINDOW = environment.days_setting("SOFT_BOUNCE_DAYS", 90)
"""The span of days in which they count."""
EVENTS_KEPT = environment.days_setting("EVENT_DAYS", 730)
"""Days that bounces, complaints and other reports are kept, at least `SOFT_BOUNCE_DAYS`."""
BOUNCE_LIMIT = environment.number_setting("BOUNCE_LIMIT", 8, zero=True, most=100)
"""Percentage refused or bounced at which a campaign [pauses
itself](../how-to/stop-and-retry.md#a-campaign-that-pauses-itself); `0`: never."""
BOUNCE_LEAST = int(environment.number_setting("BOUNCE_LEAST", 200))
"""Answers needed for that."""
COMPLAINT_LIMIT = environment.number_setting("COMPLAINT_LIMIT", 0.3, zero=True, most=100)
"""The same for complaints, as a percentage of accepted messages."""
COMPLAINT_LEAST = int(environment.number_setting("COMPLAINT_LEAST", 1000))
"""Accepted messages needed for that."""
RECEIVER_COMPLAINT_WARNING = environment.number_setting("RECEIVER_COMPLAINT_WARNING", 0.1, zero=True, most=100)
"""Percentage of a sponsor's e-mails of a day to one
[provider](../how-to/stop-and-retry.md#too-many-complaints-at-one-provider) with complaints that warns; 0: never."""
RECEIVER_COMPLAINT_LIMIT = environment.number_setting("RECEIVER_COMPLAINT_LIMIT", 0.3, zero=True, most=100)
"""The percentage that pauses its bulk mail there; 0: never."""
RECEIVER_COMPLAINT_LEAST = int(environment.number_setting("RECEIVER_COMPLAINT_LEAST", 1000))
"""Accepted e-mails of the day needed for both."""
PAUSE_SECONDS = environment.number_setting("PAUSE_SECONDS", 3)
"""Seconds between checks of running campaigns."""
TRANSACTION_IDLE_SECONDS = environment.number_setting("TRANSACTION_IDLE_SECONDS", 60, zero=True)
"""PostgreSQL ends transactions idle for longer; `0`: never."""
WAITER_HORIZON = environment.minutes_setting("WAITER_HORIZON_MINUTES", 15)
"""Tasks due later are parked; at most half of the broker's visibility timeout of an hour."""
WAITER_SWEEP = environment.minutes_setting("WAITER_SWEEP_MINUTES", 5)
"""Minutes between releases of parked tasks; below the horizon."""
WAITER_EXCLUDED_QUEUES = environment.list_setting("WAITER_EXCLUDED_QUEUES")
"""Comma-separated queues without parking."""
VISIBILITY_TIMEOUT = timedelta(hours=1)
QUEUE_LOOK_SECONDS = environment.number_setting("QUEUE_LOOK_SECONDS", 15)
"""Seconds between a worker's looks for new vendors."""

# The second and third come before $BROKER_URL, which the command `celery` takes as it is given.
CELERY_BROKER_URL = CELERY_BROKER_READ_URL = CELERY_BROKER_WRITE_URL = celery_url(BROKER_URL)
RESULT_BACKEND = environment.broker_url("RESULT_BACKEND", REDIS_URL)
"""Celery's results (chords); not essential: the last child logged finishes its parent. Default: `REDIS_URL`."""
CELERY_RESULT_BACKEND = celery_url(RESULT_BACKEND)
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
    if sentinels := parse_sentinels(BROKER_URL):
        CELERY_BROKER_TRANSPORT_OPTIONS |= sentinels.celery_options()
        CELERY_BROKER_USE_SSL = sentinels.celery_tls()
    CELERY_WORKER_DISABLE_PREFETCH = True  # takes a task it can begin, even while it runs acknowledged ones
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {
    **_REDIS,
    "retry_policy": {
        "max_retries": 2,
        "interval_max": 0.2,
    },  # results only end a chord sooner; nothing waits for them
}
if sentinels := parse_sentinels(RESULT_BACKEND):
    CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS |= sentinels.celery_options()
    CELERY_REDIS_BACKEND_USE_SSL = sentinels.celery_tls()
CELERY_BEAT_SCHEDULER = "mailhub.beat:ClockedScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 5
CELERY_BEAT_SYNC_EVERY = 1  # store each sent task immediately: /readyz learns from it whether beat runs
DJANGO_CELERY_BEAT_TZ_AWARE = True

LOG_FORMAT = environment.choose_word("LOG_FORMAT", "text", "json")
"""`json`: each line of the log is an object with ids of job, vendor, request and task, and without addresses."""
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "mailhub.log_lines.LogLines"}},
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
