r"""The fixed strings of a chat template, found by rendering conversations of marked messages.

A Jinja template is a program over a whole conversation. Whoever appends needs its parts instead: the text before the
first user message, between a message and its reply, between a reply and the next message. `read` renders a few
conversations, checks that these parts explain all of them, and names where the template would change earlier text.
"""

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from dfc.errors import WeightsError, cut
from dfc.models import chat_template_process

Trim = Callable[[str], str]
Render = Callable[..., str]

_USERS = ("FIRST-MESSAGE", "SECOND-MESSAGE", "THIRD-MESSAGE")
_REPLIES = ("FIRST-REPLY", "SECOND-REPLY")
_SYSTEM = "SYSTEM-MESSAGE"
_PADDING = "\n "
_THOUGHT = "<think>\nTHOUGHT\n</think>\n\n"
# The default of Llama 3.1's and 3.2's own templates; without it Llama 3.2 would show every model the day of the run.
_DATE = "26 Jul 2024"
OPENED, CLOSED = "<think>", "</think>"  # a block of thought
_SECONDS = 60  # until the process is ended from outside; it ends itself after much less of work
_LONGEST_ANSWER = 13 * chat_template_process.LONGEST_TEXT  # bytes of a line: JSON writes some characters as 12 of them
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # what an interpreter may need to start, no keys


@dataclasses.dataclass(frozen=True)
class SystemMessage:
    """How a conversation with a system message begins: ``before``, its text, ``middle``, the first user message.

    Attributes:
      before: text before the system message.
      middle: text between it and the first user message.
      trim: what becomes of the system message's own edges.
      user_trim: what becomes of the first user message's edges; Llama 2's differ from those of later ones.
    """

    before: str
    middle: str
    trim: Trim
    user_trim: Trim


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """The parts of a chat template.

    A conversation reads ``head user tail lead reply between user tail lead reply between ...``; a model's reply begins
    after ``tail``.

    Attributes:
      head: text before the first user message.
      tail: text between a user message and where the model writes.
      lead: white space that is the beginning of every reply (Mistral: a space); otherwise empty.
      between: text between a reply and the next user message; begins with the end of the reply's turn.
      user_trim: what becomes of a user message's edges.
      reply_trim: what becomes of a reply's edges.
      system: how a system message is shown; None if the template has no place for one.
      foldable: whether a system message may go in front of the first user message instead: the template refuses or
        ignores the role.
      departure: what the template would do to earlier turns and an appended conversation does not; None if nothing.
    """

    head: str
    tail: str
    lead: str
    between: str
    user_trim: Trim
    reply_trim: Trim
    system: SystemMessage | None
    foldable: bool
    departure: str | None

    @property
    def thought(self) -> str:
        """What ``tail`` itself writes of a block of thoughts, up to where the reply begins; mostly nothing."""
        _, tag, rest = self.tail.rpartition(OPENED)
        return tag + rest if tag else ""

    @property
    def opens_thought(self) -> bool:
        """Whether ``tail`` ends inside a block of thoughts, so that a model begins by thinking."""
        return bool(self.thought) and CLOSED not in self.thought


_REMEMBERED = 64
_PARTS: dict[tuple[str, tuple[tuple[str, str], ...], bool | None], ChatTemplate] = {}  # starting a process takes 0.1 s


class RefusedConversationError(Exception):
    """A template that raised something instead of rendering a conversation; says what."""


def refusal(folder: Path, expected: str) -> WeightsError:
    """Returns the error for a template that cannot be appended to, with what it must do and the fix."""
    return WeightsError(
        f"{folder}: the chat template cannot be used: {expected}. Conversations are only ever appended to; edit "
        "chat_template.jinja so that rendering more messages only adds text, and load the folder again."
    )


def parts(template: str, special_tokens: dict[str, str], enable_thinking: bool | None, folder: Path) -> ChatTemplate:
    """Returns the parts of a template, from memory if it was read before; arguments and errors as for `rendering`."""
    key = (template, tuple(sorted(special_tokens.items())), enable_thinking)
    if key not in _PARTS:
        with rendering(template, special_tokens, enable_thinking, folder) as render:
            found = read(render, folder)
        if len(_PARTS) >= _REMEMBERED:
            _PARTS.clear()
        _PARTS[key] = found
    return _PARTS[key]


