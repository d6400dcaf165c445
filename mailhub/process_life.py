"""Tells probes if a process of the Procfile lives. `alive` asks without Django, because that takes seconds to load.

`web`, `api` and Flower are asked at their port. Beat shows life at each tick, the receiver of bounces in its event
loop, a worker by a thread of its main process (vendors/liveness.py).
"""

import http.client
import os
from pathlib import Path

from vendors import liveness

PATIENCE = 5.0  # seconds for an answer
# Beat waits within a tick for an unavailable broker.
DEAD_BEAT = 300.0  # seconds
PORTS = {
    "web": ("PORT", "8000", "/livez"),
    "api": ("API_PORT", "8001", "/livez"),
    "flower": ("FLOWER_PORT", "5555", "/healthcheck"),  # 401 is an answer,
}
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (what is asked, not where anything listens)


def find_death(role: str, home: Path) -> str:
    """Return the reason for counting a process as dead, or empty. `role`: its name in the Procfile, or of a worker."""
    if role in PORTS:
        return _ask_port(role)
    name = role.removeprefix("worker-").replace(".", "")  # worker-vendors.2 is vendors2@host
    if role == "worker-vendors":
        name += os.environ.get("PROCESS_NUMBER", "")
    age, most = liveness.find_age(name, home), DEAD_BEAT if name == "beat" else liveness.DEAD
    if age is None:
        return f"{role} has given no sign of life in {home / liveness.FOLDER}"
    return f"{role} has given no sign of life for {age:.0f} s" if age > most else ""


def _ask_port(role: str) -> str:
    """Ask a process at its port. Any answer but a fault of the server counts."""
    variable, default, path = PORTS[role]
    host = os.environ.get("HOST") or "127.0.0.1"
    if role == "flower":
        host = os.environ.get("FLOWER_HOST") or "127.0.0.1"
    port = int(os.environ.get(variable) or default)
    connection = http.client.HTTPConnection(EVERYWHERE.get(host, host), port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as why:
        return f"{role} does not answer at port {port}: {str(why) or type(why).__name__}"
    finally:
        connection.close()
    return f"{role} answers {status} at port {port}" if status >= 500 else ""
