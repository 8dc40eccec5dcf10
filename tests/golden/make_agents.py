"""The golden cases of R2D2, NGU and Agent57: forward pass, all gradients, priorities and ten updates."""

import numpy as np
import torch

import family_reference as family
import golden_checks as checks
import golden_inputs as inputs

STEPS = 10
SIZES = {"actions": 4, "convolutions": [[4, 5, 2], [5, 3, 2], [6, 2, 1]], "linear": 10, "core": 12, "hidden": 14}
SHAPE = [21, 17]
# Rates and periods that ten updates show; a burn-in that fits short sequences.
SETTINGS = {"learning_rate": 3e-3, "target_period": 4, "clip_norm": 1.0, "burn_in": 3}
SEQUENCES = [
    [(9, "running", False), (9, "terminated", False), (6, "terminated", True), (4, "truncated", False), (9, "running", True)],
    [(3, "terminated", False), (9, "running", False), (8, "truncated", False), (9, "terminated", True), (5, "running", False)],
]  # fmt: skip


def shapes(agent):
    """Parameter shapes by name."""
    found = {}
    for prefix, head in list(zip(family.PREFIXES, family.HEADS))[: agent["networks"]]:
        stack, size = inputs.stack_shapes("torso", [agent["frames"], *SHAPE], SIZES["convolutions"])
        one_hot = agent["policies"] if agent["policies"] > 1 else 0
        core = SIZES["linear"] + SIZES["actions"] + agent["rewards"] + one_hot
        width = SIZES["core"]
        own = {**stack, **inputs.linear_shapes("torso.linear", size, SIZES["linear"])}
        own["lstm.weight_ih"], own["lstm.weight_hh"] = (4 * width, core), (4 * width, width)
        own["lstm.bias_ih"] = own["lstm.bias_hh"] = (4 * width,)
        for stream, outputs in (("value", 1), ("advantage", SIZES["actions"])):
            own.update(inputs.linear_shapes(f"heads.{head}.{stream}.hidden1", width, SIZES["hidden"]))
            own.update(inputs.linear_shapes(f"heads.{head}.{stream}.output", SIZES["hidden"], outputs))
        found.update({prefix + name: shape for name, shape in own.items()})
    return found


def draw_batch(rng, agent, sequences):
    network = {"observation": [1, *SHAPE], "actions": SIZES["actions"], "policies": agent["policies"], "embedding": 32}
    network["lstm"] = SIZES["core"] * agent["networks"]
    batch = inputs.draw_batch(rng, network, 9, sequences)
    count = len(sequences) * 9
    frames = inputs.draw_frames(rng, count * agent["frames"], network["observation"])
    frames = frames.reshape(len(sequences), 9, agent["frames"], *SHAPE).permute(0, 1, 3, 4, 2).contiguous()
    for b, (length, _, _) in enumerate(sequences):
        frames[b, length:] = 0
    return {**batch, "observations": frames}


def margin(q, batch):
    """Smallest distance between the two best values of an observation."""
    observed = torch.arange(q.shape[1])[None] < batch["length"][:, None]
    best = q.topk(2, dim=-1).values
    return (best[..., 0] - best[..., 1])[observed].min().item()


def agent_steps(golden, name):
    agent = {**family.AGENTS[name]}
    if agent["burn_in"]:
        agent["burn_in"] = SETTINGS["burn_in"]
    # The first seed for which no choice of an action is close.
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        online = inputs.draw_parameters(rng, shapes(agent), output_scale=3.0)
        target = inputs.perturb(rng, online, scale=0.1, q_scale=1.0, policy_scale=0.0)
        batches = [draw_batch(rng, agent, sequences) for sequences in SEQUENCES]
        margins = []

        def compute(dtype):
            learner = family.Learner(agent, SIZES, SETTINGS, online, target, dtype)
            rows, first = [], None
            for step in range(STEPS):
                row, gradients = learner.update(batches[step % 2])
                margins.append(margin(row["q"], batches[step % 2]))
                first = first or (row["q"], gradients)
                rows.append(row)
            series = {key: torch.stack([row[key] for row in rows]) for key in ("loss", "priority", "norms")}
            q, gradients = first
            observed = torch.arange(9)[None] < batches[0]["length"][:, None]
            return {
                **series,
                "q": q * observed[..., None],
                **{f"gradient.{key}": x for key, x in gradients.items()},
                **{f"end.online.{key}": x.detach() for key, x in learner.online.items()},
                **{f"end.target.{key}": x for key, x in learner.target.items()},
            }

        single, double = compute(torch.float32), compute(torch.float64)
        if min(margins) > checks.MARGIN:
            break
    worst, where = checks.check_agreement(name, single, double)
    checks.check_changes(name, online, single, double)
    clipped = int((single["norms"] > SETTINGS["clip_norm"]).sum())
    assert 2 <= clipped < single["norms"].numel(), f"{name}: {clipped} gradients are clipped"
    tensors = {
        **{f"start.online.{key}": x for key, x in online.items()},
        **{f"start.target.{key}": x for key, x in target.items()},
        **{f"batch{i}.{key}": x for i, batch in enumerate(batches) for key, x in batch.items()},
        **single,
    }
    note = f"f32 and f64 agree to {worst:.1e} ({where}); seed {seed}, margin {min(margins):.1e}, {clipped} clipped"
    network = {"observation": [agent["frames"], *SHAPE], **SIZES}
    golden.write(f"agent_{name}", "agent_steps", tensors, note, preset=name, network=network, settings=SETTINGS)
