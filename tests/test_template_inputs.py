"""What a chat template reads beside its messages: configured, fixed and recorded, the same in every process."""

import ast
import datetime as dt
import inspect
import json
from pathlib import Path

import pytest
import transformers
from chat_families import FAMILIES, LLAMA3, QWEN3, THINK, byte_level, save

from dfc.errors import ConfigError, WeightsError
from dfc.models import chat_template, chat_template_process
from dfc.models.chat import ChatTokenizer
from dfc.players import player_specs
from dfc.rollout.host import load_tokenizer
from dfc.runs import run_folder

ROOT = Path(__file__).resolve().parents[1]
NAMES = FAMILIES["qwen3"].specials
PLAIN = """\
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def rendered(template, folder, **variables):
    """Returns the text of one message, from a process of its own."""
    with chat_template.rendering(template, variables, None, folder) as render:
        return render(("user", "Hi"))


# ---- call sites -----------------------------------------------------------------------------------------------


def calls_without_the_setting(source):
    """Yields the lines that load a tokenizer without saying what its template is told."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        loads = called.endswith("ChatTokenizer.load") or called.split(".")[-1] == "load_tokenizer"
        if loads and "enable_thinking" not in {keyword.arg for keyword in node.keywords}:
            yield node.lineno


def test_whoever_loads_a_tokenizer_says_what_its_template_is_told():
    seen = 0
    for path in sorted({*ROOT.glob("dfc/**/*.py"), *ROOT.glob("launch/*.py"), *ROOT.glob("benchmarks/*.py")}):
        source = path.read_text()
        seen += source.count("ChatTokenizer.load(") + source.count("load_tokenizer(")
        assert not list(calls_without_the_setting(source)), path
    assert seen >= 8
    assert list(calls_without_the_setting("x = ChatTokenizer.load(folder)\nworkers.load_tokenizer(y)")) == [1, 2]
    assert inspect.signature(load_tokenizer).parameters["enable_thinking"].default is inspect.Parameter.empty


# ---- the setting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reading",
    [
        "{%- if enable_thinking is not defined %}{%- set enable_thinking = true %}{%- endif %}",
        "{%- set thinks = enable_thinking | default(true) %}",
        "{%- macro m() %}{{- 'x' if enable_thinking else 'y' }}{%- endmacro %}",
        "{%- set ns = namespace(on=enable_thinking) %}",
    ],
)
def test_it_is_known_that_a_template_looks_at_the_setting(tmp_path, reading):
    save(tmp_path, byte_level(), reading + PLAIN, NAMES, eos="<|im_end|>")
    assert ChatTokenizer.load(tmp_path, enable_thinking=False).reads_thinking
    assert ChatTokenizer.load(tmp_path).reads_thinking


@pytest.mark.parametrize(
    "other",
    [
        "{# enable_thinking #}",
        "{%- set enable_thinking = true %}",
        "{{- '' if thinking else '' }}",
        "{%- set x = 'enable_thinking' %}",
    ],
)
def test_a_template_that_only_names_the_setting_does_not_look_at_it(tmp_path, other):
    save(tmp_path, byte_level(), other + PLAIN, NAMES, eos="<|im_end|>")
    assert not ChatTokenizer.load(tmp_path).reads_thinking
    with pytest.raises(WeightsError, match="enable_thinking is set to True, but the chat template does not read it"):
        ChatTokenizer.load(tmp_path, enable_thinking=True)


# ---- the day and chance ---------------------------------------------------------------------------------------

DAY = "{{- 'Today is ' + strftime_now('%Y-%m-%d, %A, %H:%M:%S.%f, %s %Z') + '.\\n' }}"


def test_the_day_is_the_one_of_llama_and_never_that_of_the_run(tmp_path):
    save(tmp_path, byte_level(), DAY + PLAIN, NAMES, eos="<|im_end|>")
    told = ChatTokenizer.load(tmp_path)
    text = told.decode(told.first_turn("Hi"))
    assert text.startswith("Today is 2024-07-26, Friday, 00:00:00.000000, 1721952000 .\n")
    assert f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}" not in text
    assert rendered(LLAMA3, tmp_path, bos_token="") == rendered(
        LLAMA3.replace("date_string is not defined", "true"),
        tmp_path,
        bos_token="",
    )


