"""What recipes do with a configuration: the tape of a whole run with stand-ins, or the stages that a run is made of.

A recipe of several stages is observed by the configurations of its stages, each of which is of a recipe observed here.
"""

import contextlib
import dataclasses
import functools
import importlib
import io
import shutil
from unittest import mock

import pyarrow.parquet as pq
from observed_sources import (
    PLACE,
    SIMULATORS,
    TASKS,
    collected,
    conversations,
    dialogues,
    instructions,
    other_model,
    questions,
    recorded,
    rows,
)
from stand_ins import Asked, Tape, TapeFolder, stand_ins

from dfc.config import (
    RECIPES,
    AcceptanceConfig,
    AdapterConfig,
    AnswerRewardConfig,
    AnswersRolloutConfig,
    BatchConfig,
    BatchShape,
    Branch,
    BuildData,
    BuildDialogues,
    ChallengerConfig,
    CheckpointConfig,
    Collect,
    CollectConfig,
    CollectingRunConfig,
    CollectRound,
    DivideFuseConquer,
    EndpointConfig,
    Evaluate,
    EvaluateAnswers,
    EvaluateTasks,
    EvaluateTasksConfig,
    EvaluationConfig,
    FusionConfig,
    GroupingConfig,
    Grpo,
    GrpoConfig,
    HeldOutConfig,
    LanguageSelfPlay,
    MatchesConfig,
    MeshConfig,
    Minigames,
    MixedPriorityConfig,
    ModelConfig,
    OpponentPoolConfig,
    OpponentReplyConfig,
    OptimizerConfig,
    PairwiseConfig,
    Paprika,
    PlayerRolloutConfig,
    PlayingRunConfig,
    Playpen,
    Preference,
    PreferenceRewardConfig,
    QueryTask,
    RlRunConfig,
    RolloutConfig,
    RowsAdapterConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
    SelfPlayBase,
    SelfPlayRolloutConfig,
    Sft,
    StagesRunConfig,
    TaskCollectionConfig,
    TaskCurriculum,
    TinyPlayer,
    TrainingRunConfig,
    WatchConfig,
)
from dfc.config.playpen import STAGES as PLAYPEN_STAGES
from dfc.config.playpen import DialogueCollectionConfig, TeacherGrpoConfig
from dfc.launch import command_line
from dfc.runs.stages import planned
from dfc.runs.stop_signals import Stop

KINDS = {**RECIPES, CollectRound.recipe: CollectRound}


# ---- tapes -----------------------------------------------------------------------------------------------------------


def workdir(config):
    """Where a run of the command line would lie."""
    with mock.patch.object(command_line, "load", return_value=config):
        return command_line.parse(["--config=this"]).workdir


_TAPES = {}


def tape_of(config):
    """What a run does, event by event; the same list for the same configuration."""
    key = repr(config)
    if key not in _TAPES:
        _TAPES[key] = record(config)
    return _TAPES[key]


def record(config):
    """What a run does, event by event."""
    tape, path = Tape(), PLACE / "run"
    if (stages := planned(config, path)) is not None:
        return [(stage.name, repr(stage.config)) for stage in stages]
    for kept in PLACE.glob("rows_*/*/"):  # log-probabilities of an earlier run, which this one would not compute
        shutil.rmtree(kept)
    run = importlib.import_module(f"dfc.{config.module}").run
    ended = isinstance(config, LanguageSelfPlay)  # a query that did not end itself is a bad one
    with stand_ins(tape, ended=ended), contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Asked):
        run(config, TapeFolder(tape, path, config), Stop())
    for file in path.glob("groups.json"):
        tape.add("groups", file.read_text(encoding="utf-8"))
    for file in sorted(path.glob("data/*.parquet")):
        tape.add("rows", pq.read_table(file).to_pylist())
    for file in sorted(path.glob("data/*.jsonl")):
        tape.add(file.name, file.read_text(encoding="utf-8"))
    return tape.events


# ---- configurations --------------------------------------------------------------------------------------------------

