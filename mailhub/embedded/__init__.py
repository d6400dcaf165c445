"""A private PostgreSQL and a private Redis for who named none: started once, found again by every process.

They live below one folder, the home (MAILHUB_HOME, or .mailhub beside manage.py), answer on unix sockets only
and outlive the process that started them. The same engines as in production, so there is one SQL dialect.
"""

from mailhub.embedded.data_dir import EmbeddedError, Home
from mailhub.embedded.servers import State, ensure, reset, status, stop

__all__ = ["EmbeddedError", "Home", "State", "ensure", "reset", "status", "stop"]
