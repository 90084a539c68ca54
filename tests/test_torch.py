"""`contradpp.torch`: gradients by `gradcheck`, and what autograd may ask of them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch: pip install 'contradpp[torch]'")

import contradpp as cd  # noqa: E402
import contradpp.torch as cdt  # noqa: E402
from contradpp.errors import ParameterError, RankError  # noqa: E402
from exact import chi_square_p_value  # noqa: E402

M, K = 7, 3
BASKETS = [[0, 1, 5], [2], []]
LARGE = [*BASKETS, [3, 6, 4, 0]]  # the last one is possible with a diagonal or a skew part only
OFFERED = [[0, 1, 5, 2], [2, 3], [1], [3, 6, 4, 0, 1]]
FUNCTIONS = {
    "log_prob": cdt.log_prob,
    "conditional": cdt.conditional_log_prob,
    "choice": lambda V, baskets, *rest: cdt.choice_log_prob(V, baskets, OFFERED[: len(baskets)], *rest),
    "contrastive": lambda V, baskets, *rest: cdt.contrastive_loss(V, baskets[:2], [[3, 4], [0]], *rest),
    "half contrast": lambda V, baskets, d=None, S=None: cdt.contrastive_loss(V, baskets, [[3, 4]], d, S, contrast=0.5),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def parameters(dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    V = torch.randn(M, K, dtype=torch.float64, generator=rng)
    d = torch.rand(M, dtype=torch.float64, generator=rng) + 0.1
    s = torch.tensor([0.3, -0.5, 0.4], dtype=torch.float64)
    return [part.to(dtype).requires_grad_() for part in (V, d, s)]


@every_function
def test_gradcheck(name):
    f = FUNCTIONS[name]
    V, d, s = parameters()
    assert torch.autograd.gradcheck(lambda V: f(V, BASKETS), (V,))
    assert torch.autograd.gradcheck(lambda V, d: f(V, LARGE, d), (V, d))
    assert torch.autograd.gradcheck(lambda V, s: f(V, BASKETS, None, ([0, 1, 5], [4, 2, 0], s)), (V, s))
    assert torch.autograd.gradcheck(lambda V, d, s: f(V, LARGE, d, ([0, 1, 5], [4, 2, 0], s)), (V, d, s))


def test_gradcheck_fails_for_a_wrong_gradient():
    V = parameters()[0]

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, V):
            ctx.save_for_backward(V)
            return cdt.log_prob(V, BASKETS)

        @staticmethod
        def backward(ctx, weights):
            (V,) = ctx.saved_tensors
            with torch.enable_grad():
                V = V.detach().requires_grad_()
                (found,) = torch.autograd.grad(cdt.log_prob(V, BASKETS), V, weights)
            return 1.01 * found

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Wrong.apply, (V,))


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_results_have_the_type_of_the_factors(name, dtype):
    V, d, _ = parameters(dtype)
    found = FUNCTIONS[name](V, LARGE, d)
    found.sum().backward()
    assert found.dtype == V.grad.dtype == d.grad.dtype == dtype
    exact = [part.detach().double().requires_grad_() for part in (V, d)]
    FUNCTIONS[name](exact[0], LARGE, exact[1]).sum().backward()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(V.grad.double(), exact[0].grad, rtol=8 * eps, atol=32 * eps)


@every_function
def test_twice_in_one_graph(name):
    """V serves two calls of different baskets, and comes out of a network itself."""
    f = FUNCTIONS[name]
    features = torch.randn(M, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = torch.randn(4, K, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    d = parameters()[1].detach()

    def loss(weights, first, second):
        V = torch.tanh(features @ weights)
        return f(V, first, d).sum() + 2 * f(V, second, d).sum()

    both = loss(weights, LARGE, LARGE[::-1][:2])
    (together,) = torch.autograd.grad(both, weights)
    parts = [
        torch.autograd.grad(f(torch.tanh(features @ weights), one, d).sum(), weights)[0]
        for one in (LARGE, LARGE[::-1][:2])
    ]
    torch.testing.assert_close(together, parts[0] + 2 * parts[1])
    assert torch.autograd.gradcheck(lambda w: loss(w, LARGE, LARGE[::-1][:2]), (weights,))


@every_function
def test_without_a_gradient(name):
    V, d, _ = parameters()
    with torch.no_grad():
        found = FUNCTIONS[name](V, LARGE, d)
    assert not found.requires_grad
    torch.testing.assert_close(found, FUNCTIONS[name](V, LARGE, d).detach(), rtol=1e-12, atol=1e-12)
    (only,) = torch.autograd.grad(FUNCTIONS[name](V.detach(), LARGE, d).sum(), d)
    (also,) = torch.autograd.grad(FUNCTIONS[name](V, LARGE, d).sum(), d)
    torch.testing.assert_close(only, also)


def test_values_are_those_of_a_model():
    V, d, _ = parameters()
    model = cd.DPP(V=V.detach().numpy(), diagonal=d.detach().numpy())
    np.testing.assert_allclose(cdt.log_prob(V, LARGE, d).detach(), model.score_samples(LARGE), rtol=1e-10)


def test_impossible_sets_have_no_gradient_and_empty_batches_are_fine():
    V = parameters()[0]
    values = cdt.log_prob(V, LARGE)
    assert values[-1] == -torch.inf
    (both,) = torch.autograd.grad(values.sum(), V)
    (possible,) = torch.autograd.grad(cdt.log_prob(V, BASKETS).sum(), V)
    torch.testing.assert_close(both, possible)
    assert cdt.log_prob(V, []).shape == (0,)
    assert cdt.contrastive_loss(V, [[]]).item() == pytest.approx(cdt.log_prob(V, [[]]).neg().item())


def test_a_parameter_that_changed_in_place_is_an_error():
    V = parameters()[0].detach().clone().requires_grad_()
    loss = cdt.log_prob(V, BASKETS).sum()
    with torch.no_grad():
        V.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_skew_part_may_start_at_zero_in_single_precision():
    """Beside another pair the gradient by s = 0 is not zero."""
    V, d, _ = parameters(torch.float32)
    s = torch.tensor([0.5, 0.0]).requires_grad_()
    cdt.log_prob(V, LARGE, d, ([0, 1], [5, 0], s)).sum().backward()
    exact = s.detach().double().requires_grad_()
    cdt.log_prob(V.double(), LARGE, d.double(), ([0, 1], [5, 0], exact)).sum().backward()
    torch.testing.assert_close(s.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    assert s.grad.abs().min() > 1e-4


def test_there_is_no_second_derivative():
    V = parameters()[0]
    with pytest.raises(ParameterError, match="second derivative"):
        torch.autograd.grad(cdt.log_prob(V, BASKETS).sum(), V, create_graph=True)


def test_dynamic_negatives_give_the_gradient_of_the_conditional_likelihood():
    """The paper's contrast with near misses is −∇ of the closed form, on average over draws."""
    V = parameters()[0]
    (exact,) = torch.autograd.grad(-cdt.conditional_log_prob(V, BASKETS[:2]).mean(), V)
    rng = np.random.default_rng(0)
    draws = torch.stack(
        [torch.autograd.grad(cdt.contrastive_loss(V, BASKETS[:2], random_state=rng), V)[0] for _ in range(1500)]
    )
    errors = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - exact).abs() < 4.5 * errors + 1e-12).all()
    assert errors.max() < 0.15 * exact.abs().max()


