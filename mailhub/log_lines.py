"""The lines of the log, of every process: as text, or with LOG_FORMAT=json as one object a line without addresses.

It imports nothing of Django, because granian's main process uses it too (mailhub/granian_log.json).
"""

import json
import logging
import os
import re
from datetime import UTC, datetime
from typing import Any

from vendors.log_ids import find_ids

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
HIDDEN = "(hidden)"
# E-mail addresses, also in URLs, and log-ins in URLs; phone numbers; what PostgreSQL quotes of a row.
PERSONAL = re.compile(
    r"(?:\"[^\"\n]{1,64}\"|[^\s\"'<>()\[\]{}=,;:/|\\]+)(?:@|%40)[^\s\"'<>()\[\]{}=,;:/|\\]+"
    r"|(?<![\w+])(?:\+|%2B|00)[1-9](?:[ ()./-]{0,2}\d){6,14}"
    r"|(?<=DETAIL:  )[^\n]*|(?<=/unsubscribe/)[^\s\"'?]+",
    re.IGNORECASE,
)
# The texts of alarms name these so (vendors/alarms.py).
NAMED = re.compile(r"\b(job|vendor|credential|campaign) ([\w.-]+)\b")


def hide_personal(text: str) -> str:
    """Return the text without addresses, phone numbers, quoted rows and tokens of unsubscribe links."""
    return PERSONAL.sub(HIDDEN, text)


class LogLines(logging.Formatter):
    """Formats a record as a line of text or, if the environment says so, of JSON."""

    def __init__(self) -> None:
        super().__init__(TEXT)
        self._is_json = os.environ.get("LOG_FORMAT") == "json"

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self._record_facts(record), ensure_ascii=False) if self._is_json else super().format(record)

    def _record_facts(self, record: logging.LogRecord) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
        }
        if record.name == "granian.access" and isinstance(record.args, dict):
            facts |= _access_facts(record.args)
        else:
            message = record.getMessage()
            facts |= {"message": hide_personal(message), **_named_ids(message)}
        facts |= find_ids()
        if record.exc_info:
            facts["exception"] = hide_personal(self.formatException(record.exc_info))
        if record.stack_info:
            facts["stack"] = hide_personal(record.stack_info)
        return facts


def _named_ids(message: str) -> dict[str, str]:
    """Return the ids that the message itself names, the first of each kind."""
    return dict(reversed(NAMED.findall(message)))


def _access_facts(request: Any) -> dict[str, Any]:
    """Return an access line's facts, without the client's address and the query."""
    path = hide_personal(str(request["path"]))
    return {
        "message": f"{request['method']} {path} {request['status']}",
        "method": request["method"],
        "path": path,
        "status": request["status"],
        "milliseconds": round(request["dt_ms"], 3),
    }
