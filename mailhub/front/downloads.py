"""Files that are made when somebody asks for them, of any size.

Their paths end as their names do, or in /report: by that the web server knows them, and makes few at a time (rsgi).
"""

from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import Any

from django.http import FileResponse, HttpResponse
from django.utils.http import content_disposition_header

IN_MEMORY = 1_000_000  # bytes
KINDS = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def download(chunks: Iterable[bytes], name: str) -> Any:
    """The file, made whole before it goes: what fails while it is made is no half file. name: ends as one of KINDS.

    A large one lies on the disk, so that a slow reader of it holds no thread (rsgi).
    """
    kind = KINDS[name.rpartition(".")[2]]
    file = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 (the response closes it)
    try:
        for chunk in chunks:
            file.write(chunk)
        size = file.tell()
        file.seek(0)
        if size <= IN_MEMORY:
            answer: Any = HttpResponse(file.read(), kind)
            answer["Content-Disposition"] = content_disposition_header(True, name)
            file.close()
        else:
            answer = FileResponse(file, as_attachment=True, filename=name, content_type=kind)
    except BaseException:
        file.close()
        raise
    answer["Content-Encoding"] = "identity"  # it is sent as it is, from the disk
    return answer
