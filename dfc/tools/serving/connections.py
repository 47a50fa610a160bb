"""Connections with time limits: a client that sends or reads too slowly is dropped."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class Impatient(H11Protocol):
    """Ends slow connections; for `uvicorn.Config(http=...)`, by `impatient`.

    A connection is ended if a request's head is not there `seconds` after its first byte or after the connection was
    made, and if nothing can be written for as long because its client does not read. How long a body may take is
    limited by the application.
    """

    seconds = 30.0
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._reading = self._later()

    def data_received(self, data: bytes) -> None:
        """Waits no more where a request's head is there."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self._reading is not None:
            self._reading.cancel()
            self._reading = None
        elif not answering and self._reading is None:
            self._reading = self._later()

    def pause_writing(self) -> None:
        """Begins to wait for the client to read."""
        super().pause_writing()
        self._writing = self._writing or self._later()

    def resume_writing(self) -> None:
        """Waits no more: it has read."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends with the connection."""
        super().connection_lost(exc)
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()

    def _later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.seconds, self.transport.abort)


def impatient(seconds: float) -> type[Impatient]:
    """Returns the protocol with another time limit."""
    return type("Impatient", (Impatient,), {"seconds": seconds})
