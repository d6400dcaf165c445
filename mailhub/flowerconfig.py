"""Flower's settings, read by `celery flower --conf=mailhub/flowerconfig.py`. Celery has set Django up by then.

Flower listens on loopback, needs a password, and keeps its history in a file in MAILHUB_HOME.
"""

import os
import sys

from django.conf import settings

if ":" not in os.environ.get("FLOWER_BASIC_AUTH", ""):
    sys.exit("Flower does not start open to everybody: set FLOWER_BASIC_AUTH to user:password (`up` makes one)")

settings.MAILHUB_HOME.mkdir(mode=0o700, parents=True, exist_ok=True)

address = "127.0.0.1"
port = int(os.environ.get("FLOWER_PORT", "5555"))
basic_auth = os.environ["FLOWER_BASIC_AUTH"].split(",")
persistent = True
db = str(settings.MAILHUB_HOME / "flower")
state_save_interval = 30_000  # milliseconds; a kill -9 loses so much of the history
max_tasks = 10_000
tasks_columns = "name,args,state,received,runtime,worker"
