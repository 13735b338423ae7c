"""The few routes of the Hugging Face hub that reading a dataset takes, over datasets held in memory."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Datasets by id: files by their path. `tokens` may read `private` ones."""

    def __init__(self, datasets: Mapping[str, Mapping[str, bytes]], private: Mapping[str, str]) -> None:
        self.datasets = datasets
        self.private = private
        self.seen: list[str] = []


@contextmanager
def serve_hub(hub: Hub) -> Iterator[str]:
    """Serves the hub; its URL, for HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            self.rfile.read(length)
            path = unquote(urlsplit(self.path).path)
            hub.seen.append(f"{self.command} {path}")
            for name, files in hub.datasets.items():
                if hub.private.get(name, "") not in self.headers.get("authorization", ""):
                    continue
                if path.startswith(f"/api/datasets/{name}"):
                    return self._api(name, files, path.removeprefix(f"/api/datasets/{name}").strip("/"))
                for prefix in (f"/datasets/{name}/resolve/",):
                    if path.startswith(prefix):
                        return self._file(files.get(path.removeprefix(prefix).partition("/")[2]))
            return self._send(404, b'{"error":"Repository not found"}', {"X-Error-Code": "RepoNotFound"})

        do_POST = do_HEAD = do_GET

        def _api(self, name: str, files: Mapping[str, bytes], rest: str) -> None:
            kind = rest.partition("/")[0]
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            folder = rest.split("/", 2)[2] if rest.count("/") >= 2 else ""
            if kind in ("tree", "paths-info"):
                inside = [e for e in entries if e["path"].startswith(folder)]
                return self._json(inside if kind == "tree" else entries)
            if kind in ("", "revision"):
                return self._json(
                    {
                        "_id": "1",
                        "id": name,
                        "sha": COMMIT,
                        "private": False,
                        "gated": False,
                        "disabled": False,
                        "tags": [],
                        "downloads": 0,
                        "likes": 0,
                        "siblings": [{"rfilename": path} for path in files],
                    }
                )
            return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})

        def _file(self, data: bytes | None) -> None:
            if data is None:
                return self._send(
                    404, b"Entry not found", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
                )
            headers = {
                "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            wanted = self.headers.get("range")
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
                headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
                return self._send(206, data[start : end + 1], headers)
            return self._send(200, data, headers)

        def _json(self, value: Any) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for header, value in headers.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
