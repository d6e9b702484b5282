"""Test that maps recover planted maps, equal the textbook solution, and can be saved and opened."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save
from scipy.linalg import orthogonal_procrustes

from calque.algebra.procrustes import Moments
from calque.encoders import load_encoder
from calque.encoders.mapped import MappedEncoder
from calque.errors import InputError, SettingError
from calque.maps import LinearMap, NormalizedRotation, Rotation
from calque.pairs import WordPairs
from calque.text import Sentence, Sentences
from linked_text import make_text

DIM = 12


@pytest.fixture
def planted():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    return rng, rng.normal(size=(400, DIM)) * np.linspace(0.5, 2, DIM) + rng.normal(size=DIM), turn


def test_moments_do_not_depend_on_block_size_or_merging(planted):
    rng, x, turn = planted
    x = x + 1e4  # with this offset, naive sums of products would be inexact
    y = rng.normal(size=(400, 5))
    whole = Moments.of(x, y)
    merged = Moments(DIM, 5)
    for part in (slice(0, 7), slice(7, 7), slice(7, 250), slice(250, 400)):
        merged.merge(Moments.of(x[part], y[part], block=9))
    assert merged.n == whole.n == 400
    for name in ("source_mean", "target_mean", "cross", "gram", "raw_cross", "raw_gram"):
        np.testing.assert_allclose(
            getattr(merged, name), getattr(whole, name), rtol=1e-9, atol=1e-7
        )
    np.testing.assert_allclose(whole.raw_cross, x.T @ y, rtol=1e-9)
    np.testing.assert_allclose(
        whole.gram, (x - x.mean(0)).T @ (x - x.mean(0)), rtol=1e-7, atol=1e-6
    )


def test_rotation_recovers_a_planted_rotation(planted):
    _, x, turn = planted
    fitted = Rotation().fit(x, x @ turn)
    np.testing.assert_allclose(fitted.matrix, turn, atol=1e-10)
    np.testing.assert_allclose(fitted.transform(x), x @ turn, atol=1e-9)
    np.testing.assert_array_equal(fitted.transform(x, side="target"), x)


def test_normalized_rotation_recovers_rotation_and_shift_but_rotation_does_not(planted):
    rng, x, turn = planted
    y = (x - x.mean(0)) @ turn + rng.normal(size=DIM) * 5
    centred, plain = NormalizedRotation().fit(x, y), Rotation().fit(x, y)
    np.testing.assert_allclose(centred.matrix, turn, atol=1e-10)
    # Eq. 5 of Kulshreshtha 2020
    np.testing.assert_allclose(
        centred.transform(x), (x - x.mean(0)) @ centred.matrix + y.mean(0), atol=1e-9
    )
    np.testing.assert_allclose(centred.transform(x), y, atol=1e-9)
    assert np.abs(plain.transform(x) - y).max() > 0.1


@pytest.mark.parametrize("centred", [False, True])
def test_linear_map_recovers_a_planted_linear_map(planted, centred):
    rng, x, _ = planted
    matrix = rng.normal(size=(DIM, DIM))
    y = (x - x.mean(0)) @ matrix + 3 if centred else x @ matrix
    np.testing.assert_allclose(LinearMap(centred=centred).fit(x, y).transform(x), y, atol=1e-8)


def test_impossible_fits_are_rejected(planted):
    _, x, _ = planted
    with pytest.raises(SettingError, match="equal numbers of vectors, got 400 and 399"):
        Rotation().fit(x, x[:-1])
    with pytest.raises(SettingError, match="must be finite"):
        Rotation().fit(x, np.where(x > 2, np.nan, x))
    with pytest.raises(SettingError, match="equal dimensions"):
        Rotation().fit(x, x[:, :3])
    with pytest.raises(SettingError, match="requires pairs"):
        Rotation().fit(x[:0], x[:0])
    with pytest.raises(SettingError, match="not been fitted"):
        Rotation().transform(x)
    with pytest.raises(SettingError, match="must have 12 dimensions, got 3"):
        Rotation().fit(x, x).transform(x[:, :3])


# -- with an encoder -------------------------------------------------------------------------------
@pytest.fixture
def text():
    return make_text("xx", 40, 1)


def test_mapped_encoder_equals_the_formula(tiny_encoder, text):
    corpus, pairs = text
    layers = (1, 2)
    for combine in ("sum", "mean", "concat", "last"):
        mapped = MappedEncoder.fit(
            tiny_encoder,
            corpus,
            pairs,
            make=NormalizedRotation,
            towards="en",
            layers=layers,
            combine=combine,
            block=7,
        )
        source = tiny_encoder.encode_layers(corpus.target, layers)  # xx is mapped to en
        target = tiny_encoder.encode_layers(corpus.source, layers)
        expected = []
        for layer in layers:
            x = (
                source[layer]
                .data[source[layer].rows(pairs.sentence, pairs.target)]
                .astype(np.float64)
            )
            y = (
                target[layer]
                .data[target[layer].rows(pairs.sentence, pairs.source)]
                .astype(np.float64)
            )
            turn = orthogonal_procrustes(x - x.mean(0), y - y.mean(0))[0]
            expected.append((source[layer].data - x.mean(0)) @ turn + y.mean(0))
        joined = {
            "sum": sum(expected),
            "mean": sum(expected) / 2,
            "concat": np.hstack(expected),
            "last": expected[-1],
        }
        found = mapped.encode(corpus.target)
        np.testing.assert_allclose(found.data, joined[combine], atol=2e-4)
        assert mapped.dim == found.dim
        raw = [target[layer].data for layer in layers]
        stays = {"sum": sum(raw), "mean": sum(raw) / 2, "concat": np.hstack(raw), "last": raw[-1]}
        np.testing.assert_allclose(mapped.encode(corpus.source).data, stays[combine], atol=1e-5)


def test_a_language_variety_uses_the_maps_of_its_language(tiny_encoder, text):
    corpus, pairs = text
    assert corpus.langs == ("en", "xx")
    mapped = MappedEncoder.fit(tiny_encoder, corpus, pairs, make=Rotation, towards="en")
    words = corpus.target[1].words
    raw, turned = (
        encoder.encode([Sentence(words, "xx")]).data for encoder in (tiny_encoder, mapped)
    )
    assert np.abs(raw - turned).max() > 0.1
    for lang, expected in {"xx-AT": turned, "XX_ch": turned, "en-GB": raw, "xxy": raw}.items():
        np.testing.assert_allclose(mapped.encode([Sentence(words, lang)]).data, expected, atol=1e-5)
        np.testing.assert_allclose(
            mapped.encode(Sentences.of([words], lang)).data, expected, atol=1e-5
        )
    three = mapped.encode([Sentence(words, lang) for lang in ("xx-AT", "en", "xx")])
    for number, expected in enumerate((turned, raw, turned)):
        np.testing.assert_allclose(three[number], expected, atol=1e-5)


@pytest.mark.parametrize(
    "sentences",
    [
        [["the", "cat"]],
        [Sentence(("the", "cat"))],
        Sentences.of([["the", "cat"]]),
        [Sentence(("a",), "xx"), ["the"]],
    ],
)
def test_a_mapped_encoder_rejects_sentences_without_a_language(tiny_encoder, text, sentences):
    mapped = MappedEncoder.fit(tiny_encoder, *text, make=Rotation, towards="en")
    said = r'has no language, but .*\+rotation has maps for xx; use calque\.Sentence\(words, lang="xx"\)'
    with pytest.raises(SettingError, match=said):
        mapped.encode(sentences)
    expected = tiny_encoder.encode(sentences).data
    np.testing.assert_allclose(mapped.without_maps().encode(sentences).data, expected, atol=1e-6)
    assert len(mapped.encode(Sentences.of([]))) == 0


def test_a_missing_language_is_reported_before_the_text_is_encoded(tiny_encoder, text, monkeypatch):
    mapped = MappedEncoder.fit(tiny_encoder, *text, make=Rotation, towards="en")
    monkeypatch.setattr(
        mapped.base, "encode_layers", lambda *_, **__: pytest.fail("the text was encoded")
    )
    with pytest.raises(SettingError, match="has no language"):
        mapped.encode(Sentences.of([["the", "cat"]]))


def test_a_bfloat16_encoder_is_loaded_with_the_dtype_used_for_fitting(tiny_folder, text, tmp_path):
    import torch

    base = load_encoder(tiny_folder, dtype="bfloat16")
    mapped = MappedEncoder.fit(base, *text, make=Rotation, towards="en")
    mapped.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out")
    assert again.base.model.dtype == torch.bfloat16
    assert again.fingerprint == mapped.fingerprint
    np.testing.assert_array_equal(
        again.encode(text[0].target).data, mapped.encode(text[0].target).data
    )
    other = load_encoder(
        tmp_path / "out", dtype="float32"
    )  # the fingerprint is checked before the conversion
    assert other.base.model.dtype == torch.float32
    np.testing.assert_allclose(
        other.encode(text[0].target).data, mapped.encode(text[0].target).data, atol=0.1
    )
    assert load_encoder(tmp_path / "out", layer=-1).base.model.dtype == torch.bfloat16


def test_sentence_rotation_uses_sentence_means(tiny_encoder, text):
    corpus, pairs = text
    nothing = WordPairs(*np.zeros((3, 0), dtype=int), n_sentences=len(corpus))
    mapped = MappedEncoder.fit(
        tiny_encoder, corpus, nothing, make=Rotation, towards="en", unit="sentences", block=11
    )
    x = np.stack([tiny_encoder.encode(corpus.target)[i].mean(0) for i in range(len(corpus))])
    y = np.stack([tiny_encoder.encode(corpus.source)[i].mean(0) for i in range(len(corpus))])
    (layer,) = mapped.layers
    np.testing.assert_allclose(
        mapped.maps["xx"][layer].transform(x),
        x @ orthogonal_procrustes(x.astype(float), y.astype(float))[0],
        atol=1e-4,
    )


def test_saved_maps_can_be_opened_and_the_base_encoder_is_in_a_subfolder(
    tiny_encoder, text, tmp_path
):
    from transformers import AutoModel, AutoTokenizer

    corpus, pairs = text
    mapped = MappedEncoder.fit(
        tiny_encoder,
        corpus,
        pairs,
        make=NormalizedRotation,
        towards="en",
        layers=(0, -1),
        combine="sum",
    )
    mapped.save(tmp_path / "out")
    again = load_encoder(tmp_path / "out")
    assert isinstance(again, MappedEncoder)
    assert (again.towards, again.combine, again.layers) == ("en", "sum", mapped.layers)
    np.testing.assert_array_equal(
        again.encode(corpus.target).data, mapped.encode(corpus.target).data
    )
    assert again.fingerprint == mapped.fingerprint != tiny_encoder.fingerprint
    AutoModel.from_pretrained(tmp_path / "out" / "base")
    AutoTokenizer.from_pretrained(tmp_path / "out" / "base")
    with pytest.raises((OSError, ValueError)):  # the vectors would lack the maps
        AutoModel.from_pretrained(tmp_path / "out")


def test_errors_for_corrupt_maps_name_the_file_and_a_remedy(tiny_encoder, text, tmp_path):
    MappedEncoder.fit(tiny_encoder, *text, make=Rotation, towards="en").save(tmp_path / "out")
    file = tmp_path / "out" / "maps.safetensors"
    whole, arrays = file.read_bytes(), load_file(file)
    name = next(name for name in arrays if name.endswith("matrix"))
    nan = arrays[name].copy()
    nan[3, 3] = np.nan
    for damaged, said in (
        (
            whole + b"garbage" * 10,
            r"maps.safetensors: not a safetensors file .*; copy or create it again",
        ),
        (whole[:-500] + b"abc" + whole[-500:], "maps.safetensors: not a safetensors file"),
        (b"not tensors", "maps.safetensors: not a safetensors file"),
        (
            arrays | {name: nan},
            r"out: map xx.3: matrix must contain only finite numbers; copy .*, or fit the maps again",
        ),
        (
            arrays | {name: nan[:3]},
            "out: map xx.3: arrays have inconsistent shapes .*; fit the maps again",
        ),
        (
            {key: array[..., :3] for key, array in arrays.items()} | {name: np.eye(3)},
            r"out: .*maps must have shape \(32, 32\), got \(3, 3\); fit the",
        ),
    ):
        file.write_bytes(damaged if isinstance(damaged, bytes) else save(damaged))
        with pytest.raises(InputError, match=said):
            load_encoder(tmp_path / "out")


def test_the_vector_of_an_uncovered_word_remains_zero(tiny_encoder, text):
    corpus, pairs = text
    mapped = MappedEncoder.fit(tiny_encoder, corpus, pairs, make=NormalizedRotation, towards="en")
    with pytest.warns(UserWarning, match="have no vector"):
        found = mapped.encode([Sentence(("cat", "\x00", "house"), "xx")])
    assert found.covered is not None
    assert found.covered.tolist() == [True, False, True]
    assert not found.data[1].any()
