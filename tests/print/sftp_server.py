"""An SFTP server of a vendor that prints, on loopback: it misbehaves as it is told, and counts what was visible."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import asyncssh

from tests.waiting import result_of

USER, PASSWORD = "mailhub", "sesame"


class _Ssh(asyncssh.SSHServer):
    def __init__(self, vendor: SftpVendor) -> None:
        self._vendor = vendor

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._vendor.connections.append(conn)
        self._vendor.connected += 1

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._vendor.login_key.convert_to_public()


class _Files(asyncssh.SFTPServer):
    def __init__(self, chan: Any, vendor: SftpVendor) -> None:
        super().__init__(chan, chroot=os.fsencode(str(vendor.root)))
        self._vendor, self._connection = vendor, chan.get_connection()

    async def _step(self, name: str, path: bytes) -> str:
        """What follows when it is done; misbehaves as `vendor.wild[name]` says, once."""
        self._vendor.steps.append((name, path.decode()))
        wild = self._vendor.wild.pop(
            (name, path.decode().rpartition(".csv")[2] if ".csv" in path.decode() else ".pdf"), ""
        )
        if wild == "cut":
            self._connection.abort()
            await asyncio.sleep(30)
        if wild == "hang":
            await asyncio.sleep(30)
        if wild == "full":
            raise asyncssh.SFTPFailure("No space left on device")
        if wild == "denied":
            raise asyncssh.SFTPPermissionDenied("not here")
        return wild if wild in ("done and cut", "done and hang", "stolen") else ""

    async def open(self, path: bytes, pflags: int, attrs: Any) -> Any:  # type: ignore[override]
        await self._step("open", path)
        self._vendor.files.append(file := super().open(path, pflags, attrs))
        return file

    async def write(self, file_obj: Any, offset: int, data: bytes) -> int:  # type: ignore[override]
        await self._step("write", os.fsencode(file_obj.name))
        return super().write(file_obj, offset, data)  # type: ignore[return-value]

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:  # type: ignore[override]
        late = await self._step("rename", newpath)
        if late == "stolen":  # somebody cleans up
            os.remove(self.map_path(oldpath))
            raise asyncssh.SFTPNoSuchFile("no such file")
        if self._vendor.map_path_exists(newpath):
            raise asyncssh.SFTPFailure("it exists")
        super().rename(oldpath, newpath)
        if newpath.endswith(b".csv") and b"/in/" in newpath:
            self._vendor.visible[newpath.decode()] += 1
        if late:
            if late == "done and cut":
                self._connection.abort()
            await asyncio.sleep(30)

    async def remove(self, path: bytes) -> None:  # type: ignore[override]
        await self._step("remove", path)
        super().remove(path)


class SftpVendor:
    """wild: {(step, end of the name): misbehaviour}, each of which happens once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("in", "acks"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.wild: dict[tuple[str, str], str] = {}
        self.steps: list[tuple[str, str]] = []
        self.visible: Counter[str] = Counter()
        self.connections: list[Any] = []
        self.connected = 0
        self.files: list[Any] = []  # that a cut connection may have left open
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.login_key = asyncssh.generate_private_key("ssh-ed25519")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def map_path_exists(self, path: bytes) -> bool:
        return (self.root / path.decode().lstrip("/")).exists()

    def __enter__(self) -> SftpVendor:
        self._thread.start()
        self.start()
        return self

    def start(self, port: int = 0) -> None:
        self._server = self._run(
            asyncssh.listen(
                "127.0.0.1",
                port,
                server_factory=lambda: _Ssh(self),
                server_host_keys=[self.host_key],
                sftp_factory=lambda chan: _Files(chan, self),
                allow_scp=False,
            )
        )
        self.port: int = self._server.get_port()

    def stop(self) -> None:
        async def ended() -> None:
            self._server.close()
            for one in self.connections:
                one.abort()
            await self._server.wait_closed()

        self._run(ended())

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._run(self._ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for file in self.files:
            file.close()

    @staticmethod
    async def _ended() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _run(self, work: Any) -> Any:
        async def awaited() -> Any:
            return await work

        made: Future[Any] = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        return result_of(made, "the server is done")

    @property
    def public_key(self) -> str:
        return self.host_key.export_public_key().decode().strip()

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "host": "127.0.0.1", "port": self.port, "user": USER, "host_key": self.public_key, "folder": "/in",
            "acknowledgements": "/acks", "timeout": "5", **more,
        }  # fmt: skip

    def secret(self) -> dict[str, str]:
        return {"private_key": self.login_key.export_private_key().decode()}

    def manifests(self) -> list[Path]:
        return sorted((self.root / "in").glob("*.csv"))

    def acknowledge(self, name: str, text: str) -> Path:
        path = self.root / "acks" / name
        path.write_text(text)
        return path
