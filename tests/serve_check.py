"""The long test of the server, `make serve-check`: 10,000 requests of five kinds from 64 clients."""

import sys
import time

import serving_mix
from serving_clients import KEY, SLOTS, engine, now, running, wait_until
from test_serving import compilations  # noqa: F401 - a fixture


def test_ten_thousand_requests_from_sixty_four_clients(compilations):  # noqa: F811 - the fixture
    served, reference = engine(), engine()
    served.warm_up()
    compilations[0] = 0
    with running(served, key=KEY) as (port, server):
        began = time.monotonic()
        found = serving_mix.play(port, each=2000, clients=64, seed=2)
        seconds = time.monotonic() - began
        wait_until(lambda: served.free == SLOTS)
        metrics = now(port, path="/metrics").body.decode()
    assert server.failure is None
    assert compilations == [0]
    assert served.free == SLOTS
    assert len(found) == 2000
    total, rounding = serving_mix.compare(reference, found)
    lines = [line for line in metrics.splitlines() if line.startswith("dfc_requests_total")]
    shown = f"10,000 requests in {seconds:.0f} s; {total} choices compared, {rounding} differ within rounding"
    sys.stdout.write("\n".join(["", shown, *lines, ""]))
