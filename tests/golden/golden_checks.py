"""Checks of a golden case before it is written: well-conditioned, with every decision clear of its boundary."""

import torch

import agent_reference as agent

AGREEMENT = 2e-5  # f32 against f64: max|difference| / max|value| of a tensor
CHANGE_AGREEMENT = 2e-4  # the same for the change of a parameter over ten updates ...
ROUNDING = 1e-6  # ... plus this share of the parameter's size, since each update rounds to a multiple of 6e-8 of it
MARGIN = 1e-3  # distance of every decision from its boundary
MASKED = (0.1, 0.9)  # range for the share of steps that trust region and KL bound mask


def difference(got, want):
    """max|got - want| / max|want| over a tensor; 0 where both are zero everywhere."""
    scale = want.double().abs().max().item() if want.numel() else 0.0
    distance = (got.double() - want.double()).abs().max().item() if want.numel() else 0.0
    return distance / scale if scale > 0 else (0.0 if distance == 0 else float("inf"))


def check_agreement(file, single, double):
    """Asserts that f32 and f64 agree: reals to AGREEMENT, decisions exactly. Returns the largest difference."""
    worst, where = 0.0, "-"
    for name, x in single.items():
        if not x.is_floating_point():
            assert torch.equal(x, double[name]), f"{file}: {name} decides differently in f64"
            continue
        found = difference(x, double[name])
        assert found <= AGREEMENT, f"{file}: {name} differs by {found:.1e} between f32 and f64"
        if found > worst:
            worst, where = found, name
    return worst, where


def check_changes(file, start, single, double):
    """Asserts that the change of the parameters agrees too: their own size would hide an error in it."""
    for name, before in start.items():
        change = double[f"end.online.{name}"] - before.double()
        distance = (single[f"end.online.{name}"].double() - double[f"end.online.{name}"]).abs().max()
        allowed = CHANGE_AGREEMENT * change.abs().max() + ROUNDING * before.double().abs().max()
        assert distance <= allowed, f"{file}: the change of {name} differs by {distance:.1e} between f32 and f64"


def decision_margins(config, out, batch):
    """Smallest distance to the boundary over all decisions of a loss, by kind of decision."""
    trace = batch["observations"].shape[1]
    steps = agent.valid_steps(batch["length"], trace)
    observed = agent.valid_observations(batch["length"], trace)
    action = batch["action"][:, 1:]

    best = out["q"].detach().topk(2, dim=-1).values
    best_source = out["q_source"].topk(2, dim=-1).values
    margins = {
        "argmax": (best[..., 0] - best[..., 1])[steps].min().item(),
        "argmax of the bootstrap": (best_source[..., 0] - best_source[..., 1])[observed].min().item(),
    }
    if config["distillation"]:
        margins["KL"] = (out["kl"] - config["kl_bound"])[steps].abs().min().item()
    q = out["q_source"]
    slack = agent.taken(q, action)[..., None] - (q - config["kappa"] * q.abs())
    other = action[:, :, None, None] != torch.arange(q.shape[-1])  # comparing an action with itself decides nothing
    margins["lambda"] = slack[(other & steps[:, :, None, None]).expand_as(slack)].abs().min().item()
    for suffix in ("", "_intrinsic"):
        if "td_error" + suffix in out:
            distance = out["trust_region_distance" + suffix]
            outside = distance.abs() - config["trust_region_alpha"] * out["sigma" + suffix]
            away = -torch.sign(distance) * out["td_error" + suffix].detach()
            # Masked where both are positive, so the smaller decides.
            margins["trust region" + suffix] = torch.minimum(outside, away)[steps].abs().min().item()
    return margins


def check_margins(file, margins):
    for decision, margin in margins.items():
        assert margin > MARGIN, f"{file}: a decision ({decision}) is only {margin:.1e} away from its boundary"
    return min(margins.values())


def masked_shares(out, batch):
    """Share of (valid step, policy) pairs without loss, by mask."""
    steps = agent.valid_steps(batch["length"], batch["observations"].shape[1])
    names = [name for name in out if name.startswith("trust_region_keep") or name == "kl_keep"]
    return {name: 1 - out[name][steps].double().mean().item() for name in names}
