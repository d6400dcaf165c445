"""python -m tests.chaos [--seconds 60] [--seed N]: processes, stores and replies are lost at random; then the books.

Processes are killed and frozen, backends and replies of PostgreSQL lost, Redis flushed, jobs stopped and retried; one
of the vendors can neither be called again safely nor asked, and three sponsors with weights 1, 2 and 3 share another:
each one's books are checked, and the shares are told. Exit status 1 if any figure is not what it must be: a
message accepted twice, lost, said to be sent without being in the vendor's books, a window over its limit, a call after
a stop, more in doubt than calls were open, anything stuck. --calm: nothing is harmed; the rate against the ideal.
"""

import argparse
import os
import random
import signal
import sys

from tests.chaos.servers import Servers


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the storm lasts")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--calm", action="store_true", help="kill nothing, measure the rate")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"python -m tests.chaos --seconds {options.seconds:g} --seed {options.seed}{' --calm' * options.calm}")
    servers = Servers()
    try:
        set_up()
        from tests.chaos import run

        return run.calm(servers, options.seconds) if options.calm else run.storm(servers, options.seconds, options.seed)
    finally:
        servers.end()


def set_up() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    os.environ.setdefault("LOG_LEVEL", "ERROR")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


if __name__ == "__main__":
    sys.exit(main())
