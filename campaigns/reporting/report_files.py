"""A campaign's recipients with their results, as a file to download."""

from typing import Any

from django.utils.text import slugify

from campaigns.doors.downloads import download_file
from campaigns.reporting import export
from campaigns.reporting.export import Export


def file_of(of: Export, kind: str, number: object = "") -> Any:
    """Return the file as an answer (downloads). `number`: ends its name; empty: the campaign's."""
    chunks = export.csv_chunks(of) if kind == "csv" else export.xlsx_chunks(of)
    return download_file(chunks, f"{slugify(of.campaign.name)[:60] or 'campaign'}-{number or of.campaign.pk}.{kind}")