@contextlib.contextmanager
def rendering(
    template: str, special_tokens: dict[str, str], enable_thinking: bool | None, folder: Path
) -> Iterator[Render]:
    """Gives a function from (role, content) pairs to the template's text, as `apply_chat_template` makes it.

    The template runs in a process of its own (`dfc.models.chat_template_process`), which a template that takes more
    than 2 seconds of processor time, 512 MiB of memory or a million characters of output does not outlive. Nothing of
    it runs here, so it does not matter in which thread this is called.

    Args:
      template: a Jinja template.
      special_tokens: the tokenizer's, by name (``bos_token``).
      enable_thinking: passed to the template; None leaves it undefined, so that the template's own default holds.
      folder: named in errors.

    Raises:
      WeightsError: the template does not compile or exceeds a limit, then or when a conversation is rendered, or the
        process does not start. The function itself raises `RefusedConversationError` if the template raises something.
    """
    options = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    paths = sorted({str(Path(module.__file__ or "").parents[1]) for module in (jinja2, markupsafe)})
    command = [sys.executable, "-I", "-S", chat_template_process.__file__, json.dumps(paths)]
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=kept)  # noqa: S603 - this interpreter and our file
    except OSError as error:
        raise WeightsError(f"{folder}: cannot start {sys.executable} to render the chat template ({error})") from error
    end = threading.Timer(_SECONDS, process.kill)
    end.daemon = True
    try:
        end.start()
        if _answer(process) is None:
            raise WeightsError(
                f"{folder}: {sys.executable} ended with status {process.wait()} before it could render the chat "
                f"template; it must be an interpreter that can import jinja2 from {', '.join(paths)}"
            )

        def asked(request: dict[str, Any]) -> str:
            answer = _answer(process, request)
            if answer is None:
                raise refusal(
                    folder,
                    f"it must render a few words within {chat_template_process.PROCESSOR_SECONDS} seconds and "
                    f"{chat_template_process.MEMORY_BYTES >> 20} MiB of memory",
                )
            if "error" in answer:
                raise RefusedConversationError(cut(str(answer["error"]), 400))
            return str(answer["text"])

        def render(*messages: tuple[str, str], add_generation_prompt: bool = True) -> str:
            rows = [{"role": role, "content": content} for role, content in messages]
            return asked({"messages": rows, "add_generation_prompt": add_generation_prompt})

        try:
            asked({"template": template, "variables": {**special_tokens, "date_string": _DATE, **options}})
        except RefusedConversationError as error:
            raise refusal(folder, f"it must be a Jinja template ({error})") from error
        yield render
    finally:
        end.cancel()
        process.kill()
        process.communicate()  # closes its pipes and waits for it


