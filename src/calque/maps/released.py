"""Maps that others released: `XX_best_mapping.pth`, read without running what may be in it."""

from __future__ import annotations

import codecs
import io
import pickle
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from calque.errors import InputError
from calque.maps.linear import LinearMap

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # how torch.save began a file before it wrote zip archives
# All that a pickled array names, by the places where NumPy has had it.
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): np.empty((1, 1)).__reduce_ex__(5)[0] for core in ("core", "_core")},
    ("_codecs", "encode"): codecs.encode,
    **{(builtins, name): kind for builtins in ("builtins", "__builtin__")
       for name, kind in (("bytes", bytes), ("bytearray", bytearray))},
}  # fmt: skip


def read_released(path: str | PathLike[str]) -> LinearMap:
    """Read a map as MUSE and Schuster et al. (2019) released them: a pickled NumPy array W, applied as X @ W.T.

    It comes back as the map x → x @ W.T of ours. English is the identity divided by the mean length of its vectors, so
    a released map need not be orthogonal.

    A pickle is a program. Here it can name nothing but what makes up arrays and bytes; anything else is refused before it
    is called. A plain pickle (written with any version of NumPy), and both containers of `torch.save` are read.

    Args:
        path: the file.

    Raises:
        InputError: anything but one matrix of finite numbers.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=path) from error
    try:
        found = _payload(content)
    except Exception as error:  # a damaged pickle can fail in any way, and all of them mean the same
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        raise InputError(
            f"not a pickled NumPy matrix ({reason}); expected one, as XX_best_mapping.pth", path=path
        ) from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biuf":
        raise InputError(f"holds a {type(found).__name__}, expected a NumPy matrix of numbers", path=path)
    if found.ndim != 2 or not found.size:
        raise InputError(f"an array of shape {found.shape}, expected a matrix [dim, dim]", path=path)
    if not np.isfinite(found).all():
        raise InputError("a matrix with entries that are not finite", path=path)
    return LinearMap.from_arrays({"matrix": np.ascontiguousarray(found.T, dtype=np.float64)})


def _payload(content: bytes) -> Any:
    """Return what the file's pickle describes."""
    if content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (member,) = (info for info in archive.infolist() if info.filename.split("/")[-1] == "data.pkl")
            if member.file_size > len(content):  # torch.save does not compress
                raise pickle.UnpicklingError("an archive that unpacks to more than itself")
            return _Reader(io.BytesIO(archive.read(member))).load()
    file = io.BytesIO(content)
    first = _Reader(file).load()
    if not isinstance(first, int) or first != _MAGIC:
        return first
    if _Reader(file).load() != _PROTOCOL:
        raise pickle.UnpicklingError("an unknown version of torch.save")
    _Reader(file).load()  # of the machine that wrote it
    return _Reader(file).load()


class _Reader(pickle.Unpickler):
    """An unpickler that knows arrays only."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, encoding="latin1")  # in which Python 2 has bytes

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(
                f"it names {f'{module}.{name}'[:80]}, which no array needs and which was not called"
            )
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it holds a PyTorch tensor")
