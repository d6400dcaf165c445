"""A private PostgreSQL and a private Redis for installations that name none, shared by all their processes.

Their files are in one folder, the home (MAILHUB_HOME). They listen on unix sockets only and outlive the process that
started them. They are the same programs as in production, so there is one SQL dialect.
"""

from mailhub.embedded.data_dir import EmbeddedError, Home
from mailhub.embedded.servers import State, ensure_servers, rebuild_redis, reset_servers, server_states, stop_servers

__all__ = [
    "EmbeddedError",
    "Home",
    "State",
    "ensure_servers",
    "rebuild_redis",
    "reset_servers",
    "server_states",
    "stop_servers",
]
