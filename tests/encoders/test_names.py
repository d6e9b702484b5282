"""Test the paths of base encoders in the records of aligned encoders."""

import pytest

from calque.encoders.names import check_encoder, found_place, recorded_place
from calque.errors import InputError


@pytest.mark.parametrize(
    ("base", "folder", "recorded"),
    [
        ("models/base", "out/aligned", "../../models/base"),
        ("home/ann/base", "home/ann/runs/aligned", "../../base"),
        ("home/ann/base", "scratch/aligned", "~/base"),
        ("data/base", "home/ann/aligned", "../../../data/base"),
    ],
)
def test_the_recorded_path_is_relative_and_never_names_the_user(
    base, folder, recorded, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ann"))
    for each in ("home/ann", base, folder):
        (tmp_path / each).mkdir(parents=True, exist_ok=True)
    for given in (str(tmp_path / base), base):
        monkeypatch.chdir(tmp_path)
        assert recorded_place(given, tmp_path / folder) == recorded
    assert found_place(recorded, tmp_path / folder).resolve() == (tmp_path / base).resolve()


def test_only_paths_are_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mini", "intfloat/multilingual-e5-small", "mymodels:Trigrams", "en=a,de=b"):
        assert recorded_place(name, tmp_path) is None


def test_a_link_to_the_folder_is_followed(tmp_path):
    (tmp_path / "deep" / "er" / "aligned").mkdir(parents=True)
    (tmp_path / "base").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    recorded = recorded_place(str(tmp_path / "base"), tmp_path / "link" / "aligned")
    assert (
        found_place(str(recorded), tmp_path / "deep" / "er" / "aligned").resolve()
        == tmp_path / "base"
    )
    assert found_place(str(recorded), tmp_path / "link" / "aligned").resolve() == tmp_path / "base"


@pytest.mark.parametrize("name", ["mini", "json:JSONDecoder", "en=mini,de=mini"])
def test_bundled_encoders_and_classes_exist(name):
    check_encoder(name)


def test_each_encoder_of_several_languages_must_exist(tmp_path):
    (tmp_path / "en.vec").write_text("1 1\na 1\n")
    check_encoder("en=en.vec", folder=str(tmp_path))
    with pytest.raises(
        InputError, match=r"de\.vec: no such file or folder; expected .*; did you mean en\.vec\?"
    ):
        check_encoder("en=en.vec,de=de.vec", folder=str(tmp_path))
