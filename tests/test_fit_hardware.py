"""Topology strings, and the text that stands for a GPU."""

import math
import re
from pathlib import Path

import pytest

from dfc.tools.fit.hardware import (
    CHIPS,
    TopologyError,
    missing_packages,
    parse_topology,
    require_cudnn,
    slices,
    target_description,
    topology_devices,
)


@pytest.mark.parametrize(
    ("text", "name", "devices", "hosts"),
    [
        ("v5p:4x4x4", "v5p:4x4x4", 64, 16),
        ("v5e:4x4", "v5e:4x4", 16, 4),
        ("V6E:2x4 ", "v6e:2x4", 8, 2),
        ("v6e:4x2", "v6e:2x4", 8, 2),
        ("v4:1x2x2", "v4:2x2x1", 4, 1),
        ("v7:2x2x2", "v7:2x2x2", 16, 2),  # two devices a chip
        ("h100:8", "h100:8", 8, 1),
        ("a100:64", "a100-80:64", 64, 8),
        ("a100-40:8", "a100-40:8", 8, 1),
        ("h200:1", "h200:1", 1, 1),
        ("gb200:72", "gb200:72", 72, 18),
        ("rtx4090:2", "rtx4090:2", 2, 1),
        # Accelerator types of Cloud TPU count TensorCores, of chips with one of them chips.
        ("v5p-64", "v5p:2x4x4", 32, 8),
        ("v5p-8", "v5p:2x2x1", 4, 1),
        ("v5p-384", "v5p:4x4x12", 192, 48),
        ("v5p-12288", "v5p:16x16x24", 6144, 1536),
        ("v4-32", "v4:2x2x4", 16, 4),
        ("v5litepod-16", "v5e:4x4", 16, 4),
        ("v5e-16", "v5e:4x4", 16, 4),
        ("v6e-8", "v6e:2x4", 8, 2),
        ("v6e-256", "v6e:16x16", 256, 64),
        ("tpu7x-128", "v7:4x4x4", 128, 16),
        # Machine types of Compute Engine.
        ("a3-highgpu-8g", "h100:8", 8, 1),
        ("a3-megagpu-8g:4", "h100:32", 32, 4),
        ("a3-highgpu-1g", "h100:1", 1, 1),
        ("a3-ultragpu-8g", "h200:8", 8, 1),
        ("a2-highgpu-2g", "a100-40:2", 2, 1),
        ("a2-ultragpu-8g", "a100-80:8", 8, 1),
        ("a4x-highgpu-4g:18", "gb200:72", 72, 18),
    ],
)
def test_a_topology_counts_its_devices(text, name, devices, hosts):
    topology = parse_topology(text)
    assert (topology.name, topology.devices, topology.hosts) == (name, devices, hosts)
    assert parse_topology(topology.name) == topology


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("b300:8", "there is no chip 'b300'"),
        ("v3-8", "there is no chip 'v3'; the chips are v4, v5e"),
        ("4x4", "there is no chip '4x4'; .* expected e.g. v5e:4x4"),
        ("v5p:4x4", "expected three"),
        ("v5e:16", "expected two factors"),
        ("v5e", "expected two factors"),
        ("h100:2x8", "expected a number of devices"),
        ("h100:0", "expected a number of devices"),
        ("a100-80", "expected a number of devices"),
        ("h100:12", "no whole hosts; .* the nearest are h100:8 and h100:16"),
        ("gb200:70", "no whole hosts; .* the nearest are gb200:68 and gb200:72"),
        ("l4:16", "no network between hosts of l4 is known here; expected up to 8"),
        ("v5e:4x-4", "no shape of v5e"),
        ("v6e-12", r"the nearest are v6e:2x4 \(v6e-8\) and v6e:4x4 \(v6e-16\)"),
        ("v6e-512", r"the nearest is v6e:16x16 \(v6e-256\)"),
        ("v6e:3x3", r"the nearest are v6e:2x4 \(v6e-8\) and v6e:4x4 \(v6e-16\)"),
        ("v5p-6", r"the nearest is v5p:2x2x1 \(v5p-8\)"),
        ("v5p:4x4x6", r"the nearest are v5p:4x4x4 \(v5p-128\) and v5p:4x4x8 \(v5p-256\)"),
        ("v5p-99999999", "no shape of v5p"),
        ("v5p-" + "9" * 5000, "no shape of v5p"),
        ("a3-highgpu-4g:2", "several machines have to be whole hosts"),
        ("a3-highgpu-8g:x", "expected a number of machines"),
    ],
)
def test_a_wrong_topology_is_refused_with_what_is_accepted(text, reason):
    with pytest.raises(TopologyError, match=reason):
        parse_topology(text)


