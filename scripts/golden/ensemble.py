"""Three gradient steps of a small ensemble in PyTorch, for crates/offing/tests/golden_ensemble.rs.

    python scripts/golden/ensemble.py crates/offing/tests/golden/ensemble.safetensors
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from common import linears, mlp, prefixed, save_net

OBS, ACT, HIDDEN, MEMBERS, BATCH, ROWS, UPDATES = 5, 2, [20] * 4, 3, 16, 60, 3
DECAY, LR, BOUND = [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4], 1e-3, 0.01
WIDTH = OBS + 1


def main(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    nets = [mlp([OBS + ACT, *HIDDEN, 2 * WIDTH], nn.SiLU) for _ in range(MEMBERS)]
    max_lv = torch.full((WIDTH,), 0.5, requires_grad=True)
    min_lv = torch.full((WIDTH,), -10.0, requires_grad=True)
    opt = torch.optim.Adam([p for n in nets for p in n.parameters()] + [max_lv, min_lv], lr=LR)

    obs, act = torch.randn(ROWS, OBS) * 2 + 1, torch.tanh(torch.randn(ROWS, ACT))
    next_obs, rew = obs + 0.3 * torch.randn(ROWS, OBS), torch.randn(ROWS)
    mean = torch.cat([obs, act], -1).mean(0)
    inverse = 1 / torch.cat([obs, act], -1).std(0, unbiased=False)

    def state(updates):
        out = {}
        for j, net in enumerate(nets):
            save_net(out, f"model.{j}", net, opt)
            for i, layer in enumerate(linears(net)):
                out[f"best.{j}.{i}.weight"] = torch.zeros_like(layer.weight)
                out[f"best.{j}.{i}.bias"] = torch.zeros_like(layer.bias)
        for name, p in (("max_log_var", max_lv), ("min_log_var", min_lv)):
            s = opt.state.get(p, {})
            zero = torch.zeros_like(p)
            columns = [p.detach(), s.get("exp_avg", zero), s.get("exp_avg_sq", zero)]
            out[name] = torch.stack(columns, -1).double().flatten()
        out["scaler.mean"], out["scaler.inverse"] = mean, inverse
        out["state"] = torch.tensor([updates, 0, 0, 0, 0], dtype=torch.uint64)
        out["loss_sum"] = torch.zeros(1, dtype=torch.float64)
        unknown = torch.full((MEMBERS,), float("inf"), dtype=torch.float64)
        out["best_error"], out["last_error"] = unknown, unknown.clone()
        return {k: v.clone() for k, v in out.items()}

    saved = prefixed("rows", dict(obs=obs, act=act, next_obs=next_obs, rew=rew)) | prefixed("before", state(0))
    for update in range(UPDATES):
        rows = torch.randint(ROWS, (MEMBERS, BATCH))
        saved[f"batch.{update}"] = rows.to(torch.uint64).flatten().contiguous()
        loss, nll = 0.0, 0.0
        for net, r in zip(nets, rows):
            x = (torch.cat([obs[r], act[r]], -1) - mean) * inverse
            y = torch.cat([next_obs[r] - obs[r], rew[r, None]], -1)
            mu, lv = net(x).chunk(2, dim=-1)
            lv = max_lv - F.softplus(max_lv - lv)
            lv = min_lv + F.softplus(lv - min_lv)
            member = ((mu - y) ** 2 * torch.exp(-lv)).mean() + lv.mean()
            nll = nll + member
            loss = loss + member + sum(c * 0.5 * (l.weight**2).sum() for c, l in zip(DECAY, linears(net)))
        loss = loss + BOUND * (max_lv.sum() - min_lv.sum())
        opt.zero_grad()
        loss.backward()
        opt.step()
        saved[f"loss.{update}"] = (nll / MEMBERS).detach().double().reshape(1)
        if update in (0, UPDATES - 1):
            saved |= prefixed(f"after.{update + 1}", state(update + 1))
    save_file(saved, path)


main(sys.argv[1])