def test_a_seed_repeats_the_draw_and_a_generator_goes_on():
    V, d, _ = parameters()

    def loss(random_state):
        return cdt.contrastive_loss(V, LARGE * 5, None, d, random_state=random_state).item()

    assert loss(3) == loss(3)
    rng = np.random.default_rng(3)
    assert len({loss(rng) for _ in range(5)}) > 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"V": np.eye(3)}, "V must be a tensor"),
        ({"V": torch.ones(3, 2, dtype=torch.int64)}, "real numbers"),
        ({"V": torch.ones(3, 2, device="meta")}, "CPU"),
        ({"diagonal": [1.0, 1.0, 1.0]}, "diagonal must be a tensor"),
        ({"diagonal": -torch.ones(3)}, "diagonal must be 3 numbers"),
        ({"skew": ([0], [1], [1.0])}, "s of skew"),
        ({"V": torch.full((3, 2), torch.nan)}, "finite"),
    ],
)
def test_bad_tensors_are_named(change, words):
    with pytest.raises(ParameterError, match=words):
        cdt.log_prob(**{"V": torch.ones(3, 2), "baskets": [[0]], **change})


# -- Batches ---------------------------------------------------------------------------------------


def test_batches_are_samples_of_the_k_dpp():
    X = np.random.default_rng(0).normal(size=(6, 3))
    dpp = cd.DPP(V=X)
    pairs = [[i, j] for i in range(6) for j in range(i)]
    probabilities = np.exp(dpp.score_samples(pairs, size=2))
    sampler = cdt.DiverseBatchSampler(torch.from_numpy(X), 2, random_state=0)
    counts = np.zeros((6, 6))
    for _ in range(1500):
        for batch in sampler:
            counts[max(batch), min(batch)] += 1
    found = np.array([counts[i, j] for i, j in pairs])
    assert found.sum() == 1500 * len(sampler) == 4500
    assert chi_square_p_value(found, probabilities) > 1e-3
    assert chi_square_p_value(found, np.full(15, 1 / 15)) < 1e-6


def test_epochs_differ_and_a_seed_repeats_them():
    X = np.random.default_rng(0).normal(size=(200, 5))
    first, second = (cdt.DiverseBatchSampler(X, 4, random_state=1) for _ in range(2))
    epochs = [list(first), list(first)]
    assert epochs == [list(second), list(second)]
    assert epochs[0] != epochs[1]
    assert len(epochs[0]) == len(first) == 50


def test_a_batch_larger_than_the_rank_is_an_error():
    with pytest.raises(RankError, match="size=4"):
        list(cdt.DiverseBatchSampler(np.eye(3)[[0, 1, 2, 0, 1]], 4))


def test_negatives_without_a_set_are_refused():
    with pytest.raises(ParameterError, match="negatives has no sets"):
        cdt.contrastive_loss(torch.eye(3), [[0, 1]], negatives=[])
