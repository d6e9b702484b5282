"""Maps that others released: `XX_best_mapping.pth`, read without running what may be in it."""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
import zipfile
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from calque.errors import InputError
from calque.maps.linear import LinearMap

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # how torch.save began a file before it wrote zip archives
_MOST_BYTES = 1 << 32
_KINDS = "biuf"  # booleans and numbers; no objects, no text


def read_released(path: str | PathLike[str]) -> LinearMap:
    """Read a map as MUSE and Schuster et al. (2019) released them: a pickled NumPy array W, applied as X @ W.T.

    It comes back as the map x → x @ W.T of ours. English is the identity divided by the mean length of its vectors, so
    a released map need not be orthogonal.

    A pickle is a program. Here it can do nothing but put numbers together: whatever it names becomes a stand-in without
    abilities, known for what describes an array, and refused for everything else; NumPy's own constructors, which take
    much on trust, are not called with what the file says either. A plain pickle (written with any version of NumPy),
    and both containers of `torch.save` are read.

    Args:
        path: the file.

    Raises:
        InputError: anything but one matrix of finite numbers.
    """
    try:
        with open(path, "rb") as file:  # asked for so many bytes, Python would set them aside at once
            content = file.read() if os.fstat(file.fileno()).st_size <= _MOST_BYTES else None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=path) from error
    try:
        if content is None:
            raise _NotAMatrixError("is too large for a map")
        matrix = _array(_payload(content)).astype(np.float64)
    except _NotAMatrixError as error:
        raise InputError(f"{error}; expected one pickled NumPy matrix, as XX_best_mapping.pth", path=path) from None
    except Exception as error:  # a damaged pickle can fail in any way, and all of them mean the same
        raise InputError(
            f"not a pickled NumPy matrix ({type(error).__name__}: {' '.join(str(error).split())[:150]})", path=path
        ) from error
    if matrix.ndim != 2 or not matrix.size:
        raise InputError(f"an array of shape {matrix.shape}, expected a matrix [dim, dim]", path=path)
    if not np.isfinite(matrix).all():
        raise InputError("a matrix with entries that are not finite", path=path)
    return LinearMap.from_arrays({"matrix": np.ascontiguousarray(matrix.T)})


class _NotAMatrixError(Exception):
    """The file holds something else."""


def _payload(content: bytes) -> Any:
    """What the file's pickle describes, in stand-ins."""
    if content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [info for info in archive.infolist() if info.filename.split("/")[-1] == "data.pkl"]
            if len(members) != 1:
                raise _NotAMatrixError("is a zip archive, but not one of torch.save")
            if members[0].file_size > len(content):  # torch.save does not compress
                raise _NotAMatrixError("is an archive that unpacks to more than itself")
            return _Reader(io.BytesIO(archive.read(members[0]))).load()
    file = io.BytesIO(content)
    first = _Reader(file).load()
    if first != _MAGIC:
        return first
    if _Reader(file).load() != _PROTOCOL:
        raise _NotAMatrixError("is of an unknown version of torch.save")
    _Reader(file).load()  # of the machine that wrote it
    return _Reader(file).load()


class _Inert:
    """A name in a pickle: it can be called, and remembers with what; nothing else happens."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple = (), state: Any = None):
        self.name, self.arguments, self.state = name, arguments, state

    def __call__(self, *arguments: Any) -> _Inert:
        return _Inert(f"{self.name}()", arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


# Where NumPy's constructors have lived; the first names are those of NumPy before 2.
_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): "array", ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.numeric", "_frombuffer"): "buffer", ("numpy._core.numeric", "_frombuffer"): "buffer",
    ("numpy", "ndarray"): "ndarray", ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode", ("builtins", "bytes"): "bytes", ("__builtin__", "bytes"): "bytes",
    ("builtins", "bytearray"): "bytes",
}  # fmt: skip


class _Reader(pickle._Unpickler):
    """Reads a pickle into stand-ins. The reader written in Python, whose every step can be changed: what it sets aside
    does not depend on numbers that a file makes up."""

    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: io.BytesIO):
        super().__init__(file, encoding="latin1")

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))  # type: ignore[attr-defined]
        # the original first makes an array of that length
        self.append(self.read(min(length, _MOST_BYTES)))  # type: ignore[attr-defined]

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise _NotAMatrixError(f"names {f'{module}.{name}'[:80]}, which no array needs and which was not called")
        return _Inert(known)

    def persistent_load(self, pid: Any) -> Any:
        raise _NotAMatrixError("holds a PyTorch tensor")

    def get_extension(self, code: int) -> Any:
        raise _NotAMatrixError("uses pickle extensions")


def _array(value: Any) -> np.ndarray:
    """The array that stand-ins describe."""
    if isinstance(value, _Inert) and value.name == "array()" and value.state is not None:
        _, shape, dtype, fortran, data = value.state
        return _matrix(_bytes(data), _dtype(dtype), shape, "F" if fortran else "C")
    if isinstance(value, _Inert) and value.name == "buffer()" and value.state is None:
        data, dtype, shape, order = value.arguments
        return _matrix(_bytes(data), _dtype(dtype), shape, order)
    raise _NotAMatrixError(f"holds {_named(value)}")


def _matrix(data: bytes, dtype: np.dtype, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(shape, tuple) or not all(type(size) is int and 0 <= size < 1 << 31 for size in shape):
        raise _NotAMatrixError("holds an array whose shape is no row of whole numbers")
    if order not in ("C", "F") or len(data) != math.prod(shape) * dtype.itemsize:
        raise _NotAMatrixError(f"holds an array of shape {shape} in {len(data)} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order=order)


def _dtype(value: Any) -> np.dtype:
    """A type of numbers from `dtype('f8', …)` with its state (version, byte order, …)."""
    if not isinstance(value, _Inert) or value.name != "dtype()" or not value.arguments:
        raise _NotAMatrixError(f"holds an array of {_named(value)}")
    code = value.arguments[0]
    order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "="
    if not isinstance(code, str) or code[:1] not in _KINDS or not code[1:].isdigit() or order not in tuple("<>=|"):
        raise _NotAMatrixError(f"holds an array of {code[:30]!r} and not of numbers" if isinstance(code, str) else
                               f"holds an array of {_named(code)}")  # fmt: skip
    return np.dtype(code).newbyteorder(order)


def _bytes(value: Any) -> bytes:
    """Bytes as pickles have them: themselves, or in protocol 2 a text that `_codecs.encode` turns into them."""
    if isinstance(value, _Inert) and value.name == "encode()":
        text, *encoding = value.arguments
        if isinstance(text, str) and encoding in ([], ["latin1"], ["latin-1"]):
            return text.encode("latin1")
    if isinstance(value, _Inert) and value.name == "bytes()" and not value.arguments:
        return b""
    if isinstance(value, _Inert) and value.name == "bytes()" and len(value.arguments) == 1:
        value = value.arguments[0]
    if isinstance(value, str):  # of Python 2
        return value.encode("latin1")
    if isinstance(value, bytes | bytearray | pickle.PickleBuffer):
        return bytes(value)
    raise _NotAMatrixError(f"holds an array whose content is {_named(value)}")


def _named(value: Any) -> str:
    return f"a stand-in for {value.name}" if isinstance(value, _Inert) else f"a {type(value).__name__}"