def test_every_slice_has_clouds_name_and_the_smallest_are_those_of_its_tables():
    flat = [(1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)]
    deep = [(2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 4, 12), (4, 8, 8)]
    for chip in ("v4", "v5e", "v5p", "v6e", "v7"):
        shapes = slices(CHIPS[chip])
        assert shapes[:8] == (flat if chip in ("v5e", "v6e") else deep)
        assert max(map(math.prod, shapes)) == CHIPS[chip].largest
        for shape in shapes:
            cores = math.prod(shape) * (1 if chip in ("v5e", "v6e") else 2)
            assert math.prod(parse_topology(f"{chip}-{cores}").shape) == math.prod(shape)


ADVERTISED = {  # GB, as the makers give them; GiB where they mean those
    "v4": 34.4, "v5e": 17.2, "v5p": 102.9, "v6e": 34.4, "v7": 206.2 / 2, "a100-40": 42.9, "a100-80": 85.9, "h100": 85.9,
    "h200": 151.4, "b200": 193.3, "gb200": 199.7, "l40s": 51.5, "l4": 25.8, "a10": 25.8, "rtx4090": 25.8,
    "rtx5090": 34.4, "mi300x": 206.2,
}  # fmt: skip


def test_usable_memory_is_below_what_is_advertised():
    assert ADVERTISED.keys() == CHIPS.keys()
    for name, limit in ADVERTISED.items():
        assert 0.86e9 * limit < CHIPS[name].memory < 1e9 * limit, name


@pytest.mark.parametrize("name", [name for name, chip in CHIPS.items() if chip.nvidia])
def test_a_target_description_is_balanced_text_with_each_field_once(name):
    text = target_description(CHIPS[name])
    assert text.count("{") == text.count("}")
    fields = re.findall(r"^\s+(\w+):", text, re.MULTILINE)
    assert len(fields) == len(set(fields))
    assert f"device_memory_size: {CHIPS[name].nvidia.memory}" in text


@pytest.mark.parametrize("name", [name for name, chip in CHIPS.items() if chip.nvidia])
def test_peak_arithmetic_is_a_power_of_two_of_what_vector_units_do(name):
    """Tensor cores do 2 (GeForce), 4, 16 or 32 times as many operations a cycle, at clocks up to a tenth lower."""
    chip = CHIPS[name]
    vector = 2 * chip.nvidia.multiprocessors * chip.nvidia.lanes * chip.nvidia.clock_ghz * 1e9
    ratio = chip.flops / vector
    assert 0.9 < ratio / 2 ** round(math.log2(ratio)) < 1.01


def test_a_tpu_has_no_target_description():
    with pytest.raises(TopologyError, match="libtpu"):
        target_description(CHIPS["v5e"])


@pytest.mark.parametrize("text", ["v5e:2x2", "h100:1"])
def test_missing_packages_are_named_with_the_extra(text, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    topology = parse_topology(text)
    assert missing_packages(topology.chip)
    with pytest.raises(TopologyError, match=r"dfc\[aot\]"):
        topology_devices(topology)


def test_without_cudnn_its_wheel_and_the_way_around_are_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(TopologyError, match=r"nvidia-cudnn-cu13.*training\.attention=xla"):
        require_cudnn()


def test_the_page_lists_every_chip_with_the_numbers_used():
    page = (Path(__file__).parents[1] / "docs/fit.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)`[^|]* \| ([\d.]+) \| (\d+) \| (\d+) \| (\d+) \| (\d*) \|$", page, re.MULTILINE)
    assert [name for name, *_ in rows] == list(CHIPS)
    for name, memory, flops, *rates in rows:
        chip = CHIPS[name]
        assert (memory, flops) == (f"{chip.memory / 1e9:.1f}", f"{chip.flops / 1e12:.0f}")
        network = "" if chip.platform == "tpu" or chip.network is None else f"{chip.network / 1e9:.0f}"
        assert rates == [f"{chip.bandwidth / 1e9:.0f}", f"{chip.interconnect / 1e9:.0f}", network]
