"""Test that released maps are read without executing code from the file."""

import collections
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from calque.errors import InputError
from calque.maps import LinearMap
from calque.maps.released import read_released

RAN = []


def ran(*_):
    RAN.append(1)
    return np.eye(2)


@pytest.fixture
def matrix():
    return np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def pickled_by_old_numpy(array, protocol):
    """Return the pickle as NumPy 1 writes it, with shorter module names; omit the frame, because
    its length would differ.
    """
    content = pickle.dumps(array, protocol=protocol)
    for name in (b"numpy._core.multiarray", b"numpy._core.numeric"):
        short = name.replace(b"_core", b"core")
        content = content.replace(
            bytes([0x8C, len(name)]) + name, bytes([0x8C, len(short)]) + short
        ).replace(name, short)
    return content[:2] + content[11:] if content[2:3] == b"\x95" else content


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("old", [False, True])
def test_arrays_pickled_by_any_numpy_version_can_be_read(tmp_path, matrix, protocol, old):
    path = tmp_path / "xx_best_mapping.pth"
    path.write_bytes((pickled_by_old_numpy if old else pickle.dumps)(matrix, protocol))
    found = read_released(path)
    assert isinstance(found, LinearMap)
    x = np.random.default_rng(1).standard_normal((9, 4))
    np.testing.assert_allclose(found.transform(x), np.matmul(x, matrix.transpose()), rtol=1e-6)


@pytest.mark.parametrize("zipped", [True, False])
def test_both_file_formats_of_torch_save_can_be_read(tmp_path, matrix, zipped):
    path = tmp_path / "m.pth"
    torch.save(matrix, path, _use_new_zipfile_serialization=zipped)
    np.testing.assert_array_equal(read_released(path).matrix, matrix.T.astype(float))


class Evil:
    def __init__(self, call, *arguments):
        self.reduced = (call, arguments)

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    "wrap", [lambda e: e, lambda e: [e], lambda e: {"a": (e,)}, lambda e: Evil(ran, e)]
)
def test_code_in_the_file_is_not_executed(tmp_path, protocol, wrap):
    mark = tmp_path / "ran"
    bad = [
        Evil(os.system, f"touch {mark}"),
        Evil(eval, f"open({str(mark)!r}, 'w')"),
        Evil(exec, f"open({str(mark)!r}, 'w')"),
        Evil(getattr, Evil(__import__, "os"), "system"),
        Evil(ran),
        Evil(np.load, str(mark)),
        Evil(np.frombuffer, b"12345678"),
    ]
    RAN.clear()
    for number, thing in enumerate(bad):
        path = tmp_path / f"{number}.pth"
        content = pickle.dumps(wrap(thing), protocol=protocol)
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"{number}.pth"):
            read_released(path)
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            archive.writestr("archive/data.pkl", content)
        with pytest.raises(InputError):
            read_released(tmp_path / f"{number}.zip")
        # the same content in the legacy PyTorch container
        torch_like = (
            b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {})) + content
        )
        path.write_bytes(torch_like)
        with pytest.raises(InputError):
            read_released(path)
    assert not mark.exists()
    assert not RAN


def test_arrays_that_hide_code_are_rejected(tmp_path):
    """Try object arrays, a call in the state of an array, and names that resemble those in
    NumPy.
    """
    RAN.clear()
    objects = np.array([[Evil(ran), 1], [2, 3]], dtype=object)
    build = np.eye(2).__reduce__()
    nested = pickle.dumps(build[0].__module__)  # a string instead of an array
    hidden = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    hidden += b"(I1\n(I2\nI2\ntcnumpy\ndtype\n(S'f8'\ntRI00\n"
    call = b"cposix\nsystem\n(S'true'\ntR"
    attribute = b"cnumpy.core.multiarray\n_reconstruct.__globals__\n."
    for number, content in enumerate(
        (pickle.dumps(objects), nested, hidden + call + b"tb.", attribute)
    ):
        path = tmp_path / str(number)
        path.write_bytes(content)
        with pytest.raises(InputError):
            read_released(path)
    assert not RAN


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"not a pickle",
        b"PK\x03\x04 not a zip",
        pickle.dumps(3.5),
        pickle.dumps([1.0, 2.0]),
        pickle.dumps(np.float64(3)),
        pickle.dumps(np.array(["a"])),
        pickle.dumps(np.zeros(4)),
        pickle.dumps(np.zeros((0, 3))),
        pickle.dumps(np.zeros((2, 2), dtype=complex)),
        pickle.dumps(np.array([[np.nan]])),
        pickle.dumps(np.eye(4))[:-30],
        pickle.dumps(np.zeros(2, dtype=[("a", "f8")])),
        pickle.dumps(collections.OrderedDict(a=1)),
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"(" * 100_000 + b"t" * 99_999 + b".",
    ],
)
def test_invalid_content_raises_an_error_that_names_the_file(tmp_path, content):
    path = tmp_path / "en_best_mapping.pth"
    path.write_bytes(content)
    with pytest.raises(InputError, match="en_best_mapping"):
        read_released(path)


def test_tensors_and_missing_files_raise_errors(tmp_path):
    torch.save(torch.eye(3), tmp_path / "t.pth")
    with pytest.raises(InputError, match="PyTorch tensor|refers to torch"):
        read_released(tmp_path / "t.pth")
    with pytest.raises(InputError, match="cannot be read"):
        read_released(tmp_path / "none")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps(np.zeros((1000, 1000))))
    (tmp_path / "z").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="archive is compressed"):
        read_released(tmp_path / "z")


def test_a_corrupt_data_type_does_not_change_the_data_types_of_the_process(tmp_path):
    """The flag `copy` of the data type decides whether NumPy would set the state of a copy, or of
    its own `float64`.
    """
    data, changed = np.eye(3).dumps(), 0
    for place in range(len(data)):
        (tmp_path / "p.pth").write_bytes(
            data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        )
        try:
            found = read_released(tmp_path / "p.pth").matrix
        except InputError:
            changed += 1
        else:
            assert found.dtype == np.float64
        assert np.ones(3).sum() == 3
        assert np.dtype("f8").flags == 0
    assert changed > 20
