"""Chat endpoints that work: what is sent, counted, cached and limited, seen by a real server on a real socket."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from chat_server import fails, says, serving

from dfc.errors import ConfigError
from dfc.players.endpoint import Endpoint, EndpointConfig
from dfc.players.remote import Remote
from dfc.players.reply_cache import CachedReply, ReplyCache
from dfc.players.usage import BudgetExceeded

ROOT = Path(__file__).resolve().parents[1]
HELLO = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


def chat(text):
    return [{"role": "user", "content": text}]


def make(server, **values):
    return Endpoint(EndpointConfig(server.url, "m", **{"backoff": 0.01, "timeout": 5.0, **values}))


def threads():
    return {thread.name for thread in threading.enumerate() if "dfc-" in thread.name or "AnyIO" in thread.name}


def files(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


# ---- what is sent and what comes back -----------------------------------------------------------------------------


def test_a_reply_is_what_the_server_says():
    with serving(says("[4]")) as server, make(server) as endpoint:
        call = endpoint.ask(HELLO)
        assert isinstance(endpoint, Remote)
        assert call.result() == "[4]"
        assert call.done
        assert call.result() == "[4]"
        assert server.requests[0][1] == "/v1/chat/completions"
        assert server.bodies == [{"model": "m", "messages": HELLO, "temperature": 0.0, "max_tokens": 1024}]


def test_every_sampling_value_is_sent_and_none_is_left_out():
    values = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 3, "extra_body": {"top_k": 20}}
    with serving() as server:
        with make(server, **values) as endpoint:
            endpoint.answer(chat("a"))
        with make(server, temperature=None, max_tokens=None) as endpoint:
            endpoint.answer(chat("a"))
        plain = {"model": "m", "messages": chat("a")}
        sampled = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 3, "top_k": 20}
        assert server.bodies == [plain | sampled, plain]


def test_text_of_every_script_goes_there_and_back():
    text = 'Zug 4: ♜ 日本語 \U0001f600 \u202e \\ " \n\t é'
    with serving() as server, make(server) as endpoint:
        assert endpoint.answer(chat(text)) == text
        assert server.bodies[0]["messages"][0]["content"] == text


def test_a_lone_surrogate_becomes_a_question_mark():
    with serving(says("a\ud800b")) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "a?b"


def test_a_key_is_sent_and_none_where_there_is_none(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-service")
    monkeypatch.setenv("MY_KEY", " key-123456789\n")
    with serving() as server:
        with make(server, key_variable="MY_KEY") as endpoint:
            endpoint.answer(HELLO)
        with make(server) as endpoint:
            endpoint.answer(HELLO)
        assert server.headers[0]["authorization"] == "Bearer key-123456789"
        assert "authorization" not in server.headers[1]
        assert "of-another-service" not in str(server.headers)


@pytest.mark.parametrize("key", ["", "key-123456789"])
def test_other_variables_of_the_environment_reach_no_server(monkeypatch, key):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-mine")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Token: of-a-gateway\nAuthorization: Bearer of-another-service")
    monkeypatch.setenv("MY_KEY", key)
    with serving() as server, make(server, key_variable="MY_KEY" if key else "") as endpoint:
        endpoint.answer(HELLO)
        sent = server.headers[0]
        assert sent.get("authorization") == (f"Bearer {key}" if key else None)
        assert "of-mine" not in str(sent)
        assert "x-token" not in sent


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(says("direct")) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "direct"


# ---- several at once ----------------------------------------------------------------------------------------------


def test_no_more_requests_are_under_way_than_allowed():
    with serving(usual=says("x", after=0.05)) as server, make(server, concurrency=3) as endpoint:
        calls = [endpoint.ask(chat(str(n))) for n in range(9)]
        assert [call.result() for call in calls] == ["x"] * 9
        assert server.most == 3


def test_calls_end_in_any_order_and_a_wait_ends_with_the_first():
    with serving() as server, make(server) as endpoint:
        go_on = threading.Event()

        def reply(handler, body):
            content = body["messages"][0]["content"]
            assert content != "slow" or go_on.wait(30)
            return says(content)(handler, body)

        server.usual = reply
        slow, quick = endpoint.ask(chat("slow")), endpoint.ask(chat("quick"))
        while not (quick.done or slow.done):
            endpoint.wait([slow, quick])
        assert (slow.done, quick.done) == (False, True)
        endpoint.wait([slow], timeout=0.02)
        assert not slow.done
        go_on.set()
        assert (slow.result(), quick.result()) == ("slow", "quick")


def test_threads_may_share_an_endpoint():
    with serving() as server, make(server, concurrency=8) as endpoint:
        found = {}

        def player(n):
            found[n] = [endpoint.answer(chat(f"{n}.{k}")) for k in range(5)]

        players = [threading.Thread(target=player, args=(n,)) for n in range(6)]
        for thread in players:
            thread.start()
        for thread in players:
            thread.join()
        assert found == {n: [f"{n}.{k}" for k in range(5)] for n in range(6)}
        assert endpoint.report()["replies"] == 30


# ---- the cache ----------------------------------------------------------------------------------------------------


def test_a_hit_makes_no_request_and_costs_nothing(tmp_path):
    values = {"cache": str(tmp_path / "deep" / "cache"), "input_price": 1.0, "output_price": 2.0}
    with serving(says("[1]"), says("[2]")) as server:
        for hits in (0, 1):
            with make(server, **values) as endpoint:
                assert endpoint.answer(HELLO) == "[1]"
                report = endpoint.report()
                assert (report["cache_hits"], report["requests"]) == (hits, 1 - hits)
                assert report["money"] == (0.0 if hits else pytest.approx(16e-6))
        assert len(server.requests) == 1
        assert threads() == set()


def test_everything_that_matters_is_part_of_the_key_and_the_key_of_the_server_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("ONE_KEY", "first-key-000")
    monkeypatch.setenv("TWO_KEY", "second-key-00")
    same = ({"key_variable": "ONE_KEY"}, {"key_variable": "TWO_KEY"}, {"concurrency": 2, "retries": 1, "timeout": 4.0})
    other = ({"temperature": 0.1}, {"top_p": 0.5}, {"max_tokens": 9}, {"seed": 1}, {"extra_body": {"top_k": 1}})
    with serving() as server:
        for values in ({}, *same):
            with make(server, cache=str(tmp_path), **values) as endpoint:
                endpoint.answer(HELLO)
            assert len(server.requests) == 1
        for number, values in enumerate(other, 2):
            with make(server, cache=str(tmp_path), **values) as endpoint:
                endpoint.answer(HELLO)
            assert len(server.requests) == number
        before = len(server.requests)
        with make(server, cache=str(tmp_path)) as endpoint:
            endpoint.answer([HELLO[1], HELLO[0]])
            endpoint.answer([{"role": "user", "content": "be brief"}, HELLO[1]])
        with Endpoint(EndpointConfig(server.url, "n", cache=str(tmp_path))) as endpoint:
            endpoint.answer(HELLO)
        assert len(server.requests) == before + 3
    with serving() as server, make(server, cache=str(tmp_path)) as endpoint:  # another address
        endpoint.answer(HELLO)
        assert len(server.requests) == 1


def test_a_whole_number_and_the_same_with_a_point_are_one_request(tmp_path):
    with serving() as server:
        for zero, one in ((0, 1), (0.0, 1.0)):
            with make(server, cache=str(tmp_path), temperature=zero, top_p=one) as endpoint:
                endpoint.answer(HELLO)
        assert len(server.requests) == 1


@pytest.mark.parametrize(("seed", "sent"), [(10, [10, 11, 12]), (None, [None, None, None])])
def test_samples_of_one_chat_differ_and_come_back_in_a_later_run(tmp_path, seed, sent):
    def run():
        with make(server, cache=str(tmp_path), temperature=1.0, seed=seed) as endpoint:
            return [endpoint.answer(HELLO) for _ in range(3)], endpoint.answer(HELLO, trial=1)

    with serving(says("a"), says("b"), says("c")) as server:
        assert run() == (["a", "b", "c"], "b")
        assert run() == (["a", "b", "c"], "b")
        assert [body.get("seed") for body in server.bodies] == sent


def test_the_same_request_at_the_same_time_is_made_once(tmp_path):
    with serving(usual=says("x", after=0.1)) as server, make(server, cache=str(tmp_path)) as endpoint:
        calls = [endpoint.ask(HELLO) for _ in range(5)]
        assert [call.result() for call in calls] == ["x"] * 5
        assert len(server.requests) == 1
        assert (endpoint.report()["replies"], endpoint.report()["cache_hits"]) == (1, 4)


def test_processes_share_a_cache(tmp_path):
    script = (
        "import sys\nfrom dfc.players.endpoint import Endpoint, EndpointConfig\n"
        "endpoint = Endpoint(EndpointConfig(sys.argv[1], 'm', cache=sys.argv[2]))\n"  # not closed: ends by itself
        "print([endpoint.answer([{'role': 'user', 'content': str(n)}]) for n in range(4)])\n"
    )
    with serving() as server:
        command = [sys.executable, "-W", "error", "-c", script, server.url, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        run = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
        processes = [subprocess.Popen(command, **run) for _ in range(2)]  # noqa: S603 - a fixed command
        found = [process.communicate(timeout=60) for process in processes]
        assert found == [("['0', '1', '2', '3']\n", "")] * 2
        made = len(server.requests)
        with make(server, cache=str(tmp_path)) as endpoint:
            assert [endpoint.answer(chat(str(n))) for n in range(4)] == ["0", "1", "2", "3"]
        assert len(server.requests) == made
    assert len(files(tmp_path)) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"text": "stale"}', "[" * 100_000, b"\xff\xfe", "cut"])
def test_a_damaged_entry_is_written_anew(tmp_path, damage):
    with serving(says("one"), says("two")) as server:
        for expected in ("one", "two", "two"):
            with make(server, cache=str(tmp_path)) as endpoint:
                assert endpoint.answer(HELLO) == expected
            (path,) = files(tmp_path)
            if expected == "one":
                content = path.read_bytes()[:-3] if damage == "cut" else damage
                path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_an_entry_under_another_name_is_not_believed(tmp_path):
    cache = ReplyCache(tmp_path)
    cache.put("a" * 64, CachedReply("for a", 1, 1))
    (path,) = files(tmp_path)
    other = tmp_path / "bb" / f"{'b' * 64}.json"
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    assert cache.get("b" * 64) is None
    assert cache.get("a" * 64) == CachedReply("for a", 1, 1)


def test_threads_that_write_one_entry_leave_it_whole(tmp_path):
    cache, key, stop = ReplyCache(tmp_path), "c" * 64, threading.Event()
    texts = [letter * 20_000 for letter in "xyz"]
    cache.put(key, CachedReply(texts[0], 1, 1))

    def write(text):
        while not stop.is_set():
            cache.put(key, CachedReply(text, 1, 1))

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in writers:
        thread.start()
    found = [cache.get(key) for _ in range(100)]
    stop.set()
    for thread in writers:
        thread.join()
    assert all(reply is not None and reply.text in texts for reply in found)
    assert len(files(tmp_path)) == 1


def test_a_cache_that_cannot_be_written_loses_no_reply(tmp_path, caplog):
    folder = tmp_path / "cache"
    with serving() as server, make(server, cache=str(folder)) as endpoint:
        folder.rmdir()
        folder.write_text("a file, not a folder")
        assert endpoint.answer(chat("a")) == "a"
        assert endpoint.report()["cache_write_failures"] == 1
        assert "cannot write a reply to the cache" in caplog.text
    with pytest.raises(ConfigError, match=r"endpoint\.cache=.*File exists"):
        make(server, cache=str(folder))


# ---- counts and budget --------------------------------------------------------------------------------------------


def test_ids_and_money_are_the_servers_counts_times_the_prices():
    used = {"usage": {"prompt_tokens": 1000, "completion_tokens": 200}}
    with serving(usual=says("x", **used)) as server:
        with make(server, input_price=2.0, output_price=8.0) as endpoint:
            endpoint.answer(chat("a"))
            endpoint.answer(chat("b"))
            report = endpoint.report()
        assert (report["input_tokens"], report["output_tokens"], report["estimated_replies"]) == (2000, 400, 0)
        assert report["money"] == pytest.approx((2000 * 2.0 + 400 * 8.0) / 1e6)
        assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": "7", "completion_tokens": 1},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 10**400, "completion_tokens": 1},
        [1],
    ],
)
def test_counts_the_server_does_not_send_are_estimated_and_flagged(usage):
    with serving(says("x" * 41, usage=usage)) as server, make(server) as endpoint:
        endpoint.answer(chat("y" * 80))
        report = endpoint.report()
        assert (report["input_tokens"], report["output_tokens"], report["estimated_replies"]) == (24, 11, 1)


def test_a_spent_budget_of_ids_stops_every_further_request():
    with serving() as server, make(server, budget_tokens=20) as endpoint:
        assert endpoint.answer(chat("a")) == "a"  # 13 ids
        assert endpoint.answer(chat("b")) == "b"  # 26: under way when the budget was reached
        spent = r"m: 26 of a budget of 20 tokens are spent \(20 tokens in, 6 out, 2 requests\)"
        match = rf"{spent}.*raise EndpointConfig.budget_tokens"
        for text in "cd":
            with pytest.raises(BudgetExceeded, match=match):
                endpoint.answer(chat(text))
        assert len(server.requests) == 2
        assert (endpoint.report()["failures"], endpoint.report()["calls"]) == (2, 4)


def test_calls_under_way_when_the_budget_is_spent_finish_and_queued_ones_do_not():
    with serving(usual=says("x", after=0.2)) as server:
        values = {"budget_money": 1e-6, "input_price": 1.0, "concurrency": 3}
        with make(server, **values) as endpoint:
            calls = [endpoint.ask(chat(str(n))) for n in range(8)]
            assert [call.result() for call in calls[:3]] == ["x"] * 3
            for call in calls[3:]:
                with pytest.raises(BudgetExceeded, match=r"\de-05 of a budget of 1e-06 .*EndpointConfig.budget_money"):
                    call.result()
            assert len(server.requests) == 3
            assert endpoint.report()["money"] == pytest.approx(30e-6)


def test_a_spent_budget_does_not_stop_replies_from_the_cache(tmp_path):
    with serving() as server, make(server, budget_tokens=1, cache=str(tmp_path)) as endpoint:
        assert endpoint.answer(chat("a")) == "a"
        assert endpoint.answer(chat("a")) == "a"
        with pytest.raises(BudgetExceeded):
            endpoint.answer(chat("b"))


def test_a_report_accounts_for_every_call(tmp_path):
    script = (says("x"), fails(500), says("y"), fails(400))
    with serving(*script) as server, make(server, cache=str(tmp_path)) as endpoint:
        endpoint.answer(chat("a"))
        endpoint.answer(chat("a"))
        endpoint.answer(chat("b"))
        assert endpoint.ask(chat("c")).remote is endpoint
        with pytest.raises(Exception, match="400"):
            endpoint.answer(chat("c"))
        report = endpoint.report()
        assert report["calls"] == 5
        assert report["calls"] == report["replies"] + report["cache_hits"] + report["failures"]
        assert (report["requests"], report["retries"], report["model"]) == (len(server.requests), 1, "m")


# ---- a play -------------------------------------------------------------------------------------------------------


def test_an_endpoint_plays_in_the_other_seat(tmp_path):
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dfc.config import RolloutConfig, SamplingConfig
    from dfc.inference.engine import Engine
    from dfc.models.chat import ChatTokenizer
    from dfc.models.config import DecoderConfig
    from dfc.models.huggingface import resolve
    from dfc.models.transformer import abstract_params
    from dfc.rollout.runner import EpisodeSpec, RolloutRunner

    def first_free(handler, body):
        seen = " ".join(m["content"] for m in body["messages"] if "[" in m["content"])
        taken = {m["content"] for m in body["messages"] if m["role"] == "assistant"}
        taken.update(re.findall(r"Opponent plays (\[\d\])", seen))
        says(next(f"[{cell}]" for cell in range(9) if f"[{cell}]" not in taken))(handler, body)

    tokenizer = ChatTokenizer.load(resolve("tiny_player"))
    sizes = {"width": 8, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 8, "feed_forward": 8}
    further = {"rope_theta": 1e4, "norm_epsilon": 1e-5, "qkv_bias": False, "tied_embedding": True}
    config = DecoderConfig(vocabulary=tokenizer.vocabulary, **sizes, **further)
    params = jax.tree.map(lambda leaf: jnp.asarray(np.full(leaf.shape, 0.1, np.float32)), abstract_params(config))
    rollout = RolloutConfig(slots=2, max_length=256, max_reply_length=8, stop=("]",), legal_only=True)
    stop = tokenizer.stop_token_ids(rollout.stop)
    values = {"prefill_buckets": (32,), "cache_buckets": (256,), "decode_steps": 8}
    engine = Engine(config, params, slots=2, max_length=256, stop_token_ids=stop, sampling=SamplingConfig(), **values)
    specs = [EpisodeSpec("TicTacToe-v0", {}, n, n % 2, n, 100 + n) for n in range(2)]
    with serving(fails(500), fails(429, b"", Retry_After="0.1"), usual=first_free) as server:
        played = []
        for _ in range(2):
            with make(server, cache=str(tmp_path)) as endpoint:
                found = RolloutRunner(rollout, tokenizer, engine, opponent=endpoint, opponent_name="m").play(specs)
                played.append([episode.record() for episode in found])
                assert not any(episode.failed for episode in found)
                assert all(episode.outcome in ("win", "draw", "loss") for episode in found)
                report = endpoint.report()
        assert played[0] == played[1]
        assert (report["requests"], report["cache_hits"]) == (0, report["calls"])  # the second time costs nothing


# ---- the end, and what is refused at the beginning -----------------------------------------------------------------


def test_nothing_is_left_after_the_end():
    before = threads()
    with serving() as server:
        endpoint = make(server)
        endpoint.answer(HELLO)
        assert threads() > before
        endpoint.close()
        endpoint.close()
        assert threads() == before
        with pytest.raises(Exception, match="the endpoint is closed; make a new one"):
            endpoint.ask(HELLO)
        forgotten = make(server)
        forgotten.answer(HELLO)
        del forgotten
        end = time.monotonic() + 5
        while threads() != before and time.monotonic() < end:
            time.sleep(0.01)
        assert threads() == before


def test_closing_an_endpoint_that_was_never_asked_does_nothing():
    make_one = Endpoint(EndpointConfig("https://example.invalid/v1", "m"))
    assert make_one.report()["calls"] == 0
    make_one.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_url": "localhost:8000/v1"}, "base_url='localhost:8000/v1': must be an http or https address"),
        ({"base_url": 7}, "base_url=7: must be an http"),
        ({"base_url": "http://[::1/v1"}, "base_url: Invalid IPv6"),
        ({"base_url": "http://h:port/v1"}, "base_url: Port could not"),
        ({"base_url": "http://h/v1/chat/completions"}, "must end before '/chat/completions'"),
        ({"base_url": "https://h/v1?a=b"}, "must hold no user name"),
        ({"model": ""}, "model='': must be the name the server knows"),
        ({"temperature": 2.5}, "temperature=2.5: must be a number of at least 0 and at most 2 or None"),
        ({"top_p": 0}, "top_p=0: must be a number above 0 and at most 1 or None"),
        ({"max_tokens": 0.5}, "max_tokens=0.5: must be a whole number of at least 1"),
        ({"concurrency": 0}, "concurrency=0: must be a whole number of at least 1 and at most 1000"),
        ({"timeout": float("nan")}, "timeout=nan: must be a number above 0"),
        ({"retries": True}, "retries=True: must be a whole number"),
        ({"timeout": None}, "timeout=None: must be a number above 0"),
        ({"cache": ""}, "cache='': must be a folder as text, or None"),
        ({"budget_money": 1.0}, "budget_money=1.0: needs input_price or output_price above 0"),
        ({"extra_body": {"stream": True}}, "extra_body['stream']: is set by the endpoint itself"),
        ({"extra_body": {"x": {1}}}, "extra_body: must be a mapping of JSON values"),
        ({"extra_body": [1]}, "extra_body: must be a mapping of JSON values"),
        ({"allow_plain_http": "no"}, "allow_plain_http='no': must be true or false"),
        (
            {"base_url": "http://example.org/v1", "key_variable": "K"},
            "would send the key unencrypted to another machine",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        EndpointConfig(**{"base_url": "http://localhost/v1", "model": "m", **values})


def test_all_problems_are_reported_together():
    with pytest.raises(ConfigError) as raised:
        EndpointConfig("ftp://x", "", retries=-1, backoff=-1.0)
    assert len(raised.value.problems) == 4


@pytest.mark.parametrize(
    ("url", "values"),
    [
        ("http://example.org/v1", {}),
        ("https://example.org/v1", {"key_variable": "K"}),
        ("http://example.org/v1", {"key_variable": "K", "allow_plain_http": True}),
        ("http://127.0.0.1:8000", {"key_variable": "K"}),
        ("http://[::1]:8000/v1/", {"key_variable": "K"}),
        ("http://LOCALHOST:8000/v1", {"key_variable": "K"}),
    ],
)
def test_addresses_that_make_sense_are_taken(url, values):
    assert EndpointConfig(url, "m", **values).base_url == url
