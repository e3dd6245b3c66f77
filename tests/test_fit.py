"""Fitting: sentence vectors, the language subspace, the whitening."""

from __future__ import annotations

import warnings

import pytest
import torch
from concept_erasure import LeaceFitter
from torch import Tensor

from carot.alignment import LayerAligner, LayerFitter, sentence_vectors
from carot.errors import CarotError


def corpus(
    size: int = 12, languages: int = 3, count: int = 600, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Correlated float64 vectors around a mean far from 0, shifted by language."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.randperm(count, generator=generator) % languages
    mixing = torch.eye(size, dtype=torch.float64) + 0.3 * normal(size, size)
    return normal(count, size) @ mixing + normal(languages, size)[labels] + 5, labels


def fit(vectors: Tensor, labels: Tensor, chunk: int | None = None) -> LayerAligner:
    fitter = LayerFitter(vectors.shape[1], int(labels.max()) + 1)
    for start in range(0, len(vectors), chunk or len(vectors)):
        end = start + (chunk or len(vectors))
        fitter.update(vectors[start:end], labels[start:end])
    return fitter.fit()


def parts(fitted: LayerAligner, points: Tensor) -> dict[str, Tensor]:
    """What a fit determines; factors and eigenvectors are free in sign and rotation."""
    return {
        "E(x)": fitted.subspace.agnostic(points),
        "W W^T": fitted.whitening @ fitted.whitening.T,
        "means": fitted.means,
    }


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Relative to the largest value."""
    assert (actual - expected).abs().max() <= tolerance * expected.abs().max()


def explained(vectors: Tensor, labels: Tensor) -> float:
    """Share of the language labels' variance that a least-squares linear probe explains."""
    one_hot = torch.nn.functional.one_hot(labels).double()
    one_hot = one_hot - one_hot.mean(0)
    vectors = vectors.double() - vectors.double().mean(0)
    # rcond: directions that erasure removed hold rounding noise alone.
    weights = torch.linalg.lstsq(vectors, one_hot, rcond=1e-7, driver="gelsd").solution
    return float(1 - (one_hot - vectors @ weights).square().sum() / one_hot.square().sum())


# Sentence vectors


def test_later_tokens_weigh_more():
    hidden = torch.tensor([[[6.0, 0.0], [0.0, 6.0], [12.0, 60.0]]])
    # Weights 1/6, 2/6, 3/6.
    expected = torch.tensor([[7.0, 32.0]], dtype=torch.float64)
    vectors = sentence_vectors(hidden, torch.ones(1, 3).bool())
    assert vectors.dtype == torch.float64
    torch.testing.assert_close(vectors, expected)


def test_positions_count_content_tokens_only():
    hidden = torch.tensor([[[6.0], [99.0], [0.0], [99.0], [12.0]]])
    mask = torch.tensor([[True, False, True, False, True]])
    torch.testing.assert_close(sentence_vectors(hidden, mask), torch.tensor([[7.0]]).double())


@pytest.mark.parametrize("garbage", [0.0, 1e30, torch.inf, torch.nan])
@pytest.mark.parametrize("side", ["left", "right"])
def test_neither_padding_side_nor_what_padding_holds_matters(side, garbage):
    generator = torch.Generator().manual_seed(0)
    sentences = [torch.randn(length, 4, generator=generator) for length in (5, 1, 9)]
    hidden, mask = torch.full((3, 11, 4), garbage), torch.zeros(3, 11).bool()
    for index, sentence in enumerate(sentences):
        length = len(sentence)
        own = slice(length) if side == "right" else slice(11 - length, 11)
        hidden[index, own], mask[index, own] = sentence, True
    alone = [sentence_vectors(s[None], torch.ones(1, len(s)).bool())[0] for s in sentences]
    torch.testing.assert_close(sentence_vectors(hidden, mask), torch.stack(alone))


def test_half_precision_states_are_summed_in_float64():
    hidden = torch.full((1, 1000, 1), 0.1).bfloat16()
    vector = sentence_vectors(hidden, torch.ones(1, 1000).bool())
    torch.testing.assert_close(vector, hidden[:, 0].double(), rtol=1e-12, atol=0)


# The fit


def test_the_fit_is_that_of_the_reference(reference):
    vectors, labels = reference["sentences"], reference["labels"]
    fitter = LayerFitter(48, 6).update(vectors, labels)
    fitted = fitter.fit()
    right, left = reference["proj_right"], reference["proj_left"]
    erased = vectors - (vectors - reference["bias"]) @ right.T @ left.T
    assert (fitted.subspace.agnostic(vectors) - erased).abs().max() < 1e-8
    assert_near(fitter.covariance(fitted.subspace), reference["covariance"], 1e-8)
    whitening = reference["whitening"]
    assert fitted.whitening.shape == whitening.shape
    assert_near(fitted.whitening @ fitted.whitening.T, whitening @ whitening.T, 1e-8)


@pytest.mark.parametrize("chunk", [1, 7, 37, 599])
def test_sentences_may_come_in_chunks_of_any_size(chunk):
    vectors, labels = corpus()
    whole, streamed = fit(vectors, labels), fit(vectors, labels, chunk)
    for name, part in parts(whole, vectors).items():
        assert_near(parts(streamed, vectors)[name], part, 1e-9)


def test_the_order_of_sentences_does_not_matter():
    vectors, labels = corpus()
    by_language = labels.argsort(stable=True)
    sorted_fit = fit(vectors[by_language], labels[by_language], chunk=50)
    for name, part in parts(fit(vectors, labels), vectors).items():
        assert_near(parts(sorted_fit, vectors)[name], part, 1e-9)


def test_a_fit_halfway_does_not_disturb_the_rest():
    vectors, labels = corpus()
    fitter = LayerFitter(12, 3).update(vectors[:300], labels[:300])
    fitter.fit()
    continued = fitter.update(vectors[300:], labels[300:]).fit()
    for name, part in parts(fit(vectors, labels), vectors).items():
        assert_near(parts(continued, vectors)[name], part, 1e-9)


def test_means_are_those_of_each_language_and_sentences_are_counted():
    vectors, labels = corpus()
    fitter = LayerFitter(12, 3)
    assert fitter.count == 0
    fitted = fitter.update(vectors, labels).fit()
    assert fitter.count == 600
    for language in range(3):
        torch.testing.assert_close(fitted.means[language], vectors[labels == language].mean(0))


@pytest.mark.parametrize("languages", [2, 3, 6])
def test_after_erasure_a_linear_probe_does_no_better_than_the_mean(languages):
    vectors, labels = corpus(languages=languages, count=900)
    subspace = fit(vectors, labels).subspace
    assert explained(vectors, labels) > 0.3
    assert explained(subspace.agnostic(vectors), labels) < 1e-6


def test_a_huge_dimension_needs_float64_and_gets_it_though_states_are_float32():
    vectors, labels = corpus(size=64, count=6000)
    vectors = 0.3 * (vectors - 5)
    vectors[:, 0] *= 1000  # several hundred beside about one, as in a residual stream
    vectors = vectors.float()
    before = explained(vectors, labels)
    assert before > 0.3

    fitted = fit(vectors, labels, chunk=128)
    assert fitted.whitening.dtype == fitted.subspace.bias.dtype == torch.float64
    assert explained(fitted.subspace.agnostic(vectors.double()), labels) < 1e-6
    # In float32, eigh cannot tell the small dimensions from 0, and the language stays.
    one_hot = torch.nn.functional.one_hot(labels).float()
    single = LeaceFitter.fit(vectors, one_hot, constrain_cov_trace=False).eraser
    assert explained(single(vectors), labels) > 0.5 * before


def test_the_float32_eraser_that_is_stored_erases_too():
    vectors, labels = corpus()
    subspace = fit(vectors, labels).subspace.to("cpu", torch.float32)
    assert explained(subspace.agnostic(vectors.float()), labels) < 1e-6


def test_erasing_twice_is_erasing_once_and_leaves_the_mean_in_place():
    vectors, labels = corpus()
    subspace = fit(vectors, labels).subspace
    erased, specific = subspace.split(vectors)
    assert specific.norm() > 1
    torch.testing.assert_close(erased + specific, vectors)
    torch.testing.assert_close(subspace.agnostic(erased), erased)
    mean = vectors.mean(0)
    torch.testing.assert_close(subspace.agnostic(mean), mean)
    torch.testing.assert_close(erased.mean(0), mean)


def test_whitened_agnostic_sentences_have_identity_covariance():
    vectors, labels = corpus()
    fitter = LayerFitter(12, 3).update(vectors, labels)
    fitted = fitter.fit()
    rank = fitted.whitening.shape[1]
    assert rank == 12 - 2  # three languages span two directions
    erased = fitted.subspace.agnostic(vectors)
    identity = torch.eye(rank, dtype=torch.float64)
    torch.testing.assert_close((erased @ fitted.whitening).T.cov(), identity, rtol=0, atol=1e-9)
    torch.testing.assert_close(fitter.covariance(fitted.subspace), erased.T.cov())


def test_directions_below_a_hundred_thousandth_of_the_largest_variance_are_left_out():
    vectors, labels = corpus(size=4, languages=2, count=2000)
    # Variances near 1, 1, 1e-4 and 1e-7.
    vectors = (vectors - vectors.mean(0)) * torch.tensor([1.0, 1.0, 1e-2, 3e-4]).double()
    generator = torch.Generator().manual_seed(1)
    vectors[:, 2:] += (
        torch.randn(2000, 2, generator=generator, dtype=torch.float64)
        * torch.tensor([1e-2, 3e-4]).double()
    )
    fitter = LayerFitter(4, 2).update(vectors, labels)
    fitted = fitter.fit()
    variances = torch.linalg.eigvalsh(fitter.covariance(fitted.subspace))
    assert fitted.whitening.shape == (4, int((variances > 1e-5 * variances.max()).sum())) == (4, 2)


# Mistakes


@pytest.mark.parametrize("languages", [0, 1])
def test_one_language_cannot_be_fitted(languages):
    with pytest.raises(CarotError, match="at least two"):
        LayerFitter(8, languages)


@pytest.mark.parametrize("seen", [0, 1])
def test_a_language_without_sentences_is_refused(seen):
    vectors, labels = corpus(languages=2)
    labels[:seen] = 2
    with pytest.raises(CarotError, match="every language needs at least two sentences"):
        LayerFitter(12, 3).update(vectors, labels).fit()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_vector_that_is_not_finite_is_refused_and_leaves_the_fitter_as_it_was(value):
    vectors, labels = corpus()
    fitter = LayerFitter(12, 3).update(vectors, labels)
    spoilt = vectors.clone()
    spoilt[4, 2] = value
    with pytest.raises(CarotError, match="NaN or infinity"):
        fitter.update(spoilt, labels)
    assert fitter.count == 600
    for name, part in parts(fit(vectors, labels), vectors).items():
        assert torch.equal(parts(fitter.fit(), vectors)[name], part)


@pytest.mark.filterwarnings("ignore:.*sentences for")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 100 / 3])
@pytest.mark.parametrize("chunk", [7, 50])
def test_identical_sentences_are_refused(chunk, value, dtype):
    vectors = torch.full((50, 6), value, dtype=dtype) * torch.arange(1, 7)
    with pytest.raises(CarotError, match="the same"):
        fit(vectors, torch.arange(50) % 2, chunk)


@pytest.mark.parametrize("count", [9, 12])
def test_fewer_sentences_than_dimensions_are_warned_of_with_both_numbers(count):
    vectors, labels = corpus(count=count)
    with pytest.warns(UserWarning, match=f"{count} sentences for 12 dimensions"):
        fitted = fit(vectors, labels)
    assert fitted.subspace.agnostic(vectors).isfinite().all()
    assert fitted.whitening.isfinite().all()


def test_enough_sentences_are_fitted_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(*corpus(count=60))
