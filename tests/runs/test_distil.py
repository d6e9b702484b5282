"""Tests of `calque distil`, from text files to a folder whose sentence vectors equal those of the
student.
"""

import json

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.encoders.sentence_store import TeacherVectors
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.text import Sentences
from calque.training.loop import Loop
from command import fails, run, works

TEXT = (
    "the cat sees a house\tdie Katze sieht ein Haus\nwater\tWasser\nthe old ferry\tdie alte "
    "Fähre\n\t\n"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_folder):
    """Write parallel text, English text, and a teacher in sentence-transformers format."""

    folder = tmp_path_factory.mktemp("distil")
    (folder / "train.tsv").write_text(TEXT)
    (folder / "more.txt").write_text("the wind blows\nwater\n")
    teacher = load_encoder(tiny_folder)
    teacher.save(folder / "teacher")
    SentencePooling("own", "subwords", ("cls", "mean")).save(teacher, folder / "teacher")
    return folder


def command(place, tiny_folder, out, *more):
    return [
        "distil",
        place / "train.tsv",
        "--langs",
        "en",
        "de",
        "--teacher",
        place / "teacher",
        "--student",
        tiny_folder,
        "-o",
        place / out,
        "--batch",
        2,
        "--epochs",
        2,
        *more,
    ]


def test_a_student_can_be_distilled_saved_and_evaluated(place, tiny_folder, capsys):
    kept = ("--vectors", place / "kept", "--text", place / "more.txt")
    works(
        capsys,
        *command(
            place, tiny_folder, "student", "--ranking", 0.5, *kept, "--sentence-pooling", "cls"
        ),
    )
    record = json.loads((place / "student" / "calque-run.json").read_text())
    assert record["teacher_vectors"] == {"computed": 4, "kept": 4}
    assert record["counts"] == {"sentence_pairs": 3, "sentences": 2, "texts_cut": 0}
    pooling = SentencePooling.of(load_encoder(place / "student"))
    assert (pooling.name, pooling.modes) == ("own", ("cls",))
    card = (place / "student" / "README.md").read_text()
    assert "sentence vectors of *teacher*" in card
    assert "SentenceTransformer" in card
    out, _ = works(
        capsys,
        "evaluate",
        place / "student",
        "sentences",
        "--test",
        place / "train.tsv",
        "--langs",
        "en",
        "de",
    )
    assert "accuracy" in out
    works(capsys, *command(place, tiny_folder, "again", *kept))
    assert (
        json.loads((place / "again" / "calque-run.json").read_text())["teacher_vectors"]["computed"]
        == 0
    )
    assert np.isfinite(record["last_loss"])


def test_the_prompt_of_the_teacher_is_put_before_its_texts(place, tiny_folder, capsys):
    (place / "teacher" / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "the cat: "}}'
    )
    job = command(place, tiny_folder, "prompted", "--vectors", place / "prompted-vectors")
    works(capsys, *job, "--teacher-prompt", "query")
    teacher = load_encoder(place / "teacher")
    texts = ["the cat sees a house", "water", "the old ferry"]
    store = TeacherVectors(
        place / "prompted-vectors", teacher, SentencePooling.of(teacher, prompt="the cat: ")
    )
    assert len(store) == 3
    sentences = Sentences.of([text.split() for text in texts], "en")
    expected = sentence_vectors(
        teacher, sentences, SentencePooling.of(teacher, prompt="query")
    ).data
    np.testing.assert_allclose(store.take(store.places(sentences)), expected, atol=1e-6)
    assert (
        len(TeacherVectors(place / "prompted-vectors", teacher, SentencePooling.of(teacher))) == 0
    )
    assert "has no prompt named 'qeury'" in fails(
        capsys, *command(place, tiny_folder, "x", "--teacher-prompt", "qeury")
    )


def test_teacher_vectors_are_reused_after_an_interrupt(place, tiny_folder, capsys, monkeypatch):
    job = command(place, tiny_folder, "killed", "--text", place / "more.txt")
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", lambda self, plan: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(capsys, *job)[0] == 130
    works(capsys, *job)
    record = json.loads((place / "killed" / "calque-run.json").read_text())
    assert record["teacher_vectors"] == {"computed": 4, "kept": 4}


def test_a_resumed_run_counts_the_teacher_vectors_that_it_computed_itself(
    place, tiny_folder, capsys, monkeypatch
):
    kept = ("--vectors", place / "shared")
    works(capsys, *command(place, tiny_folder, "first", *kept))
    job = command(place, tiny_folder, "second", "--text", place / "more.txt", *kept)
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", lambda self, plan: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(capsys, *job)[0] == 130
    works(capsys, *job)
    assert json.loads((place / "second" / "calque-run.json").read_text())["teacher_vectors"] == {
        "computed": 1,
        "kept": 4,
    }


@pytest.mark.parametrize("more", [(), ("--static",)], ids=["network", "static"])
def test_sentence_transformers_computes_the_same_vectors(place, tiny_folder, capsys, more):
    library = pytest.importorskip("sentence_transformers")
    works(capsys, *command(place, tiny_folder, "theirs", "--overwrite", *more))
    encoder = load_encoder(place / "theirs")
    text = Sentences.of(
        [line.split() for line in ("the old ferry sees water", "die Katze, ein Haus!")], "en"
    )
    ours = sentence_vectors(encoder, text, SentencePooling.of(encoder)).data
    theirs = library.SentenceTransformer(str(place / "theirs"), device="cpu").encode(
        [" ".join(s.words) for s in text]
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_static_student_can_be_distilled_and_evaluated(place, tiny_folder, capsys):
    works(
        capsys,
        *command(place, tiny_folder, "static", "--static", "--epochs", 30, "--learning-rate", 0.05),
    )
    record = json.loads((place / "static" / "calque-run.json").read_text())
    assert record["settings"]["batch"] == 2
    assert record["settings"]["ranking"] == 0.3
    assert record["teacher_vectors"]["computed"] == record["teacher_vectors"]["kept"] > 0
    out, _ = works(
        capsys,
        "evaluate",
        place / "static",
        "sentences",
        "--test",
        place / "train.tsv",
        "--langs",
        "en",
        "de",
    )
    assert "sentences accuracy        100.00" in out
    assert "a static student has no layers" in fails(
        capsys, *command(place, tiny_folder, "wrong", "--static", "--freeze", 1)
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--teacher", "TINY"], "no saved sentence pooling"),
        (
            ["--student", "calque.encoders.random_vectors:RandomVectors"],
            "expected a Hugging Face encoder",
        ),
        (["--towards", "fr"], "the teacher's language is fr"),
    ],
)
def test_invalid_teachers_students_and_languages_are_rejected(
    place, tiny_folder, capsys, more, said
):
    given = [str(tiny_folder) if word == "TINY" else word for word in more]
    assert said in fails(capsys, *command(place, tiny_folder, "wrong"), *given)
    assert not (place / "wrong").exists()
