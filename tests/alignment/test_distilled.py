"""A student learns a teacher's sentence vectors: the loss against a literal transcription, what is kept, and what is said."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from calque.alignment.distilled import Distillation, static_student
from calque.alignment.distilling import Lesson, LinkedWords
from calque.distributed import Processes
from calque.encoders import HuggingFaceEncoder, load_encoder
from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.sentence_store import TeacherVectors
from calque.encoders.sentence_vectors import SentencePooling, UnitLength, sentence_vectors
from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

PAIRS = [
    ("the cat sees a house", "die Katze sieht ein Haus"), ("water", "Wasser"), ("the old ferry", "die alte Fähre"),
    ("water", "das Wasser"), ("a b c d e f", "x y z"), ("seven birds", "sieben Vögel"),
]  # fmt: skip
MONO = ["the wind blows", "water"]


@pytest.fixture(scope="module")
def student(tiny_folder):
    encoder: Any = load_encoder(tiny_folder, layer=2)
    for module in encoder.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return encoder


@pytest.fixture(scope="module")
def teacher(tiny_folder):
    """An encoder and a pooling of 24 dimensions and length 1."""
    torch.manual_seed(3)
    after = [nn.Linear(32, 24), nn.Tanh(), UnitLength()]
    return load_encoder(tiny_folder), SentencePooling("own", "subwords", ("cls",), after=after)


def corpus(pairs=PAIRS, langs=("en", "de")):
    source, target = ([side.split() for side in sides] for sides in zip(*pairs, strict=True))
    return ParallelCorpus.of(source, target, langs)


def mono():
    return Sentences.of([line.split() for line in MONO], "en")


def subwords():
    return SentencePooling("subwords", "subwords")


def literal(method, model, ending, student, teacher, pairs, lines, drawn=()) -> torch.Tensor:
    """The loss of one update, text by text, with what tokenizer and model give for each; the teacher's vectors of `drawn` are
    further candidates."""

    def vector(text):
        tokens = student.tokenizer(text, return_tensors="pt")
        mean = model(**tokens, output_hidden_states=True).hidden_states[2][0].mean(0)
        y = ending.after[0](mean)
        return y / y.norm()

    def taught(text):
        one = Sentences.of([text.split()], "en")
        return torch.from_numpy(sentence_vectors(teacher[0], one, teacher[1]).data[0])

    learnt = [(vector(text), en) for en, de in pairs for text in (en, de)] + [(vector(en), en) for en in lines]
    others = {en: taught(en) for en in {*drawn, *(en for _, en in learnt)}}
    total = torch.zeros(())
    for x, en in learnt:
        near = {other: torch.exp(x @ v / method.temperature) for other, v in others.items()}
        ranking = -torch.log(near[en] / sum(near.values()))
        total = total + (((x - others[en]) ** 2).sum() + method.ranking * ranking) / len(learnt)
    return total


def check_gradients(objective, before, expected):
    """The gradients of an objective's parts are those of a literal loss in the same weights."""
    expected.backward()
    for fast, weight in zip(before, objective.module.parameters(), strict=True):
        slow = torch.zeros_like(weight) if weight.grad is None else weight.grad
        assert torch.allclose(torch.zeros_like(slow) if fast is None else fast, slow, atol=1e-5)


def taken_gradients(objective):
    """The gradients that are there, which are removed."""
    found = [None if weight.grad is None else weight.grad.clone() for weight in objective.module.parameters()]
    objective.module.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize(("accumulate", "negatives"), [(1, 0), (3, 0), (2, 3)])
