"""Agents loaded from runs play as `meme` plays them."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import meme_rl
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from meme_rl.agent import _register, check_supported
from meme_rl.environment import EVALUATION_INDEX
from meme_worker.seeding import episode_seed, mix
from safetensors import safe_open
from safetensors.torch import load_file

from commands import EXAMPLES, each_part, is_greedy, meme, observations, runs, tensors

# Q in f32; PyTorch and the program sum in different orders.
TOLERANCE = 1e-4


class Played(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.directory = runs()

    def test_an_episode_has_the_same_actions_and_values(self):
        for name, steps in (("catch", 9), ("pong", 700), ("compass", 2)):
            agent = meme_rl.load(self.directory / name)
            episode = load_file(self.directory / f"{name}.safetensors")
            self.assertGreaterEqual(len(episode["action"]), steps)
            state, reward = None, 0.0
            for t, observation in enumerate(observations(episode)):
                rewards, first = None if state is None else [reward], None if state is None else [False]
                batch = {part: x[None] for part, x in observation.items()} if name == "compass" else observation[None]
                decision = agent.decide(batch, state, rewards=rewards, first=first)
                self.assertTrue(is_greedy(int(decision.action), episode, t), f"{name}, step {t}")
                worst = (decision.q_values[0] - episode["q"][t]).abs().max().item()
                self.assertLess(worst, TOLERANCE, f"{name}, step {t}")
                novelty = (decision.state.rewards[0, 1:] - episode["intrinsic"][t]).abs().max().item()
                self.assertLess(novelty, 1e-2 * TOLERANCE + 1e-3 * episode["intrinsic"][t].abs().max().item())
                state, reward = decision.state, float(episode["reward"][t])
                state.action = episode["action"][t : t + 1].long()

    def test_environments_repeat_the_episodes_of_meme_eval(self):
        sys.path.insert(0, str(EXAMPLES))
        for name in ("pong", "compass"):
            agent, env = meme_rl.load(self.directory / name), meme_rl.make(self.directory / name)
            self.assertEqual(env.action_space.n, agent.actions)
            episode = load_file(self.directory / f"{name}.safetensors")
            # A Gymnasium environment gets the seed from which `meme eval` begins its first episode.
            seed = None if name == "pong" else episode_seed(mix(mix(agent.checkpoint.seed)), EVALUATION_INDEX, 0) >> 33
            observation, _ = env.reset(seed=seed)
            for t, expected in enumerate(observations(episode)):
                self.assertTrue(env.observation_space.contains(observation))
                # Recorded as the agent sees it; pong's picture is larger in the environment.
                seen = dict(each_part(agent.prepare(tensors(observation))))
                for part, x in each_part(agent.prepare(tensors(expected))):
                    self.assertTrue(torch.equal(seen[part], x), f"{name}, step {t}")
                observation, reward, terminated, truncated, _ = env.step(int(episode["action"][t]))
                self.assertEqual(reward, float(episode["reward"][t]), f"{name}, step {t}")
            self.assertTrue(terminated or truncated)
            report = json.loads(meme("eval", name, "--episodes", "1", "--json", "--runs", str(self.directory)))
            self.assertEqual(report["scores"], [float(episode["reward"].sum())])
            self.assertEqual(report["protocol"]["policy"], agent.policy_index)

    def test_plays_a_gymnasium_environment_with_seeds(self):
        agent = meme_rl.load(self.directory / "cart_pole")
        env = meme_rl.make(self.directory / "cart_pole")
        first, second = (meme_rl.evaluate(agent, env, episodes=3, seed=7) for _ in range(2))
        self.assertEqual(first.scores, second.scores)
        self.assertEqual(first.scores, [float(steps) for steps in first.steps])

    def test_plays_vector_environments_in_every_autoreset_mode(self):
        agent = meme_rl.load(self.directory / "cart_pole")
        played = []
        for mode in AutoresetMode:
            parts = [lambda: meme_rl.make(self.directory / "cart_pole")] * 2
            evaluation = meme_rl.evaluate(agent, SyncVectorEnv(parts, autoreset_mode=mode), episodes=5, seed=7)
            # In CartPole each step pays 1; the step in which NEXT_STEP resets the environment pays nothing.
            reset_step = int(mode == AutoresetMode.NEXT_STEP)
            self.assertEqual(evaluation.scores, [float(steps - reset_step) for steps in evaluation.steps])
            played.append(evaluation.scores)
        self.assertEqual([len(scores) for scores in played], [5, 5, 5])
        # The first episode of each environment, before a reset that depends on the mode.
        self.assertEqual(played[0][:2], played[1][:2])
        self.assertEqual(played[0][:2], played[2][:2])

    def test_plays_an_environment_of_several_parts(self):
        sys.path.insert(0, str(EXAMPLES))
        run = self.directory / "compass"
        agent, env = meme_rl.load(run), meme_rl.make(run)
        self.assertEqual(agent.observation_parts, {"compass": (2,), "field": (7, 7, 3), "near": (2,)})
        names = [name for name, _ in agent.named_parameters()]
        for name in ("torso.field.stem.weight", "torso.compass.linear1.weight", "rnd.predictor.near.linear2.bias"):
            self.assertIn(name, names)
        played = meme_rl.evaluate(agent, env, episodes=3, seed=7)
        # The goal pays 1 and ends the episode, which is cut off after 40 steps.
        self.assertTrue(all(score == 1 or steps == 40 for score, steps in zip(played.scores, played.steps)), played)
        observation, _ = env.reset(seed=7)
        with self.assertRaisesRegex(ValueError, r"parts \['compass', 'field', 'near'\], got \['field'\]"):
            agent.act({"field": observation["field"]})
        with self.assertRaisesRegex(ValueError, "got Tensor"):
            agent.act(torch.zeros(3))

    def test_a_part_may_be_called_as_a_method_is(self):
        module = torch.nn.Module()
        _register(module, ["torso", "type", "linear1", "weight"], torch.ones(2))
        _register(module, ["torso", "type", "linear1", "bias"], torch.zeros(1))
        names = [name for name, _ in module.named_parameters()]
        self.assertEqual(names, ["torso.type.linear1.weight", "torso.type.linear1.bias"])

    def test_a_run_of_several_parts_is_resumed(self):
        before = meme_rl.load(self.directory / "compass").checkpoint.frames
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(self.directory / "compass", Path(copy) / "compass")
            meme("train", "--resume", "compass", "--frames", str(before + 1000), "--runs", copy)
            self.assertGreaterEqual(meme_rl.load(Path(copy) / "compass").checkpoint.frames, before + 1000)

    def test_names_and_values_are_those_of_the_checkpoint(self):
        agent = meme_rl.load(self.directory / "catch")
        with safe_open(agent.checkpoint.weights, "pt") as file:
            for name, parameter in agent.named_parameters():
                self.assertTrue(torch.equal(parameter, file.get_tensor(f"average.{name}")), name)
            online = meme_rl.load(self.directory / "catch", parameters="online")
            saved = file.get_tensor("online.lstm.weight_hh")
            self.assertTrue(torch.equal(online.lstm.weight_hh, saved))
        self.assertEqual(agent.action_names, ["left", "stay", "right"])

    def test_a_batch_is_as_good_as_its_parts(self):
        agent = meme_rl.load(self.directory / "catch", policy=3)
        observations = load_file(self.directory / "catch.safetensors")["observation"]
        left, right = observations[:4], observations[4:8]
        states = [None, None]
        both = None
        for t in range(4):
            pair = torch.stack([left[t], right[t]])
            actions, both = agent.act(pair, both, reward=[0.5, -1.0], first=[t == 0] * 2)
            for i, part in enumerate((left, right)):
                action, states[i] = agent.act(part[t], states[i], reward=[0.5, -1.0][i])
                self.assertEqual(action, int(actions[i]))
        self.assertTrue(torch.allclose(both.recurrent[1:], states[1].recurrent, atol=1e-6))

    def test_a_new_episode_forgets_the_last(self):
        agent = meme_rl.load(self.directory / "catch")
        observations = load_file(self.directory / "catch.safetensors")["observation"]
        _, state = agent.act(observations[5])
        _, again = agent.act(observations[0], state, reward=1.0, first=[True])
        _, fresh = agent.act(observations[0])
        self.assertTrue(torch.equal(again.recurrent, fresh.recurrent))
        self.assertEqual(float(again.rewards[0, 3]), 0.0)

    def test_values_and_policy_leave_the_state_as_it_is(self):
        agent = meme_rl.load(self.directory / "catch")
        observations = load_file(self.directory / "catch.safetensors")["observation"]
        _, state = agent.act(observations[0])
        values = agent.q_values(observations[1], state, reward=1.0)
        probabilities = agent.policy(observations[1], state, reward=1.0)
        self.assertEqual(values.shape, (3,))
        self.assertAlmostEqual(float(probabilities.sum()), 1.0, places=5)
        self.assertTrue(torch.equal(values, agent.q_values(observations[1], state, reward=1.0)))
        action, _ = agent.act(observations[1], state, reward=1.0)
        self.assertEqual(action, int(probabilities.argmax()))

    def test_says_what_is_wrong(self):
        run = self.directory / "catch"
        for wrong, message in (
            (lambda: meme_rl.load(self.directory), "is not a run: it has no run.json"),
            (lambda: meme_rl.load("pong"), "pong is not a run: no such directory; a run's directory is like runs/pong"),
            (lambda: meme_rl.load(run, checkpoint=7), "has no checkpoint at 7 frames; it has "),
            (lambda: meme_rl.load(run, checkpoint="first"), "expected best, last or a number of frames"),
            (lambda: meme_rl.load(run, parameters="target"), "expected ema or online parameters"),
            (lambda: meme_rl.load(run, policy=16), "expected a policy from 0 to 15, got 16"),
            (lambda: meme_rl.make(run), "is a built-in task"),
        ):
            with self.assertRaisesRegex(meme_rl.RunError, message):
                wrong()
        config = meme_rl.load(run).checkpoint.config
        stacked = config | {"env": config["env"] | {"frame_stack": 4}}
        with self.assertRaisesRegex(meme_rl.RunError, "env.frame_stack is 4; meme_rl only plays agents with 1"):
            check_supported(stacked, run)
        old = config | {"agent": {}}
        with self.assertRaisesRegex(meme_rl.RunError, "its config lacks agent.policies.beta_slope"):
            check_supported(old, run)
        with self.assertRaisesRegex(ValueError, r"expected an observation of shape \(10, 10\)"):
            meme_rl.load(run).act(torch.zeros(3, 3))


if __name__ == "__main__":
    unittest.main()
