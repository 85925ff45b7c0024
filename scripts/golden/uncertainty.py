"""Ensemble scores by NumPy and neighbour distances by FAISS Flat, for crates/offing/src/uncertainty/tests.rs.

    python scripts/golden/uncertainty.py crates/offing/tests/golden/uncertainty.safetensors

Generated with numpy 2.4, faiss-cpu 1.15, safetensors 0.8.
"""

import sys

import faiss
import numpy as np
from safetensors.numpy import save_file

MEMBERS, ROWS, WIDTH = 7, 60, 6  # (s', r): five state columns and the reward
DATA, QUERIES, OBS, ACT = 3000, 100, 11, 3


def scores(mean, std, member):
    state, var = mean[..., :-1], std**2
    out = {}
    # max_i ‖Σ_i‖_F with Σ_i = diag(σ²), and the codes' max_i ‖σ_i‖₂
    out["aleatoric.frobenius"] = np.sqrt((var**2).sum(-1)).max(0)
    out["aleatoric.l2-std"] = np.linalg.norm(std, axis=-1).max(0)
    # max_ij ‖μ_i − μ_j‖, and max_i ‖μ_i − mean‖
    out["pairwise.pairs"] = np.linalg.norm(state[:, None] - state[None], axis=-1).max((0, 1))
    out["pairwise.to-mean"] = np.linalg.norm(state - state.mean(0), axis=-1).max(0)
    out["ensemble-std"] = np.sqrt(state.var(0).mean(-1))
    out["mixture-std"] = np.sqrt((state.var(0) + var[..., :-1].mean(0)).sum(-1))
    kl = []
    for i in range(MEMBERS):
        rest = [j for j in range(MEMBERS) if j != i]
        mu = mean[rest].mean(0)
        v = (var[rest] + mean[rest] ** 2).mean(0) - mu**2
        kl.append(0.5 * (np.log(v / var[i]) + (var[i] + (mean[i] - mu) ** 2) / v - 1).sum(-1))
    kl = np.stack(kl)
    out["loo-kl.chosen"] = kl[member, np.arange(ROWS)]
    out["loo-kl.mean"] = kl.mean(0)
    return out


def main(path):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(MEMBERS, ROWS, WIDTH)).astype(np.float32) * 0.3 + rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    std = np.exp(rng.normal(size=(MEMBERS, ROWS, WIDTH)) - 1).astype(np.float32)
    member = rng.integers(MEMBERS, size=ROWS).astype(np.uint64)
    saved = {"mean": mean, "std": std, "member": member}
    wide = scores(mean.astype(np.float64), std.astype(np.float64), member.astype(int))
    saved |= {f"want.{k}": v.astype(np.float64) for k, v in wide.items()}

    def rows(n):
        s = 3 * rng.normal(size=(n, OBS))
        a = np.tanh(rng.normal(size=(n, ACT)))
        return [x.astype(np.float32) for x in (s, a, s + 0.5 * rng.normal(size=(n, OBS)))]

    data, query = rows(DATA), rows(QUERIES)
    for name, part in (("data", data), ("query", query)):
        saved |= {f"{name}.{k}": v for k, v in zip(("obs", "act", "next_obs"), part)}
    index = faiss.IndexFlatL2(2 * OBS + ACT)
    index.add(np.concatenate(data, -1))
    # One query at a time: in batches FAISS expands the square, which loses digits.
    found = [index.search(q[None], 5) for q in np.concatenate(query, -1)]
    squares, ids = (np.concatenate([f[i] for f in found]) for i in (0, 1))
    for k in (1, 5):
        saved[f"want.sumo.{k}"] = np.log1p(np.sqrt(squares[:, k - 1].astype(np.float64)))
    saved["want.support"] = ids.astype(np.uint64).reshape(-1)
    save_file({k: np.ascontiguousarray(v) for k, v in saved.items()}, path)


main(sys.argv[1])
