"""Rules between the settings of a method that learns from games."""

from dfc.config import (
    AcceptanceConfig,
    DivideFuseConquer,
    FusionConfig,
    GroupingConfig,
    Grpo,
    GrpoConfig,
    MixedPriorityConfig,
    OpponentReplyConfig,
    RewardConfig,
    RlRunConfig,
    renamed,
)
from dfc.games import functions, instances, registry
from dfc.validation import sampling
from dfc.validation.players import sound_games

_KINDS = GroupingConfig().order


def problems(config: RlRunConfig) -> list[str]:
    """Returns every contradiction, one sentence each."""
    found = sampling.problems(config.sampling) + _imitation_problems(config)
    if config.batch.row_length < config.rollout.max_length:
        found.append(
            f"batch.row_length={config.batch.row_length}: must be at least rollout.max_length="
            f"{config.rollout.max_length}, so that the longest episode fits into a row"
        )
    priority = config.mixed_priority
    if priority.enabled and priority.a + priority.b == 0:
        found.append("mixed_priority.a and .b are both 0: one must be above 0")
    if config.grpo.baseline == "leave_one_out" and config.grpo.normalize_std:
        found.append(
            "grpo.normalize_std: must be false with baseline='leave_one_out', whose advantages are differences of"
            " rewards"
        )
    if config.grpo.updates_per_iteration > (groups := config.most_groups(1)):
        key = "groups_per_iteration" if config.groups_per_iteration else "groups_per_game"
        found.append(
            f"grpo.updates_per_iteration={config.grpo.updates_per_iteration}: must be at most"
            f" {groups}, the groups of an iteration over one game ({key})"
        )
    if config.adapter.base != "full" and config.adapter.rank == 0:
        found.append("adapter.base='nf4': quantized weights are not trained themselves; set adapter.rank above 0")
    found += _importance_problems(config.grpo) + _quality_problems(config)
    found += _deals_problems(config) + _refill_problems(config)
    for key, name in (("function", config.reward.function), ("text", config.reward.text)):
        try:
            functions.named(name)
        except ValueError as error:
            found.append(f"reward.{key}={name!r}: {error}{renamed.hint(RewardConfig, key, name)}")
    found += _opponent_problems(config)
    return found + (_stage_problems(config) if isinstance(config, DivideFuseConquer) else [])


def _importance_problems(grpo: GrpoConfig) -> list[str]:
    cap, floor = grpo.importance_cap, grpo.importance_floor
    if floor and not cap:
        return [f"grpo.importance_floor={floor}: needs grpo.importance_cap above 0; at 0 nothing is weighted"]
    if floor > cap:
        return [f"grpo.importance_floor={floor}: must be at most grpo.importance_cap={cap}, the upper bound"]
    return []


def _imitation_problems(config: RlRunConfig) -> list[str]:
    if not (isinstance(config, DivideFuseConquer) and config.method == "imitate_wins" and config.sampling.filtered):
        return []
    why = (
        "which raises the likelihood of replies among all tokens: among those that a filter left it has little to raise"
    )
    return [f"sampling.top_k, .top_p and .min_p: must be left out with method='imitate_wins', {why}"]


def _quality_problems(config: RlRunConfig) -> list[str]:
    if config.reward.measure != "quality" or config.reward.function:
        return []
    return [
        f"reward.measure='quality': {game} does not say how good a game was (`has_quality`); train on it in a run of "
        "its own with 'outcome'"
        for game, options in sound_games(config.games).items()
        if not registry.make(game, **options).has_quality
    ]


def _deals_problems(config: RlRunConfig) -> list[str]:
    if config.deals != "epochs":
        size = config.groups_per_iteration
        what = f"groups_per_iteration={size}: is of deals='epochs'; leave it at 0, and set groups_per_game"
        return [what] if size else []
    found = []
    if not config.randomize_seeds:
        found.append("randomize_seeds=false: must be true with deals='epochs', which goes through all tasks in turn")
    numbers = instances.numbers_of_instances(sound_games(config.games), config.tasks)
    found += [
        f"deals='epochs': {game} has no splits, so say with tasks how many deals an epoch has"
        for game, number in numbers.items()
        if not number
    ]
    if not found and 0 < (total := sum(numbers.values())) < config.groups_per_iteration:
        found.append(
            f"groups_per_iteration={config.groups_per_iteration}: must be at most {total}, the instances of an epoch"
        )
    return found


