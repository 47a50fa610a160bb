"""The Hub's protocol on a real socket of this machine: what its client asks for a model's files, and how it refuses."""

import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FIRST, SECOND = "1" * 40, "2" * 40  # commits


class Hub:
    """Repositories by name, and what was asked.

    Attributes:
      files: by repository and commit: bytes by path.
      branches: by repository: a commit by name.
      token: what the server wants to see; None: nothing.
      gated: repositories whose terms nobody has accepted.
      asked: method and path of each request.
      address: of the server.
    """

    def __init__(self, address):
        self.files, self.branches, self.gated, self.asked = {}, {}, set(), []
        self.token, self.status, self.address = None, 200, address

    def add(self, name, commit, files):
        """Adds a commit, and lets main mean it."""
        self.files.setdefault(name, {})[commit] = files
        self.branches.setdefault(name, {})["main"] = commit

    def answer(self, handler):  # noqa: PLR0911 - one for each answer of the Hub
        """Returns status, headers and body."""
        path = urlsplit(handler.path).path
        self.asked.append(f"{handler.command} {path}")
        if self.status != 200:
            return self.status, {}, b"{}"
        about = re.fullmatch(r"/api/models/(\w+/[\w.-]+)/revision/(.+)", path)
        file = re.fullmatch(r"/(\w+/[\w.-]+)/resolve/([^/]+)/(.+)", path)
        if not about and not file:
            return 404, {}, b"{}"
        name, revision = (about or file).group(1, 2)
        allowed = self.token is None or handler.headers.get("Authorization") == f"Bearer {self.token}"
        if name not in self.files or not allowed:
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"
        commit = self.branches[name].get(revision, revision)
        if commit not in self.files[name]:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        files = self.files[name][commit]
        if about:
            siblings = [{"rfilename": path} for path in files]
            return 200, {}, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode()
        if name in self.gated:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b"{}"
        if file[3] not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
        content = files[file[3]]
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        return 200, {"ETag": etag, "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}, content


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, headers, body = self.server.hub.answer(self)
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def log_message(self, *_):
        """Keeps quiet."""


@contextlib.contextmanager
def serving():
    """Gives a hub that answers until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.hub = Hub(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        server.server_close()
