"""The brake of a credential: after several doubts in a row its calls stop, except one probe at a time.

A doubt is a call whose answer is lost or proves nothing. Doubts cost more than anything else here: a person may have to
settle each one. A process stops once the calls in doubt in a row equal its adapter's connections, at most DOUBTS_MOST.
It tells everybody by the credential's row.

While the brake is on, `retry_after_until` keeps all calls away. From that time on one sender may take the probe: it
closes the credential again for the length of the call (a lease), under a number named by its claim. So a sender that
dies with the probe delays the next one only. A repeat of a doubt sends a letter, so it takes the probe too. A clear
answer releases the brake: accepted, refused, or told to wait. A doubt, or no connection, puts the next probe off, and
doubles the wait.

Each statement takes its turn (vendors/locks.py): earlier claims end, later ones see the brake. An operator may hold the
brake, so that nobody probes, or release it.
"""

from typing import Any

from vendors.locks import CREDENTIAL_ALONE

DOUBTS_MOST = 20  # calls in a row in doubt that put the brake on, however many connections an adapter has
WAIT_FIRST, WAIT_MOST = 5.0, 300.0  # seconds until the first probe, and between two of them
RECOVERED = 120.0  # seconds after a release; a brake put on later begins with WAIT_FIRST
TAKING = 10.0  # seconds for a probe's permit and claim

# In a claim, for a credential c: it is closed to everybody, except to the sender that has taken the probe.
OPEN = """c.brake_held_at IS NULL AND CASE WHEN c.braked_at IS NULL
        THEN coalesce(c.retry_after_until <= clock_timestamp(), true)
        ELSE coalesce(c.probe_no = %(probe)s::bigint AND c.retry_after_until > clock_timestamp(), false) END"""
# `age`: seconds since the last doubt. Doubts from before the last release say nothing. A closed credential keeps its
# time; while the brake is on, nobody else writes `retry_after_until`.
PUT_ON = f"""
UPDATE vendors_credential SET braked_at = clock_timestamp(), probe_no = probe_no + 1, brake_no = probe_no + 1,
    brake_wait = w.wait,
    retry_after_until = clock_timestamp() + w.wait * interval '1 second'
FROM (SELECT id AS credential, CASE
    WHEN brake_released_at > clock_timestamp() - %(recovered)s::float8 * interval '1 second'
    THEN greatest(%(first)s::float8, least(%(most)s::float8, 2 * brake_wait)) ELSE %(first)s::float8 END AS wait
    FROM vendors_credential WHERE id = %(credential)s) w
WHERE id = w.credential AND braked_at IS NULL
    AND coalesce(brake_released_at < clock_timestamp() - %(age)s::float8 * interval '1 second', true)
    AND CASE WHEN coalesce(retry_after_until <= clock_timestamp(), true) THEN {CREDENTIAL_ALONE} END
RETURNING id
"""
TAKE = f"""
UPDATE vendors_credential SET probe_no = probe_no + 1, probed_at = clock_timestamp(),
    retry_after_until = clock_timestamp() + %(lease)s::float8 * interval '1 second'
WHERE id = %(credential)s AND braked_at IS NOT NULL AND brake_held_at IS NULL AND NOT paused
    AND CASE WHEN coalesce(retry_after_until <= clock_timestamp(), true) THEN {CREDENTIAL_ALONE} END
RETURNING probe_no
"""
# A probe that called nobody. The next one may be taken now.
GIVE_BACK = f"""
UPDATE vendors_credential SET retry_after_until = clock_timestamp()
WHERE id = %(credential)s AND braked_at IS NOT NULL AND probe_no = %(probe)s AND {CREDENTIAL_ALONE}
"""
PUT_OFF = f"""
UPDATE vendors_credential SET brake_wait = least(%(most)s::float8, 2 * greatest(brake_wait, %(first)s::float8 / 2)),
    retry_after_until = clock_timestamp()
        + least(%(most)s::float8, 2 * greatest(brake_wait, %(first)s::float8 / 2)) * interval '1 second'
WHERE id = %(credential)s AND braked_at IS NOT NULL AND probe_no = %(probe)s AND {CREDENTIAL_ALONE}
"""
# `age`: seconds since the clear answer; one from before the brake proves nothing. An operator's hold stays.
RELEASE = f"""
WITH released AS (
    UPDATE vendors_credential SET braked_at = NULL, brake_released_at = clock_timestamp(), retry_after_until = NULL
    WHERE id = %(credential)s AND brake_held_at IS NULL
        AND CASE WHEN braked_at <= clock_timestamp() - %(age)s::float8 * interval '1 second'
            THEN {CREDENTIAL_ALONE} END
    RETURNING id, vendor_id
), forgotten AS (
    UPDATE vendors_vendorcondition k SET doubts = 0 FROM released r WHERE k.credential_id = r.id
)
SELECT v.slug FROM released r JOIN vendors_vendor v ON v.id = r.vendor_id
"""


async def put_on(rows: Any, credential_id: int, age: float) -> bool:
    """Stop all calls over the credential. `age`: seconds since the last doubt. False: it is on, or was released since.

    Raises the database's errors, as all functions here.
    """
    params = {"credential": credential_id, "age": age, "first": WAIT_FIRST, "most": WAIT_MOST, "recovered": RECOVERED}
    return await (await rows.execute(PUT_ON, params)).fetchone() is not None


async def take_probe(rows: Any, credential_id: int, hold: float) -> int | None:
    """Take the probe and return its number; None: it is not due, or somebody else has it. `hold`: of its call."""
    found = await (await rows.execute(TAKE, {"credential": credential_id, "lease": hold + TAKING})).fetchone()
    return None if found is None else int(found[0])


async def give_back_probe(rows: Any, credential_id: int, probe: int) -> None:
    """Return a probe that called nobody."""
    await rows.execute(GIVE_BACK, {"credential": credential_id, "probe": probe})


async def put_off_probe(rows: Any, credential_id: int, probe: int) -> None:
    """Put the next probe off: this one ended in doubt or did not reach the vendor."""
    params = {"credential": credential_id, "probe": probe, "first": WAIT_FIRST, "most": WAIT_MOST}
    await rows.execute(PUT_OFF, params)


async def release_brake(rows: Any, credential_id: int, age: float) -> str | None:
    """Release the brake after a clear answer. `age`: seconds since then.

    Returns the slug of the vendor, which has jobs that may go on now. None: the brake is not on, or began later.
    """
    found = await (await rows.execute(RELEASE, {"credential": credential_id, "age": age})).fetchone()
    return None if found is None else str(found[0])
