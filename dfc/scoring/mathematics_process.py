"""Compares answers in a process of its own; `dfc.scoring.mathematics` starts it and ends it when it hangs.

    python -I mathematics_process.py

Standard input and output are lines of JSON: ``reference``, ``answer`` and ``seconds`` in, ``verdict`` out. The first
line out says that the process is ready. Untrusted expressions can keep sympy running for ever, or fill any memory: the
process limits its own memory, and SIGPROF, which nothing handles, ends it after so many seconds of processor time. The
library's own limits are of wall-clock time; they are off.
"""

import contextlib
import json
import resource
import signal
import sys

MEMORY_BYTES = 2 * 2**30


def main() -> None:
    """Answers until the input ends."""
    from latex2sympy2_extended import NormalizationConfig  # noqa: F401, PLC0415 - loads in advance what the first answer needs
    from math_verify import parse, verify  # noqa: PLC0415 - takes a second, and is an extra

    parse("$1$", parsing_timeout=None)
    with contextlib.suppress(ValueError, OSError):  # a system without this limit: time still ends it from outside
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        try:
            # The first argument of verify is the reference: the two are not treated alike.
            reference = parse(f"\\boxed{{{asked['reference']}}}", parsing_timeout=None)
            answer = parse(asked["answer"], parsing_timeout=None)
            if not reference:
                verdict = "no_reference"
            elif not answer:
                verdict = "no_answer"
            else:
                verdict = "right" if verify(reference, answer, timeout_seconds=None) else "wrong"
        except Exception:  # noqa: BLE001 - whatever an untrusted expression raises: it is not the right answer
            verdict = "wrong"
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(verdict) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
