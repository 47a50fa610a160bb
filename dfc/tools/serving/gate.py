"""Access control: clients with the key; without one, clients on this machine except pages of a browser.

A page in a browser can reach a server on the loopback address under a name of its own (DNS rebinding), or send it
requests whose answers it cannot read. So without a key the Host header must name this machine, and an Origin, which
browsers send, must be this very server. There are no CORS headers: a browser keeps answers from other pages.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dfc.errors import ConfigError
from dfc.players.key_search import Secret
from dfc.tools.serving.requests import RequestError
from dfc.tools.serving.responses import encoded, error

_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?", re.ASCII)
_DRAIN_BYTES, _DRAIN_SECONDS = 16 * 2**20, 2.0  # of a body that is too large, or whose request is refused
_OPEN = "/health"  # for a supervisor of the server; reports only whether it answers


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, key: Secret) -> None:
    """Refuses an address that others reach, without a key.

    Raises:
      ConfigError: that is so.
    """
    if not key.value and not is_loopback(host):
        message = (
            f"--host={host}: other machines reach this address, so a key is needed: put one into an environment "
            "variable and name that, --key_variable=NAME; or listen at 127.0.0.1"
        )
        raise ConfigError([message])


class Gate:
    """Lets requests pass to an application, or answers them with a refusal."""

    def __init__(self, app: ASGIApp, *, key: Secret, host: str) -> None:
        """Wraps an application that listens on a host; clients must send the key, an empty value: none."""
        self._app, self._key = app, key.value.encode()
        self._names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, body = Headers(scope=scope), _Body(receive)

        async def after_the_body(message: Message) -> None:
            if message["type"] == "http.response.start" and "expect" not in headers:
                await body.drain()
            await send(message)

        problem = _framing(headers) or (None if scope["path"] == _OPEN else self._problem(headers))
        if problem is not None:
            await refuse(problem, after_the_body)
        else:
            await self._app(scope, body.receive, after_the_body)

    def _problem(self, headers: Headers) -> RequestError | None:
        if self._key:
            kind, _, given = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(given.strip().encode("latin-1"), self._key)
            if kind.lower() == "bearer" and right:
                return None
            message = "expected the header Authorization: Bearer KEY with this server's key"
            return RequestError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        host = headers.get("host", "")
        match = _HOST.fullmatch(host)
        if match is None or match["name"].lower() not in self._names:
            message = "the Host header must name this machine, such as localhost; other names need a server with a key"
            return RequestError(403, message, code="host_not_allowed")
        if headers.get("origin") not in (None, f"http://{host}"):
            message = "pages of other sites may not ask a server without a key"
            return RequestError(403, message, code="origin_not_allowed")
        return None


def _framing(headers: Headers) -> RequestError | None:
    """Returns the refusal of a request with two definitions of its end.

    What follows one of the ends could be read as a request of its own, so the connection closes (RFC 9112, 6.1).
    """
    if "content-length" not in headers or "transfer-encoding" not in headers:
        return None
    message = "expected Content-Length or Transfer-Encoding, got both; send one of them"
    return RequestError(400, message, code="two_lengths", headers={"Connection": "close"})


class _Body:
    """A request's body while it is received.

    An answer before its end would be lost where the connection is closed with unread bytes: the client
    gets a reset. So they are read first, within limits, and discarded.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive, self._whole = receive, False

    async def receive(self) -> Message:
        """Returns the next message (ASGI)."""
        message = await self._receive()
        self._whole = self._whole or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Reads the rest of it."""
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._whole and size < _DRAIN_BYTES:
                    size += len((await self.receive()).get("body", b""))


async def refuse(problem: RequestError, send: Send) -> None:
    """Answers a request with an error."""
    await respond(send, problem.status, encoded(error(problem)), headers=problem.headers)


async def respond(
    send: Send,
    status: int,
    body: bytes,
    *,
    kind: str = "application/json",
    headers: dict[str, str] | None = None,
) -> None:
    """Answers a request with a body."""
    given = {
        "content-type": kind,
        "content-length": str(len(body)),
        "x-content-type-options": "nosniff",
        **(headers or {}),
    }
    raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
