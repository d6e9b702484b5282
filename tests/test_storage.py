"""Tests of atomic files, one-line errors if the disk is full, and large memory-mapped arrays."""

import ast
import errno
import json
import math
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calque import storage
from calque.errors import CalqueError, OutputError, SettingError
from calque.storage import (
    append_lines,
    json_text,
    locked,
    mapped_array,
    naming,
    unwritten,
    whole,
    write_text,
)
from calque.vectors import filling, map_arrays, write_arrays
from command import run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def files_up_to(size):
    """Limit the size of files in bytes to simulate a full disk without mounting one."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def full(*arguments, **named):
    raise OSError(errno.ENOSPC, "No space left on device")


# -- atomic files ----------------------------------------------------------------------------------
def test_a_file_appears_only_when_complete_and_a_failure_leaves_no_file(tmp_path):
    path = tmp_path / "new" / "file"
    with whole(path) as part:
        part.write_text("one")
        assert not path.exists()
    assert (path.read_text(), names(path.parent)) == ("one", ["file"])

    def half():
        with whole(path) as part:
            part.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert (path.read_text(), names(path.parent)) == ("one", ["file"])


def test_symbolic_links_and_devices_are_preserved(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    write_text("/dev/null", "x")
    program = "from calque.storage import write_lines; write_lines('/dev/stdout', ['x\\n'])"
    assert (
        subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout
        == b"x\n"
    )
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full does not exist")
@pytest.mark.parametrize(
    "write", [lambda: write_text("/dev/full", "x"), lambda: append_lines("/dev/full", ["x\n"])]
)
def test_a_full_device_raises_an_error(write):
    with pytest.raises(OutputError, match=r"^/dev/full: no space left on the disk$"):
        write()
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_the_error_names_a_file_or_folder_that_prevents_writing(tmp_path):
    with pytest.raises(OutputError, match=rf"^{tmp_path}: is a folder, expected a file name$"):
        write_text(tmp_path, "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/x: cannot be written \(Not a directory\)$"):
        write_text(tmp_path / "file" / "x", "y")
    with pytest.raises(OutputError, match=r"file/x: cannot be written \(Not a directory\)$"):
        append_lines(tmp_path / "file" / "x", ["y\n"])
    with pytest.raises(OutputError, match=r"file/x: cannot be written \(Not a directory\)$"):
        write_arrays(tmp_path / "file" / "x", {"a": np.zeros(3)})


def test_errors_unrelated_to_writing_are_not_converted(tmp_path):
    with pytest.raises(FileNotFoundError), whole(tmp_path / "x"):
        open(tmp_path / "not-there")  # noqa: SIM115
    with pytest.raises(CalqueError, match=r"^why$"), naming(tmp_path / "x"):
        raise SettingError("why")


def test_appending_lines_writes_all_of_them_or_none(tmp_path):
    path = tmp_path / "results.jsonl"
    append_lines(path, ["a\n"])
    append_lines(path, ["b\n", "c\n"])
    assert path.read_text() == "a\nb\nc\n"
    for each in (path, tmp_path / "other"):
        with (
            pytest.raises(OutputError, match=rf"^{each}: the file is larger than"),
            files_up_to(1000),
        ):
            append_lines(each, ["x" * 999, "y" * 999])
    assert path.read_text() == "a\nb\nc\n"
    assert names(tmp_path) == ["results.jsonl"]


# -- what belongs to the user ----------------------------------------------------------------------
def victim_file(place, tmp_path):
    (tmp_path / "victim").write_text("mine")
    place.symlink_to(tmp_path / "victim")


def victim_folder(place, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "new").write_text("mine")
    place.symlink_to(tmp_path / "victim")


def dangling_link(place, tmp_path):
    place.symlink_to(tmp_path / "nowhere")


def link_inside(place, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis").write_text("mine")
    place.mkdir()
    (place / storage.NEW).symlink_to(tmp_path / "victim")


def hard_link(place, tmp_path):
    (tmp_path / "victim").write_text("mine")
    os.link(tmp_path / "victim", place)


def own_file(place, tmp_path):
    place.write_text("mine")


def own_folder(place, tmp_path):
    place.mkdir()
    (place / "thesis").write_text("mine")


def pipe(place, tmp_path):
    os.mkfifo(place)


def snapshot(folder):
    """Return the kind and content of everything below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if stat.S_ISREG(about.st_mode)
            else None
        )
        found[str(path)] = (stat.S_IFMT(about.st_mode), content)
    return found


