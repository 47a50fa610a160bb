"""What the two roles and the judge of Language Self-Play are asked, and how a query follows its template.

The structure is the paper's (Language Self-Play, arXiv 2509.07414, Boxes 1 and 3), the wording is our own. A prompt is
a
text with placeholders in braces, filled in one pass: what is filled in is never searched for placeholders again.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from dfc.games.rng import derive_seed

BEGIN, END = "[template begins]", "[template ends]"  # around a template in the prompt; no query may hold them
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_TAG = r"(\[[^\[\]<>{}\n]{1,64}\]|<[^\[\]<>{}\n]{1,64}>)"  # in square or angle brackets, in one line
_QUOTES = "[\\s'\"`\u00b4\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb*_]*+"  # white space, quotation marks, asterisks
# A judge reads tags with white space in them, too. Nothing is tried twice (``*+``): the time is linear in the text.
_TAGS = re.compile(r"<\s*+(/?)\s*+(instruction|response|calculation|score)\s*+>", re.IGNORECASE)

CHALLENGER = f"""Background
A language task is a pair of texts: an input that asks for something, and an output that answers it. A question is an \
input and its answer the output; a story is an input and a title for it the output.

Request
Write one input for the language task '{{task}}'. Another language model will be given your text word for word and \
will have to answer it, so your text has to be an input that can be answered. Easy, middling and hard inputs are all \
welcome, and so are noisy ones: an input should find out what the other model cannot do yet, or make it think in a new \
way. Write exactly one.

Details
The lines between {BEGIN} and {END} are a template. Copy its wording without these two tags, and put text of your own \
in place of every part in braces: where it says {{colour}}, write a colour.

{BEGIN}
{{template}}
{END}

Final remarks
Write no answer, no hint and nothing that gives the answer away. Ask for nothing that a language model cannot do in \
text. Stop as soon as the template is filled. The tags {BEGIN} and {END} must not be in your text. Now write one input \
for the language task '{{task}}', following the template."""

CHALLENGER_FREE = """Background
A language task is a pair of texts: an input that asks for something, and an output that answers it. A question is an \
input and its answer the output; a story is an input and a title for it the output.

Request
Write one input for a language task of your choice. Another language model will be given your text word for word and \
will have to answer it, so your text has to be an input that can be answered. Easy, middling and hard inputs are all \
welcome, and so are noisy ones: an input should find out what the other model cannot do yet, or make it think in a new \
way. Write exactly one.

Final remarks
Write no answer, no hint and nothing that gives the answer away. Ask for nothing that a language model cannot do in \
text. Stop as soon as the input is complete. Now write one input."""

CHALLENGER_TASK = CHALLENGER_FREE.replace("a language task of your choice", "the language task '{task}'")

JUDGE = """Below are an instruction that a user gave to an assistant and the assistant's response. Rate them together. \
Start from 0 and add one point for each of these seven criteria that is met, and nothing for one that is not:

1. What the user wants done can be made out from the instruction.
2. The instruction is unambiguous, concrete and in good order.
3. The response is written so that this user can follow it.
4. The response deals with a good part of what was asked, even if some of it is missing.
5. The response gives what was asked for at its core, in full and in a useful way.
6. The response is clear, well ordered, no longer than it has to be, and of help.
7. This user will probably be pleased with the manner and the layout of the response.

<instruction>
{instruction}
</instruction>

<response>
{response}
</response>

