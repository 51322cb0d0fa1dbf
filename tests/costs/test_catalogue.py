import math

import pytest

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.hardware import Topology
from conccl.core.ops import DType
from conccl.costs import catalogue
from conccl.costs.catalogue import device_names, fields_of, load_device, system_of, with_fields
from conccl.costs.fields import parse_settings, parse_variations

H200 = catalogue.FOLDER / "h200-sxm.toml"


@pytest.mark.parametrize("name", device_names())
def test_every_number_of_every_device_has_a_source(name):
    device = load_device(name)
    assert device.name == name
    text = (catalogue.FOLDER / f"{name}.toml").read_text()
    for field in fields_of(device):
        source = device.sources.get(field)
        given = field in device.sources
        assert not given or source not in (None, "", f"{name}.toml"), field
        assert not given or len(source) >= 7, (field, source)
    assert "TODO" not in text


def test_known_figures():
    device = load_device("H200-SXM")
    assert device.sm_count == 132
    assert device.peak_flops[DType.BF16] == 989.4e12
    assert device.peer_topology is Topology.SWITCH
    assert load_device("t3-80cu").sm_count == 80
    assert load_device("mi300x").rail is not None


def test_a_peak_is_what_its_units_do_each_clock():
    """Dense bf16 FLOP a clock and SM are whole powers of two on every device."""
    for name in device_names():
        device = load_device(name)
        each = device.peak_flops[DType.BF16] / device.sm_count / device.clock_hz
        nearest = 2 ** round(math.log2(each))
        assert each == pytest.approx(nearest, rel=0.01), name


def test_near_names_are_offered():
    with pytest.raises(UnknownNameError, match="h200-sxm"):
        load_device("h200")
    with pytest.raises(UnknownNameError, match=r"copy_engines\.count"):
        with_fields(load_device("h200-sxm"), {"copy_engine.count": 1})


def written(tmp_path, old: str, new: str):
    path = tmp_path / "mine.toml"
    text = H200.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_a_device_file_of_ones_own(tmp_path):
    path = written(tmp_path, 'sm_count = { value = 132, source = "whitepaper" }', "sm_count = 264")
    assert load_device(str(path)).sm_count == 264


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "value = 132,",
            "value = -132,",
            r"mine\.toml: sm_count is -132; it must be an integer from 1 to 100000",
        ),
        ("value = 132,", "value = 131.5,", "sm_count is 131.5"),
        ("value = 132,", "value = nan,", "sm_count is nan"),
        ("value = 132,", "value = true,", "sm_count is True"),
        ("value = 4.8e12,", "value = 4.8,", "hbm_bandwidth is 4.8; it must be a number from 1e"),
        ("hbm_bandwidth =", "hbm_bandwith =", "Did you mean.* hbm_bandwidth"),
        ("[rail]\nout_bandwidth", "[rail]\nin_bandwidth", "rail needs out_bandwidth"),
        ('value = "switch"', 'value = "swich"', "one of mesh, switch"),
        ("value = 132,", "value = ,", "is not TOML"),
        ("bf16 =", "bf17 =", r"peak_flops\.bf16"),
    ],
)
def test_absurd_numbers_name_file_key_and_range(tmp_path, old, new, said):
    with pytest.raises(InputError, match=said):
        load_device(str(written(tmp_path, old, new)))


def test_all_missing_numbers_are_named(tmp_path):
    lines = [line for line in H200.read_text().splitlines() if not line.startswith(("sm_count", "clock_hz"))]
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"sm_count is missing.*Also missing: clock_hz"):
        load_device(str(path))


def test_a_file_that_is_not_there():
    with pytest.raises(InputError, match="cannot read device file"):
        load_device("./nowhere.toml")


def test_fields_are_changed_by_name():
    device = load_device("h200-sxm")
    changed = with_fields(device, {"copy_engines.count": 8, "l2_nbytes": 2**20, "rail.out_bandwidth": 1e11})
    assert changed.copy_engines.count == 8
    assert changed.rail.out_bandwidth == 1e11
    assert changed.sources["copy_engines.count"] == "set by the user"
    assert catalogue.changed_fields(changed, device) == {
        "copy_engines.count": 8,
        "l2_nbytes": 2**20,
        "rail.out_bandwidth": 1e11,
        "rail.in_bandwidth": 1e11,
        "rail.both_bandwidth": 2e11,
    }
    assert device.copy_engines.count == 3
    assert with_fields(device, fields_of(device)) == with_fields(with_fields(device, {}), fields_of(device))


def test_settings_from_text():
    given = parse_settings(
        ("device.copy_engines.count=8", "l2_nbytes=64M", "hbm_bandwidth=6e12", "device.peer_topology=mesh")
    )
    assert given == {
        "copy_engines.count": 8,
        "l2_nbytes": 64 * 2**20,
        "hbm_bandwidth": 6e12,
        "peer_topology": Topology.MESH,
    }
    assert parse_settings(("copy_engines.can_reduce=true",)) == {"copy_engines.can_reduce": True}
    assert parse_variations(("device.sm_count=66,132",)) == {"sm_count": (66, 132)}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("sm_count", "sets nothing"),
        ("sm_count=", "sets nothing"),
        ("sm_count=0", "an integer from 1"),
        ("sm_count=many", "an integer from 1"),
        ("sm_counts=3", "Did you mean sm_count"),
        ("sm_count=1,2", "it takes one"),
        ("copy_engines.can_reduce=maybe", "true or false"),
        ("l2_nbytes=64X", "is not a size"),
    ],
)
def test_bad_settings_say_what_is_allowed(setting, said):
    with pytest.raises(InputError, match=said):
        parse_settings((setting,))


def test_systems_of_a_device():
    system = system_of(load_device("h200-sxm"), gpus=1024)
    assert system.nodes == 128
    with pytest.raises(InputError, match="multiple of 8"):
        system_of(load_device("h200-sxm"), gpus=12)