def _answer(process: "subprocess.Popen[bytes]", request: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Sends a request and returns the answer, None if the process ended instead; without a request only waits."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    try:
        if request is not None:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline(_LONGEST_ANSWER)
    except BrokenPipeError:
        return None
    found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
    return found


def read(render: Render, folder: Path) -> ChatTemplate:
    """Finds the parts of a template.

    Args:
      render: (role, content) pairs -> text, as `rendering` gives it.
      folder: named in errors.

    Raises:
      WeightsError: the template fails on plain conversations, or no fixed parts explain what it renders.
    """
    (user1, user2, user3), (reply1, reply2) = _USERS, _REPLIES
    one = [("user", user1)]
    two = [*one, ("assistant", reply1), ("user", user2)]
    try:
        first, second = render(*one), render(*two)
        third = render(*two, ("assistant", reply2), ("user", user3))
        padded_user = render(("user", f"{_PADDING}{user1}{_PADDING}"))
        padded_reply = render(*one, ("assistant", f"{_PADDING}{reply1}{_PADDING}"), *two[2:])
        thinking = render(*one, ("assistant", _THOUGHT + reply1), *two[2:])
    except RefusedConversationError as error:
        raise refusal(folder, f"it fails on plain user and assistant messages ({error})") from error
    parts = _split(first, user1)
    if parts is None:
        raise refusal(folder, "a user message must appear in it once")
    head, tail = parts
    shown, between = _history(second, head, tail, folder)
    if third != f"{second.removesuffix(tail)}{shown}{reply2}{between}{user3}{tail}":
        raise refusal(folder, "a third turn must add what a second one adds")
    user_trim = _trim(padded_user, head, user1, tail)
    if user_trim is None:
        raise refusal(folder, "a user message must appear as it is, or stripped")
    reply_trim = _trim(padded_reply, f"{head}{user1}{shown}", reply1, f"{between}{user2}{tail}")
    if reply_trim is None:
        raise refusal(folder, "a reply must appear as it is, or stripped")
    lead = shown[len(tail) :] if shown.startswith(tail) and shown[len(tail) :].isspace() else ""
    system, foldable = _system(render, head, tail)
    clauses = [
        *_thought_clauses(thinking, second, folder),
        *_block_clauses(render, head, tail + lead, shown),
        *_system_clauses(render, system, two, second.removeprefix(head)),
    ]
    departure = None
    if clauses:
        departure = (
            f"The chat template {' and '.join(clauses)} as a conversation grows; here every turn stays as it was first "
            "shown or sampled."
        )
    return ChatTemplate(head, tail, lead, between, user_trim, reply_trim, system, foldable, departure)


def _history(second: str, head: str, tail: str, folder: Path) -> tuple[str, str]:
    """Returns what stands before a reply that has become history, and between it and the next message."""
    turns = _split(second, _USERS[0], _REPLIES[0], _USERS[1])
    if (
        turns is None
        or (turns[0], turns[3]) != (head, tail)
        or not (turns[1].startswith(tail) or tail.startswith(turns[1]))
    ):
        raise refusal(folder, "a second turn must leave the text of the first one as it was")
    return turns[1], turns[2]


def _split(text: str, *marks: str) -> list[str] | None:
    """Splits a text at marks that must each occur once, in this order; None if they do not."""
    parts, rest = [], text
    for mark in marks:
        head, found, rest = rest.partition(mark)
        if not found or mark in rest:
            return None
        parts.append(head)
    return [*parts, rest]


def _whole(text: str) -> str:
    return text


def _trim(rendered: str, before: str, mark: str, after: str) -> Trim | None:
    """Returns what the template does to the edges of a padded message; None if it is not plain stripping."""
    for trim in (_whole, str.strip, str.lstrip, str.rstrip):
        if rendered == f"{before}{trim(_PADDING + mark + _PADDING)}{after}":
            return trim
    return None


def _thought_clauses(thinking: str, second: str, folder: Path) -> list[str]:
    """Says whether the thoughts of an earlier reply are left out; refuses any other change to them."""
    user1, reply1, user2 = _USERS[0], _REPLIES[0], _USERS[1]
    if thinking == second.replace(reply1, _THOUGHT + reply1):
        return []
    without, turns = _split(thinking, user1, reply1, user2), _split(second, user1, reply1, user2)
    kept = without is not None and turns is not None and (without[0], *without[2:]) == (turns[0], *turns[2:])
    if not kept or "THOUGHT" in thinking:
        raise refusal(folder, "a reply that thinks (<think>...</think>) must stay whole, or lose its thoughts only")
    return ["leaves out the thoughts (<think>...</think>) of earlier replies"]


def _block_clauses(render: Render, head: str, prompt: str, shown: str) -> list[str]:
    """Names text that stands before a reply at one time and not at another, such as an empty <think> block."""
    clauses = []
    if prompt != shown:
        longer, verb = (prompt, "removes") if prompt.startswith(shown) else (shown, "adds")
        clauses.append(f"{verb} {longer[min(len(prompt), len(shown)) :]!r} before earlier replies")
    last = _attempt(render, ("user", _USERS[0]), ("assistant", _REPLIES[0]), add_generation_prompt=False)
    parts = None if last is None else _split(last, _USERS[0], _REPLIES[0])
    if parts is not None and parts[0] == head and parts[1] not in (prompt, shown) and parts[1].startswith(prompt):
        clauses.append(f"puts {parts[1][len(prompt) :]!r} before a reply only while it is the last message")
    return clauses


def _system(render: Render, head: str, tail: str) -> tuple[SystemMessage | None, bool]:
    """Returns how a system message is shown, and if it is not, whether it may be folded into the user message."""
    user = _USERS[0]
    show = functools.partial(_attempt, render)
    text = show(("system", _SYSTEM), ("user", user))
    if text is None or text == f"{head}{user}{tail}":
        return None, True
    parts = _split(text, _SYSTEM, user)
    padded = show(("system", f"{_PADDING}{_SYSTEM}{_PADDING}"), ("user", user))
    padded_user = show(("system", _SYSTEM), ("user", f"{_PADDING}{user}{_PADDING}"))
    if parts is None or padded is None or padded_user is None:
        return None, False
    before, middle, _ = parts
    # A first turn that ends otherwise than without a system message fails these as well.
    trim = _trim(padded, before, _SYSTEM, f"{middle}{user}{tail}")
    user_trim = _trim(padded_user, f"{before}{_SYSTEM}{middle}", user, tail)
    if trim is None or user_trim is None:
        return None, False
    return SystemMessage(before, middle, trim, user_trim), False


def _system_clauses(
    render: Render, system: SystemMessage | None, two: list[tuple[str, str]], following: str
) -> list[str]:
    """Says whether a second turn takes the system message out of the first; following: both turns without head."""
    if system is None or _attempt(render, ("system", _SYSTEM), *two) == (
        f"{system.before}{_SYSTEM}{system.middle}{following}"
    ):
        return []
    return ["moves the system message out of the first turn"]


def _attempt(render: Render, *messages: tuple[str, str], add_generation_prompt: bool = True) -> str | None:
    """Returns what a conversation becomes; None if the template refuses it."""
    try:
        return render(*messages, add_generation_prompt=add_generation_prompt)
    except RefusedConversationError:
        return None
