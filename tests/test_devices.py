import jax
import pytest

from dfc.errors import ConfigError
from dfc.launch import devices, play, serve
from dfc.launch.__main__ import main


@pytest.fixture
def machine(tmp_path):
    """Makes the files of a machine; returns its root."""

    def made(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    return made


@pytest.fixture
def platforms(monkeypatch):
    """Sets what JAX_PLATFORMS says, and what JAX answers to it: devices of this platform, or an error."""

    def given(wanted, error=None):
        config = jax.config.jax_platforms
        jax.config.update("jax_platforms", wanted)
        if error is not None:
            monkeypatch.setattr(jax, "devices", lambda: _raise(error))
        return config

    before = jax.config.jax_platforms
    yield given
    jax.config.update("jax_platforms", before)


def _raise(error):
    raise error


@pytest.fixture(autouse=True)
def only_cpus(monkeypatch):
    """No part of JAX for an accelerator is installed, whatever the environment of these tests has."""
    names = {name: (extra, ()) for name, (extra, _) in devices._EXTRAS.items()}
    monkeypatch.setattr(devices, "_EXTRAS", names)


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ((), {}, []),
        (("dev/nvidia0",), {}, ["an NVIDIA GPU"]),
        (("proc/driver/nvidia/gpus/0000:01:00.0/information",), {}, ["an NVIDIA GPU"]),
        (("dev/accel0",), {}, ["a TPU"]),
        (("dev/vfio/0", "dev/vfio/vfio"), {"TPU_WORKER_ID": "0"}, ["a TPU"]),
        (("dev/vfio/0",), {}, []),  # any other device that a guest gets whole
        (("dev/vfio/vfio",), {"TPU_WORKER_ID": "0"}, []),  # the driver without a device
    ],
)
def test_accelerators_are_seen_by_the_files_of_their_drivers(machine, files, environment, expected):
    assert devices.accelerators(machine(*files), environment) == expected


def test_the_first_line_names_number_kind_and_platform(machine):
    (line,) = devices.lines(machine(), {})
    assert line == f"computing on {jax.device_count()} x cpu (platform cpu), jax {jax.__version__}"


def test_an_accelerator_that_jax_does_not_see_is_named_with_the_hint(machine, platforms):
    platforms(None)
    _, gpu, tpu = devices.lines(machine("dev/nvidia0", "dev/accel0"), {})
    assert gpu.startswith(
        "warning: this machine has an NVIDIA GPU, which JAX does not see; hint: install JAX's part for"
    )
    assert gpu.endswith(" install -e '.[gpu]'")
    assert tpu.startswith("warning: this machine has a TPU, which JAX does not see; hint: ")


def test_an_installed_part_of_jax_is_not_to_be_installed(machine, platforms, monkeypatch):
    platforms(None)
    monkeypatch.setattr(devices, "_EXTRAS", {devices._GPU: ("gpu", ("jax",))})
    (_, line) = devices.lines(machine("dev/nvidia0"), {})
    assert line.endswith(
        "hint: JAX's part for it is installed, so its own messages say why, or CUDA_VISIBLE_DEVICES hides it"
    )


def test_who_asks_for_the_cpu_is_told_only_the_fact(machine, platforms):
    platforms("cpu")
    assert devices.lines(machine("dev/nvidia0"), {})[1:] == [
        "this machine has an NVIDIA GPU; JAX_PLATFORMS=cpu leaves it unused"
    ]


def test_who_asks_for_the_gpu_first_is_told_what_it_lacks(machine, platforms):
    """With a CPU behind it JAX begins without a word."""
    platforms("cuda,cpu")
    (_, line) = devices.lines(machine("dev/nvidia0"), {})
    start = "warning: this machine has an NVIDIA GPU, which JAX_PLATFORMS=cuda,cpu names and JAX does not see; hint: "
    assert line.startswith(start)


NO_TPU = (
    "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared object file:"
    " No such file or directory (set JAX_PLATFORMS='' to automatically choose an available backend)"
)
NONSENSE = (
    "Unable to initialize backend 'nonsense': Backend 'nonsense' is not in the list of known backends: ['cpu', 'tpu']."
    " (set JAX_PLATFORMS='' to automatically choose an available backend)"
)


@pytest.mark.parametrize(
    ("wanted", "error", "files", "expected"),
    [
        (
            "cuda",
            AssertionError(),
            (),
            [
                "JAX_PLATFORMS=cuda: this machine shows no NVIDIA GPU; hint: if it has one, install",
                "; otherwise unset it",
            ],
        ),
        ("cuda", AssertionError(), ("dev/nvidia0",), ["JAX cannot have it; hint: install JAX's part for it", "[gpu]"]),
        ("tpu", RuntimeError(NO_TPU), (), ["shows no TPU (Failed to open libtpu.so", "; otherwise unset it"]),
        ("tpu,cpu", RuntimeError(NO_TPU), ("dev/accel0",), ["JAX cannot have it (Failed to open", "hint: ", "[tpu]"]),
        ("nonsense", RuntimeError(NONSENSE), (), ["JAX_PLATFORMS=nonsense: must be of cpu, cuda (a GPU), tpu"]),
        (
            "rocm",
            RuntimeError("Unable to initialize backend 'rocm': none"),
            (),
            ["JAX cannot have it (none); unset it"],
        ),
        ("", RuntimeError("no\nmemory"), (), ["JAX cannot use the devices of this machine: no memory"]),
    ],
)
def test_a_platform_that_cannot_be_had_is_one_sentence(machine, platforms, wanted, error, files, expected):
    platforms(wanted, error)
    with pytest.raises(ConfigError) as caught:
        devices.lines(machine(*files), {})
    (said,) = caught.value.problems
    assert "\n" not in said
    assert all(text in said for text in expected), said


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (main, ["--config=configs/smoke.py"]),
        (play.main, ["--game=TicTacToe-v0", "--opponent=tiny_player"]),
        (serve.main, ["--policy=tiny_player"]),
    ],
)
def test_every_command_that_computes_refuses_it_in_one_sentence(tmp_path, monkeypatch, capsys, platforms, main, words):
    monkeypatch.chdir(tmp_path)
    platforms("nonsense", RuntimeError(NONSENSE))
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("JAX_PLATFORMS=nonsense: must be of cpu, cuda (a GPU), tpu") == 1
    assert "Traceback" not in said
    assert not any(tmp_path.iterdir())


def test_a_game_between_two_models_names_the_devices_once(capsys):
    words = ["--game=TicTacToe-v0", "--player=tiny_player", "--opponent=tiny_player", "--seed=1"]
    assert play.main(words) == 0
    assert capsys.readouterr().out.count("computing on ") == 1


def test_a_game_without_a_model_starts_no_jax(capsys, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: _raise(RuntimeError("started")))
    assert play.main(["--game=TicTacToe-v0", "--player=strong", "--opponent=random_legal", "--seed=1"]) == 0
    assert "computing on" not in capsys.readouterr().out
