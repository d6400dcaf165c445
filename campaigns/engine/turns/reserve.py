"""Mailcasters that usual and bulk mail leave to urgent letters, by what those needed at once lately.

A letter keeps its mailcaster until its call has ended. At a vendor whose limit is used up it waits there for the next
window, and the letter after it needs another mailcaster. A leaf of a lower class gives one up only at its next look,
and takes it again once the letter is gone. So a letter that finds no mailcaster notes how many of them wait or run
(`NOTED`, with the look at idle mailcasters). For KEPT_SECONDS lower classes then use only the others.

Only mailcasters for small jobs count. Lower classes keep one of them, and as many as their floor gives.
"""

from campaigns.engine.lifecycle import sql_list
from campaigns.engine.turns.order import MAY_GO, SMALL
from campaigns.models.states import RUNNING
from vendors.mail_classes import MailClass
from vendors.models import Mailcaster

KEPT_SECONDS = 600.0
AGAIN_SECONDS = 60.0  # after which the same need is noted again
WAITED_SECONDS = 0.25  # of an urgent leaf; a younger one is about to free its mailcaster
MOST = 100  # letters that are counted
_TAKES_SMALL = f"c.kind <> '{Mailcaster.Kind.LARGE_ONLY}'"
_LOWER_LEAVES = f"""FROM campaigns_job r JOIN vendors_mailcaster c ON c.id = r.mailcaster_id
        WHERE r.vendor_id = {{vendor}} AND r.status IN {sql_list(RUNNING)} AND r.mail_class > {MailClass.URGENT.value}
            AND {_TAKES_SMALL}"""
_NEEDED = f"""FROM campaigns_classcredit k WHERE k.vendor_id = {{vendor}} AND k.mail_class = {MailClass.URGENT.value}
            AND k.needed_until > clock_timestamp()"""
_LOWER_MOST = f"""(SELECT greatest(1, ceil(count(*) * max(v.floor) / 100.0), count(*) - k.needed)::int
            FROM vendors_mailcaster c JOIN vendors_vendor v ON v.id = c.vendor_id
            WHERE c.vendor_id = {{vendor}} AND c.enabled AND {_TAKES_SMALL})"""


def lower_most(vendor: str) -> str:
    """Return SQL for the number of small jobs' mailcasters that the lower classes may have; NULL means all."""
    return f"(SELECT {_LOWER_MOST} {_NEEDED})".format(vendor=vendor)


def is_kept(vendor: str) -> str:
    """Return the SQL condition that lower classes take no further mailcaster m that is for small jobs, too."""
    leaves = f"(SELECT count(*) {_LOWER_LEAVES})"
    return f"""(m.kind <> '{Mailcaster.Kind.LARGE_ONLY}'
        AND EXISTS (SELECT {_NEEDED} AND {leaves} >= {_LOWER_MOST}))""".format(vendor=vendor)


# Of a table `idle` of a vendor's mailcasters. It writes if none of those takes a letter that waits and may go, while
# lower classes have some, and only what is not noted yet.
_WAITING = f"""SELECT FROM (
            SELECT * FROM campaigns_job j WHERE j.vendor_id = %(vendor)s AND j.mail_class = {MailClass.URGENT.value}
                AND j.status IN {sql_list(SMALL)} AND j.parent_id IS NULL LIMIT {MOST}) j
        WHERE {MAY_GO}"""
_RUNNING = f"""FROM campaigns_job r WHERE r.vendor_id = %(vendor)s AND r.mail_class = {MailClass.URGENT.value}
        AND r.status IN {sql_list(RUNNING)}"""
NOTED = f"""noted AS (
    INSERT INTO campaigns_classcredit AS k (vendor_id, mail_class, needed, needed_until)
    SELECT %(vendor)s, {MailClass.URGENT.value}, n.number, clock_timestamp() + interval '{KEPT_SECONDS} seconds'
    FROM (SELECT least({MOST}, (SELECT count(*) FROM ({_WAITING}) w) + (SELECT count(*) {_RUNNING})) AS number) n
    WHERE NOT EXISTS (SELECT FROM idle c WHERE {_TAKES_SMALL}) AND EXISTS ({_WAITING})
        AND EXISTS (SELECT {_LOWER_LEAVES.format(vendor="%(vendor)s")})
        AND NOT EXISTS (SELECT {_RUNNING} AND r.status_at > clock_timestamp() - interval '{WAITED_SECONDS} seconds')
        AND NOT EXISTS (SELECT {_NEEDED.format(vendor="%(vendor)s")} AND k.needed >= n.number
            AND k.needed_until > clock_timestamp() + interval '{KEPT_SECONDS - AGAIN_SECONDS} seconds')
    ON CONFLICT (vendor_id, mail_class) DO UPDATE SET needed_until = excluded.needed_until, needed = CASE
        WHEN k.needed_until > clock_timestamp() THEN greatest(k.needed, excluded.needed) ELSE excluded.needed END
)"""
