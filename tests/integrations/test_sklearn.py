"""Test the scikit-learn estimator with scikit-learn's own checks."""

from __future__ import annotations

from contextlib import suppress
from unittest import SkipTest

import numpy as np
import pytest

sklearn = pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'calque-align[sklearn]'"
)

from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

from calque.errors import SettingError  # noqa: E402
from calque.integrations.sklearn import AlignmentMap  # noqa: E402
from calque.maps import LinearMap, NormalizedRotation, Rotation  # noqa: E402


@pytest.fixture
def paired():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)) + 3
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    return x, (x - 3) @ turn + 1 + 0.01 * rng.normal(size=(60, 5))


@pytest.mark.parametrize("method", ["rotation", "linear"])
@pytest.mark.parametrize("centre", [False, True])
def test_the_estimator_passes_the_checks_in_scikit_learn(method, centre):
    count = 0
    for estimator, check in estimator_checks_generator(AlignmentMap(method, centre=centre)):
        with suppress(SkipTest):  # e.g. array API checks, which an environment variable enables
            check(estimator)
            count += 1
    assert count > 40


@pytest.mark.parametrize(
    ("estimator", "same"),
    [
        (AlignmentMap(), Rotation()),
        (AlignmentMap("procrustes"), Rotation()),
        (AlignmentMap(centre=True), NormalizedRotation()),
        (AlignmentMap("linear"), LinearMap()),
        (AlignmentMap("linear", centre=True), LinearMap(centred=True)),
    ],
)
def test_the_estimator_fits_the_same_maps_as_calque(paired, estimator, same):
    x, y = paired
    fitted = estimator.fit(x, y)
    assert type(fitted.map_) is type(same)
    np.testing.assert_allclose(fitted.transform(x), same.fit(x, y).transform(x))
    assert fitted.n_features_in_ == 5
    assert list(fitted.get_feature_names_out()) == [f"alignmentmap{k}" for k in range(5)]


@pytest.mark.parametrize("shapes", [(5, 3), (3, 5)])
def test_the_narrower_side_is_padded_with_zeros(paired, shapes):
    x, y = paired[0][:, : shapes[0]], paired[1][:, : shapes[1]]
    wide = [np.pad(side, ((0, 0), (0, 5 - side.shape[1]))) for side in (x, y)]
    expected = Rotation().fit(*wide).transform(wide[0])[:, : shapes[1]]
    np.testing.assert_allclose(AlignmentMap().fit(x, y).transform(x), expected, atol=1e-12)


def test_an_unknown_method_is_rejected(paired):
    with pytest.raises(
        SettingError, match=r"method must be one of rotation, procrustes, linear, got 'turn'"
    ):
        AlignmentMap("turn").fit(*paired)
