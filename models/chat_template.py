r"""The fixed strings of a chat template, found by rendering conversations of marked messages.

A Jinja template is a program over a whole conversation. Appending needs its parts instead: the text before the
first user message, between a message and its reply, between a reply and the next message. `read` renders a few
conversations, checks that these parts explain all of them, and names where the template would change earlier text.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from dfc.errors import WeightsError, cut
from dfc.models import chat_template_process
from dfc.template_day import DAY

Trim = Callable[[str], str]

_USERS = ("FIRST-MESSAGE", "SECOND-MESSAGE", "THIRD-MESSAGE")
_REPLIES = ("FIRST-REPLY", "SECOND-REPLY")
_SYSTEM = "SYSTEM-MESSAGE"
# A template that strips white space takes both away, one that strips newlines only the outer newline of the first.
_PADDINGS = (("\n ", " \n"), (" \n", "\n "))
_THOUGHT = "<think>\nTHOUGHT\n</think>\n\n"
# As Llama 3.1's and 3.2's own templates write it; without it Llama 3.2 would show every model the day of the run.
_DATE = f"{DAY:%d %b %Y}"
OPENED, CLOSED = "<think>", "</think>"  # a block of thought
_AFTER_THOUGHT = "\n\n"
_EMPTY_THOUGHT = re.compile(rf"\s*{OPENED}\s*{CLOSED}\s*")
_SECONDS = 60  # until the process is ended from outside; it ends itself after much less of work
_LONGEST_ANSWER = 13 * chat_template_process.LONGEST_TEXT  # bytes of a line: JSON writes some characters as 12 of them
_FIXED_VARIABLES = {"TZ": "UTC", "PYTHONHASHSEED": "0"}  # a template's text is the same in every process
_QUOTED = 120  # characters of a rendered text in a message
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # what an interpreter may need to start, no keys


@dataclasses.dataclass(frozen=True)
class SystemMessage:
    """How a conversation with a system message begins: ``before``, its text, ``middle``, the first user message.

    Attributes:
      before: text before the system message.
      middle: text between it and the first user message.
      trim: how the system message's own edges are treated.
      user_trim: how the first user message's edges are treated; Llama 2's differ from those of later ones.
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
      user_trim: how a user message's edges are treated.
      empty_thought: what stands between ``tail`` and a reply without thoughts where the template shows that it has
        none: the rest of the block that ``tail`` opens, or a whole empty block; mostly nothing.
      reply_trim: how a reply's edges are treated.
      system: how a system message is shown; None if the template has no place for one.
      foldable: whether a system message may go in front of the first user message instead: the template refuses or
        ignores the role.
      departure: what the template would do to earlier turns and an appended conversation does not; None if nothing.
      reads_thinking: whether the template reads ``enable_thinking``.
    """

    head: str
    tail: str
    lead: str
    between: str
    empty_thought: str
    user_trim: Trim
    reply_trim: Trim
    system: SystemMessage | None
    foldable: bool
    departure: str | None
    reads_thinking: bool

    @property
    def thought(self) -> str:
        """What ``tail`` itself writes of a block of thoughts, up to where the reply begins; mostly nothing."""
        return _thought(self.tail)

    @property
    def opens_thought(self) -> bool:
        """Whether ``tail`` ends inside a block of thoughts, so that a model begins by thinking."""
        return _is_open(self.thought)


def _thought(tail: str) -> str:
    _, tag, rest = tail.rpartition(OPENED)
    return tag + rest if tag else ""


def _is_open(thought: str) -> bool:
    return bool(thought) and CLOSED not in thought


_REMEMBERED = 64
_PARTS: dict[tuple[str, tuple[tuple[str, str], ...], bool | None], ChatTemplate] = {}  # starting a process takes 0.1 s


@dataclasses.dataclass(frozen=True)
class Render:
    """A template that is ready: from (role, content) pairs to its text, as `apply_chat_template` makes it.

    Attributes:
      reads_thinking: whether the template reads ``enable_thinking``.
    """

    asked: Callable[[dict[str, Any]], str]
    reads_thinking: bool

    def __call__(self, *messages: tuple[str, str], add_generation_prompt: bool = True) -> str:
        """Returns the text; raises `RefusedConversationError` if the template raises something."""
        rows = [{"role": role, "content": content} for role, content in messages]
        return self.asked({"messages": rows, "add_generation_prompt": add_generation_prompt})


class RefusedConversationError(Exception):
    """A template that raised an error instead of rendering a conversation; names the error."""


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
    """Returns a function from (role, content) pairs to the template's text, as `apply_chat_template` makes it.

    The template runs in a process of its own (`dfc.models.chat_template_process`), which a template that takes more
    than 2 seconds of processor time, 512 MiB of memory or a million characters of output does not outlive. Nothing of
    it runs here, so it does not matter in which thread this is called. The text depends on the arguments alone: a
    template that asks for the day (``strftime_now``, ``date_string``) gets a fixed one, and nothing random is there.

    `special_tokens` are the tokenizer's, by name (``bos_token``). `enable_thinking` None is undefined in the template,
    so that its own default holds. Errors name `folder`.

    Raises:
      WeightsError: the template does not compile or exceeds a limit, then or when a conversation is rendered, or the
        process does not start, or `enable_thinking` is given and the template does not read it. The function itself
        raises `RefusedConversationError` if the template raises something.
    """
    options = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    variables = {**special_tokens, "date_string": _DATE, **options}
    paths = sorted({str(Path(module.__file__ or "").parents[1]) for module in (jinja2, markupsafe)})
    # -I would be -E -P -s; the environment below is the process's own, and a fixed seed of hashes must be read from it.
    command = [sys.executable, "-P", "-s", "-S", chat_template_process.__file__, json.dumps(paths), f"{DAY}"]
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | _FIXED_VARIABLES
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

        def answered(request: dict[str, Any]) -> dict[str, Any]:
            answer = _answer(process, request)
            if answer is None:
                raise refusal(
                    folder,
                    f"it must render a few words within {chat_template_process.PROCESSOR_SECONDS} seconds and "
                    f"{chat_template_process.MEMORY_BYTES >> 20} MiB of memory",
                )
            if "error" in answer:
                raise RefusedConversationError(cut(str(answer["error"]), 400))
            return answer

        try:
            first = answered({"template": template, "variables": variables})
        except RefusedConversationError as error:
            raise refusal(folder, f"it must be a Jinja template ({error})") from error
        if options and not first["reads_thinking"]:
            raise WeightsError(
                f"{folder}: enable_thinking is set to {enable_thinking}, but the chat template does not read it, so "
                "that nothing would change; leave the setting out, or edit chat_template.jinja so that it reads "
                "enable_thinking"
            )
        yield Render(lambda request: str(answered(request)["text"]), bool(first["reads_thinking"]))
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
    """Finds the parts of a template from the function that `rendering` returns; errors name `folder`.

    Raises:
      WeightsError: the template fails on plain conversations, or no fixed parts explain what it renders.
    """
    (user1, user2, user3), (reply1, reply2) = _USERS, _REPLIES
    one = [("user", user1)]
    two = [*one, ("assistant", reply1), ("user", user2)]
    try:
        first, second = render(*one), render(*two)
        third = render(*two, ("assistant", reply2), ("user", user3))
        padded_user = [render(("user", text)) for text in _padded(user1)]
        padded_reply = [render(*one, ("assistant", text), *two[2:]) for text in _padded(reply1)]
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
        raise refusal(folder, f"a user message must appear as it is, or stripped{_came(padded_user, user1)}")
    reply_trim = _trim(padded_reply, f"{head}{user1}{shown}", reply1, f"{between}{user2}{tail}")
    if reply_trim is None:
        raise refusal(folder, f"a reply must appear as it is, or stripped{_came(padded_reply, reply1)}")
    last = _last(render, head)
    lead = shown[len(tail) :] if shown.startswith(tail) and shown[len(tail) :].isspace() else ""
    kept = second.replace(f"{shown}{reply1}", f"{tail.removesuffix(_thought(tail))}{_THOUGHT}{reply1}", 1)
    empty_thought = _empty_thought(tail, shown, last, whole_thoughts=thinking == kept, folder=folder)
    system, foldable = _system(render, head, tail)
    clauses = [
        *_thought_clauses(
            thinking, second, kept, _thought(tail), added=shown == tail + empty_thought != tail, folder=folder
        ),
        *_block_clauses(tail + lead, shown, last, in_replies=shown == tail + empty_thought),
        *_system_clauses(render, system, two, second.removeprefix(head)),
    ]
    departure = None
    if clauses:
        departure = (
            f"The chat template {' and '.join(clauses)} as a conversation grows; here every turn stays as it was first "
            "shown or sampled."
        )
    return ChatTemplate(
        head=head,
        tail=tail,
        lead=lead,
        between=between,
        empty_thought=empty_thought,
        user_trim=user_trim,
        reply_trim=reply_trim,
        system=system,
        foldable=foldable,
        departure=departure,
        reads_thinking=render.reads_thinking,
    )


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


_TRIMS: tuple[Trim, ...] = (
    lambda text: text,
    str.strip,
    str.lstrip,
    str.rstrip,
    lambda text: text.strip("\n"),
    lambda text: text.lstrip("\n"),
    lambda text: text.rstrip("\n"),
)


def _padded(mark: str) -> list[str]:
    return [f"{left}{mark}{right}" for left, right in _PADDINGS]


def _trim(rendered: Sequence[str], before: str, mark: str, after: str) -> Trim | None:
    """Returns what the template does to the edges of the padded messages; None if it is not plain stripping."""
    for trim in _TRIMS:
        if all(text == f"{before}{trim(padded)}{after}" for text, padded in zip(rendered, _padded(mark), strict=True)):
            return trim
    return None


def _came(rendered: Sequence[str], mark: str) -> str:
    """Returns the template's output for each padded message, for an error."""
    found = []
    for text, padded in zip(rendered, _padded(mark), strict=True):
        start = max(0, text.find(mark) - len(padded))
        found.append(f"{_quoted(text[start : start + 3 * len(padded)])} for {padded!r}")
    return f" (of white space or of newlines), got {' and '.join(found)}"


