"""Topology strings, and the text that stands for a GPU."""

import re

import pytest

from dfc.fit.hardware import (
    CHIPS,
    TopologyError,
    missing_packages,
    parse_topology,
    require_cudnn,
    target_description,
    topology_devices,
)


@pytest.mark.parametrize(
    ("text", "devices", "hosts"),
    [
        ("v5p:4x4x4", 64, 1),
        ("v5e:4x4", 16, 1),
        ("V6E:2x4 ", 8, 1),
        ("h100:8", 8, 1),
        ("a100:64", 64, 8),
        ("h200:1", 1, 1),
    ],
)
def test_a_topology_counts_its_devices(text, devices, hosts):
    topology = parse_topology(text)
    assert (topology.devices, topology.hosts) == (devices, hosts)
    assert topology.name == text.strip().lower()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("b200:8", "there is no chip 'b200'"),
        ("v5p:4x4", "expected three"),
        ("v5e:16", "expected two factors"),
        ("v5e", "expected two factors"),
        ("h100:2x8", "expected a number of devices"),
        ("h100:0", "expected a number of devices"),
        ("h100:12", "no whole hosts"),
        ("v5e:4x-4", "no shape of v5e"),
    ],
)
def test_a_wrong_topology_is_refused_with_what_is_accepted(text, reason):
    with pytest.raises(TopologyError, match=reason):
        parse_topology(text)


def test_usable_memory_is_below_what_is_advertised():
    advertised = {"v5e": 17.2e9, "v5p": 102.9e9, "v6e": 34.4e9, "a100": 85.9e9, "h100": 85.9e9, "h200": 151.4e9}
    assert advertised.keys() == CHIPS.keys()
    for name, limit in advertised.items():
        assert 0.9 * limit < CHIPS[name].memory < limit, name


@pytest.mark.parametrize("name", ["a100", "h100", "h200"])
def test_a_target_description_is_balanced_text_with_each_field_once(name):
    text = target_description(CHIPS[name])
    assert text.count("{") == text.count("}")
    fields = re.findall(r"^\s+(\w+):", text, re.MULTILINE)
    assert len(fields) == len(set(fields))
    assert f"device_memory_size: {CHIPS[name].nvidia.memory}" in text


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
