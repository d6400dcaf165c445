"""Time that has passed without being waited for: what is stored of a vendor's calls is made older by so much.

To the sender, the throttle and the database that is a clock that went on; none of theirs is touched. Nothing may be in
a call meanwhile.
"""

from datetime import timedelta

from django.conf import settings
from django.db.models import F
from redis import Redis

from vendors.models import Credential, Usage, Vendor


def make_older(vendor: Vendor, seconds: float) -> None:
    past = timedelta(seconds=seconds)
    logins = Credential.objects.filter(vendor=vendor)
    logins.update(rate_limited_until=F("rate_limited_until") - past, retry_after_until=F("retry_after_until") - past)
    Usage.objects.filter(vendor=vendor).update(at=F("at") - past, until=F("until") - past)
    names = ["window", *(f"c{login.pk}" for login in logins)]
    with Redis.from_url(settings.REDIS_URL) as redis, redis.pipeline() as moves:
        for name in names:
            key = f"mailhub:{{v{vendor.pk}}}:{name}"
            for place in redis.zrangebyscore(key, "(0", "(+inf"):
                moves.zincrby(key, -seconds * 1e6, place)
        moves.execute()
