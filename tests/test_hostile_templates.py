"""Chat templates of strangers: one WeightsError each, within seconds; what a person is told of them."""

import shutil
import sys
import threading

import hostile_folders
import pytest
from hostile_folders import GOOD, refused

from dfc.config import ServingConfig
from dfc.errors import WeightsError
from dfc.games import registry
from dfc.inference.engine import Engine
from dfc.launch import play
from dfc.models import chat_template
from dfc.models.chat import ChatTokenizer
from dfc.players.key_search import Secret
from dfc.rollout.host import load_tokenizer
from dfc.tools.serving import server

folder = hostile_folders.folder  # the fixture

BIG = "{%- for i in range(99999) %}"
END = "{%- endfor %}"


def read(template, folder):
    with chat_template.rendering(template, {"bos_token": "<s>", "eos_token": "</s>"}, None, folder) as render:
        return chat_template.read(render, folder)


RAISING = {
    "TypeError": "{{ 'a' + 1 }}",
    "ZeroDivisionError": "{{ 1 // 0 }}",
    "OverflowError": "{{ range(10 ** 9) | list }}",
    "a float's OverflowError": "{{ 10.0 ** 1000 }}",
    "include": "{% include 'x' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "RecursionError": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "an unsafe attribute": "{{ ''.__class__.__mro__ }}",
    "undefined": "{{ nothing.at.all }}",
    "its own": "{{ raise_exception('no \x1b[2J' ~ 'x' * 100000) }}",
    "no Jinja": "{% for %}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a filter that is none": "{{ 1 | nothing }}",
}
GROWING = {
    "a string of a gigabyte": "{{ 'a' * 10 ** 9 }}",
    "a string of two megabytes": "{{ 'a' * 2000000 }}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "a width": "{{ '%1000000000d' % 1 }}",
    "a filter's width": "{{ 'a' | center(2000000000) }}",
    "a list": "{{ ([0] * 10 ** 9) | length }}",
}
LASTING = {
    "nested loops": BIG + BIG + "{%- set x = i %}" + END + END,
    "one operation": "{{ (messages | length + 6) ** (10 ** 8) % 7 }}",
}


@pytest.mark.parametrize("kind", RAISING | GROWING)
def test_a_template_that_raises_anything_or_grows_beyond_bounds_is_refused(tmp_path, kind):
    template = (RAISING | GROWING)[kind] + GOOD
    message = refused(lambda: read(template, tmp_path), f"{tmp_path}: the chat template cannot be used")
    assert message.isprintable()


@pytest.mark.parametrize("kind", LASTING)
def test_a_template_that_does_not_end_is_refused_in_any_thread(tmp_path, kind):
    found = []
    template = LASTING[kind] + GOOD
    work = threading.Thread(target=lambda: found.append(refused(lambda: read(template, tmp_path), "within 2 seconds")))
    work.start()
    work.join()
    assert len(found) == 1


def test_a_template_that_lasts_for_some_conversations_only_is_refused(tmp_path):
    """Refusing the role of the system is no fault; never coming to an end there is one."""
    guard = "{%- if messages[0]['role'] == 'system' %}" + LASTING["nested loops"] + "{%- endif %}"
    refused(lambda: read(guard + GOOD, tmp_path), "within 2 seconds")


def test_a_template_that_fails_on_a_system_message_takes_none(tmp_path):
    guard = "{%- if messages[0]['role'] == 'system' %}{{ 1 + 'a' }}{%- endif %}"
    parts = read(guard + GOOD, tmp_path)
    assert parts.system is None
    assert parts.foldable


def test_a_template_sees_no_variable_of_the_environment_and_leaves_no_process(tmp_path, monkeypatch):
    started = []
    popen = chat_template.subprocess.Popen
    monkeypatch.setattr(
        chat_template.subprocess,
        "Popen",
        lambda *args, **kw: started.append((popen(*args, **kw), kw)) or started[-1][0],
    )
    monkeypatch.setenv("SECRET_KEY", "sk-1")
    read(GOOD, tmp_path)
    with pytest.raises(WeightsError):
        read("{{ 1 // 0 }}", tmp_path)
    assert len(started) == 2
    for process, options in started:
        assert process.poll() is not None
        assert "SECRET_KEY" not in options["env"]


def test_an_interpreter_that_cannot_render_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    refused(lambda: read(GOOD, tmp_path), "/bin/false ended with status 1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    refused(lambda: read(GOOD, tmp_path), "cannot start")


@pytest.mark.parametrize(
    "template", [RAISING["TypeError"], GROWING["doubling"], "{% generation %}x{% endgeneration %}"]
)
def test_a_folder_with_such_a_template_is_refused(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    refused(lambda: ChatTokenizer.load(folder), f"{folder}: the chat template cannot be used")


def test_the_tag_that_marks_replies_for_training_changes_nothing(folder):
    before = ChatTokenizer.load(folder)
    marked = GOOD.replace(
        "{{- message['content'] + '<|end|>' -}}",
        "{%- generation -%}{{- message['content'] + '<|end|>' -}}{%- endgeneration -%}",
    )
    assert marked != GOOD
    (folder / "chat_template.jinja").write_text(marked)
    after = ChatTokenizer.load(folder)
    assert after.next_turn("[4]", closed=False) == before.next_turn("[4]", closed=False)


DROPS = GOOD.replace(
    "message['content'] + '<|end|>'",
    "(message['content'] if loop.last else message['content'].split('</think>\\n\\n')[-1]) + '<|end|>'",
)


def test_a_departure_is_printed_once(folder, capsys):
    assert DROPS != GOOD
    (folder / "chat_template.jinja").write_text(DROPS)
    expected = ChatTokenizer.load(folder).departure
    assert "leaves out the thoughts" in expected
    for _ in range(2):
        load_tokenizer(folder, enable_thinking=None)
    assert capsys.readouterr().out == f"{folder}: {expected}\n"


def test_nothing_is_printed_where_nothing_departs(folder, capsys):
    load_tokenizer(folder, enable_thinking=None)
    assert capsys.readouterr().out == ""


def departing(folder):
    """A whole model whose template departs."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(hostile_folders.TINY / name, folder / name)
    (folder / "chat_template.jinja").write_text(DROPS)
    return ChatTokenizer.load(folder).departure


@pytest.mark.parametrize("simulator", [False, True])
def test_a_departure_is_printed_once_before_a_person_plays(folder, capsys, simulator):
    departure = departing(folder)
    play._player(str(folder), registry.make("Nim-v0"), None, out=sys.stdout, simulator=simulator)
    assert capsys.readouterr().out == f"loading {folder} ...\n{folder}: {departure}\n"


def test_a_departure_is_printed_once_before_a_model_is_served(folder, capsys, monkeypatch):
    departure = departing(folder)
    monkeypatch.setattr(Engine, "warm_up_rows", lambda _: iter([0]))
    monkeypatch.setattr(server.Server, "run", lambda *_: None)
    assert server.serve(str(folder), ServingConfig(port=0, slots=1, max_length=64), Secret("")) is None
    assert capsys.readouterr().out == f"loading {folder} ...\n{folder}: {departure}\n"
