"""Rules between the settings of training on rows: shares of further files, rows held out."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from dfc.config import RowsRunConfig
from dfc.config.tasks import PreferenceConfig, SftConfig

_LEAST = Fraction(1, 1000)  # of an update's rows; below it an epoch takes too many updates


def problems(config: RowsRunConfig) -> list[str]:
    """Returns every problem of a recipe that trains on rows, one sentence each."""
    assert isinstance(config, SftConfig | PreferenceConfig)  # noqa: S101 - there are no others
    found = list(_share_problems(config.data_shares, config.batch_size))
    held_out = config.held_out
    if held_out.every > 1 and held_out.every % 1:
        found.append(
            f"held_out.every={held_out.every:g}: must be a whole number of updates, or below 1 a share of the run's"
        )
    if held_out.keep != "last" and not held_out.data:
        found.append(
            f"held_out.keep={held_out.keep!r}: which checkpoint that is, rows held out decide; name their file in "
            "held_out.data"
        )
    if held_out.data and held_out.data in (config.data, *config.data_shares):
        found.append(f"held_out.data={held_out.data!r}: is trained on; name a file of rows that are not")
    return found


def _share_problems(data_shares: Mapping[str, float], batch_size: int) -> Iterator[str]:
    shares = [Fraction(str(share)) for share in data_shares.values()]
    most = [-(-batch_size * share.numerator // share.denominator) for share in shares]
    if not all(0 < share < 1 for share in shares):
        return  # its range has been reported
    key = f"data_shares={dict(data_shares)}"
    if sum(shares) > 1 - _LEAST:
        yield f"{key}: sum to {float(sum(shares)):g}; must leave {float(_LEAST):g} of every update at least for data"
    elif sum(most) > batch_size:
        rows = " + ".join(map(str, most))
        yield (
            f"{key}: an update of batch_size={batch_size} can have {rows} rows of these files, more than it has room "
            "for; raise batch_size, or name fewer files"
        )


def places(config: RowsRunConfig) -> list[tuple[str, str, str]]:
    """Returns key, value and fix of every place of rows that a run names."""
    hint = "name what build_data made, or a file of conversations"
    found = [("data", config.data, hint), *(("data_shares", place, hint) for place in config.data_shares)]
    return [*found, ("held_out.data", config.held_out.data, hint)] if config.held_out.data else found
