"""A sender in a process of its own: asks for places and calls the vendor until the vendor says that it is enough.

python -m tests.vendors.throttle_sender REDIS_URL VENDOR_ID CREDENTIAL_ID UNITS SECONDS PORT
"""

import socket
import sys
import time
from contextlib import suppress

from vendors import redis_clients
from vendors.limits.throttle import Grant, Limit, Scope, Skewed, Throttle, ThrottleUnreachable, Wait

HOLD = 600.0  # as good as none: a call ends when the vendor has answered


def main(redis_url: str, vendor_id: int, credential_id: int, limit: Limit, port: int) -> None:
    throttle = Throttle(redis_clients.make_client(redis_url))
    scope = Scope(vendor_id, credential_id, 1, (limit,))
    with socket.create_connection(("127.0.0.1", port)) as line:
        while True:
            with suppress(ThrottleUnreachable):  # Redis had no time to answer: ask again, the place waits for its hold
                if not _round(throttle, scope, line):
                    return


def _round(throttle: Throttle, scope: Scope, line: socket.socket) -> bool:
    """One question and the calls that it allows; whether the vendor wants more."""
    answer = throttle.acquire(scope, 2, HOLD)
    if isinstance(answer, Wait):
        time.sleep(answer.seconds)
        return True
    if isinstance(answer, Skewed):  # the question was under way for long: ask again
        return True
    assert isinstance(answer, Grant), answer
    for place in answer.places():
        line.sendall(b"?")
        if line.recv(1) != b"!":
            return False
        throttle.done(scope, [place])
    return True


if __name__ == "__main__":
    url, vendor, credential, units, seconds, port = sys.argv[1:]
    main(url, int(vendor), int(credential), Limit(int(units), float(seconds)), int(port))