def writing_a_folder(out):
    from calque.runs.folder import writing

    with writing(out) as part:
        (part / "x").write_text("x")


def saving_an_encoder(out):
    from calque.encoders.folder import saving

    with saving(out) as part:
        (part / "x").write_text("x")


def taking_a_lock(out):
    with locked(out):
        pass


WRITERS = {
    "part": (lambda out: write_text(out, "x"), writing_a_folder),
    "saving": (saving_an_encoder,),
    "lock": (taking_a_lock, lambda out: append_lines(out, ["x\n"]), writing_a_folder),
}


@pytest.mark.parametrize(
    "make",
    [victim_file, victim_folder, dangling_link, link_inside, hard_link, own_file, own_folder, pipe],
)
@pytest.mark.parametrize("kind", WRITERS)
def test_what_a_user_has_at_a_temporary_name_is_never_changed(tmp_path, kind, make):
    for write in WRITERS[kind]:
        place = tmp_path / write.__name__.strip("<>") / f".out.calque-{kind}"
        place.parent.mkdir()
        make(place, place.parent)
        before = snapshot(place.parent)
        with pytest.raises(OutputError, match=r"that calque did not create.*rename or remove it$"):
            write(place.parent / "out")
        assert snapshot(place.parent) == before


def test_what_a_killed_process_left_is_replaced(tmp_path):
    place = storage.part_of(tmp_path / "out")
    place.mkdir()
    (place / storage.NEW).write_text("half")
    (place / ".tmpAb12Cd").write_text("half")  # safetensors creates such a file
    write_text(tmp_path / "out", "x")
    assert snapshot(tmp_path) == {str(tmp_path / "out"): (stat.S_IFREG, b"x")}


def test_libraries_create_their_temporary_files_in_the_temporary_folder(tmp_path):
    seen = []
    with whole(tmp_path / "out") as part:
        part.with_name(".tmpAb12Cd").write_text("half")
        seen += names(tmp_path)
        part.write_text("x")
    assert seen == [".out.calque-part"]
    assert names(tmp_path) == ["out"]


def test_links_above_an_output_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "link" / "to").symlink_to("file")
    write_text(tmp_path / "link" / "to", "x")
    writing_a_folder(tmp_path / "link" / "folder")
    assert names(tmp_path / "real") == ["file", "folder", "to"]
    assert (tmp_path / "real" / "to").is_symlink()
    assert (tmp_path / "real" / "folder" / "x").read_text() == "x"


@pytest.mark.parametrize(
    "write",
    [
        lambda out: write_text(out, "x"),
        lambda out: append_lines(out, ["x\n"]),
        writing_a_folder,
        saving_an_encoder,
    ],
)
def test_a_loop_of_links_is_an_error(tmp_path, write):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for out in (tmp_path / "a", tmp_path / "a" / "x"):
        with pytest.raises(
            OutputError,
            match=r"is a loop of symbolic links; choose another path, or remove the links$",
        ):
            write(out)
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="/proc does not exist")
def test_the_error_for_a_folder_without_files_does_not_name_another_process():
    with pytest.raises(OutputError, match=r"^/proc/x: cannot be written"), locked("/proc/x"):
        pass


