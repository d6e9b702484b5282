"""Compiled loops without the compiler: machine code is kept in files and loaded by llvmlite alone.

Numba's own cache spares compiling, but to load from it Numba itself must be loaded, and with it SciPy: longer than all that
`calque words` computes for ten thousand sentence pairs. So what Numba makes of a loop is kept here as an object file, under
a name that changes with the loops' source, the processor and the types of the arguments, and called through ctypes, which
releases Python's lock meanwhile. The machine code is the same, whether it was compiled in this process or in another one.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

_MAGIC = b"calque loop 1\n"
_RESULTS = 4  # numbers that a loop returns, at most
_LOCK = Lock()
_ENGINES: list[Any] = []  # they own the machine code


class Compiled:
    """A compiled loop. It takes numbers and contiguous arrays, and returns nothing, a number or a tuple of numbers.

    Args:
        path: where it is, `calque.wordalign.loops.MODULE:NAME`.
    """

    def __init__(self, path: str):
        self._path = path
        self._loaded: dict[tuple[str, ...], Callable[[Sequence[Any]], Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        codes = tuple(map(_code, arguments))
        loop = self._loaded.get(codes)
        if loop is None:
            with _LOCK:
                loop = self._loaded[codes] = _load(self._path, codes)
        return loop(arguments)


def _code(value: object) -> str:
    """The type of an argument: `i8`, `f4`, … for a number, with the number of dimensions behind it for an array."""
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise TypeError(f"an array of strides {value.strides}, expected a contiguous one")
        return f"{value.dtype.kind}{value.dtype.itemsize}{value.ndim}"
    if isinstance(value, np.generic):
        return f"{value.dtype.kind}{value.dtype.itemsize}"
    return {bool: "b1", int: "i8", float: "f8"}[type(value)]


_C = {
    "b1": ctypes.c_bool, "u1": ctypes.c_uint8, "i4": ctypes.c_int32, "u4": ctypes.c_uint32, "i8": ctypes.c_int64,
    "u8": ctypes.c_uint64, "f4": ctypes.c_float, "f8": ctypes.c_double,
}  # fmt: skip


def _load(path: str, codes: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    """A loop that takes its arguments as one sequence: from its file, or compiled and put there.

    Numba's machine code and llvmlite's engine are not part of their public interfaces. Where another version of them has these no
    more, Numba calls the loop itself: the numbers are the same, the start is not.
    """
    try:
        return _loaded(path, codes)
    except (AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError):
        loop = _loop(path)
        return lambda arguments: loop(*arguments)


def _loop(path: str) -> Any:
    """A loop, for Numba to compile."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _loaded(path: str, codes: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    """A loop as machine code."""
    key = hashlib.blake2b(f"{_sources()} {path} {codes}".encode(), digest_size=12).hexdigest()
    file = None if (folder := _folder()) is None else folder / f"{path.partition(':')[2]}-{key}.loop"
    kept = None if file is None else _read(file)
    if kept is None:
        kept = _compiled(path, codes)
        if file is not None:
            _write(file, *kept)
    return _callable(*kept, codes)


def _callable(record: dict[str, Any], code: bytes, codes: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    """A function that calls machine code."""
    import llvmlite.binding as llvm

    _prepare()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    types: list[Any] = []
    for kind in codes:
        types += [_C[kind]] if len(kind) == 2 else [ctypes.c_void_p, *[ctypes.c_int64] * int(kind[2:])]
    function = ctypes.CFUNCTYPE(None, *types, ctypes.c_void_p)(engine.get_function_address(record["symbol"]))
    results: list[str] | None = record["results"]

    def call(arguments: Sequence[Any]) -> Any:
        flat: list[Any] = []
        for value in arguments:
            if isinstance(value, np.ndarray):
                flat.append(value.ctypes.data)
                flat += value.shape
            else:
                flat.append(value.item() if isinstance(value, np.generic) else value)
        out = np.zeros(_RESULTS)
        function(*flat, out.ctypes.data)
        if results is None:
            return None
        found = tuple(int(x) if kind == "i" else x for kind, x in zip(results, out.tolist(), strict=False))
        return found if record["tuple"] else found[0]

    return call


def _compiled(path: str, codes: tuple[str, ...]) -> tuple[dict[str, Any], bytes]:
    """What a loop's file says of it, and its machine code."""
    import numba
    from numba.core import types

    loop = _loop(path)
    scalars = [numba.from_dtype(np.dtype("?" if kind[:2] == "b1" else kind[:2])) for kind in codes]
    given = [s if len(k) == 2 else types.Array(s, int(k[2:]), "C") for s, k in zip(scalars, codes, strict=True)]
    loop.compile(tuple(given))
    returned = loop.overloads[tuple(given)].signature.return_type
    members: list[Any] = list(returned) if isinstance(returned, types.BaseTuple) else [returned]  # type: ignore[arg-type]
    names, values, signature = [], [], []
    for k, (scalar, kind) in enumerate(zip(scalars, codes, strict=True)):
        dims = [f"a{k}_{d}" for d in range(int(kind[2:] or 0))]
        names += [f"a{k}", *dims]
        values.append(f"carray(a{k}, ({', '.join(dims)},))" if dims else f"a{k}")
        signature += [types.CPointer(scalar), *[types.int64] * len(dims)] if dims else [scalar]
    nothing = returned == types.none
    lines = [f"def entry({', '.join([*names, 'out'])}):", f"    found = loop({', '.join(values)})"]
    for k in range(0 if nothing else len(members)):
        lines.append(f"    out[{k}] = {f'found[{k}]' if isinstance(returned, types.BaseTuple) else 'found'}")
    space: dict[str, Any] = {"loop": loop, "carray": numba.carray}  # pyright: ignore[reportPrivateImportUsage]
    exec("\n".join(lines), space)
    kind = types.void(*signature, types.CPointer(types.float64))
    made = numba.cfunc(kind, nopython=True, error_model="numpy")  # pyright: ignore[reportCallIssue]
    function = made(space["entry"])
    code = function._library.serialize_using_object_code()[2][0]
    record = {
        "symbol": function._wrapper_name,
        "tuple": isinstance(returned, types.BaseTuple),
        "results": None if nothing else ["i" if isinstance(each, types.Integer) else "f" for each in members],
    }
    return record, code


