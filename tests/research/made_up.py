"""Results of the right form that need no training."""

from __future__ import annotations

from contradpp.research import paper


def fake_result(task: paper.Task) -> dict:
    """A result of the right form that depends on the task."""
    shift = 0.1 * task.trial + 0.01 * len(task.method) + (0.5 if task.settings == "default" else 0.0)
    history = {"iteration": [1, 2, 3], "seconds": [0.1, 0.2, 0.3], "validation": [-3.0, -2.0, -1.9]}
    training = {"seconds": 1.0 + shift, "rounds": 3, "steps": 6, "ended": "converged", "history": history}
    common = {"total_seconds": 1.5}
    if task.kind == "toy":
        pairs = {"probabilities": [0.5, 0.4, 0.6, 0.5], "geometric_mean": 0.49}
        return {**pairs, "divergences": [0.4, 0.3 + shift], "net_divergence": 0.7 + shift, **training, **common}
    if task.kind == "runtime":
        return {**training, **common}
    names = ("mpr", "mpr_paper", "mpr_pairs", "precision@1", "precision@5", "precision@10", "precision@20")
    metrics = dict.fromkeys(names, 80.0 + shift) | dict.fromkeys(("ndcg", "auc", "auc_paired", "coverage"), 0.6)
    sizes = [{"group": g, "n": 10, "mpr_paper": 80.0} for g in ("2-3", "4-7", "all")]
    result = {
        "metrics": metrics | {"log_likelihood": -10.0},
        "by_size": sizes,
        "single_share": 0.1,
        "n_test": 20,
        "n_items": 8,
        **common,
    }
    if task.method == "popularity":
        return {**result, "seconds": 0.1}
    at = {"none": 0.6, "likelihood": 0.62, "discrimination": 0.99}
    scaled = {
        "scales": {"none": 1.0, "likelihood": 0.9, "discrimination": 5.0},
        "auc": at,
        "auc_pairs": dict.fromkeys(at, 0.993),
        "log_likelihood": dict.fromkeys(at, -10.0 + shift),
        "sweep": {"log10_c": [-2.0, 0.0, 2.0], "auc": [0.5, 0.6, 0.975], "auc_pairs": [0.5, 0.6, 0.99]},
    }
    return {**result, **training, "scaled": scaled}