def test_the_loss_and_its_gradients_are_the_formula(student, teacher, tmp_path, accumulate, negatives):
    method = Distillation(towards="en", ranking=0.3, temperature=0.2, accumulate=accumulate, negatives=negatives)
    store, text, lines = TeacherVectors(tmp_path, *teacher), corpus(), mono()
    objective = method.objective(student, subwords(), store, [text], [lines], processes=Processes.alone())
    where = store.places(Sentences.joined([text.source, lines]))
    drawn = {([en for en, _ in PAIRS] + MONO)[list(where).index(place)] for place in objective.drawn()}
    assert bool(drawn - {"the cat sees a house", "water", "the wind blows"}) == bool(negatives)
    found = objective.backward([np.array([3, 0, 1]), np.array([0, 1])])
    gradients = taken_gradients(objective)
    ending, model = objective.sentences.head, objective.student.model
    expected = literal(method, model, ending, student, teacher, [PAIRS[3], PAIRS[0], PAIRS[1]], MONO, drawn)
    assert found["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    check_gradients(objective, gradients, expected)


def test_a_share_of_the_sources_is_read(student, teacher, tmp_path):
    method, store = Distillation(towards="en", source_share=0.25), TeacherVectors(tmp_path, *teacher)
    objective = method.objective(student, subwords(), store, [corpus(PAIRS * 20)], processes=Processes.alone())
    targets = set(objective.sentences.lesson.parts[0][:, 1])
    first, again = (objective.texts([np.arange(120)]) for _ in range(2))
    objective.load_state({"updates": 1})
    other = objective.texts([np.arange(120)])
    assert targets <= set(first)
    assert 15 < len(first) - 120 < 45
    assert list(first) == list(again) != list(other), "it is the update's number that counts"


@pytest.mark.parametrize("of_words", [False, True])
def test_the_teacher_reads_each_text_once(teacher, tmp_path, monkeypatch, of_words):
    """In shares of two processes; vectors of sentences and of words may be in one folder."""
    monkeypatch.setattr("calque.encoders.sentence_store._BLOCK", 2)
    encoder = copy.copy(teacher[0])
    encoder.model = copy.deepcopy(encoder.model).double()  # batches differ in shape, and float32 sums with them
    pooling = None if of_words else teacher[1]
    lines = Sentences.joined([corpus().source, Sentences.of([["the", "cat"], ["the cat"]], "en")])
    shares = [TeacherVectors(tmp_path, encoder, pooling) for _ in range(2)]
    for rank, share in enumerate(shares):
        assert share.fill(lines, rank=rank, world=2) == 6 + of_words
    store = TeacherVectors(tmp_path, encoder, pooling)
    assert len(store) == 6 + of_words, (
        "water is there twice, and the same words divided otherwise are another text of words"
    )
    assert store.fill(lines) == 0
    assert store.fill(Sentences.joined([mono(), lines])) == 1, "another run has new text alone to read"
    plain = encoder.encode(lines).data if of_words else sentence_vectors(encoder, lines, pooling).data
    places = store.places(lines)
    np.testing.assert_allclose(store.take(places), plain, atol=1e-6)
    assert store.covered[places].all()
    TeacherVectors(tmp_path, encoder, None if pooling else teacher[1]).fill(lines)
    assert len(TeacherVectors(tmp_path, encoder, pooling)) == 7 + of_words
    (next(iter(store.folder.glob("*.safetensors")))).write_bytes(b"")
    with pytest.raises(InputError):
        TeacherVectors(tmp_path, encoder, pooling)


def test_a_teacher_of_words_reads_words(tiny_folder, tmp_path):
    encoder = load_encoder(tiny_folder)
    store = TeacherVectors(tmp_path, encoder, SentencePooling.of(encoder, "words"))
    store.fill(Sentences.of([["the", "cat,", "water!"]], "en"))
    divided = Sentences.of([["the", "cat", ",", "water", "!"]], "en")
    expected = sentence_vectors(encoder, divided, store.pooling).data
    np.testing.assert_allclose(store.take(np.array([0])), expected, atol=1e-6)


def distil(student, teacher, place, folder, **options):
    method = Distillation(towards="en", batch=3, learning_rate=3e-3, source_share=0.5, **options)
    store = TeacherVectors(place, *teacher)
    found = method.distil(student, subwords(), store, [corpus(), corpus([pair[::-1] for pair in PAIRS[:2]], ("de", "en"))],
                          [mono()], folder=folder, checkpoint_every=2)  # fmt: skip
    return method, found


def stopped_at_the_sixth(monkeypatch, kind, name):
    """Have the sixth call of a method stop the run; the list grows by one with each call."""
    usual, calls = getattr(kind, name), []

    def stops(self, *given):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return usual(self, *given)

    monkeypatch.setattr(kind, name, stops)
    return calls


def test_stopped_and_resumed_is_the_same_bit_by_bit(student, teacher, tmp_path, monkeypatch):
    whole, one = distil(student, teacher, tmp_path / "store", tmp_path / "whole", epochs=4)
    assert whole.history[-1]["loss"] < whole.history[0]["loss"]
    calls = stopped_at_the_sixth(monkeypatch, Distillation, "terms")
    with pytest.raises(KeyboardInterrupt):
        distil(student, teacher, tmp_path / "store", tmp_path / "again", epochs=4)
    again, other = distil(student, teacher, tmp_path / "store", tmp_path / "again", epochs=4)
    assert len(calls) < 6 + len(whole.history), "it went on from a checkpoint"
    assert again.history == whole.history
    for name, weight in {**one.encoder.model.state_dict(), **one.pooling.state_dict()}.items():
        found = {**other.encoder.model.state_dict(), **other.pooling.state_dict()}[name]
        assert torch.equal(weight, found), name


def test_the_folder_holds_the_pooling(student, teacher, tmp_path):
    _, found = distil(student, teacher, tmp_path / "store", None, epochs=1)
    (tmp_path / "modules").mkdir()
    found.write_modules(tmp_path / "modules")
    found.encoder.save(tmp_path / "saved")
    read = load_encoder(tmp_path / "saved")
    pooling = SentencePooling.of(read)
    assert pooling.name == "own"
    text = corpus().target
    np.testing.assert_allclose(
        sentence_vectors(read, text, pooling).data, sentence_vectors(found.encoder, text, found.pooling).data, atol=1e-6
    )
    assert sentence_vectors(read, text, pooling).data.shape == (6, 24)


@pytest.mark.parametrize(("width", "layers"), [(32, 0), (64, 1)])
def test_a_linear_layer_stands_where_the_teacher_has_other_dimensions(student, tmp_path, width, layers):
    after = [nn.Linear(32, width)] if width != 32 else []
    store = TeacherVectors(tmp_path, student, SentencePooling("own", "subwords", ("mean",), after=after))
    pooling = subwords()
    for _ in range(2):
        objective = Distillation(towards="en").objective(
            student, pooling, store, [corpus()], processes=Processes.alone()
        )
        pooling = objective.sentences.head
        found = sum(isinstance(part, nn.Linear) for part in pooling.after)
        assert found == layers, "and a student taught before gets no other"


def test_what_cannot_be_is_said():
    cases: Any = ({"ranking": -1}, {"temperature": 0}, {"batch": 0}, {"freeze": -1})
    for wrong in cases:
        with pytest.raises(SettingError):
            Distillation(towards="en", **wrong)
    with pytest.raises(SettingError, match="for ranking"):
        Distillation(towards="en", negatives=8)


def test_a_static_student_is_its_recipe_and_learns(tiny_folder, teacher, tmp_path):
    tokenizer: Any = load_encoder(tiny_folder).tokenizer  # type: ignore[attr-defined]
    store = TeacherVectors(tmp_path / "store", *teacher)
    text = corpus()
    start = static_student(tokenizer, store, [text.source, text.target])
    ids = tokenizer(" ".join(side for pair in PAIRS for side in pair), add_special_tokens=False)["input_ids"]
    alone = {}
    for number, token in enumerate(tokenizer.convert_ids_to_tokens(range(len(tokenizer)))):
        if token not in tokenizer.all_special_tokens:
            one = Sentences.of([[token.removeprefix("##")]], "en")
            alone[number] = sentence_vectors(teacher[0], one, teacher[1]).data[0]
    mean = np.mean(list(alone.values()), axis=0)
    number = ids[0]
    weight = 1e-3 / (1e-3 + ids.count(number) / len(ids))
    np.testing.assert_allclose(start.model.weight[number].detach().numpy(), weight * (alone[number] - mean), atol=1e-5)
    method = Distillation(towards="en", batch=4, learning_rate=0.05, epochs=20, ranking=0.3)
    found = method.distil(start, SentencePooling.of(start), store, [text])
    assert method.history[-1]["mse"] < 0.3 * method.history[0]["mse"]
    found.encoder.save(tmp_path / "static")
    read = load_encoder(tmp_path / "static")
    pooling = SentencePooling.of(read)
    vectors = sentence_vectors(read, text.target, pooling)
    np.testing.assert_array_equal(vectors.data, sentence_vectors(found.encoder, text.target, pooling).data)
    rows = found.encoder.model.weight.detach()
    for vector, pair in zip(vectors.data, PAIRS, strict=True):
        ids = tokenizer(pair[1], add_special_tokens=False)["input_ids"]
        expected = torch.nn.functional.normalize(rows[ids].mean(0), dim=0)
        np.testing.assert_allclose(vector, expected, atol=1e-6)
    words = read.encode(text.target)
    ids = tokenizer("Katze", add_special_tokens=False)["input_ids"]
    np.testing.assert_allclose(words[0][1], rows[ids].mean(0), atol=1e-6)


# -- words --------------------------------------------------------------------------------------------------------------
def linked(encoder, place, text, links, lines=()):
    """Links as triples of sentence, source and target word."""
    sentence, source, target = (np.array(column) for column in zip(*links, strict=True))
    pairs = WordPairs(sentence, source, target, n_sentences=len(text))
    return LinkedWords(TeacherVectors(place, encoder, None), [text], [pairs], lines)


LINKS = [(0, 0, 0), (0, 1, 1), (0, 4, 4), (1, 0, 0), (3, 0, 0), (3, 0, 1), (2, 2, 2)]


def word_of(encoder, model, words, number, layer):
    """The mean of a word's subwords, each word cut by itself."""
    cut = [encoder.tokenizer(word, add_special_tokens=False).input_ids for word in words]
    ids = [encoder.tokenizer.cls_token_id, *(i for part in cut for i in part), encoder.tokenizer.sep_token_id]
    states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
    first = 1 + sum(map(len, cut[:number]))
    return states[first : first + len(cut[number])].mean(0)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_loss_over_words_is_the_formula(student, teacher, tmp_path, accumulate):
    """Of an update of two sentence pairs and two lines, whose sentences have a literal loss above."""
    student = HuggingFaceEncoder(student.model, student.tokenizer, layer=2, pooling="mean")
    known = HuggingFaceEncoder(teacher[0].model, teacher[0].tokenizer, pooling="mean")
    method = Distillation(towards="en", ranking=0.3, temperature=0.2, words=0.7, accumulate=accumulate)
    text, lines, store = corpus(), mono(), TeacherVectors(tmp_path, *teacher)
    given = linked(known, tmp_path, text, LINKS, [lines])
    objective = method.objective(student, subwords(), store, [text], [lines], given, processes=Processes.alone())
    assert method.words_computed == 6
    found = objective.backward([np.array([0, 3]), np.array([0, 1])])
    gradients = taken_gradients(objective)
    model = objective.student.model

    def said(sentence, number):
        with torch.no_grad():
            vector = word_of(known, known.model, sentence, number, known.layer)
        return tuple((vector / vector.norm()).tolist())

    en, de = ([list(sentence.words) for sentence in side] for side in (text.source, text.target))
    learnt = [(en[s], i, said(en[s], i)) for s, i, j in LINKS if s in (0, 3)]
    learnt += [(de[s], j, said(en[s], i)) for s, i, j in LINKS if s in (0, 3)]
    learnt += [(list(line.words), k, said(list(line.words), k)) for line in lines for k in range(len(line))]
    others, expected = [torch.tensor(each) for each in dict.fromkeys(each for *_, each in learnt)], torch.tensor(0.0)
    for sentence, number, wanted in learnt:
        y = word_of(student, model, sentence, number, 2)
        y, t = y / y.norm(), torch.tensor(wanted)
        near = torch.exp(y @ t / 0.2) / sum(torch.exp(y @ other / 0.2) for other in others)
        expected = expected + 0.7 * ((y - t).square().sum() - 0.3 * torch.log(near)) / len(learnt)
    assert found["words_mse"] + found["words_ranking"] == pytest.approx(float(expected.detach()), rel=1e-5)
    ending = objective.sentences.head
    of_texts = literal(method, model, ending, student, teacher, [PAIRS[0], PAIRS[3]], MONO)
    check_gradients(objective, gradients, expected + of_texts)


def test_words_without_a_vector_are_left_out_and_counted(student, teacher, tmp_path):
    text = corpus([("the cat \u200b sees", "die Katze sieht \u200b"), *PAIRS[:1]])
    given = linked(teacher[0], tmp_path, text, [(0, 0, 0), (0, 1, 3), (0, 2, 2), (0, 3, 2), (1, 0, 0)])
    with pytest.warns(UncoveredWordsWarning):
        given.teacher.fill(given.read)
    taught = Lesson.of_words(student, given, [2])
    assert taught.counts["links_without_vector"] == 2
    assert taught.words.tolist() == [0, 3, 0, 0, 2, 0]
    assert taught.offsets.tolist() == [0, 2, 3, 5, 6]
    with pytest.raises(SettingError, match="have \\[2\\] sentences, the texts \\[3\\]"):
        Lesson.of_words(student, given, [3])


def distil_words(student, teacher, place, folder, **options):
    method = Distillation(towards="en", batch=3, learning_rate=3e-3, words=0.5, ranking=0.2, **options)
    turned = corpus([pair[::-1] for pair in PAIRS[:2]], ("de", "en"))
    given = linked(teacher[0], place, corpus(), LINKS, [mono()])
    back = WordPairs(np.array([0, 1]), np.array([1, 0]), np.array([1, 0]), n_sentences=2)
    given = LinkedWords(given.teacher, [*given.corpora, turned], [*given.pairs, back], given.texts)
    found = method.distil(student, subwords(), TeacherVectors(place, *teacher), [corpus(), turned], [mono()], words=given,
                          folder=folder, checkpoint_every=2)  # fmt: skip
    return method, found


def test_words_are_learnt(student, teacher, tmp_path):
    whole, _ = distil_words(student, teacher, tmp_path / "store", None, epochs=6)
    first, last = whole.history[0], whole.history[-1]
    assert last["words_mse"] < 0.8 * first["words_mse"]
    assert last["mse"] < first["mse"]
    assert whole.counts["words"] == 2 * (len(LINKS) + 2) + sum(map(len, mono()))
