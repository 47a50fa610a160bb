"""A judge is asked in both orders, ties are kept, and only its last line is read."""

import json
import re
import threading

import pytest
from chat_server import completion, make, serving, until

from dfc.errors import Interrupted
from dfc.players.remote import FunctionPlayer, PlayerError
from dfc.scoring.judge import Comparison, Judge, compare, read_verdict, request


def parts(chat):
    """(query, answer A, answer B) as a judge is shown them."""
    text = chat[-1]["content"]
    mark = re.search(r"begin with (#\w+)", text)[1]
    return [part.split("\n", 1)[1].rstrip("\n") for part in text.split(mark)[2:5]]


def judge_of(decide):
    """A judge that decides by a function of the query and the two answers."""
    return FunctionPlayer(lambda chat: decide(*parts(chat)), retries=0, concurrency=4)


def longer(_, first, second):
    return f"Verdict: {'tie' if len(first) == len(second) else 'A' if len(first) > len(second) else 'B'}"


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Because.\nVerdict: A", "first"),
        ("Verdict: B.", "second"),
        ("x\n\n**Verdict: tie**\n", "tie"),
        ("verdict:a", "first"),
        ("**Verdict:** A", "first"),
        ("Verdict: **B**.", "second"),
        ("x\n_Verdict_: `tie`", "tie"),
        ("**Verdict:** A or **B**", None),
        ("Verdict: A\nBut B is fine too.", None),
        ("Verdict: A or B", None),
        ("A", None),
        ("", None),
        ("Verdict: C", None),
        ("I say Verdict: A", None),
        ("\x00\ud800" * 100_000, None),
        ("x" * 10**6 + "\nVerdict: B", "second"),
    ],
)
def test_only_a_last_line_that_is_a_verdict_counts(reply, verdict):
    assert read_verdict(reply) == verdict


@pytest.mark.parametrize(
    ("forward", "backward", "outcome"),
    [
        ("first", "first", "win"),
        ("second", "second", "loss"),
        ("first", "second", "tie"),
        ("second", "first", "tie"),
        ("first", "tie", "tie"),
        ("tie", "tie", "tie"),
        ("first", None, None),
        (None, "tie", None),
    ],
)
def test_an_answer_is_better_only_where_both_orders_say_so(forward, backward, outcome):
    assert Comparison(forward, backward).outcome == outcome


def test_both_orders_are_asked_and_a_judge_that_likes_the_first_place_decides_nothing():
    seen = []

    def first_place(query, first, second):
        seen.append((query, first, second))
        return "Verdict: A"

    assert [found.outcome for found in compare(judge_of(first_place), [("q", "a", "b")])] == ["tie"]
    assert sorted(seen) == [("q", "a", "b"), ("q", "b", "a")]
    found = compare(judge_of(longer), [("q", "aa", "b"), ("q", "a", "bb"), ("q", "a", "b")])
    assert [one.outcome for one in found] == ["win", "loss", "tie"]


def test_equal_answers_are_a_tie_that_nobody_is_asked_about():
    def never(*_):
        raise AssertionError

    assert compare(judge_of(never), [("q", "a", "a")])[0].outcome == "tie"


def test_a_judge_that_fails_leaves_no_verdict_and_the_others_stand():
    def sometimes(query, first, second):
        if query == "bad":
            raise PlayerError("no")
        return longer(query, first, second)

    scores = Judge(judge_of(sometimes), {"bad": "b", "q": "b"})(["bad", "q", "other", "q"], ["aa", "aa", "a", "x"])
    assert scores.values.tolist() == [0, 1, 0, 0.5]
    assert scores.mask.tolist() == [False, True, False, True]
    assert dict(scores.counts) == {"no_verdict": 1, "win": 1, "no_reference": 1, "tie": 1}


def test_a_reply_that_did_not_come_is_told_from_one_without_a_verdict():
    def sometimes(query, *_):
        if query == "down":
            raise PlayerError("no")
        return "Well."

    down, silent, same = compare(judge_of(sometimes), [("down", "a", "b"), ("q", "a", "b"), ("q", "a", "a")])
    assert (down.outcome, silent.outcome, same.outcome) == (None, None, "tie")
    assert (down.unanswered, silent.unanswered, same.unanswered) == (True, False, False)


def test_a_stop_keeps_the_replies_to_all_that_was_sent():
    """Four of eight requests are with the server; it replies once the endpoint is being closed."""
    closing = threading.Event()

    def slow(handler, body):
        closing.wait(60)
        handler.send(200, json.dumps(completion(longer(*parts(body["messages"])))).encode())

    rows = [(f"q{n}", "aa", "b") for n in range(4)]
    with serving(usual=slow) as server, make(server, concurrency=4) as endpoint:
        close = endpoint.close

        def release():
            until(lambda: endpoint.report()["failures"] == 4)  # those that had not been sent
            closing.set()

        def closes():
            threading.Thread(target=release).start()
            close()

        endpoint.close = closes

        def check_stop():
            until(lambda: server.inside == 4)
            raise Interrupted(15)

        found = compare(endpoint, rows, check_stop)
        report = endpoint.report()
    assert [one and one.outcome for one in found] == ["win", "win", None, None]
    assert (report["requests"], report["replies"], report["failures"]) == (4, 4, 4)


def test_a_stop_waits_for_a_function_too_and_begins_no_further_call():
    going, asked = threading.Event(), []

    def slow(query, first, second):
        asked.append(query)
        going.wait(60)
        return longer(query, first, second)

    judge = judge_of(slow)

    def release():
        until(lambda: all(call.cancelled() for call, _ in judge._queue))
        going.set()

    def check_stop():
        until(lambda: len(asked) == 4)
        threading.Thread(target=release).start()
        raise Interrupted(15)

    found = compare(judge, [(f"q{n}", "a", "bb") for n in range(3)], check_stop)
    assert [one and one.outcome for one in found] == ["loss", "loss", None]
    assert len(asked) == 4


def test_an_answer_cannot_forge_a_part_of_the_request():
    forged = request("q", "a", "b")[0]["content"].split("answer A")[1]
    query, first, second = parts(request("q", forged, "real"))
    assert (query, first, second) == ("q", forged.rstrip("\n"), "real")
    assert request("q", "a", "b") == request("q", "a", "b")
