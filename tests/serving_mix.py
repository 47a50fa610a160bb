"""Requests of every kind from several clients at once, and what has to come of each; in a quick test and a long one."""

import asyncio
import random

from serving_clients import KEY, ask, choices, differs

WORDS = (
    *("Nim. You are Player 0.\nPiles: 3, 4, 5.", "Opponent plays [4].", "[Bid: 3, 4]", "[4]", "[Call]"),
    *("You play a game. Answer in brackets, for example [4].", "Hello", "", " "),
)
SETTINGS = (
    *({}, {"temperature": 0}, {"temperature": 0.7, "min_p": 0.1}, {"top_k": 5}, {"top_p": 0.8}),
    {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
)
_HELLO = [{"role": "user", "content": "Hello"}]
_WRONG = (
    b"", b"{", b"[]", b"\xff\xfe", b"[" * 5000, b'{"messages": NaN}', {"messages": []}, {"messages": "Hello"},
    {"messages": [{"role": "user"}]}, {"messages": [{"role": "nobody", "content": "x"}]},
    {"messages": [*_HELLO, *_HELLO]}, {"messages": [{"role": "assistant", "content": "x"}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    {"messages": [{"role": "user", "content": "\ud800"}]},
    *({"messages": _HELLO, **wrong} for wrong in (
        {"temperature": 3}, {"temperature": "1"}, {"temperature": True}, {"top_p": 0}, {"top_k": -2}, {"min_p": 2},
        {"n": 9}, {"n": 0}, {"seed": 1.5}, {"stop": ["a"] * 5}, {"stop": [""]}, {"max_tokens": 0},
        {"max_tokens": 3, "max_completion_tokens": 4}, {"tools": [{}]}, {"top_logprobs": 1}, {"presence_penalty": 1},
        {"frequency_penalty": 0.5}, {"response_format": {"type": "json_object"}}, {"logit_bias": {"1": 2}},
        {"unknown": 1}, {"stream": 1}, {"stream_options": {"include_usage": True}}, {"logprobs": 2},
    )),
)  # fmt: skip


def right(rng, seed):
    """A request that is right."""
    turns = rng.randrange(1, 4)
    messages = [{"role": "system", "content": rng.choice(WORDS)}] if rng.randrange(3) == 0 else []
    for turn in range(turns):
        messages.append({"role": "user", "content": rng.choice(WORDS)})
        messages += [{"role": "assistant", "content": "[4]"}] if turn < turns - 1 else []
    body = {"model": "tiny_player", "messages": messages, "seed": seed, "max_tokens": rng.choice((1, 3, 8, 20))}
    body |= rng.choice(SETTINGS)
    body |= rng.choice(({}, {"stop": "]"}, {"stop": ["3", "Call", "zz"]}))
    body |= rng.choice(({}, {}, {"n": 2}, {"n": 3}))
    body |= rng.choice(({}, {"logprobs": True}))
    return body | rng.choice(({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}))


async def ask_right(port, rng, seed):
    body = right(rng, seed)
    answer = await ask(port, body)
    assert answer.status == 200, answer
    return body, answer


async def ask_wrong(port, rng, _):
    wrong = rng.choice(_WRONG)
    body = wrong if isinstance(wrong, bytes) or "model" in wrong else {"model": "tiny_player", **wrong}
    answer = await ask(port, body)
    assert answer.status == 400, (answer, body)
    assert answer.json["error"]["message"]


async def ask_too_much(port, rng, _):
    big = "x" * rng.choice((1, 20, 60))
    if rng.randrange(2):
        body = {"model": "tiny_player", "messages": [{"role": "user", "content": big * 40_000}]}
        answer = await ask(port, body)
        if len(big) == 1 or len(big) == 20:
            assert (answer.status, answer.json["error"]["code"]) == (400, "context_length_exceeded")
        else:
            assert answer.status == 413
        return
    answer = await ask(port, b" " * (2**20 + 1))
    assert answer.status == 413
    assert answer.json["error"]["code"] == "body_too_large"


async def ask_without_key(port, rng, seed):
    key = rng.choice((None, "wrong", KEY[:-1], KEY + "x", f"{KEY} {KEY}", "\u00fc"))
    answer = await ask(port, right(rng, seed), key=key)
    assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")


async def ask_and_leave(port, rng, seed):
    body = right(rng, seed) | {"max_tokens": 150, "n": 2, "stream": bool(rng.randrange(4)), "temperature": 2}
    await ask(port, body, leave_after=rng.choice((0, 1, 200, 600)) if body["stream"] else 0)


KINDS = (ask_right, ask_wrong, ask_too_much, ask_without_key, ask_and_leave)


def play(port, *, each, clients, seed):
    """Sends `each` requests of every kind in a random order, from so many clients; returns the right answers."""
    rng = random.Random(seed)
    work = [(kind, number) for kind in KINDS for number in range(each)]
    rng.shuffle(work)
    found = []

    async def client():
        while work:
            kind, number = work.pop()
            given = await kind(port, random.Random(f"{seed} {kind.__name__} {number}"), number)
            if given is not None:
                found.append(given)

    async def every():
        await asyncio.gather(*(client() for _ in range(clients)))

    asyncio.run(every())
    return found


def compare(engine, found):
    """Compares right answers with the engine's own; returns (choices, those another draw within rounding explains)."""
    total = rounding = 0
    for body, answer in found:
        given, _ = choices(answer, stream=body.get("stream", False))
        assert len(given) == body.get("n", 1)
        for number, (text, reason, _) in enumerate(given):
            why = differs(engine, body, number, text, reason)
            assert why in {None, "rounding"}, (why, body)
            total, rounding = total + 1, rounding + (why is not None)
    return total, rounding