def _refill_problems(config: RlRunConfig) -> list[str]:
    if not config.refill:
        return []
    found, zero = [], f"refill={config.refill}: must be 0 with"
    if config.grpo.baseline == "role":
        found.append(
            f"{zero} grpo.baseline='role', which compares all episodes of the iteration in a game and seat: a group"
            " whose rewards are all equal teaches too. Or take 'group' or 'leave_one_out'"
        )
    if config.deals == "epochs":
        found.append(
            f"{zero} deals='epochs', which has every task once: there are no other deals to play. Or take 'random',"
            " with tasks for how many there are"
        )
    if isinstance(config, DivideFuseConquer) and config.method == "imitate_wins":
        found.append(f"{zero} method='imitate_wins', which imitates won games and compares no rewards")
    return found


def notices(config: RlRunConfig) -> list[str]:
    """Returns notes on valid settings: those without effect, and the number of epochs."""
    return _without_effect(config) + _epochs(config)


def _without_effect(config: RlRunConfig) -> list[str]:
    """Returns a sentence for each technique that is off and has settings of its own nevertheless."""
    found = []
    if not config.mixed_priority.enabled and config.mixed_priority != MixedPriorityConfig(enabled=False):
        found.append("mixed_priority.a, .b and .floor change nothing: mixed_priority.enabled is false")
    if config.acceptance.rule == "always" and config.acceptance.games != AcceptanceConfig().games:
        found.append("acceptance.games changes nothing: acceptance.rule is 'always', which measures nothing")
    if not config.grpo.importance_cap and config.grpo.importance_mode != GrpoConfig().importance_mode:
        found.append("grpo.importance_mode changes nothing: grpo.importance_cap is 0, so that nothing is weighted")
    return found


def _epochs(config: RlRunConfig) -> list[str]:
    """Returns how many epochs a run has, one sentence; nothing where its deals are random."""
    if config.deals != "epochs" or not isinstance(config, Grpo):
        return []
    numbers = instances.numbers_of_instances(config.games, config.tasks)
    epoch = instances.iterations_of_an_epoch(numbers, config.most_groups(len(config.games)))
    whole, rest = divmod(config.iterations, epoch)
    what = f"{config.iterations} iterations are {whole} epochs of {sum(numbers.values())} instances"
    if rest:
        what += f" and {rest} of the {epoch} iterations of another one; iterations={(whole + 1) * epoch} would end it"
    return [what]


def _opponent_problems(config: RlRunConfig) -> list[str]:
    found = []
    if config.train_both_seats and config.opponent != "itself":
        found.append(
            f"train_both_seats: needs opponent='itself', got {config.opponent!r}: what another player said is not the"
            " policy's"
        )
    if config.train_both_seats and config.opponent_reply != OpponentReplyConfig():
        found.append("opponent_reply: must be left out with train_both_seats, where both seats reply alike and learn")
    if config.train_both_seats and config.teacher_errors != "count":
        found.append(
            f"teacher_errors={config.teacher_errors!r}: must be 'count' with train_both_seats: both seats learn, and "
            "no error is a teacher's"
        )
    if config.opponent_reply.max_length > config.rollout.max_length:
        found.append(
            f"opponent_reply.max_length={config.opponent_reply.max_length}: must be at most rollout.max_length="
            f"{config.rollout.max_length}, the whole context"
        )
    return found


def _stage_problems(config: DivideFuseConquer) -> list[str]:
    grouping, fusion, found = config.grouping, config.fusion, []
    if sorted(grouping.order) != sorted(_KINDS):
        found.append(f"grouping.order={grouping.order}: must hold each of {', '.join(_KINDS)} once")
    given = [game for group in grouping.groups for game in group]
    if given and (sorted(given) != sorted(config.games) or not all(grouping.groups)):
        found.append(
            f"grouping.groups={grouping.groups}: must hold each id of games once ({', '.join(config.games)}), and no"
            " empty group"
        )
    if fusion.method != "average" and config.adapter.rank > 0:
        found.append(
            f"fusion.method={fusion.method!r}: must be 'average' with adapters (adapter.rank above 0), whose factors"
            " cannot be added one by one"
        )
    if fusion.method == "ties" and fusion.weight != FusionConfig().weight:
        found.append("fusion.weight: ties weighs all policies alike; leave it at 0.5")
    if config.adapter.base == "nf4" and config.method == "naive_single":
        found.append(
            "adapter.base='nf4': must be 'full' with method='naive_single', which plays on after it has written a"
            " game's policy; there would be no room for the whole weights. Or give every game a run of its own"
        )
    return found
