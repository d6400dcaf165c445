"""python -m tests.chaos [--seconds 60] [--seed N]: kill -9 at random, lost servers, lost answers; then the books.

Exit status 1 if a message was accepted twice, was lost, is said to be sent without being in the vendor's books, or if a
window at the vendor held more than the limit. --calm: nothing is harmed; the rate against the strict ideal.
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

        return run.calm(options.seconds) if options.calm else run.storm(servers, options.seconds, options.seed)
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
