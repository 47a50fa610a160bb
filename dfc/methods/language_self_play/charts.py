"""Which metrics of a run of self-play the report draws, in which charts, under which titles."""

from dfc.report.method_page import MetricCharts

_CHARTS = {
    "Queries": (
        "template",
        "usable",
        "unsolved_",
        "live",
        "difficulty",
        "query_length",
        "distinct_",
        "bad_queries/",
        "duplicates/",
    ),
    "Answers": (
        "reward",
        "unscored_answers",
        "probe_reward",
        "self_reward",
        "code_like",
        "repeated_answers",
        "answer_length",
    ),
    "Learning": ("challenger/", "solver/", "loss", "gradient_norm"),
    "Machinery": ("",),
}
_COUNTS = ("bad_queries/", "duplicates/", "unsolved_queries", "unscored_answers")  # drawn where there is one
_SHARES = (
    "template",
    "usable",
    "live",
    "challenger/taught",
    "solver/taught",
    "distinct_",
    "code_like",
    "repeated_answers",
    "self_reward_failures",
)
_METRIC_TITLES = {
    "template": "template kept",
    "usable": "usable queries",
    "live": "live queries",
    "challenger/taught": "iterations that taught the Challenger",
    "solver/taught": "iterations that taught the Solver",
    "query_length": "length of queries, characters",
    "answer_length": "length of answers, tokens",
    "code_like": "answers that look like code",
    "repeated_answers": "answers repeated elsewhere",
    "reward": "reward R",
    "unscored_answers": "answers without a reward",
    "probe_reward": "reward of fixed queries",
    "self_reward": "marks R_Q, 0 to 7",
    "self_reward_failures": "answers without a mark",
    "self_reward_asked_again": "judge asked again",
    "self_reward_without_room": "too long for the judge",
    **{
        f"{role}/{name}": f"{role}: {title}"
        for role in ("challenger", "solver")
        for name, title in (("log_ratio", "KL to the start (estimate)"), ("entropy", "entropy of a token (estimate)"))
    },
}
CHARTS = MetricCharts(_CHARTS, _METRIC_TITLES, _SHARES, _COUNTS)
