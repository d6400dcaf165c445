"""Checks of [reports] beyond its schema, above all that only signed data is read."""

from __future__ import annotations

from collections.abc import Iterator

from vendors.described.positions import KeyFault
from vendors.described.schema import OLD_CODE_NAMES, DescriptionKeys, ReportKeys, Signature
from vendors.said import Said, gettext_noop

_PATH = ("reports", "signature")
_WHERE = {"timestamp": ("timestamp", "timestamp_path"), "token": ("token", "token_path")}


def find_report_faults(of: DescriptionKeys) -> Iterator[KeyFault]:
    """Yield the mistakes in `[reports]`, if there is one."""
    keys = of.reports
    if of.inbound and not keys:
        yield ("inbound",), Said("needs [reports], whose signature proves it")
    if keys is None:
        return
    if not (keys.reference or keys.reference_query or keys.id):
        yield ("reports",), Said("needs reference, reference_query or id, by which a letter is known")
    if keys.events and keys.body != "json":
        yield ("reports", "events"), Said("is for a body of JSON")
    if keys.codes and not keys.code:
        yield ("reports", "codes"), Said("needs code, the path of the vendor's code")
    yield from _check_signature(keys.signature)
    yield from _check_unsigned(keys)


OLD_NAME = gettext_noop("[reports.codes] says %(old)s for %(codes)s; write the cause: %(better)s")


def advise_on_codes(of: DescriptionKeys) -> Iterator[Said]:
    """Yield advice for names of kinds in `[reports.codes]`, which are still understood and say no cause."""
    codes = of.reports.codes if of.reports else {}
    for old, better in OLD_CODE_NAMES.items():
        found = [code for code, name in codes.items() if name == old]
        if found:
            yield Said(OLD_NAME, old=old, codes=", ".join(found[:10]), better=Said.join_either(better))


def _check_signature(signature: Signature) -> Iterator[KeyFault]:
    scheme = signature.scheme
    for name, keys in _WHERE.items():
        there = [key for key in keys if getattr(signature, key) is not None]
        signed = "{" + name + "}" in signature.over or (bool(there) and "{fields}" in signature.over)
        if signed != (len(there) == 1):
            yield (
                (*_PATH, (there or keys)[0]),
                Said("says where {%(name)s} in over is: there are both or none", name=name),
            )
    if scheme == "hmac" and (signature.header is None) == (signature.path is None):
        yield _PATH, Said("needs header, or path into the body, where the signature is: one of them")
    if scheme == "header" and not signature.header:
        yield (
            _PATH,
            Said("the key %(name)s is missing, which the scheme %(scheme)s needs", name="header", scheme="header"),
        )
    if signature.path and scheme != "hmac":
        yield (*_PATH, "path"), Said("does not belong to the scheme %(scheme)s", scheme=scheme)
    if signature.timestamp_prefix and not (signature.timestamp and signature.prefix):
        yield (*_PATH, "timestamp_prefix"), Said("needs timestamp, a header that is a list, and prefix")


def _check_unsigned(keys: ReportKeys) -> Iterator[KeyFault]:
    """Yield mistakes if unsigned data would be read without naming the vendor's contract."""
    signature = keys.signature
    of_url = keys.body == "query" or keys.reference_query is not None
    if signature.scheme == "standard-webhooks" and of_url:
        yield (*_PATH, "scheme"), Said("signs the body alone; what the URL has would be anybody's")
    if signature.scheme != "hmac" or signature.contract:
        return
    wanted = {
        "query": ("{url}", "{fields}"),
        "form": ("{body}", "{form}", "{fields}"),
        "json": ("{body}", "{fields}") if keys.events is None else ("{body}",),
    }[keys.body]
    for one in [("{url}",)] * (keys.reference_query is not None) + [wanted]:
        if not any(name in signature.over for name in one):
            yield (
                (*_PATH, "over"),
                Said(
                    "must hold %(either)s, of which reports are read; if the vendor signs less, "
                    'say where it does: contract = "..."',
                    either=Said.join_either(one),
                ),
            )
