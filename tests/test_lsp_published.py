"""The paper's configuration: every value that the paper states, what ours has otherwise, and a run of it in small."""

import dataclasses

import chat_families
import jax
import numpy as np
import pytest
from recipe_runs import untimed
from self_play_runs import leaves, one_device, run, weights
from tiny_models import save_checkpoint

from dfc import validation
from dfc.configs import lsp_llama3_2_3b, lsp_published
from dfc.launch import command_line
from dfc.launch.overrides import override
from dfc.methods.language_self_play import hygiene, rewards, self_reward
from dfc.models import huggingface
from dfc.models.sharding import make_mesh

__all__ = ["one_device"]

SMALL = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "pad_token_id": None,
}
CONFIG = lsp_published.get_config()
# Of the structure of the paper's Boxes 1 and 3; the words are ours.
BOX_1 = (
    "Write for the task '{task}' by the template between tags.\n\n[Start Generation] '{template}' [End Generation]\n"
)
BOX_3 = "Rate it.\n<Instruction >{instruction} </Instruction>\n<Response >{response} </Response>\n<Score>4</Score>"


def test_it_has_the_papers_value_wherever_the_paper_states_one():
    config = CONFIG
    assert (config.method, config.groups_per_iteration, config.kl_coefficient, config.optimizer.learning_rate) == (
        *("lsp", 8, 0.05),
        3e-6,
    )  # Table 1
    assert config.kl_gradient == "published"  # equations 4 and 5
    assert (config.challenger.bad_queries, config.challenger.unsolved_queries) == ("as_is", "as_is")  # Algorithm 1
    assert config.self_reward.weight == 1  # R + R_Q
    assert config.reference == ""  # the model before training
    assert config.reward.weights == {"preference": 1.0}
    assert config.reward.preference.path == "Skywork/Skywork-Reward-V2-Llama-3.2-3B"
    assert config.model.path == "meta-llama/Llama-3.2-3B-Instruct"
    assert (config.iterations, config.tasks, config.adapter.rank) == (1500, {}, 0)


def test_ours_differs_from_it_by_what_its_head_says_alone():
    ours = lsp_llama3_2_3b.get_config()
    as_published = dataclasses.replace(
        ours,
        name=CONFIG.name,
        kl_gradient="published",
        challenger=dataclasses.replace(ours.challenger, bad_queries="as_is"),
    )
    assert as_published == CONFIG
    for key in ("kl_gradient", "challenger.bad_queries", "the words of both prompts"):
        assert key in lsp_llama3_2_3b.__doc__


def test_the_papers_prompts_and_task_and_rate_can_be_given():
    words = [
        *(f"--config.challenger.prompt={BOX_1}", f"--config.self_reward.prompt={BOX_3}"),
        "--config.tasks.mathematics.task=Pure & Applied Mathematics",
    ]
    config, found = override(command_line.load("configs/lsp_published.py"), words)
    assert found + validation.problems(config) == []
    assert (config.challenger.prompt, config.self_reward.prompt) == (BOX_1, BOX_3)
    assert [(name, task.task, task.template) for name, task in config.tasks.items()] == [
        ("mathematics", "Pure & Applied Mathematics", "")
    ]
    data = ["--config.method=data", "--config.data=queries.txt", "--config.optimizer.learning_rate=1e-6"]
    config, found = override(command_line.load("configs/lsp_published.py"), data)
    assert found + validation.problems(config) == []
    assert config.optimizer.learning_rate == 1e-6


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A policy and a model of preferences, made with transformers."""
    found = []
    for name, kind, more in (
        ("policy", "LlamaForCausalLM", {}),
        ("preferences", "LlamaForSequenceClassification", {"num_labels": 1}),
    ):
        path = tmp_path_factory.mktemp("models") / name
        chat_families.write(path, chat_families.FAMILIES["llama3"])
        save_checkpoint(path, kind, SMALL | more, 0.2)
        found.append(path)
    return found


def test_it_runs_in_small_with_prompts_like_the_papers(folders, tmp_path, monkeypatch):
    """Sizes and lengths are changed, no value that the paper states. A random model's marks are read off any reply."""
    monkeypatch.setattr(self_reward, "read_marks", lambda reply: len(reply) % 8)
    forms, inspect = [], hygiene.inspect
    monkeypatch.setattr(hygiene, "inspect", lambda queries, memory: forms.extend(queries) or inspect(queries, memory))
    monkeypatch.setattr(rewards, "make_mesh", lambda *_: make_mesh(1, 1, 1, devices=jax.devices()[:1]))
    policy, preferences = map(str, folders)
    words = [
        *(f"--config.challenger.prompt={BOX_1}", f"--config.self_reward.prompt={BOX_3}"),
        *(f"--config.model.path={policy}", f"--config.reward.preference.path={preferences}"),
        *("--config.iterations=2", "--config.group_size=2", "--config.rollout.slots=8"),
        *("--config.rollout.max_length=512", "--config.batch.row_length=512", "--config.batch.micro_batch_rows=4"),
        *("--config.rollout.max_query_length=8", "--config.rollout.max_answer_length=8"),
        *("--config.rollout.max_judgement_length=8", "--config.reward.preference.row_length=512"),
        *("--config.reward.preference.dtype=float32", "--config.model.dtype=float32"),
    ]
    config, found = override(CONFIG, words)
    assert found + validation.problems(config) + validation.path_problems(config) == []
    path = run(config, tmp_path / "run")
    queries = untimed(path, "episodes")
    assert len(queries) == 2 * 8
    assert all(len(record["rewards"]) == 2 for record in queries)  # bad ones are answered, too
    assert any(record["wrong"] for record in queries)
    for line in untimed(path, "metrics"):
        assert (line["metrics"]["updates"], line["metrics"]["challenger/taught"]) == (1, 1)
    # The paper's advantage: -V + V_Q less its mean over all queries, nothing left out.
    for iteration in (1, 2):
        played = [record for record in queries if record["iteration"] == iteration]
        own = [np.mean(record["marks"]) - np.mean(record["rewards"]) for record in played]
        np.testing.assert_allclose([record["advantage"] for record in played], own - np.mean(own), atol=1e-9)
    assert {form.tags for form in forms} == {("[Start Generation]", "[End Generation]")}
    assert all("for the task '' by" in form.prompt for form in forms)
    first = huggingface.load(policy, dtype="float32")[1]
    moved = max(np.abs(a - b).max() for a, b in zip(leaves(weights(path)), leaves(first), strict=True))
    assert 1e-7 < moved < 1e-3  # two steps of Adam at 3e-6
