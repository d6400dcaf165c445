"""What the shape of a description does not tell of `[reports]`: what belongs together, and is what is read signed."""

from __future__ import annotations

from collections.abc import Iterator

from vendors.described.positions import KeyFault
from vendors.described.schema import DescriptionKeys, ReportKeys


def faults(of: DescriptionKeys) -> Iterator[KeyFault]:
    """What is wrong with `[reports]`, if there is one."""
    keys = of.reports
    if keys is None:
        return
    if not (keys.reference or keys.reference_query or keys.id):
        yield ("reports",), "needs reference, reference_query or id, by which a letter is known"
    if keys.events and keys.body != "json":
        yield ("reports", "events"), "is for a body of JSON"
    if keys.codes and not keys.code:
        yield ("reports", "codes"), "needs code, the path of the vendor's code"
    path, signature = ("reports", "signature"), keys.signature
    if ("{timestamp}" in signature.over) != (signature.timestamp is not None):
        yield (*path, "timestamp"), "names the header of {timestamp} in over: there are both or none"
    yield from _signed(keys)
    if signature.scheme in ("hmac", "header") and not signature.header:
        yield path, f"the key header is missing, which the scheme {signature.scheme} needs"


def _signed(keys: ReportKeys) -> Iterator[KeyFault]:
    """What is read has to be signed."""
    scheme, over = keys.signature.scheme, keys.signature.over
    of_url = keys.body == "query" or keys.reference_query is not None
    if scheme == "standard-webhooks" and of_url:
        yield ("reports", "signature", "scheme"), "signs the body alone; what the URL has would be anybody's"
    if scheme != "hmac":
        return
    wanted = {"query": (), "form": ("{body}", "{form}"), "json": ("{body}",)}[keys.body]
    for one in [("{url}",)] * of_url + [wanted] * bool(wanted):
        if not any(name in over for name in one):
            yield ("reports", "signature", "over"), f"must hold {' or '.join(one)}, of which reports are read"
