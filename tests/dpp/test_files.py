"""Model files: byte-equal round trips, and a typed error for everything that is not a whole file of ours."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp import files
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ModelFileError

V = np.random.default_rng(0).normal(size=(5, 3))


@pytest.fixture
def saved(tmp_path):
    """A model file of five named items."""
    path = tmp_path / "model.safetensors"
    items = Vocabulary(["tea", "milk", "bread", "jam", "salt"], names={"tea": "Tea, black"})
    cd.LowRankDPP.from_factors(V, items=items).save(path)
    return path


def forge(path, *, tensors=None, **info) -> None:
    """A file with a right checksum, whatever it says."""
    contents = {"item_factors": V, "items.int": np.arange(5)} if tensors is None else tensors
    files.write_model(path, contents, {"model": "LowRankDPP", "params": {"n_components": 3}} | info)


# -- Round trips -----------------------------------------------------------------------------------

IDS = {
    "integers": range(5),
    "negative and large integers": [-(2**63), -1, 0, 1, 2**63 - 1],
    "integers beyond 64 bits": [2**63, 2**100, -(2**70), 0, 1],
    "strings": ["tea", "", "ü", "日本", "a\0b"],
    "long and odd strings": ["x" * 10_000, " ", "\n", "🍵", "\ud800"],
    "mixed": [1, "1", 2.5, None, (1, "a")],
    "tuples": [(1, 2), (1, (2, "x")), (), ("",), (None, 0.5)],
    "booleans": [True, False, "True", 2, 3.5],
}


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_save_load_save_gives_the_same_bytes(tmp_path, ids):
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    model = cd.LowRankDPP.from_factors(V, items=ids)
    model.save(first)
    loaded = cd.load(first)
    loaded.save(second)
    assert first.read_bytes() == second.read_bytes()
    assert list(loaded.items_) == list(ids)
    assert [type(item) for item in loaded.items_] == [type(item) for item in ids]
    assert type(loaded) is cd.LowRankDPP


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_loaded_model_answers_the_same(tmp_path, dtype):
    path = tmp_path / "m.safetensors"
    model = cd.LowRankDPP.from_factors(V.astype(dtype))
    model.save(path)
    loaded = cd.load(path)
    assert loaded.item_factors_.dtype == dtype
    np.testing.assert_array_equal(loaded.item_factors_, model.item_factors_)
    assert loaded.get_params() == model.get_params()
    assert loaded.kernel_.log_normalizer == model.kernel_.log_normalizer
    np.testing.assert_array_equal(loaded.predict_next([[0], [1, 2]]), model.predict_next([[0], [1, 2]]))
    assert loaded.sample(50, random_state=3) == model.sample(50, random_state=3)


def test_names_travel_with_the_model(saved):
    items = cd.load(saved).items_
    assert items.names == {"tea": "Tea, black"}
    assert items.name("milk") == "milk"


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.recursive(
            st.text(max_size=4) | st.integers() | st.none() | st.floats(allow_nan=False),
            lambda inner: st.lists(inner, max_size=3).map(tuple),
            max_leaves=4,
        ),
        min_size=1,
        max_size=6,
        unique=True,
    ),
    st.dictionaries(st.integers(0, 5), st.text(max_size=5)),
)
def test_any_ids_survive(ids, numbered_names):
    names = {ids[n]: name for n, name in numbered_names.items() if n < len(ids) and name}
    items = Vocabulary(ids, names=names)
    decoded = files.decode_items(files.encode_items(items), "somewhere")
    assert decoded == items
    assert decoded.names == items.names


def test_parameters_survive_as_plain_values(tmp_path):
    path = tmp_path / "m.safetensors"
    model = cd.LowRankDPP.from_factors(V)
    model.set_params(n_components=np.int64(3), n_jobs=2, random_state=np.random.default_rng(0))
    model.save(path)
    loaded = cd.load(path)
    assert loaded.n_components == 3
    assert type(loaded.n_components) is int
    assert loaded.n_jobs is None  # the file is the same for any number of threads
    assert loaded.random_state is None  # a generator cannot be kept in a file


@pytest.mark.parametrize("item", [b"bytes", frozenset([1]), 1 + 2j, (1, b"x"), object()])
def test_ids_that_a_file_cannot_hold(tmp_path, item):
    path = tmp_path / "m.safetensors"
    model = cd.LowRankDPP.from_factors(np.eye(2), items=[item, "x"])
    with pytest.raises(ModelFileError, match="cannot save the item id"):
        model.save(path)
    assert list(tmp_path.iterdir()) == []


# -- Damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_any_flipped_byte_is_noticed(saved, mask, monkeypatch):
    """Either the file is refused, or the byte meant nothing (the case of a hex digit): same contents."""
    good, harmless = saved.read_bytes(), 0
    tensors, body = files.read_model(saved)
    bad = bytearray(good)
    monkeypatch.setattr(files.Path, "read_bytes", lambda _: bytes(bad))  # thousands of files without a disk
    for position in range(len(good)):
        bad[:] = good
        bad[position] ^= mask
        try:
            read, described = files.read_model(saved)
        except ModelFileError:
            continue
        harmless += 1
        assert described == body
        assert read.keys() == tensors.keys()
        assert all(np.array_equal(read[name], tensors[name]) for name in tensors)
    assert harmless <= 4


def test_truncated_at_every_length(saved, monkeypatch):
    good = saved.read_bytes()
    for length in range(len(good)):
        monkeypatch.setattr(files.Path, "read_bytes", lambda _, n=length: good[:n])
        with pytest.raises(ModelFileError):
            cd.load(saved)
    monkeypatch.undo()
    saved.write_bytes(good[:-1])
    with pytest.raises(ModelFileError):
        cd.load(saved)


def test_bytes_after_the_end(saved):
    saved.write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(ModelFileError):
        cd.load(saved)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_noise_is_not_a_model(tmp_path_factory, noise):
    path = tmp_path_factory.getbasetemp() / "noise"
    path.write_bytes(noise)
    with pytest.raises(ModelFileError):
        cd.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "not a model",
        "{}",
        "[]",
        '{"__metadata__": 3}',
        '{"__metadata__": {"contradpp": "[]"}}',
        '{"__metadata__": {"contradpp": "{}"}}',
        '{"__metadata__": {"contradpp": "nonsense"}}',
        '{"__metadata__": {"contradpp": "{\\"format\\": \\"contradpp\\", \\"version\\": \\"1\\"}"}}',
        "[" * 100_000,
        "\ud800".encode("utf-16-le", "surrogatepass").decode("latin-1"),
    ],
)
def test_headers_of_other_kinds(tmp_path, text):
    path = tmp_path / "m"
    header = text.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelFileError):
        cd.load(path)


def test_someone_elses_safetensors_file(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "other.safetensors"
    save_file({"weight": np.eye(3)}, path)
    with pytest.raises(ModelFileError, match="not a contradpp model"):
        cd.load(path)
    save_file({"weight": np.eye(3)}, path, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match="not a contradpp model"):
        cd.load(path)


def test_a_diagonal_and_categories_survive(tmp_path):
    d, S = np.array([0.1, 0.0, 0.3, 0.2, 0.5]), np.zeros((5, 5))
    S[0, 1], S[1, 0] = 0.4, -0.4
    items = Vocabulary(["tea", "milk", "bread", "jam", "salt"], categories={"tea": "drinks", "milk": "drinks"})
    first, second = tmp_path / "a", tmp_path / "b"
    for factors in (V, np.empty((5, 0))):
        model = cd.NonsymmetricDPP._of_kernel(Kernel(factors, skew=S, diagonal=d), items)
        model.save(first)
        loaded = cd.load(first)
        np.testing.assert_array_equal(loaded.kernel_.diagonal, d)
        assert loaded.items_.categories == items.categories
        assert loaded.items_.names == {}
        assert loaded.condition(["jam"]).items_.categories == items.categories
        assert loaded.score_samples(["tea", "milk"]) == model.score_samples(["tea", "milk"])
        loaded.save(second)
        assert first.read_bytes() == second.read_bytes()


def test_a_file_has_the_version_that_is_read(saved):
    assert files.format_version(saved) == files.VERSION
    assert cd.load(saved).items_.categories == {}


@pytest.mark.parametrize("d", [np.full(5, -1.0), np.full(5, np.nan), np.ones(4), np.full(5, np.inf)])
def test_a_diagonal_that_cannot_be(tmp_path, d):
    path = tmp_path / "m"
    forge(path, tensors={"item_factors": V, "items.int": np.arange(5), "diagonal": d})
    with pytest.raises(ModelFileError, match="diagonal"):
        cd.load(path)


def test_categories_that_do_not_fit(tmp_path):
    path = tmp_path / "m"
    texts = {"categories.text.bytes": np.frombuffer(b"ab", np.uint8), "categories.text.ends": np.array([1, 2])}
    forge(path, tensors={"item_factors": V, "items.int": np.arange(5), **texts})
    with pytest.raises(ModelFileError, match="not as many categories"):
        cd.load(path)


@pytest.mark.parametrize(
    ("version", "advice"),
    [(files.VERSION + 1, "upgrade contradpp"), (10**30, "upgrade contradpp")]
    + [(version, "fit the model again") for version in range(1, files.VERSION)],
)
def test_another_version_is_refused_with_advice(tmp_path, version, advice):
    path = tmp_path / "m"
    forge(path, version=version)
    with pytest.raises(ModelFileError, match=advice):
        cd.load(path)


@pytest.mark.parametrize("version", [0, -1, 1.5, None, "1", [1]])
def test_versions_that_never_were(tmp_path, version):
    path = tmp_path / "m"
    forge(path, version=version)
    with pytest.raises(ModelFileError):
        cd.load(path)


def test_a_changed_description_fails_the_checksum(saved):
    data = saved.read_bytes()
    assert data.count(b'\\"n_components\\": 3') == 1
    saved.write_bytes(data.replace(b'\\"n_components\\": 3', b'\\"n_components\\": 4'))
    with pytest.raises(ModelFileError, match="checksum"):
        cd.load(saved)


# -- Files with a right checksum and wrong contents ------------------------------------------------


@pytest.mark.parametrize("kind", ["NoSuchModel", "BaseDPP", "object", "__class__", None, 3, ["LowRankDPP"], {}])
def test_unknown_models(tmp_path, kind):
    path = tmp_path / "m"
    forge(path, model=kind)
    with pytest.raises(ModelFileError, match="does not know"):
        cd.load(path)


@pytest.mark.parametrize("params", [None, 3, "x", ["n_components"]])
def test_unusable_parameters(tmp_path, params):
    path = tmp_path / "m"
    forge(path, params=params)
    with pytest.raises(ModelFileError):
        cd.load(path)


def test_a_file_cannot_name_attributes_or_run_anything(tmp_path):
    path, trace = tmp_path / "m", tmp_path / "trace"
    code = f"__import__('os').system('touch {trace}')"
    forge(
        path,
        params={
            "n_components": 3,
            "random_state": code,
            "__class__": code,
            "items_": [1],
            "save": code,
            "_kernel": code,
            "callbacks": "antigravity:fly",
        },
        antigravity="import antigravity",
    )
    before = set(sys.modules)
    model = cd.load(path)
    assert type(model) is cd.LowRankDPP
    assert callable(model.save)
    assert list(model.items_) == [0, 1, 2, 3, 4]
    assert not hasattr(model, "callbacks") or model.callbacks != "antigravity:fly"
    model.score_samples([[0, 1]])
    assert "antigravity" not in set(sys.modules) - before
    assert not trace.exists()


BAD_TENSORS = {
    "no factors": {"items.int": np.arange(5)},
    "no items": {"item_factors": V},
    "nothing": {"x": np.zeros(1)},
    "fewer items than rows": {"item_factors": V, "items.int": np.arange(4)},
    "more items than rows": {"item_factors": V, "items.int": np.arange(6)},
    "twice the same item": {"item_factors": V, "items.int": np.array([0, 1, 2, 3, 3])},
    "items of the wrong shape": {"item_factors": V, "items.int": np.arange(10).reshape(5, 2)},
    "items that are not integers": {"item_factors": V, "items.int": np.arange(5.0)},
    "a scalar of items": {"item_factors": V, "items.int": np.array(5)},
    "NaN factors": {"item_factors": np.where(np.eye(5, 3), np.nan, V), "items.int": np.arange(5)},
    "infinite factors": {"item_factors": np.where(np.eye(5, 3), np.inf, V), "items.int": np.arange(5)},
    "a vector of factors": {"item_factors": V[:, 0], "items.int": np.arange(5)},
    "no components": {"item_factors": V[:, :0], "items.int": np.arange(5)},
    "no rows": {"item_factors": V[:0], "items.int": np.arange(0)},
    "a scalar of factors": {"item_factors": np.array(1.0), "items.int": np.arange(1)},
    "factors that are booleans": {"item_factors": V > 0, "items.int": np.arange(5)},
    "texts without ends": {"item_factors": V[:1], "items.text.bytes": np.array([97], dtype=np.uint8)},
    "texts that end too late": {
        "item_factors": V[:1],
        "items.text.bytes": np.array([97], dtype=np.uint8),
        "items.text.ends": np.array([2]),
    },
    "texts that run backwards": {
        "item_factors": V[:2],
        "items.text.bytes": np.array([97, 98], dtype=np.uint8),
        "items.text.ends": np.array([3, 2]),
    },
    "negative ends": {
        "item_factors": V[:2],
        "items.text.bytes": np.array([97, 98], dtype=np.uint8),
        "items.text.ends": np.array([-1, 2]),
    },
    "ends that are not integers": {
        "item_factors": V[:1],
        "items.text.bytes": np.array([97], dtype=np.uint8),
        "items.text.ends": np.array([1.0]),
    },
    "bytes that are not UTF-8": {
        "item_factors": V[:1],
        "items.text.bytes": np.array([0xFF], dtype=np.uint8),
        "items.text.ends": np.array([1]),
    },
    "an id that is an object": {"item_factors": V[:1], **files._pack("items.json", ['{"a": 1}'])},
    "an id that is not JSON": {"item_factors": V[:1], **files._pack("items.json", ["os.system"])},
    "an id that is nested without end": {
        "item_factors": V[:1],
        **files._pack("items.json", ["[" * 100_000]),
    },
    "names of other items": {
        "item_factors": V[:1],
        "items.int": np.arange(1),
        **files._pack("names.text", ["a", "b"]),
    },
}


@pytest.mark.parametrize("tensors", BAD_TENSORS.values(), ids=BAD_TENSORS.keys())
def test_wrong_contents_are_typed_errors(tmp_path, tensors):
    path = tmp_path / "m.safetensors"
    forge(path, tensors=tensors)
    with pytest.raises(ModelFileError, match=r"m\.safetensors"):
        cd.load(path)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F8_E4M3", "F8_E5M2", "NOPE"])
def test_number_formats_that_numpy_may_lack(tmp_path, dtype):
    path = tmp_path / "m"
    width = 1 if dtype.startswith("F8") else 2
    body = json.dumps(
        {"format": "contradpp", "version": files.VERSION, "model": "LowRankDPP", "params": {}, "checksum": "?"}
    )
    header = json.dumps(
        {
            "__metadata__": {"contradpp": body},
            "item_factors": {"dtype": dtype, "shape": [2, 1], "data_offsets": [0, 2 * width]},
        }
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2 * width))
    with pytest.raises(ModelFileError):
        cd.load(path)


# -- The file system -------------------------------------------------------------------------------


def test_no_such_file_a_folder_and_an_impossible_path(tmp_path):
    for path in (tmp_path / "missing", tmp_path, "a\0b"):
        with pytest.raises(ModelFileError, match="cannot read"):
            cd.load(path)


def test_writing_where_one_cannot(tmp_path):
    model = cd.LowRankDPP.from_factors(V)
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "no" / "m", tmp_path / "file" / "m", tmp_path / "folder", "a\0b"):
        with pytest.raises(ModelFileError, match="cannot write"):
            model.save(path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ModelFileError, match="Permission denied"):
            cd.LowRankDPP.from_factors(V).save(tmp_path / "m")
    finally:
        tmp_path.chmod(0o700)


def test_a_refused_file_is_a_typed_error(tmp_path, monkeypatch):
    """Act as an unwritable folder, also where the tests run as root."""

    def refuse(*_arguments, **_options):
        raise PermissionError(errno.EACCES, "Permission denied")

    model = cd.LowRankDPP.from_factors(V)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", refuse)
        with pytest.raises(ModelFileError, match="Permission denied"):
            model.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(saved, monkeypatch, step):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files.os, step, full)
        with pytest.raises(ModelFileError, match=r"No space left.*nothing was changed"):
            cd.LowRankDPP.from_factors(2 * V).save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_an_interrupt_leaves_the_old_file_too(saved, monkeypatch):
    def interrupt(*_arguments):
        raise KeyboardInterrupt

    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cd.LowRankDPP.from_factors(2 * V).save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_the_file_has_the_permissions_of_any_other(tmp_path):
    cd.LowRankDPP.from_factors(V).save(tmp_path / "m")
    (tmp_path / "plain").write_text("x")
    mode = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("m", "plain")]
    assert mode[0] == mode[1]


def test_saving_over_a_model_replaces_it(saved):
    cd.LowRankDPP.from_factors(np.eye(2)).save(str(saved))
    assert len(cd.load(saved).items_) == 2


@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.ConditionalDPP])
def test_threads_in_a_file_are_not_obeyed_beyond_the_cores(tmp_path, kind):
    model = kind(random_state=0).fit([["a", "b"], ["b", "c"], ["a", "c"]] * 20)
    model.n_jobs = 10**6
    model.save(tmp_path / "model")
    loaded = cd.load(tmp_path / "model")
    assert loaded.n_jobs is None
    assert loaded.dpp.n_jobs <= os.cpu_count()
