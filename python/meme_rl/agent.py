"""A trained agent as a module of PyTorch."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from . import networks
from .networks import Observations
from .novelty import DistanceMean, EpisodicNovelty, LifelongNovelty
from .run import Checkpoint, RunError, Selector, open_checkpoint

#: Prefix of the parameters in `weights.safetensors`.
PREFIXES = {"ema": "average.", "online": "online."}


class StepOutput(NamedTuple):
    """What the networks compute for B observations."""

    #: Q_j of every policy, rescaled by h, [B, N, A].
    q_values: Tensor
    #: What the greedy action of every policy maximises: the logits of π_j, or Q_j, [B, N, A].
    preferences: Tensor
    #: The recurrent state, h then c, [B, S].
    recurrent: Tensor
    #: f(x), an input of the next step, [B, E].
    embedding: Tensor
    #: ‖ĝ(x) − g(x)‖², [B].
    rnd_error: Tensor


@dataclass
class PlayState:
    """What an agent remembers between the steps of B environments."""

    #: The recurrent state, [B, S].
    recurrent: Tensor
    #: The last action, [B].
    action: Tensor
    #: The last action's reward, and r_NGU, its RND part and its episodic part of the observation before it, [B, 4].
    rewards: Tensor
    #: f of the last observation, [B, E].
    embedding: Tensor
    #: The episodic memory of each environment.
    novelty: list[EpisodicNovelty]


@dataclass
class Decision:
    """An agent's decision for B observations, or for one."""

    #: The greedy action of the chosen policy.
    action: Tensor
    #: Q of every action under the chosen policy, rescaled by h, [B, A].
    q_values: Tensor
    #: Probability of every action under the chosen policy; 0 and 1 if the agent acts by its values, [B, A].
    policy: Tensor
    #: What to pass to the next step.
    state: PlayState


