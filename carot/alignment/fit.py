"""Fitting: one streaming pass of sentence vectors, float64 statistics, any number of layers."""

from __future__ import annotations

import warnings

import torch
from concept_erasure import LeaceFitter
from torch import Tensor

from carot.alignment.layer import LayerAligner
from carot.alignment.subspace import LanguageSubspace
from carot.errors import CarotError

ROUNDING = 1e-12
"""Variance below this share of the squared size of the vectors is rounding, not variation."""

RELATIVE_EIGENVALUE = 1e-5
"""Directions of Cov(E(x)) below this share of the largest eigenvalue are left out of W (paper)."""


def sentence_vectors(hidden: Tensor, mask: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Weighted means of token states, later tokens weighing more (arXiv 2609.06381).

    ``x = sum_t w_t h_t`` over the content tokens, ``w_t = t / sum(t)``, t = 1..T.

    Parameters
    ----------
    hidden : Tensor
        Shape (B, tokens, d).
    mask : Tensor
        Boolean, shape (B, tokens): the content tokens; at least one in each row.
    dtype : torch.dtype
        Of the sums.

    Returns
    -------
    Tensor
        Shape (B, d).
    """
    position = mask.cumsum(-1).masked_fill(~mask, 0).to(dtype)  # (B, tokens)
    weight = position / position.sum(-1, keepdim=True)
    states = hidden.to(dtype).masked_fill(~mask.unsqueeze(-1), 0)
    vectors: Tensor = (weight.unsqueeze(-1) * states).sum(-2)
    return vectors


class LayerFitter:
    """Accumulates sentence vectors of one layer; memory is O(d^2), whatever the corpus size.

    Languages carry equal weight when each contributes the same number of sentences, which a
    parallel corpus does.

    Parameters
    ----------
    hidden_size : int
        Hidden size d.
    num_languages : int
        At least two.

    Examples
    --------
    >>> fitter = LayerFitter(hidden_size=8, num_languages=2)
    >>> x = torch.randn(200, 8, generator=torch.manual_seed(0))
    >>> fitter.update(x, torch.arange(200) % 2).fit().hidden_size
    8
    """

    def __init__(self, hidden_size: int, num_languages: int) -> None:
        if num_languages < 2:
            raise CarotError(
                f"{num_languages} language to fit on; the language subspace needs at least two"
            )
        # constrain_cov_trace=False: that branch of concept-erasure 0.2.4 returns a wrong factor.
        self._leace = LeaceFitter(
            hidden_size, num_languages, dtype=torch.float64, constrain_cov_trace=False
        )
        self._sums = torch.zeros(num_languages, hidden_size, dtype=torch.float64)
        self._counts = torch.zeros(num_languages, dtype=torch.float64)

    def update(self, vectors: Tensor, labels: Tensor) -> LayerFitter:
        """Add (N, d) sentence vectors with their (N,) integer language labels."""
        vectors, labels = vectors.to("cpu", torch.float64), labels.cpu()
        dimension = self._sums.shape[1]
        if vectors.dim() != 2 or vectors.shape[1] != dimension or labels.shape != vectors.shape[:1]:
            raise CarotError(
                f"sentence vectors have shape {tuple(vectors.shape)} and labels "
                f"{tuple(labels.shape)}; expected (N, {dimension}) and (N,)"
            )
        if len(labels) == 0:
            return self
        if not 0 <= int(labels.min()) <= int(labels.max()) < len(self._counts):
            raise CarotError(
                f"labels go up to {labels.max()}; expected 0 to {len(self._counts) - 1}"
            )
        if not bool(vectors.isfinite().all()):
            raise CarotError(
                "a sentence vector holds NaN or infinity; run the model in float32 or bfloat16"
            )
        # One-hot: integer labels would act as one scalar regressor.
        one_hot = torch.nn.functional.one_hot(labels, len(self._counts)).double()
        self._leace.update(vectors, one_hot)
        self._sums += one_hot.T @ vectors
        self._counts += one_hot.sum(0)
        return self

    @property
    def count(self) -> int:
        """Sentences seen so far."""
        return int(self._counts.sum())

    def fit(self) -> LayerAligner:
        """Fit the eraser and the whitening; float64, like the statistics.

        Raises
        ------
        CarotError
            When a language has had no sentence, or all sentences are the same.
        """
        if bool((self._counts < 2).any()):
            raise CarotError("every language needs at least two sentences to fit on")
        dimension = self._sums.shape[1]
        if self.count <= dimension:
            warnings.warn(
                f"{self.count} sentences for {dimension} dimensions: the covariance is shrunk "
                "strongly and erasure changes the states a lot; more sentences are better",
                stacklevel=2,
            )
        eraser = self._leace.eraser
        subspace = LanguageSubspace(eraser.proj_left, eraser.proj_right, eraser.bias)
        covariance = self.covariance(subspace)
        size = float(self._covariance_before().trace()) + float(subspace.bias.square().sum())
        if float(covariance.trace()) <= ROUNDING * size:
            raise CarotError(
                "the sentence vectors of each language are all the same; expected varied sentences"
            )
        return LayerAligner(subspace, whitening(covariance), self._sums / self._counts[:, None])

    def _covariance_before(self) -> Tensor:
        """Covariance of the sentence vectors, (d, d), as they are: neither erased nor shrunk."""
        scatter: Tensor = self._leace.sigma_xx_
        return (scatter + scatter.T) / (2 * (self.count - 1))

    def covariance(self, subspace: LanguageSubspace) -> Tensor:
        """Return Cov(E(x)), shape (d, d): E is affine, so it is P Cov(x) P^T."""
        identity = torch.eye(len(subspace.bias), dtype=subspace.bias.dtype)
        projection = identity - subspace.left @ subspace.right
        erased: Tensor = projection @ self._covariance_before() @ projection.T
        return erased


def whitening(covariance: Tensor) -> Tensor:
    """``W = V / sqrt(lambda)`` over the eigenpairs above 1e-5 of the largest; shape (d, r)."""
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    kept = eigenvalues > RELATIVE_EIGENVALUE * eigenvalues[-1]
    whitened: Tensor = eigenvectors[:, kept] / eigenvalues[kept].sqrt()
    return whitened
