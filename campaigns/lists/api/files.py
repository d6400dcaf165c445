"""Files uploaded once, which requests to send refer to by id. Only the key's sponsor can use them."""

import re
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status

from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem, invalid_problem
from campaigns.doors.front.schemas import ProblemOut
from campaigns.lists.api.schemas import FILE_ID, FileOut
from campaigns.lists.intake import BadInput, uploads
from campaigns.lists.intake.uploads import Owner, Uploaded
from vendors.said import Said

router = Router(tags=["files"])
HERE = "/api/v1/files"
PROBLEMS = dict.fromkeys((401, 403, 404, 413, 422, 429, 503), ProblemOut)
BINARY = {"schema": {"type": "string", "format": "binary"}}
CONTENT = {"content": {"application/octet-stream": BINARY}, "required": True}


@router.post(
    "/files",
    auth=Key("send"),
    response={201: FileOut, 200: FileOut, 409: ProblemOut, **PROBLEMS},
    summary="Upload a file",
    openapi_extra={"requestBody": CONTENT},
)
def upload_file(request: HttpRequest, response: HttpResponse) -> Status[dict[str, Any]]:
    """The body is the content as it is. The same content has the same id, so a repeat changes nothing (200)."""
    if not request.body:
        raise invalid_problem([{"pointer": "", "code": "empty", "detail": Said("the file is empty")}])
    try:
        found, new = uploads.store_upload(_upload_owner(request), request.body)
    except BadInput as why:
        raise Problem("state-conflict", str(why)) from why
    facts = _file_facts(found)
    response["Location"] = f"{HERE}/{facts['id']}"
    return Status(201 if new else 200, facts)


@router.get("/files/{file_id}", auth=Key("send"), response={200: FileOut, **PROBLEMS}, summary="One file")
def get_file(request: HttpRequest, file_id: str) -> dict[str, Any]:
    """Whether it is there. It stays for 30 days after it was last asked for or referred to."""
    digest = _digest_of_file_id(file_id)
    found = uploads.find_uploads(_upload_owner(request), [digest]).get(digest)
    if found is None:
        raise Problem("not-found", "You have no such file.")
    return _file_facts(found)


@router.delete("/files/{file_id}", auth=Key("send"), response={204: None, **PROBLEMS}, summary="Delete a file")
def delete_file(request: HttpRequest, file_id: str) -> Status[None]:
    """Letters of requests that were accepted before carry it all the same."""
    if not uploads.remove_upload(_upload_owner(request), _digest_of_file_id(file_id)):
        raise Problem("not-found", "You have no such file.")
    return Status(204, None)


def _upload_owner(request: HttpRequest) -> Owner:
    caller: Caller = request.auth  # type: ignore[attr-defined]
    return Owner(caller.sponsor_id, caller.test)


def _digest_of_file_id(file_id: str) -> bytes:
    found = re.fullmatch(FILE_ID, file_id)
    if found is None:
        raise Problem("not-found", "You have no such file.")
    return bytes.fromhex(found[1])


def _file_facts(file: Uploaded) -> dict[str, Any]:
    return {"id": f"file_{file.digest.hex()}", "size": file.size, "asked_at": file.asked_at}
