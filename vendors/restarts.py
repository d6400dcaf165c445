"""Workers that need a restart, because an adapter's package was installed or replaced after their start.

At its start a worker registers its loadable adapters of other packages, with their versions (vendors/redis_clients.py).
A command has just started, so it sees the installed versions. Web and API processes register nothing; restart them too
after installing a package.
"""

from collections import defaultdict
from collections.abc import Iterable

from django.conf import settings

from vendors import adapters, redis_clients
from vendors.models import Vendor
from vendors.said import Said, gettext_noop

NAMED = 5  # workers named in a sentence; of more only the number is given


def needed_restarts() -> list[str]:
    """Return a sentence for each adapter in use that some worker lacks or has in another version.

    Raises WorkerRegistryUnreachable.
    """
    used = Vendor.objects.order_by("adapter").values_list("adapter", flat=True).distinct()
    return [sentence for name in used for sentence in restarts_for(name)]


ABSENT = (
    gettext_noop("%(workers)s does not know the adapter %(name)s: restart what began before"),
    gettext_noop("%(workers)s do not know the adapter %(name)s: restart what began before"),
)
OTHER = (
    gettext_noop("%(workers)s has version %(version)s of the adapter %(name)s, and %(here)s is installed: restart"),
    gettext_noop("%(workers)s have version %(version)s of the adapter %(name)s, and %(here)s is installed: restart"),
)


def restarts_for(name: str) -> list[str]:
    """Return a sentence if some worker lacks this adapter, and one for each other version of it.

    Raises WorkerRegistryUnreachable.
    """
    if adapters.is_built_in(name):
        return []
    by_version: defaultdict[str | None, list[str]] = defaultdict(list)
    for worker in redis_clients.registered_workers(settings.REDIS_URL):
        by_version[worker.adapters.get(name)].append(worker.name)
    here = adapters.list_others().get(name)
    absent = by_version.pop(None, [])
    found: list[str] = [Said(ABSENT[len(absent) > 1], workers=_name_workers(absent), name=name)] if absent else []
    return found + [
        Said(OTHER[len(workers) > 1], workers=_name_workers(workers), version=version, name=name, here=here)
        for version, workers in by_version.items()
        if here is not None and version != here
    ]


def restarts_after_adding(name: str) -> list[str]:
    """Return sentences for a user who has just given a vendor this adapter."""
    if adapters.is_built_in(name):
        return []
    try:
        sentences = restarts_for(name)
    except redis_clients.WorkerRegistryUnreachable:
        sentences = [Said(gettext_noop("which workers know it is unknown, as Redis does not answer"))]
    rest = gettext_noop("web and API, if they began before the adapter %(name)s was installed, need a restart too")
    return [*sentences, Said(rest, name=name)]


def _name_workers(workers: Iterable[str]) -> str:
    names = sorted(workers)
    if len(names) == 1:
        return f"worker {names[0]}"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"workers {', '.join(names[:NAMED])}{more}"