def test_a_template_is_told_the_same_day_wherever_the_process_runs(tmp_path, monkeypatch):
    before = rendered(DAY + PLAIN, tmp_path)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert rendered(DAY + PLAIN, tmp_path) == before


def test_sets_have_one_order_in_every_process(tmp_path):
    template = "{{- (dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8).keys() - ['x']) | join }}" + PLAIN
    assert len({rendered(template, tmp_path) for _ in range(4)}) == 1


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{- lipsum(n=1) }}", "it draws at random"),
        ("{{- [1, 2, 3] | random }}", "it draws at random"),
        ("{{- raise_exception }}", "it writes the address of an object"),
        ("{{- [1] | map('string') }}", "it writes the address of an object"),
        ("{{- 'a'.upper }}", "it writes the address of an object"),
    ],
)
def test_a_template_whose_text_would_vary_is_refused(tmp_path, template, expected):
    save(tmp_path, byte_level(), template + PLAIN, NAMES, eos="<|im_end|>")
    with pytest.raises(WeightsError, match=f"{tmp_path}: the chat template cannot be used: .*{expected}"):
        ChatTokenizer.load(tmp_path)


def test_everything_else_that_a_template_can_call_is_transformers_own():
    """Whatever jinja2 or transformers add to what templates can reach is looked at before it is let in."""
    compile_ = transformers.utils.chat_template_utils._compile_jinja_template
    theirs = inspect.unwrap(compile_)("{{ 1 }}").environment
    ours = chat_template_process._environment(dt.datetime(2024, 7, 26, tzinfo=dt.UTC))
    assert set(ours.globals) == set(theirs.globals) == {
        *("range", "dict", "lipsum", "cycler", "joiner", "namespace"),
        *("raise_exception", "strftime_now"),
    }  # fmt: skip
    assert set(ours.filters) == set(theirs.filters)


def test_a_start_records_the_day_that_templates_are_told():
    assert run_folder.versions()["chat_template"] == {"day": "2024-07-26"}


def test_what_a_run_told_its_template_is_found_around_its_weights(tmp_path):
    policy = tmp_path / "run" / "policy"
    policy.mkdir(parents=True)
    (policy / "config.json").write_text(json.dumps({"model_type": "llama"}))
    for value, expected in ((False, False), (True, True), (None, None)):
        config = {"recipe": "sft", "model": {"path": "x", "enable_thinking": value}}
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        assert player_specs.weights_in(str(policy)).enable_thinking is expected
        assert player_specs.weights_in(str(policy.parent)).enable_thinking is expected
    (tmp_path / "run" / "config.json").write_text(json.dumps({"recipe": "sft", "model": {"path": "x"}}))
    assert player_specs.weights_in(str(policy)).enable_thinking is None
    for wrong in (0, "false", [True], "\x1b" * 9000):
        config = {"recipe": "sft", "model": {"path": "x", "enable_thinking": wrong}}
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ConfigError, match=r"model\.enable_thinking: expected true, false or null") as caught:
            player_specs.weights_in(str(policy))
        assert len(str(caught.value)) < 500
        assert all(problem.isprintable() for problem in caught.value.problems)
    (tmp_path / "run" / "config.json").unlink()
    assert player_specs.weights_in(str(policy)).enable_thinking is None


def test_a_tokenizer_of_weights_that_were_trained_with_another_setting_says_so(tmp_path, capsys):
    save_run = tmp_path / "run"
    save_run.mkdir()
    save(save_run / "policy", byte_level(), QWEN3, NAMES, eos="<|im_end|>", added=THINK)
    config = {"recipe": "sft", "model": {"path": "x", "enable_thinking": False}}
    (save_run / "config.json").write_text(json.dumps(config))
    said = f"{save_run / 'policy'}: was trained with model.enable_thinking=False; here it is None.\n"
    for _ in range(2):
        load_tokenizer(save_run / "policy", enable_thinking=None)
    assert capsys.readouterr().out.count(said) == 1
    load_tokenizer(save_run / "policy", enable_thinking=False)
    assert "was trained with" not in capsys.readouterr().out