# -- interruptions ---------------------------------------------------------------------------------
def interrupted_write(error):
    """Raise the error of a library that was interrupted while it wrote a file."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise error  # noqa: B904


@pytest.mark.parametrize(
    "error",
    [RuntimeError("PytorchStreamWriter failed writing file data/0"), OSError(errno.EIO, "x")],
)
def test_an_interruption_while_writing_is_not_reported_as_a_failed_write(
    tmp_path, capsys, monkeypatch, error
):
    with pytest.raises(KeyboardInterrupt), whole(tmp_path / "x"):
        interrupted_write(error)
    with pytest.raises(KeyboardInterrupt), naming(tmp_path / "x"):
        interrupted_write(error)
    assert names(tmp_path) == []
    monkeypatch.setattr("calque.cli.run", lambda _: interrupted_write(CalqueError("corrupt")))
    assert run(capsys, "words") == (130, "", "calque: interrupted\n")


# -- disk space of mapped files --------------------------------------------------------------------
def test_space_is_allocated_when_a_file_is_created(tmp_path):
    """Without allocation, writing to mapped memory on a full disk would kill the process."""
    with filling(tmp_path / "x", {"a": ((300_000,), np.float64)}):
        assert os.stat(storage.part_of(tmp_path / "x") / storage.NEW).st_blocks * 512 >= 300_000 * 8


def test_a_full_disk_does_not_change_the_old_arrays(tmp_path, monkeypatch):
    write_arrays(tmp_path / "x", {"a": np.arange(3.0)})
    monkeypatch.setattr(storage.os, "posix_fallocate", full, raising=False)
    with pytest.raises(OutputError, match=r"^\S*/x: no space left on the disk$"):
        write_arrays(tmp_path / "x", {"a": np.zeros(1_000_000)})
    assert names(tmp_path) == ["x"]
    np.testing.assert_array_equal(map_arrays(tmp_path / "x")[0]["a"], np.arange(3.0))


# -- JSON ------------------------------------------------------------------------------------------
def no_constant(name):
    raise AssertionError(f"JSON has no {name}")


def test_json_contains_no_nan_and_no_infinity():
    array = np.array([np.nan, 1])
    value = {
        "a": [math.nan, (1.5, -math.inf)],
        "b": {math.inf: np.float32("nan")},
        "c": array,
        "d": np.int64(3),
        "é": "NaN",
    }
    text = json_text(value, ensure_ascii=False)
    assert json.loads(text, parse_constant=no_constant) == {
        "a": [None, [1.5, None]],
        "b": {"inf": None},
        "c": [None, 1],
        "d": 3,
        "é": "NaN",
    }
    assert "é" in text
    assert value["c"] is array  # the value itself is not changed


def test_json_of_finite_values_is_that_of_the_standard_library():
    value = {"b": [1, 2.5, None, True, "x"], "a": {"k": (1, 2)}}
    several: tuple[dict[str, Any], ...] = (
        {},
        {"indent": 2},
        {"sort_keys": True},
        {"separators": (",", ":")},
    )
    for options in several:
        assert json_text(value, **options) == json.dumps(value, **options)
    assert json_text({"p": Path("x")}, default=str) == '{"p": "x"}'
    assert json_text([Path("x"), math.nan], default=str) == '["x", null]'
    with pytest.raises(TypeError, match="Path"):
        json_text({"p": Path("x")})


def test_a_setting_that_must_be_finite_is_refused_by_name():
    with pytest.raises(
        OutputError, match=r"^maps\.de\.0 must be a finite number to be written, got nan$"
    ):
        json_text({"maps": {"de": [math.nan]}}, undefined="refuse")


def test_undefined_values_stay_different_in_digests():
    values = (math.nan, math.inf, -math.inf, None, 0.0)
    assert len({json_text([value], undefined="name") for value in values}) == len(values)


def test_no_module_writes_json_without_the_rule_for_undefined_numbers():
    wrong = []
    for path in sorted(Path(storage.__file__).parent.rglob("*.py")):
        if path != Path(storage.__file__):
            wrong += [
                f"{path}:{line} calls {name}"
                for name, line in json_writers(path.read_text(encoding="utf-8"))
            ]
    assert not wrong, "\n".join(wrong)


def json_writers(source):
    """Yield the writers of JSON from other libraries that a module uses, and their lines."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("dump", "dumps", "JSONEncoder"):
            if ast.unparse(node.value) in ("json", "orjson", "ujson", "simplejson", "msgspec.json"):
                yield ast.unparse(node), node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module in (
            "json",
            "orjson",
            "ujson",
            "simplejson",
        ):
            if wrong := {alias.name for alias in node.names} - {"loads", "load", "JSONDecodeError"}:
                yield f"{node.module}.{min(wrong)}", node.lineno
        elif isinstance(node, ast.Import):
            names = [
                alias
                for alias in node.names
                if alias.name.partition(".")[0] in ("json", "orjson", "ujson")
            ]
            yield from (
                (f"import {each.name}", node.lineno)
                for each in names
                if each.name != "json" or each.asname
            )
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("JSONResponse"):
            yield "JSONResponse", node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "import json\nx = json.dumps(1)",
        "from json import dumps",
        "import orjson",
        "import json as j",
        "p(json.dump)",
        "JSONResponse({})",
    ],
)
def test_the_check_finds_writers_of_json(source):
    assert [*json_writers(source)]
    assert not [*json_writers("import json\njson.loads('1')")]


