"""Read published maps (`XX_best_mapping.pth`) without executing code from the file."""

from __future__ import annotations

import codecs
import io
import pickle
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from calque.errors import InputError, similar_path
from calque.maps.linear import LinearMap

# The first two objects in a file written by torch.save before it used zip archives.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


# -- stand-ins for NumPy's classes -----------------------------------------------------------------
# NumPy's own classes accept any state: a corrupt file could change the data type `float64` of the
# whole process.
class _DataType:
    """Data type of an array in a pickle."""

    def __init__(self, name: str, align: bool = False, copy: bool = False):
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"the data type must be a number, got {self.dtype}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        byte_order: Any = str(state[1])  # `state` starts with a version and the byte order
        self.dtype = self.dtype.newbyteorder(byte_order)


class _Array:
    """Array in a pickle; the attribute `values` is the NumPy array."""

    values: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # An older format has no version before the shape.
        shape, data_type, is_column_major, data = state[-4:]
        if isinstance(data, str):  # pickled by Python 2
            data = data.encode("latin1")
        order = "F" if is_column_major else "C"
        self.values = _filled(data, data_type, shape, order).values


def _reconstruct(array_class: type[_Array], shape: tuple[int, ...], code: bytes) -> _Array:
    """Return an empty array, whose state follows in the file."""
    return array_class()


def _filled(
    data: Any, data_type: _DataType, shape: tuple[int, ...], order: Any, axes: Any = None
) -> _Array:
    """Return an array with the given data; pickles of protocol 5 call this function."""
    array = _Array()
    array.values = np.frombuffer(data, data_type.dtype).reshape(shape, order=order)
    return array


# All names that a pickled array may refer to, in every module where some version of NumPy defines
# them.
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DataType,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _filled,
    ("numpy._core.numeric", "_frombuffer"): _filled,
    ("_codecs", "encode"): codecs.encode,
    ("builtins", "bytes"): bytes,
    ("builtins", "bytearray"): bytearray,
    ("__builtin__", "bytes"): bytes,  # Python 2
    ("__builtin__", "bytearray"): bytearray,
}


def read_released(path: str | PathLike[str]) -> LinearMap:
    """Read a map published by MUSE or by Schuster et al. (2019): a pickled NumPy array W, applied
    as X @ W.T.

    A published map need not be orthogonal: the map for English is the identity divided by the mean
    norm of the vectors.

    Unpickling can execute code. This reader allows only the classes and functions that pickled
    arrays need, and rejects any other name without calling it. It supports plain pickles from any
    NumPy version and both file formats of `torch.save`.

    Args:
        path: path of the file.

    Raises:
        InputError: the file cannot be read, or does not contain exactly one matrix of finite
            numbers.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        hint = similar_path(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"cannot be read ({error.strerror}){hint}", path=path) from error
    try:
        pickled = _payload(content)
        matrix = pickled.values if isinstance(pickled, _Array) else pickled
    except Exception as error:  # a corrupt pickle can raise any exception
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        raise InputError(
            f"not a pickled NumPy matrix ({reason}); expected a file such as XX_best_mapping.pth",
            path=path,
        ) from error
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "biuf":
        raise InputError(
            f"must contain a NumPy matrix of numbers, got {type(matrix).__name__}", path=path
        )
    if matrix.ndim != 2 or not matrix.size:
        raise InputError(f"must contain a matrix [dim, dim], got shape {matrix.shape}", path=path)
    if not np.isfinite(matrix).all():
        raise InputError("the matrix contains NaN or infinity", path=path)
    # The file applies the map as X @ W.T, and calque as X @ W.
    return LinearMap.from_arrays({"matrix": np.ascontiguousarray(matrix.T, dtype=np.float64)})


def _payload(content: bytes) -> Any:
    """Return the pickled object in the file."""
    if content.startswith(b"PK\x03\x04"):  # zip archive, written by newer versions of torch.save
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            (member,) = (info for info in members if info.filename.split("/")[-1] == "data.pkl")
            if member.file_size > len(content):  # torch.save does not compress files
                raise pickle.UnpicklingError(
                    "the archive is compressed, which torch.save never does"
                )
            return _Reader(io.BytesIO(archive.read(member))).load()
    file = io.BytesIO(content)
    first = _Reader(file).load()
    if not isinstance(first, int) or first != _MAGIC:
        return first  # a plain pickle
    if _Reader(file).load() != _PROTOCOL:
        raise pickle.UnpicklingError("unsupported version of the torch.save format")
    _Reader(file).load()  # skip the byte order and type sizes of the machine
    return _Reader(file).load()


class _Reader(pickle.Unpickler):
    """Unpickler that can only load NumPy arrays."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, encoding="latin1")  # required for arrays pickled by Python 2

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(
                f"the file refers to {f'{module}.{name}'[:80]}, which is not allowed in a pickled "
                "array and was not called"
            )
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("the file contains a PyTorch tensor")
