"""Tests of saved encoder folders of every kind, including folders in the first format and custom
encoder classes.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from calque import MappedEncoder, Rotation
from calque.encoders import load_encoder, loading
from calque.encoders.base import Encoder
from calque.encoders.folder import (
    ABOUT_FILE,
    ENCODERS,
    FORMAT,
    RUN_FILE,
    encoder_kind,
    read_about,
    read_run,
    write_about,
)
from calque.encoders.per_language import PerLanguage
from calque.encoders.random_vectors import RandomVectors
from calque.errors import InputError, SettingError
from calque.maps import LinearMap
from calque.text import Sentence
from calque.vectors import Embeddings
from linked_text import numbered_text
from planted import Planted

FOLDERS = Path(__file__).with_name("folders")
#: maps each folder to the class, size and fingerprint of its encoder when it was saved, and to the
#: vectors of SENTENCES
RECORDED = json.loads((FOLDERS / "vectors.json").read_text(encoding="utf-8"))
SENTENCES = [Sentence(("the", "cat", "sees"), "en"), Sentence(("die", "Katze", "im", "haus"), "de")]


def check(encoder: Encoder, recorded: dict) -> None:
    """Check that the encoder and its vectors match the recorded values."""
    found = {
        "class": type(encoder).__name__,
        "dim": encoder.dim,
        "fingerprint": encoder.fingerprint,
    }
    assert found.items() <= {name: recorded[name] for name in found}.items()
    vectors = encoder.encode(SENTENCES)
    assert (None if vectors.covered is None else vectors.covered.tolist()) == recorded["covered"]
    np.testing.assert_allclose(vectors.data[0][:4], recorded["first"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vectors.data[-1][-4:], recorded["last"], rtol=1e-5, atol=1e-6)
    assert np.abs(vectors.data).sum(dtype=np.float64) == pytest.approx(recorded["sum"], rel=1e-5)


@pytest.mark.parametrize("name", RECORDED)
def test_folders_in_the_first_format_can_be_opened(name, tmp_path):
    assert (
        json.loads((FOLDERS / name / ABOUT_FILE).read_text(encoding="utf-8")).get("format", 1) == 1
    )
    if name == "adapters":
        pytest.importorskip(
            "peft", reason="PEFT is not installed: pip install 'calque-align[peft]'"
        )
    encoder = load_encoder(FOLDERS / name, device="cpu")
    assert encoder.name == RECORDED[name]["name"]
    check(encoder, RECORDED[name])
    check(type(encoder).open(FOLDERS / name, device="cpu"), RECORDED[name])
    encoder.save_whole(tmp_path / "again")  # saves the folder in the current format
    # Without the keys of a later format, earlier versions can read the folder, too.
    assert read_about(tmp_path / "again")["format"] == 1
    check(load_encoder(tmp_path / "again", device="cpu"), RECORDED[name])


def test_recorded_folders_cover_every_kind_of_encoder():
    recorded = {read_about(FOLDERS / name)["kind"]: RECORDED[name]["class"] for name in RECORDED}
    assert {name: ENCODERS.load(name).__name__ for name in ENCODERS} == recorded


@pytest.mark.parametrize(
    ("format", "message"),
    [
        (FORMAT + 1, "format must be at most 2, got 3; is the file from a later version of calque"),
        ("1", "got '1'"),
        (0, "got 0"),
    ],
)
def test_unsupported_format_versions_are_rejected(format, message, tmp_path):
    folder = shutil.copytree(FOLDERS / "static", tmp_path / "static")
    about = json.loads((folder / ABOUT_FILE).read_text(encoding="utf-8"))
    (folder / ABOUT_FILE).write_text(json.dumps(about | {"format": format}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_encoder(folder)


class Own(Planted):
    """Custom encoder whose vectors are random vectors plus a constant that is saved with the
    encoder.
    """

    def __init__(self, number=0):
        super().__init__(dim=8)
        self.name, self.number, self.fingerprint = "own", number, f"own {number}"

    def encode(self, sentences, *, progress=False):
        found = super().encode(list(sentences))
        return Embeddings(found.data + self.number, found.offsets)

    def save(self, folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_about(Path(folder), encoder_kind(self), {"number": self.number})

    @classmethod
    def open(cls, folder, *, about=None, **options):
        return cls((about or read_about(folder))["number"])


class Bare(Own):
    """Custom encoder with the default `save` and `open` of the base class."""

    save = Encoder.save

    @classmethod
    def open(cls, folder, **options):
        return super(Own, cls).open(folder, **options)


class Slanted(LinearMap):
    """Custom map class."""

    kind = "slanted"


@pytest.fixture
def text():
    return numbered_text(20)


def test_a_custom_encoder_is_opened_with_its_own_class(tmp_path):
    Own(3).save(tmp_path / "own")
    assert read_about(tmp_path / "own")["kind"] == f"{__name__}:Own"
    again = load_encoder(tmp_path / "own")
    assert (type(again), again.fingerprint) == (Own, "own 3")
    (tmp_path / "own" / ABOUT_FILE).write_text(json.dumps({"kind": "nowhere.at:All"}))
    with pytest.raises(InputError, match="nowhere.at cannot be imported"):
        load_encoder(tmp_path / "own", trust_code=True)


HOSTILE = """
from pathlib import Path
Path("ran").touch()
from calque.encoders.random_vectors import RandomVectors
from calque.maps import Rotation
class Foreign(RandomVectors): pass
class Turned(Rotation): pass
"""


@pytest.mark.parametrize("where", ["kind", "base", "maps", "hub", "unittest"])
def test_modules_named_in_a_folder_are_not_imported_without_trust_code(
    text, tmp_path, monkeypatch, where
):
    (folder := tmp_path / "hostile").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    (folder / f"evil_{where}.py").write_text(HOSTILE)
    (folder / "test_evil.py").write_text(HOSTILE)
    target = "unittest.__main__:X" if where == "unittest" else f"evil_{where}:Foreign"
    if where in ("base", "maps"):
        MappedEncoder.fit(RandomVectors(8), *text, make=Rotation, towards="en").save(folder)
        about = read_about(folder)
        about["base"] = about["base"] if where == "maps" else target
        about["maps"]["de"]["0"]["kind"] = f"evil_{where}:Turned" if where == "maps" else "rotation"
    else:
        about = {"kind": target, "dim": 8, "seed": 0}
    (folder / ABOUT_FILE).write_text(json.dumps(about))
    name = "user/hostile" if where == "hub" else "."
    monkeypatch.setattr(
        loading, "fetched_folder", lambda given: folder if given == "user/hostile" else None
    )
    said = rf"names the class {target.partition(':')[0]}:\w+, .* was not imported: .* trust_code=True \(--trust-code"
    with pytest.raises(InputError, match=said) as caught:
        load_encoder(name)
    assert str(caught.value).startswith(str(folder) if where == "hub" else ".: ")
    assert not (folder / "ran").exists()
    if where != "unittest":
        assert load_encoder(name, trust_code=True).dim == 8
        assert (folder / "ran").exists()
        assert load_encoder(name).dim == 8  # allowed because the module is already imported


def test_code_in_a_transformers_folder_is_not_run_without_trust_code(tmp_path):
    (tmp_path / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\nclass Evil: pass\n"
    )
    about = {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"},
    }
    (tmp_path / "config.json").write_text(json.dumps(about))
    for trust in (False, True):
        with pytest.raises(InputError, match="not an encoder that transformers can load"):
            load_encoder(tmp_path, trust_code=trust)
        assert (tmp_path / "ran").exists() == trust


@pytest.mark.parametrize(
    "target", ["calque.storage:os.system", "calque.encoders.base:Encoder", "calque.__main__:main"]
)
def test_folders_cannot_name_arbitrary_objects_of_calque(tmp_path, target):
    (tmp_path / ABOUT_FILE).write_text(json.dumps({"kind": target}))
    with pytest.raises(
        InputError, match=f"names {target}, but calque saves no Encoder of this class"
    ):
        load_encoder(tmp_path, trust_code=True)
    former = {"kind": "calque.encoders.random_vectors:RandomVectors", "dim": 8, "seed": 5}
    (tmp_path / ABOUT_FILE).write_text(json.dumps(former))
    check(load_encoder(tmp_path), RECORDED["random"])


def test_custom_maps_on_a_custom_encoder_can_be_saved_and_opened(text, tmp_path):
    mapped = MappedEncoder.fit(Own(2), *text, make=Slanted, towards="en")
    mapped.save(tmp_path / "mapped")
    about = read_about(tmp_path / "mapped")
    assert (about["kind"], about["base"]) == ("mapped", f"{__name__}:Own")
    assert about["maps"]["de"]["0"]["kind"] == f"{__name__}:Slanted"
    again = load_encoder(tmp_path / "mapped")
    assert (type(again.base), type(again.maps["de"][0])) == (Own, Slanted)
    assert again.fingerprint == mapped.fingerprint
    np.testing.assert_array_equal(
        again.encode(text[0].target).data, mapped.encode(text[0].target).data
    )


def test_an_encoder_can_be_loaded_by_class_name(text):
    encoder = load_encoder(f"{__name__}:Bare")
    assert (type(encoder), encoder.fingerprint) == (Bare, "own 0")
    several = load_encoder(f"en={__name__}:Bare,de={__name__}:Own")
    np.testing.assert_array_equal(
        several.encode(text[0].target).data, Own().encode(text[0].target).data
    )
    for name, message in [
        (f"{__name__}:Nobody", "has no Nobody"),
        (f"{__name__}:Slanted", "must be a subclass of calque.encoders.base:Encoder"),
        (
            "calque.encoders.mapped:MappedEncoder",
            r"MappedEncoder cannot be built without arguments \(",
        ),
    ]:
        with pytest.raises(SettingError, match=message):
            load_encoder(name)


def test_a_custom_encoder_without_save_is_saved_as_its_class_name(text, tmp_path):
    Bare().save(tmp_path / "bare")
    assert load_encoder(tmp_path / "bare").fingerprint == "own 0"
    mapped = MappedEncoder.fit(Bare(), *text, make=Rotation, towards="en")
    mapped.save(tmp_path / "mapped")
    assert load_encoder(tmp_path / "mapped").fingerprint == mapped.fingerprint
    Bare(1).save(tmp_path / "other")
    with pytest.raises(
        InputError, match=r"Bare\(\) has a different fingerprint .*; implement save and open"
    ):
        load_encoder(tmp_path / "other")


def test_maps_on_an_encoder_without_open_require_the_encoder_as_argument(text, tmp_path):
    class Half(Planted):
        def save(self, folder):
            Path(folder).mkdir(exist_ok=True)

    mapped = MappedEncoder.fit(Half(), *text, make=Rotation, towards="en")
    mapped.save(tmp_path / "half")
    with pytest.raises(InputError, match="of these maps cannot be imported; .*MappedEncoder.open"):
        load_encoder(tmp_path / "half")
    again = MappedEncoder.open(tmp_path / "half", Half())
    np.testing.assert_array_equal(
        again.encode(text[0].target).data, mapped.encode(text[0].target).data
    )


def test_opening_encoders_with_different_dimensions_requires_alike_false(tmp_path):
    both = PerLanguage({"aa": RandomVectors(4), "bb": RandomVectors(6)}, alike=False)
    both.save(tmp_path / "both")
    with pytest.raises(SettingError, match="all encoders must have the same"):
        load_encoder(tmp_path / "both")
    opened = load_encoder(tmp_path / "both", alike=False)
    assert opened.fingerprint == both.fingerprint
    assert [encoder.dim for encoder in opened.encoders.values()] == [4, 6]


# -- types of the values in files ------------------------------------------------------------------
ODD = (True, -1.5, 10**30, float("nan"), "\ud800", "text", [], [[1]], {}, {"a": {}}, [None], None)


def opened(folder):
    """Open an encoder and use it; return the error message, or an empty string."""
    try:
        load_encoder(folder).encode([Sentence(("the", "cat"), "en")])
    except (InputError, SettingError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["static", "mapped", "huggingface", "per-language", "random"])
def test_values_of_the_wrong_type_in_calque_json_are_one_line_errors(tmp_path, tiny_encoder, kind):
    (tmp_path / "v.vec").write_text("2 3\nthe 1 0 0\ncat 0 1 0\n", encoding="utf-8")
    static = load_encoder(tmp_path / "v.vec")
    rng = np.random.default_rng(0)
    turn = Rotation().fit(*rng.standard_normal((2, 90, tiny_encoder.dim)))
    several = PerLanguage({"en": static, "de": RandomVectors(3)}, alike=False)
    encoder = {
        "static": static,
        "huggingface": tiny_encoder,
        "random": RandomVectors(3),
        "per-language": several,
        "mapped": MappedEncoder(tiny_encoder, {"de": {1: turn}}, towards="en", settings={}),
    }[kind]
    encoder.save(tmp_path / "saved")
    path = tmp_path / "saved" / ABOUT_FILE
    about = json.loads(path.read_text(encoding="utf-8"))
    assert opened(tmp_path / "saved") == ""
    wrong = 0
    for name in about:
        for value in ODD:
            path.write_text(json.dumps({**about, name: value}), encoding="utf-8")
            said = opened(tmp_path / "saved")  # other exceptions make the test fail
            wrong += bool(said)
            assert "\n" not in said
    assert wrong > 3 * len(about)


@pytest.mark.parametrize("name", ["layers", "standardized", "langs", "mix", "sentence"])
def test_null_in_a_list_of_calque_json_is_an_error(tmp_path, name):
    (tmp_path / ABOUT_FILE).write_text(
        json.dumps({"kind": "static", name: [None]}), encoding="utf-8"
    )
    with pytest.raises(
        InputError,
        match=rf"{ABOUT_FILE}: {name} must be a list of .*, got \[None\]; restore the file",
    ):
        read_about(tmp_path)


@pytest.mark.parametrize(
    "value", [{}, [], [1, 2], [1, 2, 3, "4"], [1, 2, 3, float("inf")], "abcd", 3, True]
)
def test_the_sentence_weights_of_static_vectors_must_be_four_numbers(tmp_path, value):
    (tmp_path / "v.vec").write_text("2 3\nthe 1 0 0\ncat 0 1 0\n", encoding="utf-8")
    load_encoder(tmp_path / "v.vec").save(tmp_path / "saved")
    path = tmp_path / "saved" / ABOUT_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "sentence": value}))
    with pytest.raises(InputError, match="sentence must be"):
        load_encoder(tmp_path / "saved")


@pytest.mark.parametrize(
    "name",
    ["method", "encoder", "towards", "settings", "schedule", "counts", "texts", "langs", "scores"],
)
def test_values_of_the_wrong_type_in_the_record_of_a_run_are_errors(tmp_path, name):
    for value in (3, [3] if name in ("texts",) else 3.5, True):
        (tmp_path / RUN_FILE).write_text(
            json.dumps({"method": "rotation", name: value}), encoding="utf-8"
        )
        with pytest.raises(
            InputError,
            match=rf"{RUN_FILE}: {name} must be .*; restore the file as calque wrote it$",
        ):
            read_run(tmp_path)
    for text in ("[]", "{", "3", "[" * 100_000):
        (tmp_path / RUN_FILE).write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="this file was not written by calque"):
            read_run(tmp_path)
    assert read_run(tmp_path / "nowhere") == {}
