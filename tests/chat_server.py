"""A chat server for tests, on a real socket of this machine: plays a script of answers, misbehaves on request.

Every entry of `script` answers one request for a completion, in order of arrival; then `usual` answers. An entry is a
function of the handler and the decoded body; `says`, `fails`, `sends` and `hangs` make such functions. `make` and
`message_of` are the other side: an endpoint that asks the server.
"""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dfc.config import EndpointConfig
from dfc.players.endpoint import Endpoint
from dfc.players.remote import PlayerError

HELLO = [{"role": "user", "content": "hello"}]


def completion(text, **more):
    message = {"role": "assistant", "content": text}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    answer["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    answer["usage"] = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    return {**answer, **more}


def says(text, *, after=0.0, **more):
    """A completion, `after` seconds late."""

    def act(handler, _):
        if after:
            handler.server.release.wait(after)
        handler.send(200, json.dumps(completion(text, **more)).encode())

    return act


def fails(status, body=b"", **headers):
    """An error status; a body that is not bytes becomes JSON, an underscore in a header's name a dash."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda handler, _: handler.send(status, content, {k.replace("_", "-"): v for k, v in headers.items()})


def sends(content, *, announced=None):
    """Status 200 with any bytes; more may be `announced` than come before the connection ends."""

    def act(handler, _):
        handler.send(200, content, {} if announced is None else {"Content-Length": str(announced)})
        if announced is not None:
            handler.close_connection = True

    return act


def hangs(handler, _):
    """No answer while the server lives."""
    handler.server.release.wait(120)
    handler.close_connection = True


def echoes(handler, body):
    """Says the last message."""
    handler.send(200, json.dumps(completion(body["messages"][-1]["content"])).encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5  # of a connection that is kept and not used

    def log_message(self, *_):
        pass

    def send(self, status, content, headers=()):
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **dict(headers),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        models = self.server.models
        if self.path == "/v1/models" and models is not None:
            self.send(200, json.dumps({"object": "list", "data": [{"id": model} for model in models]}).encode())
        else:
            self.send(404, b"")

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.requests.append((time.monotonic(), self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            server.inside += 1
            server.most = max(server.most, server.inside)
            act = server.script.pop(0) if server.script else server.usual
        try:
            act(self, body)
        finally:
            with server.lock:
                server.inside -= 1


class ChatServer(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for every connection

    def __init__(self, *script, usual=echoes, models=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.usual, self.models = list(script), usual, models
        self.requests, self.inside, self.most = [], 0, 0
        self.lock, self.release = threading.Lock(), threading.Event()

    def handle_error(self, *_):
        """A client that gave up is no fault of the server."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def times(self):
        return [at for at, *_ in self.requests]

    @property
    def headers(self):
        return [headers for _, _, headers, _ in self.requests]

    @property
    def bodies(self):
        return [body for *_, body in self.requests]


@contextlib.contextmanager
def serving(*script, **options):
    """A server in threads of its own, for a `with` statement."""
    server = ChatServer(*script, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def chat(text):
    return [{"role": "user", "content": text}]


def threads():
    """Names of the threads that endpoints have."""
    return {thread.name for thread in threading.enumerate() if "dfc-" in thread.name or "AnyIO" in thread.name}


def make(server, **values):
    """An endpoint that asks this server and soon gives up."""
    return Endpoint(server.url, "m", EndpointConfig(**{"backoff": 0.01, "timeout": 60.0, "retries": 2, **values}))


def message_of(endpoint):
    """What a call of it fails with."""
    with pytest.raises(PlayerError) as raised:
        endpoint.answer(HELLO)
    return str(raised.value)


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