# -- errors raised by libraries --------------------------------------------------------------------
def caused():
    try:
        full()
    except OSError as error:
        raise RuntimeError("could not save") from error


def unrelated():
    try:
        full()
    except OSError:
        raise RuntimeError("something else") from None


RAISED = {
    "Python": OSError(errno.ENOSPC, "No space left on device"),
    "quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "limit": OSError(errno.EFBIG, "File too large"),
    "HDF5": OSError(errno.ENOSPC, "Can't synchronously write data (file write failed: errno = 28)"),
    "safetensors": type("SafetensorError", (Exception,), {})(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    ),
    "a broken disk": OSError(errno.EIO, "Input/output error"),
    "a broken disk, safetensors": Exception(
        "Error while serializing: I/O error: Input/output error (os error 5)"
    ),
    "other reasons, safetensors": Exception(
        "Error while serializing: I/O error: Too many open files (os error 24)"
    ),
    "tokenizers": Exception("No space left on device (os error 28)"),
    "torch": RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    "torch, zip": RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    "torch, stream": RuntimeError("basic_ios::clear: iostream error"),
    "NumPy": OSError("200000 requested and 76768 written"),
}


@pytest.mark.parametrize("name", RAISED)
def test_a_full_disk_is_recognised_in_errors_of_libraries(tmp_path, name):
    known = (
        "no space left|the disk|cannot be written|only part|the file is larger|input/output error"
    )
    said = rf"^/not/there: ({known})[a-z ]*( \(|$)"
    with pytest.raises(OutputError, match=said), naming("/not/there"):
        raise RAISED[name]


def test_a_full_disk_is_recognised_among_the_causes_of_an_error():
    for broken, reason in ((caused, "no space left on the disk"), (unrelated, None)):
        with pytest.raises(RuntimeError) as raised:
            broken()
        assert unwritten(raised.value) == reason
    for other in (
        OSError(errno.ENOENT, "x"),
        RuntimeError("CUDA out of memory"),
        Exception("(os error 2)"),
    ):
        assert unwritten(other) is None


# -- the command line ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/.res.calque-part"),
            "/x/res: Permission denied; choose another path, or change its permissions\n",
        ),
        (OSError(errno.ENOSPC, "No space left", "a", None, "/b"), "/b: no space left on the disk"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (RAISED["torch"], "only part of the file could be written"),
    ],
)
def test_operating_system_errors_are_reported_on_one_line(capsys, monkeypatch, error, said):
    def broken(words):
        raise error

    monkeypatch.setattr("calque.cli.run", broken)
    code, out, err = run(capsys, "words")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"calque: error: {said}")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full does not exist")
def test_standard_output_to_a_full_device_raises_an_error():
    with open("/dev/full", "w") as sink:
        ended = subprocess.run(
            [sys.executable, "-m", "calque", "--version"],
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    assert ended.returncode == 2
    assert ended.stderr == "calque: error: standard output: no space left on the disk\n"


# -- arrays of word vectors ------------------------------------------------------------------------
def test_mapped_arrays_are_zeros_in_memory_or_in_a_temporary_file(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held, mapped = mapped_array((125,), np.float64, 1000), mapped_array((126, 3), np.float64, 1000)
    assert type(held) is np.ndarray
    assert isinstance(mapped, np.memmap)
    assert mapped.shape == (126, 3)
    assert not held.any()
    assert not mapped.any()
    mapped[5] = 7
    assert mapped.sum() == 21
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(storage, "reserve", full)  # simulates a full disk
    assert type(mapped_array((1000,), np.int64, 1000)) is np.ndarray


def test_a_refused_write_of_a_rust_library_names_the_output_but_a_refused_read_does_not(tmp_path):
    from safetensors import SafetensorError

    with (
        pytest.raises(OutputError, match=r"tables: cannot be written \(Permission denied\)$"),
        naming(tmp_path / "tables"),
    ):
        raise SafetensorError("Error while serializing: I/O error: Permission denied (os error 13)")
    with pytest.raises(PermissionError), naming(tmp_path / "tables"):
        raise PermissionError(errno.EACCES, "Permission denied", "input.txt")
