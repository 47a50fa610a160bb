"""``python -m dfc.launch.serve --policy=DIR_OR_RUN``: answers OpenAI's chat completions with a policy."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from dfc.commands import shell_line
from dfc.config import ServingConfig, fields
from dfc.errors import ConfigError, DfcError
from dfc.launch import devices, program_cache
from dfc.launch.help_text import meanings_of, truth
from dfc.players import key_search, player_specs
from dfc.players.key_search import Secret
from dfc.runs import activity
from dfc.runs.printing import guarded

_HERE = shell_line("dfc.launch.serve")
_EPILOGUE = f"""\
examples:
  {_HERE} --policy=tiny_player
  {_HERE} --policy=runs/quickstart --port=8001
  {_HERE} --policy=/models/my-llama --host=0.0.0.0 --key_variable=MY_KEY
Of a run that trains, the policy that it accepted last is served, as of its newest checkpoint at the start.
exit code: 1 the engine failed, 2 wrong command line or model, 130 or 143 stopped by a signal
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dfc.launch.serve",
        description="Serves a policy to clients of OpenAI's chat completions.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--policy", required=True, help="a folder with weights or a run, or tiny_player", metavar="DIR_OR_RUN")
    meanings = meanings_of(ServingConfig)
    kinds = fields.fields_of(ServingConfig)
    for name, default in dataclasses.asdict(ServingConfig()).items():
        shown = f" ({default})" if default not in ("", None) else ""
        kind = truth if kinds[name] is bool else kinds[name]
        add(f"--{name}", type=kind, default=default, help=meanings[name] + shown, metavar=name.upper())
    return parser


def main(words: Sequence[str]) -> int:
    """Runs what the words after ``python -m dfc.launch.serve`` ask for; returns the exit code."""
    with guarded():
        args = vars(_parser().parse_args(list(words)))
        try:
            return _main(str(args.pop("policy")), ServingConfig(**args), words)
        except (DfcError, ImportError, OSError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        except KeyboardInterrupt:  # uvicorn raises it again after an orderly end
            return 130


def _main(policy: str, config: ServingConfig, words: Sequence[str]) -> int:
    wrong = key_search.word_problems([*words, f"--key_variable={config.key_variable}"], [config.key_variable])
    if wrong:
        raise ConfigError(wrong)
    if found := fields.type_problems(config) + fields.range_problems(config):
        raise ConfigError([f"--{problem}" for problem in found])
    key = Secret.read(config.key_variable, named_by="--key_variable")
    player_specs.weights_in(policy, (), endpoints=False)  # before libraries are loaded, which takes seconds
    from dfc.tools.serving import server  # noqa: PLC0415 - imports jax; a mistake in the words is reported without it

    for line in devices.lines():
        _say(line)
    notice = program_cache.enable(None)
    if notice is not None:
        sys.stderr.write(f"{notice}\n")
    failure = server.serve(policy, config, key, say=_say, loading=activity.reported())
    if failure is not None:
        sys.stderr.write(f"the engine failed: {failure}\n")
    return 0 if failure is None else 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