def _quoted(text: str) -> str:
    return cut(repr(text), _QUOTED)


def _last(render: Render, head: str) -> str | None:
    """Returns what stands before a reply that is the last message; None if that is not known."""
    last = _attempt(render, ("user", _USERS[0]), ("assistant", _REPLIES[0]), add_generation_prompt=False)
    parts = None if last is None else _split(last, _USERS[0], _REPLIES[0])
    return parts[1] if parts is not None and parts[0] == head else None


def _empty_thought(tail: str, shown: str, last: str | None, *, whole_thoughts: bool, folder: Path) -> str:
    """Returns `ChatTemplate.empty_thought`; refuses other text that the template puts between its prompt and a reply.

    `tail` is the prompt; `shown` stands before an earlier reply, `last` before the last one; `whole_thoughts`: the
    thoughts of an earlier reply stand where the empty block does.
    """
    thought, found = _thought(tail), ""
    is_open = _is_open(thought)
    for before, where in ((shown, "an earlier reply"), (last, "the last reply")):
        added = before[len(tail) :] if before is not None and before.startswith(tail) else ""
        if not added.strip():
            continue
        is_known = is_open or whole_thoughts or before is last
        if not is_known or not _EMPTY_THOUGHT.fullmatch((thought if is_open else "") + added):
            raise refusal(
                folder,
                f"a reply must follow its prompt, with an empty block of thought between at most, but {_quoted(added)} "
                f"comes before {where}",
            )
        if is_open or before is shown:
            found = found or added
    return found or (CLOSED + _AFTER_THOUGHT if is_open else "")