_ROLLOUT = RolloutConfig(slots=3, max_length=128, max_reply_length=6)
_MODEL = ModelConfig(dtype="bfloat16")
_SERVER = "http://127.0.0.1:9/v1#m"
_ASKED = EndpointConfig(input_price=1.0, output_price=2.0)
_TRAINED = {
    "model": _MODEL,
    "batch": BatchConfig(row_length=256, micro_batch_rows=8),
    "checkpoint": CheckpointConfig(every=2, keep=2),
}
_RL = {
    **_TRAINED,
    "games": {"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 3, "max_number": 9}},
    "rollout": _ROLLOUT,
    "groups_per_game": 3,
    "group_size": 3,
    "half_negative": True,
    "random_action_rate": 0.2,
    "mixed_priority": MixedPriorityConfig(),
    "opponent": "itself",
    "acceptance": AcceptanceConfig(games=2, tolerance=0.0),
    "grpo": GrpoConfig(updates_per_iteration=1),
    "optimizer": OptimizerConfig(learning_rate=0.01),
}
_LONG = RolloutConfig(slots=3, max_length=2048, max_reply_length=16)
_PLAYED = {"model": _MODEL, "rollout": _LONG}
_SFT = {"epochs": 1, "batch_size": 4, "optimizer": ScheduledOptimizerConfig(learning_rate=0.01)}
_STAGES = {**_TRAINED, "rollout": _ROLLOUT, "evaluate_tasks": EvaluateTasksConfig(tasks=0, tasks_of={})}


@functools.cache
def bases():
    """Returns a configuration of every recipe: small, and with every part of the run in it."""
    collecting = {**_PLAYED, "games": TASKS, "tasks": 2, "episodes_per_chunk": 7}
    return {
        "divide_fuse_conquer": DivideFuseConquer(
            **_RL,
            divide_iterations=1,
            conquer_iterations=1,
            evaluation=EvaluationConfig(games=2, stage_games=2),
            grouping=GroupingConfig(trials=6, groups=(("TicTacToe-v0",), ("GuessTheNumber-v0",))),
        ),
        "grpo": Grpo(**_RL, evaluation=MatchesConfig(games=2), iterations=3),
        "language_self_play": LanguageSelfPlay(
            **_TRAINED | {"batch": BatchConfig(row_length=4096, micro_batch_rows=8)},
            iterations=3,
            groups_per_iteration=4,
            group_size=3,
            tasks={"moves": QueryTask("moves", "[{place}]", 2.0), "free": QueryTask()},
            rollout=SelfPlayRolloutConfig(
                slots=3, max_length=2048, max_query_length=6, max_answer_length=6, max_judgement_length=200
            ),
            reward=AnswerRewardConfig(function="observed:reward_of_answers"),
            optimizer=OptimizerConfig(learning_rate=0.01),
        ),
        "paprika": Paprika(**_STAGES, games=TASKS),
        "task_curriculum": TaskCurriculum(**_STAGES, games=TASKS),
        "playpen": Playpen(
            **_STAGES,
            games=_TEAM,
            measured_games={"clem_wordle": {}},
            stages=PLAYPEN_STAGES,
            rehearsal=0.25,
            grpo=TeacherGrpoConfig(learner_roles={}),
        ),
        "collect": Collect(**collecting, samples=2, samples_of={}),
        "branch": Branch(**collecting, trajectories=recorded(), turns="all", siblings=2),
        "collect_round": CollectRound(**collecting, steps=8, samples=2),
        "build_data": BuildData(trajectories=collected()),
        "build_dialogues": BuildDialogues(sources=dialogues(), held_out=0.25, cut_unanswered=True),
        "minigames": Minigames(rows=64, held_out=0.25),
        "sft": Sft(**_TRAINED, **_SFT, data=rows("sft")),
        "preference": Preference(**_TRAINED, **_SFT, data=rows("pairs")),
        "evaluate_tasks": EvaluateTasks(
            **_PLAYED,
            games=TASKS,
            tasks=2,
            tasks_of={"bandit": 3},
            trajectories=2,
            policies=("tiny_player", "random_legal"),
        ),
        "evaluate_answers": EvaluateAnswers(
            model=_MODEL,
            policies=("initial", "tiny_player"),
            questions={"own": questions()},
            samples=2,
            rollout=AnswersRolloutConfig(slots=3, max_length=128, max_reply_length=6),
        ),
        "evaluate": Evaluate(
            games={"TicTacToe-v0": {}, "Nim-v0": {}, **SIMULATORS},
            rollout=_LONG,
            seeds=2,
            policies=("tiny_player", "random_legal", "strong"),
        ),
        "tiny_player": TinyPlayer(
            games={"TicTacToe-v0": {}, "bandit": {"max_turns": 3}},
            rollout=PlayerRolloutConfig(slots=3, max_length=2048, max_reply_length=16),
            transcripts_per_game=8,
            skill=(0.3, 0.8),
            steps=4,
            transcripts_per_step=4,
            long_every=2,
            batch=BatchShape(row_length=256, micro_batch_rows=2),
            optimizer=ScheduledOptimizerConfig(learning_rate=0.01),
            evaluation_games=2,
            checkpoint=CheckpointConfig(every=2, keep=2),
        ),
        "self_play_base": SelfPlayBase(
            families=("add_digits", "count_letter"),
            steps=2,
            transcripts_per_step=6,
            vocabulary=500,
            batch=BatchShape(row_length=128, micro_batch_rows=2),
            evaluation_queries=4,
            evaluation_answers=2,
            attempts=2,
            optimizer=ScheduledOptimizerConfig(learning_rate=0.01),
            checkpoint=CheckpointConfig(every=1, keep=2),
        ),
    }


def reward_of_a_text(text):
    """A value of `reward.text`."""
    return len(text) / 7


def reward_of_ones_own(episode, answers=None):
    """A value of `reward.function`; in self-play, where it is given queries and answers, it cannot score every one."""
    if answers is None:
        return 3.5 + episode.steps
    return [float("nan") if answer == "?" else len(answer) for answer in answers]


def reward_of_answers(queries, answers):
    """The value of `reward.function` in the base of self-play."""
    return [float((len(query) + len(answer)) % 2) for query, answer in zip(queries, answers, strict=True)]


@functools.cache
def queries(first=0):
    """A file of queries."""
    path = PLACE / f"queries_{first}.txt"
    path.write_text("\n".join(f"Query {n}" for n in range(first, first + 3)), encoding="utf-8")
    return str(path)


# ---- other values, and runs that read what the base does not --------------------------------------------------------


@functools.cache
def values():
    """Returns other values of fields whose type and range do not say them; by the key, or with * by its last part."""
    return {
        "name": ("other",),
        "model.path": (other_model(),),
        "enable_thinking": ({"tiny_player": False},),
        "mesh.data": (2,),
        "mesh.fsdp": (2,),
        "mesh.tensor": (2,),
        "games": (
            {"TicTacToe-v0": {}, "GuessTheNumber-v0": {"max_turns": 2, "max_number": 9}},
            {"wordle": {}},
        ),
        "rollout.max_prompt_length": (8, 290),
        "rollout.prefill_buckets": ((16,),),
        "rollout.stop": (("]",), ("] [",)),
        "rollout.think_language": ("Chinese",),
        "simulators": ("initial", "tiny_player"),
        "*extra_body": ({"top_k": 5},),
        "*cache": (str(PLACE / "cache"),),
        "*opponent": ("random_legal",),
        "*demonstrator": ("random_legal",),
        "*key_variable": ("SOME_KEY",),
        "*samples_of": ({"twenty_questions": 3},),
        "*tasks_of": ({"twenty_questions": 3},),
        "transcripts_of": ({"bandit": 5},),
        "join_groups": ({"both": ("twenty_questions", "bandit")},),
        "c": (0.0, 50.0),
        "width": (64,),
        "*split": ("test", "train"),
        "*temperatures": ((0.3, 0.9),),
        "policies": (("tiny_player", "simple"), ("tiny_player",)),
        "questions": ({"own": questions(7)},),
        "pairwise.instructions": (instructions(3),),
        "pairwise.outputs": ({"a": instructions(), "c": instructions()},),
        "pairwise.baseline": ("b",),
        "pairwise.judge": ("http://127.0.0.1:9/v1#other",),
        "anchor": ("random_legal",),
        "trained": ("random_legal",),
        "base": ("strong",),
        "reference": ("tiny_player", other_model()),
        "grouping.order": (tuple(reversed(GroupingConfig().order)),),
        "grouping.groups": ((("GuessTheNumber-v0",), ("TicTacToe-v0",)),),
        "*game_groups": (("wordle",), ("bandit",), ("clem_taboo",)),
        "*leave_out": (("bandit",), ("wordle",), ("clem_wordle",)),
        "*rejected_failures": (("malformed",),),
        "trajectories": (collected("fewer", 3), recorded("fewer_games", 1), 3),
        "*sources": (dialogues(7),),
        "wanted": (("sft",),),
        "*repairs": ((),),
        "*threshold": (60.0,),
        "*thresholds": ({"clem_taboo": 60.0},),
        "*aborted_negatives": (("clem_taboo",),),
        "*pairs_without": (("clem_taboo",),),
        "*first_turn_pairs": ({"clem_taboo": 1},),
        "collected": (collected("fewer", 3),),
        "data": (rows("sft", 1), rows("pairs", 1), queries(7)),
        "data_shares": ({rows("sft", 1): 0.25}, {rows("pairs", 1): 0.25}),
        "held_out.data": (rows("sft", 2), rows("pairs", 2)),
        "*attention": ("splash",),  # auto is xla here, and cudnn needs an NVIDIA device
        "*max_growth": (1.01,),
        "*max_update": (0.1,),
        "*max_row_bytes": (1000,),
        "skill": ((0.5, 0.9),),
        "novice": (("bandit",),),
        "stages": (("collect", "build_data", "sft"), ("collect", "build_dialogues", "minigames", "sft")),
        "measured_games": ({"clem_guesswhat": {}},),
        "built": (str(PLACE / "other_rows"),),
        "collect.players": (("simple",),),
        "acceptance.tolerance": (1.0,),
        "*learner_roles": ({"clem_taboo": "guesser"},),
        "*function": ("observed:reward_of_ones_own",),
        "*text": ("observed:reward_of_a_text",),
        "reward.families": (("add_digits",),),
        "families": (("add_digits",),),
        "shares": ((0.4, 0.3, 0.3),),
        "challenger_prompt": ("{task}: {template}",),
        "judge_prompt": ("{instruction}? {response}!",),
        "accuracy_aim": ((0.2, 0.9),),
        "reward.sources": ({"function": 1.0, "formats": 0.5},),
        "reward.preference.path": ("another",),
        "reward.formats": (({"kind": "letter", "text": "[", "at_least": 1},),),
        "watch.probe_data": (queries(9),),
        "tasks.NAME.task": ("other",),
        "tasks.NAME.template": ("[{one}]",),
        "challenger.prompt": ("{task}: {template}",),
        "self_reward.prompt": ("{instruction}? {response}!",),
    }


def _of(kinds, **changes):
    """Returns what changes configurations of some recipes; of others it makes nothing."""

    def change(base):
        return dataclasses.replace(base, **changes) if isinstance(base, kinds) else None

    return change


_WEIGHED = GrpoConfig(updates_per_iteration=2, importance_cap=2.0)
_ALONE = {"grouping": GroupingConfig(trials=2)}  # of a run of one game
_SIMULATED = {"rollout": _LONG, "games": SIMULATORS}
_RL_SIMULATED = {**_SIMULATED, "batch": BatchConfig(row_length=2048, micro_batch_rows=8)}
_TEAM = {"clem_taboo": {"rounds": 1}}
_RL_TEAM = {"games": _TEAM, "rollout": _LONG, "batch": BatchConfig(row_length=2048, micro_batch_rows=8)}


def _simulated(who):
    simulators, endpoints = who, {"simulators": _ASKED} if who == _SERVER else {}

    def change(base):
        if isinstance(base, RlRunConfig):
            alone = _ALONE if isinstance(base, DivideFuseConquer) else {}
            return dataclasses.replace(base, **_RL_SIMULATED, **alone, simulators=simulators, endpoints=endpoints)
        if isinstance(base, EvaluateTasks):
            return dataclasses.replace(base, policies=("tiny_player",), simulators=simulators, endpoints=endpoints)
        played = isinstance(base, PlayingRunConfig) and not isinstance(base, StagesRunConfig)
        return dataclasses.replace(base, **_SIMULATED, simulators=simulators, endpoints=endpoints) if played else None

    return change


def _with_room(base):
    """Replies may be as long as the longest legal action."""
    if isinstance(base, RlRunConfig):
        return None
    return dataclasses.replace(base, rollout=dataclasses.replace(base.rollout, max_reply_length=128))


def _thinking(base):
    rollout = dataclasses.replace(base.rollout, prompt="think", max_length=1024)
    rows_ = {"batch": BatchConfig(row_length=2048, micro_batch_rows=8)} if isinstance(base, TrainingRunConfig) else {}
    return dataclasses.replace(base, rollout=rollout, **rows_)


def _compared(**changes):
    """Answers to instructions; those of policies differ by their seeds, those of files are equal."""
    return PairwiseConfig(**{"instructions": instructions(), "judge": _SERVER, "endpoint": _ASKED} | changes)


_EQUAL = {"a": instructions(), "b": instructions()}  # a judge is asked about none
_FORMATS = AnswerRewardConfig(
    sources={"function": 1.0, "formats": 1.0}, function="observed:reward_of_answers", formats=({"kind": "json"},)
)
_PREFERENCES = AnswerRewardConfig(
    sources={"preference": 1.0}, preference=PreferenceRewardConfig(path="one", row_length=2048)
)
_REFERENCES = AnswerRewardConfig(sources={"references": 1.0})


@functools.cache
def instead():
    """Returns what makes a run that reads what the base does not: beginnings of keys, and how the base is changed."""
    return (
        (("mesh.fsdp",), lambda base: dataclasses.replace(base, mesh=MeshConfig(data=-1, fsdp=1))),
        (("rollout.prompt", "rollout.think_language"), _thinking),
        (("rollout.legal_only",), _with_room),
        (("rollout.mix_games", "episodes_per_chunk"), _of(CollectRound, tasks_at_once=4)),
        (("checkpoint.", "randomize_seeds", "training.max"), _of(DivideFuseConquer, divide_iterations=3)),
        (("grpo.importance_",), _of(RlRunConfig, grpo=_WEIGHED)),
        (
            ("grpo.grpo.importance_",),
            _of(Playpen, grpo=TeacherGrpoConfig(learner_roles={}, grpo=_WEIGHED)),
        ),
        (("reward.overrun",), _of(RlRunConfig, rollout=dataclasses.replace(_ROLLOUT, max_prompt_length=14))),
        (("learner_roles", "reward.measure"), _of(DivideFuseConquer, **_RL_TEAM, **_ALONE)),
        (("learner_roles", "reward.measure"), _of(Grpo, **_RL_TEAM)),
        (("deals",), _of(RlRunConfig, tasks=5)),
        (("groups_per_iteration",), _of(RlRunConfig, deals="epochs", tasks=5, groups_per_iteration=4)),
        (
            ("teacher_errors", "teacher_replays"),  # the other seat's context is full in some games
            _of(
                RlRunConfig,
                rollout=dataclasses.replace(_ROLLOUT, max_prompt_length=8),
                teacher_errors="replace",
                groups_per_game=20,
            ),
        ),
        (
            ("opponent_reply.sampling.",),
            _of(RlRunConfig, opponent_reply=OpponentReplyConfig(sampling=SamplingConfig(temperature=0.5))),
        ),
        (("learner_roles",), _of(Collect, games=_TEAM)),
        (("learner_roles", "opponent"), _of(EvaluateTasks, games=_TEAM, policies=("strong",), opponent="simple")),
        (("collect.learner_roles",), _of(Paprika, games=_TEAM, stages=("collect", "build_data", "sft"))),
        (("join_groups",), _of((CollectRound, TaskCurriculum), arms="game")),
        (("simulators", "rollout.simulator"), _simulated("initial")),
        (("simulators",), _simulated("script")),
        (("endpoints.",), _simulated(_SERVER)),
        (("endpoints.",), _of((Paprika, TaskCurriculum), simulators=_SERVER, endpoints={"simulators": _ASKED})),
        (
            ("endpoints.",),
            _of(Playpen, collect=DialogueCollectionConfig(players=(f"m={_SERVER}",)), endpoints={"m": _ASKED}),
        ),
        (("rollout.simulator",), _of(Evaluate, simulators="tiny_player")),
        (
            ("endpoints.",),
            _of(Evaluate, policies=(f"m={_SERVER}", "simple"), endpoints={"m": _ASKED}),
        ),
        (("grouping.",), _of(DivideFuseConquer, grouping=GroupingConfig(trials=12))),
        (("fusion.",), _of(DivideFuseConquer, fusion=FusionConfig(method="ties"))),
        (("fusion.at_once",), _of(DivideFuseConquer, fusion=FusionConfig(weight=0.3))),
        (("needed",), _of(BuildData, pair_tokens=1)),
        (("rollout.max_prompt_length",), _of((CollectingRunConfig, EvaluateTasks), games=SIMULATORS)),
        (("rollout.max_prompt_length",), _of(TinyPlayer, games={"TicTacToe-v0": {}})),
        (
            ("pool.",),
            _of(DivideFuseConquer, opponent="pool", pool=OpponentPoolConfig(size=1, every=1), divide_iterations=8),
        ),
        (("pool.",), _of(Grpo, opponent="pool", pool=OpponentPoolConfig(size=1, every=1), iterations=8)),
        (("mixed_priority.",), _of(RlRunConfig, groups_per_game=40, group_size=2)),
        (("adapter.",), _of(DivideFuseConquer, adapter=AdapterConfig(rank=2), **_ALONE, games={"TicTacToe-v0": {}})),
        (("adapter.",), _of(Grpo, adapter=AdapterConfig(rank=2))),
        (("adapter.",), _of((Sft, Preference), adapter=RowsAdapterConfig(rank=2))),
        (("adapter.",), _of((Paprika, TaskCurriculum), adapter=RowsAdapterConfig(rank=2))),
        (
            ("held_out.",),
            _of(Sft, held_out=HeldOutConfig(data=rows("sft", 2), keep="before_lowest", tolerance=0.0)),
        ),
        (
            ("held_out.",),
            _of(Preference, held_out=HeldOutConfig(data=rows("pairs", 2), keep="before_lowest", tolerance=0.0)),
        ),
        (("model.enable_thinking",), _of(Sft, data=conversations("sft", (5, 9, 12) * 5))),
        (("model.enable_thinking",), _of(Preference, data=conversations("pairs", (5, 9, 12) * 5))),
        (("max_row_bytes",), _of(Sft, data=conversations("sft"))),
        (("max_row_bytes",), _of(Preference, data=conversations("pairs"))),
        (("max_row_bytes", "data"), _of(Paprika, stages=("sft",), data=rows("sft"))),
        (("built",), _of(Playpen, stages=("sft",), rehearsal=0.0)),
        (("collected",), _of(Paprika, stages=("build_data", "sft"), collected=collected())),
        (
            ("collect.split", "evaluate_tasks.split", "evaluate_tasks.first"),
            _of(Paprika, collect=CollectConfig(tasks=2), evaluate_tasks=EvaluateTasksConfig(first=5)),
        ),
        (
            ("collect.split", "evaluate_tasks.split", "evaluate_tasks.first"),
            _of(TaskCurriculum, collect=TaskCollectionConfig(tasks=2), evaluate_tasks=EvaluateTasksConfig(first=5)),
        ),
        (
            ("pairwise.instructions", "pairwise.outputs", "pairwise.baseline"),
            _of(EvaluateAnswers, policies=(), questions={}, pairwise=_compared(outputs=_EQUAL, baseline="a")),
        ),
        (("pairwise.",), _of(EvaluateAnswers, pairwise=_compared(baseline="initial"))),
        (("tasks.",), _of(LanguageSelfPlay)),
        (("reward.sources",), _of(LanguageSelfPlay, reward=_FORMATS)),
        (("reward.formats",), _of(LanguageSelfPlay, reward=_FORMATS)),
        (("reward.preference.",), _of(LanguageSelfPlay, reward=_PREFERENCES)),
        (("reward.checking.",), _of(LanguageSelfPlay, method="data", data=questions(), reward=_REFERENCES)),
        (("watch.probe",), _of(LanguageSelfPlay, watch=WatchConfig(probe_data=queries(8)))),
        (("data",), _of(LanguageSelfPlay, method="data", data=queries())),
        (("adapter.", "adapter_per_role"), _of(LanguageSelfPlay, adapter=AdapterConfig(rank=2))),
        (("reward.families", "watch.every", "watch.probes"), _of(LanguageSelfPlay, reward=AnswerRewardConfig())),
        (("watch.stop",), _of(LanguageSelfPlay, reward=AnswerRewardConfig(), iterations=12)),
        (
            ("challenger.",),
            _of(LanguageSelfPlay, groups_per_iteration=8, challenger=ChallengerConfig(unsolved_queries="worst")),
        ),
        (("accuracy_aim", "live_aim"), _of(SelfPlayBase, accuracy_aim=(0.0, 1.0), live_aim=0.0)),
        (("tokens_per_game",), _of(TinyPlayer, transcripts_per_game=0, tokens_per_game=200)),
    )
