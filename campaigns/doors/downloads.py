"""Files of any size, built on request.

Their paths end like their names, or in /report. By that the web server recognises them and builds few at a time (rsgi).
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


def download_file(chunks: Iterable[bytes], name: str) -> Any:
    """Build the file before it is sent, so an error never yields a partial file. `name` ends with a key of KINDS.

    A large one is kept on disk, so a slow client occupies no thread (rsgi).
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
    answer["Content-Encoding"] = "identity"  # it is sent unchanged, from the disk
    return answer