@cache
def _prepare() -> None:
    """Make LLVM ready, and give it the names that Numba's machine code refers to where it reports an error or frees memory:
    no loop here does either."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in _UNUSED:
        if llvm.address_of_symbol(name) is None:  # Numba gives them their own when it compiles something
            llvm.add_symbol(name, ctypes.cast(_never, ctypes.c_void_p).value)


_never = ctypes.pythonapi.PyErr_BadInternalCall
_UNUSED = (
    "NRT_Allocate", "NRT_Free", "NRT_MemInfo_call_dtor", "NRT_MemInfo_alloc_safe_aligned", "numba_do_raise",
    "numba_gil_ensure", "numba_gil_release", "numba_runtime_build_excinfo_struct", "numba_unpickle",
    "numba_attempt_nocopy_reshape",
)  # fmt: skip


@cache
def _sources() -> str:
    """What the machine code depends on besides types: every loop, this file, the library, the processor."""
    import llvmlite.binding as llvm

    digest = hashlib.blake2b(digest_size=16)
    here = Path(__file__).parent
    for file in sorted([*(here / "loops").glob("*.py"), here / "compiled.py", here / "constants.py"]):
        digest.update(file.read_bytes())
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()} {llvm.get_process_triple()}"
    digest.update(f"{llvm.llvm_version_info} {np.__version__} {sys.version_info[:2]} {processor}".encode())
    return digest.hexdigest()


@cache
def _folder() -> Path | None:
    """Where the files are: where Numba keeps its own, beside the source if one can write there; None if nowhere."""
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    places = [os.environ.get("NUMBA_CACHE_DIR"), Path(__file__).parent / "loops" / "__pycache__", f"{user}/calque"]
    for place in places:
        if place:
            try:
                Path(place).mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            if os.access(place, os.W_OK):
                return Path(place)
    return None


def _read(file: Path) -> tuple[dict[str, Any], bytes] | None:
    """What `_write` wrote; None if nothing is there, or not all of it."""
    try:
        magic, digest, record, code = file.read_bytes().split(b"\n", 3)
    except (OSError, ValueError):
        return None
    whole = hashlib.blake2b(record + b"\n" + code, digest_size=16).hexdigest().encode()
    return (json.loads(record), code) if magic + b"\n" == _MAGIC and digest == whole else None


def _write(file: Path, record: dict[str, Any], code: bytes) -> None:
    """Keep machine code for the next time; a disk that does not take it is no matter."""
    content = json.dumps(record).encode() + b"\n" + code
    digest = hashlib.blake2b(content, digest_size=16).hexdigest().encode()
    part = None
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
            part.write(_MAGIC + digest + b"\n" + content)
        os.replace(part.name, file)
    except OSError:
        if part is not None:
            Path(part.name).unlink(missing_ok=True)
