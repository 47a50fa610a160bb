"""``python -m dfc.launch.fit --config=FILE --topology=v5p:4x4x4``: does this run fit devices that are not here?

Answers immediately by summing, with a stated margin; with ``--compile`` also by compiling every program of the run for
the described devices. No accelerator is needed, no weights are read.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from dfc import validation
from dfc.commands import shell_line
from dfc.config import RunConfig, fields
from dfc.errors import ConfigError, DfcError
from dfc.launch import command_line
from dfc.launch.overrides import override
from dfc.players import key_search
from dfc.runs.printing import guarded

_EPILOGUE = f"""\
Any key of the configuration can be set with --config.KEY=VALUE, as for dfc.launch.
Exit code: 0 everything fits, 1 something does not, 2 wrong command line or configuration.
example: {shell_line("dfc.launch.fit")} --config=configs/dfc_textarena_qwen2_5_32b.py --model=qwen2.5-32b \\
  --topology=v5p:4x4x4
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dfc.launch.fit",
        description="Says whether a run of any recipe, or each of its stages, fits devices that are not available "
        "here, and how long it takes at least.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", help="the configuration file", metavar="FILE")
    add("--topology", help="the devices: v5p:4x4x4, v5p-128, v6e-16, h100:64, rtx4090:1, a3-highgpu-8g:2, ...")
    add(
        "--model", help="a published model by name (llama-3.1-8b, Qwen/Qwen3-4B), instead of model.path", metavar="NAME"
    )
    add("--model_config", help="a config.json or a folder with one, instead of model.path", metavar="PATH")
    add("--compile", action="store_true", help="compile every program of the run as well (minutes; extra aot)")
    add("--programs", help="compile only the programs whose names contain one of these words", metavar="WORD,...")
    add("--episode_length", type=int, help="tokens of an episode or a row, for times (half of the longest)")
    add("--generated_share", type=float, help="share of them that is sampled, for times (0.5)")
    add("--markdown", action="store_true", help="print tables as Markdown")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs what the words after ``python -m dfc.launch.fit`` ask for.

    Returns:
      The exit code: 0 everything fits, 1 something does not fit, 2 wrong command line or configuration.
    """
    with guarded():
        return _main(arguments)


def _main(arguments: Sequence[str]) -> int:
    known, rest = _parser().parse_known_args(list(arguments))
    try:
        config = _config(known, rest)
        # Set before jax starts a backend: the devices asked about are described, not looked for.
        os.environ["JAX_PLATFORMS"] = "cpu"
        from dfc.tools.fit import command  # noqa: PLC0415 - imports jax; a wrong word is reported without it

        request = command.Request(
            config=config,
            topology=known.topology,
            model=known.model,
            model_config=known.model_config,
            compiles=known.compile,
            programs=tuple(known.programs.split(",")) if known.programs else (),
            episode_length=known.episode_length,
            generated_share=known.generated_share,
            markdown=known.markdown,
        )
        return command.answer(request, sys.stdout)
    except DfcError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _config(known: argparse.Namespace, rest: Sequence[str]) -> RunConfig:
    words, overrides = command_line.split(rest)
    flags = [f"--{name}" for name in vars(known)]
    found = [f"{word}: there is no such flag{fields.nearest(word.partition('=')[0], flags)}" for word in words]
    missing = (flag for flag in ("config", "topology") if getattr(known, flag) is None)
    found += [f"--{flag} is missing; --help shows an example" for flag in missing]
    if known.model and known.model_config:
        found.append("--model and --model_config: give one of them")
    if known.programs and not known.compile:
        found.append("--programs names what is compiled: give --compile as well")
    if known.config is None or found:
        raise ConfigError(command_line.with_key_problems(found, rest, ()))
    config, problems = override(command_line.load(known.config), overrides)
    problems += validation.problems(config)  # not the paths: no weights are read
    if problems:
        raise ConfigError(command_line.with_key_problems(problems, rest, key_search.variables_of(config)))
    return config


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
