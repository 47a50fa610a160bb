"""Compiles programs for described devices and reads what the compiler says about them.

What to trust: the peak is what must fit; arguments plus temporaries overstate it on a TPU, where the scheduler reuses
the space of arguments. A TPU program that does not fit is refused; a GPU program never is, so the caller compares. The
compiler's own operation counts are not used: they count the body of a loop once (`dfc.tools.fit.traced` counts
instead).
"""

import contextlib
import dataclasses
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import jax

from dfc.errors import DfcError
from dfc.tools.fit.collectives import Traffic, traffic
from dfc.tools.fit.hardware import Topology


class DoesNotFitError(DfcError):
    """A program the compiler refused for want of memory.

    Attributes:
      needed: bytes, an early and low estimate of the compiler.
      available: bytes.
    """

    def __init__(self, needed: int, available: int) -> None:
        self.needed, self.available = needed, available
        super().__init__(f"needs at least {needed / 1e9:.1f} GB of {available / 1e9:.1f} GB")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of one program on one device; sizes in bytes.

    Attributes:
      arguments: of all arrays it is given.
      outputs: of all it returns.
      aliased: outputs that take the place of arguments (donation); 0 where donation did not work.
      temporaries: of everything in between, at once.
      peak: the most it holds at one time, arguments and outputs included: compare this with the device.
      traffic: what the device sends.
      seconds: time the compilation took.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    peak: int
    traffic: Traffic
    seconds: float


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides what vendors' libraries write to standard error, and shows it if something is raised."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as noise:
        os.dup2(noise.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        except DfcError:  # it says what is wrong by itself
            failed = False
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            if failed:
                noise.seek(0)
                sys.stderr.write(noise.read().decode(errors="replace")[-4000:])


def refused(message: str) -> DoesNotFitError | None:
    """Returns the error that a TPU compiler's message about memory stands for; None if it is about something else."""
    if not message.startswith("RESOURCE_EXHAUSTED"):
        return None
    sizes = re.findall(r"(\d+(?:\.\d+)?)([KMGT])i?B?\b", message)
    units = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    found = [int(float(number) * units[unit]) for number, unit in sizes]
    # One line, "... required ... (18.19G) exceeds available HBM (15.75G)"; a late one says "Used 18G of 15.75G hbm".
    return DoesNotFitError(found[0], found[1]) if len(found) >= 2 else None


def compile_program(lowered: Any, topology: Topology, loop_trips: int | None = None) -> Compiled:  # noqa: ANN401 - jax.stages.Lowered, whose methods are untyped
    """Compiles a lowered program.

    It is lowered (``jax.jit(f).lower(...)`` or ``.trace(...).lower()``) for a mesh of described devices; `loop_trips`
    are those of a loop whose length is data, for the traffic.

    Raises:
      DoesNotFitError: the TPU compiler refused it for want of memory.
    """
    began = time.monotonic()
    with quiet():
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            too_large = refused(str(error))
            if too_large is None:
                raise
            raise too_large from error
    seconds = time.monotonic() - began
    memory = compiled.memory_analysis()
    return Compiled(
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        aliased=memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        peak=memory.peak_memory_in_bytes,
        traffic=traffic(compiled.as_text(), topology.devices, topology.chip.joined, loop_trips),
        seconds=seconds,
    )
