"""Replies of chat endpoints on disk: what makes two requests the same, who shares them, files that are damaged."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from chat_server import chat, make, says, serving, threads

from dfc.config import EndpointConfig
from dfc.errors import ConfigError
from dfc.players import reply_cache
from dfc.players.endpoint import Endpoint
from dfc.players.reply_cache import CachedReply, ReplyCache

ROOT = Path(__file__).resolve().parents[1]
HELLO = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


def files(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


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
        with Endpoint(server.url, "n", EndpointConfig(cache=str(tmp_path))) as endpoint:
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


def test_a_call_that_was_cancelled_does_not_keep_others_from_asking(tmp_path):
    with serving(says("late", after=0.2), says("x")) as server, make(server, cache=str(tmp_path)) as endpoint:
        assert endpoint.ask(HELLO).cancel()
        assert endpoint.answer(HELLO) in ("late", "x")
        assert endpoint.answer(chat("another")) in ("x", "another")


def test_processes_share_a_cache(tmp_path):
    script = (
        "import sys\nfrom dfc.config import EndpointConfig\nfrom dfc.players.endpoint import Endpoint\n"
        "endpoint = Endpoint(sys.argv[1], 'm', EndpointConfig(cache=sys.argv[2]))\n"  # not closed: ends by itself
        "print([endpoint.answer([{'role': 'user', 'content': str(n)}]) for n in range(4)])\n"
    )
    with serving() as server:
        command = [sys.executable, "-W", "error", "-c", script, server.url, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        run = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
        processes = [subprocess.Popen(command, **run) for _ in range(2)]  # noqa: S603 - a fixed command
        found = [process.communicate(timeout=240) for process in processes]
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


def test_a_link_in_the_cache_is_not_written_through(tmp_path):
    outside, key = tmp_path / "outside", "ab" * 32
    outside.mkdir()
    (outside / "file").write_text("mine")
    reply = reply_cache.CachedReply("x", 1, 1)
    cache = reply_cache.ReplyCache(tmp_path / "cache")
    (tmp_path / "cache" / "ab").symlink_to(outside)
    with pytest.raises(OSError, match=r"is a symbolic link, and nothing is written through one.*cache/ab'"):
        cache.put(key, reply)
    (tmp_path / "cache" / "ab").unlink()
    (tmp_path / "cache" / "ab").mkdir()
    (tmp_path / "cache" / "ab" / f"{key}.json").symlink_to(outside / "file")
    cache.put(key, reply)
    assert cache.get(key) == reply
    assert [path.read_text() for path in outside.iterdir()] == ["mine"]


def test_a_cache_entry_of_any_size_is_no_reply(tmp_path, monkeypatch):
    monkeypatch.setattr(reply_cache, "_LARGEST", 1000)
    replies = reply_cache.ReplyCache(tmp_path)
    replies.put("ab" * 32, reply_cache.CachedReply("x" * 500, 1, 1))
    assert replies.get("ab" * 32) is not None
    replies.put("ab" * 32, reply_cache.CachedReply("x" * 1000, 1, 1))
    assert replies.get("ab" * 32) is None
