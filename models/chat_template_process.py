"""Renders one chat template in a process of its own; `dfc.models.chat_template` starts it.

    python -P -s -S chat_template_process.py PATHS DAY

A chat template is an untrusted program in the model folder. Jinja's sandbox keeps it from files and attributes, not
from loops without end or strings of gigabytes, and Python cannot interrupt ``7**10**8`` in a thread. This process can
be ended from outside, and limits its own processor time and memory first.

Standard input and output are lines of JSON. PATHS, a JSON list, is where jinja2 and its imports are. The first
line out says that the process is ready. The first line in holds ``template`` and ``variables``, each later one
``messages`` and ``add_generation_prompt``; each is answered by ``text`` or ``error``, the first by
``reads_thinking`` too: whether the template looks at ``enable_thinking``. DAY, in ISO format, is what ``strftime_now``
tells, as of its first moment.

Source: the environment is that of `render_jinja_template` of transformers 5.23: blocks trimmed, loop controls, the
tag ``generation``, ``tojson`` that does not escape HTML, ``raise_exception``, ``strftime_now``. Different from it, the
same messages have the same text always and everywhere: ``strftime_now`` tells DAY, what draws at random
(``lipsum`` and the filter ``random``) is refused, and so is a text with the address of an object.
"""

import contextlib
import datetime as dt
import json
import re
import resource
import sys
from collections.abc import Callable
from typing import Any

PROCESSOR_SECONDS = 2
MEMORY_BYTES = 2**29
LONGEST_TEXT = 1_000_000  # characters that one conversation of a few words may become
_LONGEST_ERROR = 300
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}>")  # as Python writes a function or a generator


def _limit(kind: int, amount: int) -> None:
    _, most = resource.getrlimit(kind)
    wanted = amount if most == resource.RLIM_INFINITY else min(amount, most)
    with contextlib.suppress(ValueError, OSError):  # a system without this limit: time still ends it from outside
        resource.setrlimit(kind, (wanted, most))


def _environment(day: dt.datetime) -> Any:  # noqa: ANN401  # imported below, from the paths given
    import jinja2  # noqa: PLC0415 - found only once the paths are known
    import jinja2.ext  # noqa: PLC0415
    import jinja2.sandbox  # noqa: PLC0415

    class Generation(jinja2.ext.Extension):
        """``{% generation %}`` marks what the assistant wrote; its text stays as it is."""

        tags = {"generation"}  # noqa: RUF012 - as jinja2's own extensions have it

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

        def _same(self, caller: Callable[[], str]) -> str:
            return caller()

    def raise_exception(message: object) -> None:
        raise jinja2.TemplateError(str(message))

    def strftime_now(form: str) -> str:
        return day.strftime(form)

    def at_random(*_: object, **__: object) -> None:
        raise jinja2.TemplateError("it draws at random (lipsum, random): the same messages must give the same text")

    def tojson(
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["lipsum"] = environment.filters["random"] = at_random
    return environment


def _answer(**found: str | bool) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _failed(error: BaseException) -> None:
    import jinja2  # noqa: PLC0415 - as above

    text = str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
    shown = "".join(sign if sign.isprintable() else " " for sign in text[: _LONGEST_ERROR + 1])
    _answer(error=shown if len(shown) <= _LONGEST_ERROR else f"{shown[:_LONGEST_ERROR]} ...")


def main() -> None:
    """Answers until the input ends."""
    sys.path[:0] = json.loads(sys.argv[1])
    environment = _environment(dt.datetime.fromisoformat(sys.argv[2]))
    import jinja2.meta  # noqa: PLC0415 - as above

    _limit(resource.RLIMIT_CPU, PROCESSOR_SECONDS)
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _answer(text="ready")
    template, variables = None, {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if template is None:
                variables = request["variables"]
                template = environment.from_string(request["template"])
                read = jinja2.meta.find_undeclared_variables(environment.parse(request["template"]))
                _answer(text="", reads_thinking="enable_thinking" in read)
                continue
            text = template.render(tools=None, documents=None, **(variables | request))
        except Exception as error:  # noqa: BLE001 - whatever an untrusted program raises is its result
            _failed(error)
            continue
        if len(text) > LONGEST_TEXT:
            _answer(error=f"it renders {len(text)} characters, expected at most {LONGEST_TEXT}")
        elif _ADDRESS.search(text):
            _answer(error="it writes the address of an object in memory, which is another one in every process")
        else:
            _answer(text=text)


if __name__ == "__main__":
    main()