def _thought_clauses(thinking: str, second: str, kept: str, thought: str, *, added: bool, folder: Path) -> list[str]:
    """Reads whether the thoughts of an earlier reply stay or are left out; refuses any other change.

    `thinking` is two turns whose first reply has thoughts, `second` the same without thoughts, `kept` the same with
    them in the place of an empty block, of the prompt or after it; `thought` is what the prompt writes of a block;
    `added`: an empty block, or its end, stands between the prompt and a reply without thoughts.
    """
    user1, reply1, user2 = _USERS[0], _REPLIES[0], _USERS[1]
    if thinking == second.replace(reply1, _THOUGHT + reply1) and not added:
        return []
    if thinking == kept and (thought or added):
        return ["puts the thoughts of a reply into the place of the empty block"] if CLOSED in thought else []
    without, turns = _split(thinking, user1, reply1, user2), _split(second, user1, reply1, user2)
    rest = without is not None and turns is not None and (without[0], *without[2:]) == (turns[0], *turns[2:])
    if not rest or "THOUGHT" in thinking:
        raise refusal(folder, "a reply that thinks (<think>...</think>) must stay whole, or lose its thoughts only")
    return ["leaves out the thoughts (<think>...</think>) of earlier replies"]


def _block_clauses(prompt: str, shown: str, last: str | None, *, in_replies: bool) -> list[str]:
    """Names text that stands before a reply at one time and not at another, such as an empty <think> block.

    `prompt` stands before a reply that is not written yet, `shown` before an earlier one, `last` before the last one;
    `in_replies`: `shown` is the prompt with what replies without thoughts have here too.
    """
    clauses = []
    if prompt != shown and not in_replies:
        longer, verb = (prompt, "removes") if prompt.startswith(shown) else (shown, "adds")
        clauses.append(f"{verb} {longer[min(len(prompt), len(shown)) :]!r} before earlier replies")
    if last is not None and last not in (prompt, shown) and last.startswith(prompt):
        clauses.append(f"puts {last[len(prompt) :]!r} before a reply only while it is the last message")
    return clauses


def _system(render: Render, head: str, tail: str) -> tuple[SystemMessage | None, bool]:
    """Returns how a system message is shown, and if it is not, whether it may be folded into the user message."""
    user = _USERS[0]
    show = functools.partial(_attempt, render)
    text = show(("system", _SYSTEM), ("user", user))
    if text is None or text == f"{head}{user}{tail}":
        return None, True
    parts = _split(text, _SYSTEM, user)
    padded = [found for text in _padded(_SYSTEM) if (found := show(("system", text), ("user", user))) is not None]
    padded_user = [found for text in _padded(user) if (found := show(("system", _SYSTEM), ("user", text))) is not None]
    if parts is None or len(padded) < len(_PADDINGS) or len(padded_user) < len(_PADDINGS):
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
    """Returns a conversation's text; None if the template refuses it."""
    try:
        return render(*messages, add_generation_prompt=add_generation_prompt)
    except RefusedConversationError:
        return None
