"""Which workers do not know an adapter that a vendor uses, as its package was installed or exchanged after their start.

A worker registers the adapters of other packages that it could load when it began, with their versions
(vendors/redis_clients.py). What a command sees, which has just begun, is what is installed. The processes of web and
API register nothing: whoever installs a package restarts them as well.
"""

from collections import defaultdict
from collections.abc import Iterable

from django.conf import settings

from vendors import adapters, redis_clients
from vendors.models import Vendor

NAMED = 5  # workers in a sentence; of more only the number is told


def needed() -> list[str]:
    """A sentence for each adapter of a vendor that some worker does not know as this process does.

    Raises WorkerRegistryUnreachable.
    """
    used = Vendor.objects.order_by("adapter").values_list("adapter", flat=True).distinct()
    return [sentence for name in used for sentence in of_adapter(name)]


def of_adapter(name: str) -> list[str]:
    """The same of one adapter. Raises WorkerRegistryUnreachable."""
    if adapters.is_built_in(name):
        return []
    by_version: defaultdict[str | None, list[str]] = defaultdict(list)
    for worker in redis_clients.registered_workers(settings.REDIS_URL):
        by_version[worker.adapters.get(name)].append(worker.name)
    here = adapters.of_others().get(name)
    absent = by_version.pop(None, [])
    found = [f"{_names(absent, 'does', 'do')} not know the adapter {name}: restart what began before"] if absent else []
    return found + [
        f"{_names(workers, 'has', 'have')} version {version} of the adapter {name}, and {here} is installed: restart"
        for version, workers in by_version.items()
        if here is not None and version != here
    ]


def after_adding(name: str) -> list[str]:
    """What to say to whoever has given a vendor this adapter."""
    if adapters.is_built_in(name):
        return []
    try:
        sentences = of_adapter(name)
    except redis_clients.WorkerRegistryUnreachable:
        sentences = ["which workers know it is unknown, as Redis does not answer"]
    return [*sentences, f"web and API, if they began before the adapter {name} was installed, need a restart too"]


def _names(workers: Iterable[str], one: str, several: str) -> str:
    names = sorted(workers)
    if len(names) == 1:
        return f"worker {names[0]} {one}"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"workers {', '.join(names[:NAMED])}{more} {several}"