class Agent(nn.Module):
    """A trained agent. Its parameters have the names of the checkpoint, such as `torso.stem.weight`.

    It plays on the CPU; `agent.to("cuda")` moves it to a GPU.
    """

    beta: Tensor

    def __init__(self, checkpoint: Checkpoint, parameters: Mapping[str, Tensor], policy: int | None = None) -> None:
        super().__init__()
        #: The checkpoint that it was loaded from.
        self.checkpoint = checkpoint
        config = checkpoint.config
        check_supported(config, checkpoint.path)
        policies = config["agent"]["policies"]
        for name, parameter in parameters.items():
            _register(self, name.split("."), parameter)
        actions = parameters["features.action_embedding.weight"].shape[0]
        #: What `networks` needs to know besides the parameters.
        self.description = network_description(config, actions, parameters)
        environment = checkpoint.agent.get("environment") or {}
        #: Shape of an observation, averaged down to `env.max_side`; None for a run of an older version of `meme`, which
        #: did not record it.
        self.observation_shape: tuple[int, ...] | None = None
        if "observation_shape" in environment:
            self.observation_shape = tuple(environment["observation_shape"])
        #: Shape of each part of an observation of several, likewise; otherwise empty.
        self.observation_parts: dict[str, tuple[int, ...]] = {
            part["name"]: tuple(part["shape"]) for part in environment.get("observation_parts", [])
        }
        #: The readable name of each action.
        self.action_names: list[str] = environment.get("action_names") or [str(i) for i in range(actions)]
        #: Emulator frames per step.
        self.frames_per_step: int = environment.get("frames_per_step", 1)
        self.register_buffer("beta", torch.tensor(networks.beta_ladder(policies["count"], policies["beta_max"])))
        self._hides_rewards = bool(config["env"]["hide_rewards"])
        #: How unusual an RND error is.
        self.lifelong = LifelongNovelty.from_moments(checkpoint.agent["rnd_errors"], config["intrinsic"])
        #: Index of the policy that plays. The bandit's favourite is the default.
        self.policy_index = best_policy(checkpoint.agent) if policy is None else policy
        if not 0 <= self.policy_index < policies["count"]:
            raise RunError(f"expected a policy from 0 to {policies['count'] - 1}, got {policy}")
        self.requires_grad_(False)
        self.eval()

    @property
    def actions(self) -> int:
        """Number of actions."""
        return int(self.description["actions"])

    @property
    def policies(self) -> int:
        """Number of policies."""
        return int(self.description["policies"])

    @property
    def device(self) -> torch.device:
        """The device that it plays on."""
        return self.beta.device

    def prepare(self, observations: Observations) -> Observations:
        """Converts observations [B, ...] of the environment, or their parts, to what the networks see: [B, C, H, W] or
        [B, n].

        Images larger than `env.max_side` are averaged down as in training; those that are already small stay.
        """
        if isinstance(observations, Mapping):
            return {name: self._prepare(observations[name]) for name in self.observation_parts}
        return self._prepare(observations)

    def _prepare(self, observations: Tensor) -> Tensor:
        x = observations.to(self.device, torch.float32)
        if x.dim() > 2:
            x = x.unsqueeze(1) if x.dim() == 3 else x.permute(0, 3, 1, 2)
            shrink = self._shrink(x.shape[2], x.shape[3])
            if shrink > 1:
                # Squares at the edge average only the pixels inside; bytes stay bytes.
                x = F.avg_pool2d(x, shrink, shrink, ceil_mode=True, count_include_pad=False)
                x = torch.floor(x + 0.5) if observations.dtype == torch.uint8 else x
        return x / 255 if observations.dtype == torch.uint8 else x

    def _shrink(self, height: int, width: int) -> int:
        """The factor by which images of this size are averaged down."""
        limit = self.checkpoint.config["env"].get("max_side", 0)
        return -(-max(height, width) // limit) if limit else 1

    def forward(
        self, observations: Observations, action: Tensor, rewards: Tensor, embedding: Tensor, recurrent: Tensor
    ) -> StepOutput:
        """One step of the networks for B observations of the environment; the rest is as in `PlayState`."""
        p = dict(self.named_parameters())
        x = self.prepare(observations)
        each = networks.each_part(lambda part: part.unsqueeze(1), x)
        batch: dict[str, Any] = {"observations": each, "action": action.unsqueeze(1), "state": recurrent}
        batch["embedding"] = embedding.unsqueeze(1)
        for i, name in enumerate(("reward_extrinsic", "reward_ngu", "reward_rnd", "reward_episodic")):
            batch[name] = rewards[:, i : i + 1]
        out = networks.rl_network(p, self.description, batch, None)
        q = out["q_extrinsic"]
        if "q_intrinsic" in out:
            q = networks.combine(self.description["q_combination"], q, out["q_intrinsic"], self.beta)
        preferences = out["logits"] if self.description["acts_by_policy"] else q
        return StepOutput(
            q.squeeze(1),
            preferences.squeeze(1),
            out["state_final"],
            networks.action_embedding(p, self.description, x),
            networks.rnd_error(p, self.description, x),
        )

    def initial_state(self, environments: int) -> PlayState:
        """The state before the first step of this many environments."""
        intrinsic = self.checkpoint.config["intrinsic"]
        mean = self.checkpoint.agent["distances"]["mean"]

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(environments, *shape, dtype=dtype, device=self.device)

        return PlayState(
            recurrent=zeros(self.description["state"]),
            action=zeros(dtype=torch.int64),
            rewards=zeros(4),
            embedding=zeros(self.description["embedding"]),
            novelty=[
                EpisodicNovelty(intrinsic["kernel"], intrinsic["memory_capacity"], DistanceMean(**mean))
                for _ in range(environments)
            ],
        )

    @torch.no_grad()
    def decide(
        self,
        observations: Observations,
        state: PlayState | None = None,
        *,
        rewards: Tensor | Sequence[float] | None = None,
        first: Tensor | Sequence[bool] | None = None,
    ) -> Decision:
        """Decides for B observations [B, ...], or for their parts by name.

        `rewards` are those of the last actions, and `first` tells which observations begin an episode; without a state,
        all do. The given state is used up: continue with that of the decision.
        """
        count = _count(observations)
        if state is None:
            state, first = self.initial_state(count), [True] * count
        elif len(state.action) != count:
            raise ValueError(f"the state is of {len(state.action)} environments, but there are {count} observations")
        inputs = state.rewards.clone()
        if rewards is not None and not self._hides_rewards:
            inputs[:, 0] = torch.as_tensor(rewards, dtype=torch.float32).to(self.device)
        begins = torch.as_tensor([False] * count if first is None else first, dtype=torch.bool).to(self.device)
        keep = (~begins).float().unsqueeze(1)
        out = self(
            observations, state.action * ~begins, inputs * keep, state.embedding * keep, state.recurrent * keep
        )
        intrinsic = []
        for i, novelty in enumerate(state.novelty):
            if begins[i]:
                novelty.start_episode()
            episodic = novelty.observe(out.embedding[i].cpu())
            multiplier = self.lifelong.multiplier(float(out.rnd_error[i]))
            intrinsic.append([0.0, episodic * multiplier, multiplier, episodic])
        action, q, policy = greedy(self, out)
        after = PlayState(
            recurrent=out.recurrent,
            action=action,
            rewards=torch.tensor(intrinsic, device=self.device),
            # Rounded as replay stores it, so that acting and learning are fed the same.
            embedding=out.embedding.half().float(),
            novelty=state.novelty,
        )
        return Decision(action, q, policy, after)

    def act(
        self,
        observation: Any,
        state: PlayState | None = None,
        *,
        reward: Any = 0.0,
        first: Any = None,
    ) -> tuple[Any, PlayState]:
        """Returns the greedy action for an observation, and the state for the next call.

        An observation of several parts is a dictionary of them, as environments of `meme_rl.make` return it. A batch of
        observations gives a tensor of actions; `reward` and `first` are then one per environment. `reward` is what the
        last action earned, and without a state, or where `first` is true, an episode begins.
        """
        observations, single = self._batch(observation)
        decision = self.decide(observations, state, rewards=_many(reward, _count(observations)), first=first)
        return (int(decision.action[0]) if single else decision.action), decision.state

    def q_values(self, observation: Any, state: PlayState | None = None, *, reward: Any = 0.0) -> Tensor:
        """Returns Q of every action, rescaled by h, without a step: the state stays usable."""
        return self._peek(observation, state, reward).q_values

    def policy(self, observation: Any, state: PlayState | None = None, *, reward: Any = 0.0) -> Tensor:
        """Returns the probability of every action without a step: the state stays usable."""
        return self._peek(observation, state, reward).policy

    def _peek(self, observation: Any, state: PlayState | None, reward: Any) -> Decision:
        observations, single = self._batch(observation)
        decision = self.decide(observations, copy.deepcopy(state), rewards=_many(reward, _count(observations)))
        if single:
            decision.q_values, decision.policy = decision.q_values[0], decision.policy[0]
        return decision

    def _batch(self, observation: Any) -> tuple[Observations, bool]:
        """An observation as a batch of one, a batch as it is."""
        if self.observation_parts:
            if not isinstance(observation, Mapping) or observation.keys() != self.observation_parts.keys():
                parts = list(observation) if isinstance(observation, Mapping) else type(observation).__name__
                raise ValueError(f"expected an observation of the parts {list(self.observation_parts)}, got {parts}")
            batches = {
                name: self._batch_of(observation[name], shape) for name, shape in self.observation_parts.items()
            }
            counts = {(len(array), single) for array, single in batches.values()}
            if len(counts) > 1:
                raise ValueError("expected parts of one observation, or of as many each")
            return {name: array for name, (array, _) in batches.items()}, counts.pop()[1]
        if self.observation_shape is None:
            raise RunError(
                f"{self.checkpoint.path} does not record the shape of its observations, as older versions of meme; use "
                "`decide` with a batch"
            )
        return self._batch_of(observation, self.observation_shape)

    def _batch_of(self, array: Any, expected: tuple[int, ...]) -> tuple[Tensor, bool]:
        tensor = torch.as_tensor(array)
        shape = tuple(tensor.shape)
        if self._seen_as(shape) == expected:
            return tensor.unsqueeze(0), True
        if self._seen_as(shape[1:]) == expected:
            return tensor, False
        raise ValueError(f"expected an observation of shape {expected} or a batch of them, got {shape}")

    def _seen_as(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an observation once it is averaged down."""
        if len(shape) not in (2, 3):
            return shape
        factor = self._shrink(*shape[:2])
        return (-(-shape[0] // factor), -(-shape[1] // factor), *shape[2:])


def greedy(agent: Agent, output: StepOutput) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the greedy action, Q and the probabilities of the chosen policy, [B], [B, A] and [B, A]."""
    preferences = output.preferences[:, agent.policy_index]
    action = preferences.argmax(dim=1)
    if agent.description["acts_by_policy"]:
        policy = preferences.softmax(dim=1)
    else:
        policy = F.one_hot(action, agent.actions).float()
    return action, output.q_values[:, agent.policy_index], policy


def load(
    run: str | Path,
    parameters: Literal["ema", "online"] = "ema",
    *,
    checkpoint: Selector = "last",
    policy: int | None = None,
) -> Agent:
    """Loads the agent of a run.

    `parameters` are the moving average, which evaluation uses, or the latest ones (`online`). `checkpoint` is `"last"`,
    `"best"` or a number of frames, `policy` the policy that plays, from 0, which exploits most, to N - 1; by default
    it is the one with the best mean return in training.
    """
    if parameters not in PREFIXES:
        raise RunError(f"expected ema or online parameters, got {parameters!r}")
    opened = open_checkpoint(run, checkpoint)
    prefix = PREFIXES[parameters]
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(opened.weights, "pt") as file:  # type: ignore[no-untyped-call]
            for name in file.keys():
                # f and the RND pair are those that act, whichever parameters play.
                held = name.startswith("average.action_prediction.")
                if held or (name.startswith(prefix) and ".action_prediction." not in name):
                    tensors[name.split(".", 1)[1]] = file.get_tensor(name)
    except Exception as error:
        raise RunError(f"{opened.weights} cannot be read: {error}") from error
    if "features.linear.weight" not in tensors:
        raise RunError(f"{opened.path} keeps the averaged parameters only; load them with parameters='ema'")
    return Agent(opened, tensors, policy)


def best_policy(agent: Mapping[str, Any]) -> int:
    """The policy with the best mean return in training, from `agent.json`; the first while none is known.

    Where each actor has a policy of its own it is the first, as in training.
    """
    ((kind, chooser),) = agent["bandit"]["chooser"].items()
    if kind == "Fixed":
        return 0
    if kind == "PerActor":
        scores: dict[int, list[float]] = {}
        for policy, score in (episode for window in chooser for episode in window["episodes"]):
            scores.setdefault(policy, []).append(score)
        means = {policy: sum(own) / len(own) for policy, own in scores.items()}
    else:
        arms = enumerate(chooser["arms"])
        means = {policy: arm["returns"] / arm["episodes"] for policy, arm in arms if arm["episodes"] > 0}
    return min(means, key=lambda policy: (-means[policy], policy), default=0)


#: The values of settings that `networks` supports: not those of R2D2, NGU and Agent57, and of some ablations.
SUPPORTED: dict[str, Any] = {
    "env.resize": 0,
    "env.frame_stack": 1,
    "agent.policies.beta_slope": 8.0,
    "agent.network.policy_input": "heads",
    "agent.network.value_networks": "shared",
    "agent.network.inputs": "all",
    "agent.network.head_layers": 2,
    "agent.network.head_skip": True,
}


def check_supported(config: Mapping[str, Any], checkpoint: Path) -> None:
    """Raises an error that names the first setting whose network `networks` does not support."""
    for field, supported in SUPPORTED.items():
        value: Any = config
        for part in field.split("."):
            if part not in value:
                raise RunError(f"{checkpoint}: its config lacks {field}, so an older version of meme wrote it; use that version's meme_rl")
            value = value[part]
        if value != supported:
            raise RunError(f"{field} is {value!r}; meme_rl only plays agents with {supported!r}")


def network_description(config: Mapping[str, Any], actions: int, parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns what `networks` needs to know besides the parameters, from a run's config."""
    agent = config["agent"]
    network, loss = agent["network"], agent["loss"]
    torso = network["torso"]

    def rows(convolutions: list[dict[str, int]]) -> list[list[int]]:
        return [[c["channels"], c["kernel"], c["stride"], c.get("padding", 0)] for c in convolutions]

    recurrent = "lstm.weight_hh" in parameters
    return {
        "actions": actions,
        "policies": agent["policies"]["count"],
        "q_heads": 1 if loss["q_heads"] == "single" else 2,
        "q_combination": loss["q_combination"],
        "policy_head": loss["distillation"],
        "acts_by_policy": loss["distillation"] and agent["policies"]["greedy"] == "policy",
        "torso": {
            "kind": torso["kind"],
            "activation": torso["activation"],
            "alpha": torso["alpha"],
            "stem_stride": torso["stem"]["stride"],
            "stages": torso["stages"],
            "convolutions": rows(torso["convolutions"]),
        },
        "intrinsic_convolutions": rows(network["intrinsic"]["convolutions"]),
        "embedding": network["intrinsic"]["embedding"],
        "state": 2 * parameters["lstm.weight_hh"].shape[1] if recurrent else 0,
    }


def _register(module: nn.Module, names: list[str], parameter: Tensor) -> None:
    """Registers a parameter under its dotted name."""
    for name in names[:-1]:
        inner = module._modules.get(name)
        if inner is None:
            # Not by `add_module`, which refuses the names of methods: a part may be called "type".
            inner = module._modules[name] = nn.Module()
        module = inner
    module.register_parameter(names[-1], nn.Parameter(parameter))


def _count(observations: Observations) -> int:
    """Number of environments."""
    return len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)


def _many(value: Any, count: int) -> Tensor:
    """A value for every environment, from one for all or one each."""
    return torch.as_tensor(value, dtype=torch.float32).expand(count)