First give your reasons in at most 100 words, and decide on each of the seven points. Then write the seven points and \
their sum between calculation tags, for example <calculation>1+1+0+1+0+1+0=4</calculation>; check that the sum is \
right. Last write the sum again, a number from 0 to 7, between score tags, for example <score>4</score>. Only a reply \
in exactly this form can be used."""


@dataclasses.dataclass(frozen=True)
class Template:
    """The form of a query, read off a template's text: its fixed wording with something in place of every placeholder.

    Attributes:
      text: the template; empty: any query follows it.
    """

    text: str

    @property
    def placeholders(self) -> list[str]:
        """What stands in braces, in order."""
        return _PLACEHOLDER.findall(self.text)

    def filled(self, query: str) -> list[str] | None:
        """Returns what a query has in place of the placeholders; None where it does not follow the template.

        White space at both ends does not matter. The time is bounded by the number of placeholders times the length:
        every fixed part is looked for once, from left to right, the last one from the end.
        """
        query = query.strip()
        if not self.text:
            return [] if query else None
        first, *fixed = re.split(r"\{[^{}]+\}", self.text.strip())
        if not query.startswith(first):
            return None
        if not fixed:
            return [] if query == first else None
        found, place = [], len(first)
        *inner, last = fixed
        end = len(query) - len(last)
        if not query.endswith(last):
            return None
        for part in inner:
            # At least one character is filled in.
            start = query.find(part, place + 1, end)
            if start < 0:
                return None
            found.append(query[place:start])
            place = start + len(part)
        found.append(query[place:end])
        return found if all(one.strip() for one in found) else None


def challenger_prompt(task: str = "", template: str = "", prompt: str = "") -> str:
    """Returns the Challenger's prompt for one query.

    An empty `template` allows any form; with an empty `task` too, the choice is the Challenger's. A custom `prompt` has
    ``{task}`` and ``{template}`` where they go; empty: ours. What is not given is an empty text in it, as in the
    paper's Box 1, whose prompt itself says what to do then.
    """
    if not prompt:
        prompt = CHALLENGER if template else CHALLENGER_TASK if task else CHALLENGER_FREE
    return fill(prompt, {"task": task, "template": template})


def forbidden_tags(prompt: str = "") -> tuple[str, ...]:
    """Returns the tags that no query to a Challenger's prompt may hold.

    These are the texts in square or angle brackets around ``{template}``, one directly before it and one directly
    after it, but for white space, quotation marks and asterisks. What else stands in brackets is no tag: a prompt may
    speak of ``[names]`` that a query is to have. The prompt is not filled; empty: ours.

    >>> forbidden_tags("Fill in what stands between [start] and [end]: [start] '{template}' [end]")
    ('[start]', '[end]')
    >>> forbidden_tags("Ask about [names]: {template}")
    ()
    """
    return tags_around("template", prompt) if prompt else (BEGIN, END)


def tags_around(name: str, prompt: str) -> tuple[str, ...]:
    """Returns the tags directly around a placeholder of an unfilled prompt, as `forbidden_tags` does, each once."""
    pair = re.compile(_TAG + _QUOTES + r"\{" + re.escape(name) + r"\}(?=" + _QUOTES + _TAG + ")")
    found = dict.fromkeys(tag for pairs in pair.finditer(prompt) for tag in pairs.groups())
    return tuple(tag for tag in found if any(map(str.isalnum, tag)))  # "[ ]" is a list of nothing in many a query


def holds(text: str, tags: Sequence[str]) -> bool:
    """Returns whether a text holds one of some tags, white space and case apart."""
    text = "".join(text.lower().split())
    return any("".join(tag.lower().split()) in text for tag in tags)


def judge_prompt(instruction: str, response: str, prompt: str = "") -> str:
    """Returns what the judge of self-reward is asked about one answer.

    The tags of our prompt, and those that a custom prompt puts around either text in brackets (`tags_around`),
    lose their brackets inside both texts, so that neither can end itself and continue the prompt. Other marks stay. A
    custom prompt has ``{instruction}``, the query, and ``{response}``; empty: ours.
    """
    texts = {"instruction": instruction, "response": response}
    own = [re.compile(_spelled(tag), re.IGNORECASE) for name in texts for tag in tags_around(name, prompt)]

    def without_tags(text: str) -> str:
        text = _TAGS.sub(r"(\1\2)", text)
        for tag in own:
            text = tag.sub(lambda found: f"({''.join(found[0][1:-1].split())})", text)
        return text

    return fill(prompt or JUDGE, {name: without_tags(text) for name, text in texts.items()})


def _spelled(tag: str) -> str:
    """A pattern of a tag with any white space between its characters; nothing is tried twice."""
    return r"\s*+".join(map(re.escape, "".join(tag.split())))


def fill(prompt: str, texts: Mapping[str, str]) -> str:
    """Returns a prompt with texts in place of their names in braces; other braces stay as they are.

    >>> fill("{a} is not {b}", {"a": "{b}", "b": "2"})
    '{b} is not 2'
    """
    names = "|".join(map(re.escape, texts))
    return re.sub(r"\{(" + names + r")\}", lambda found: texts[found[1]], prompt)


def shares(weights: Sequence[float], count: int, seed: int) -> list[int]:
    """Returns for each of `count` queries which task it is of, sampled in proportion to the weights, in their order.

    Queries of one task follow each other, so that their prompt is read once. Weights are above 0.
    """
    if len(weights) == 1:
        return [0] * count
    import numpy as np  # noqa: PLC0415 - templates are checked with the command line, without it

    chance = np.asarray(weights, np.float64) / sum(weights)
    rng = np.random.Generator(np.random.Philox(derive_seed("tasks of queries", seed)))
    return sorted(rng.choice(len(weights), size=count, p=chance).tolist())
