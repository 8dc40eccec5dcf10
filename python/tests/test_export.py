"""Exported agents play as the loaded ones do."""

import json
import tempfile
import unittest
from pathlib import Path

import meme_rl
import numpy as np
import onnxruntime
import torch
from meme_rl.novelty import DistanceMean, EpisodicNovelty, LifelongNovelty
from safetensors import safe_open
from safetensors.torch import load_file

from commands import ended, is_greedy, meme, observations, runs


def play(step, episode, about):
    """Plays an episode's observations through an exported step, with what its metadata say.

    Returns the actions; the last action that the next step sees is the recorded one.
    """
    novelty = json.loads(about["novelty"])
    episodic = EpisodicNovelty(novelty["kernel"], novelty["memory_capacity"], DistanceMean(**novelty["distance_mean"]))
    lifelong = LifelongNovelty(**novelty["rnd"])
    action, rewards, embedding, state = None, np.zeros((1, 4), np.float32), None, None
    actions = []
    parts = [part["name"] for part in json.loads(about["observation"])["parts"]]
    for t, observation in enumerate(observations(episode)):
        given = [x[None].numpy() for x in ([observation[name] for name in parts] or [observation])]
        action, _, _, state, embedding, error = step(given, action, rewards, embedding, state)
        near = episodic.observe(torch.from_numpy(np.array(embedding[0])))
        far = lifelong.multiplier(float(error[0]))
        rewards = np.array([[float(episode["reward"][t]), near * far, far, near]], np.float32)
        actions.append(int(action[0]))
        action = episode["action"][t : t + 1].long().numpy()
    return actions


class Exported(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.directory = runs()
        cls.out = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.out.cleanup)

    def export(self, name, format):
        path = Path(self.out.name) / f"{name}.{format}"
        printed = meme("export", name, "--format", format, "--out", str(path), "--runs", str(self.directory))
        self.assertRegex(printed, rf"wrote {path}: (gym:compass:Compass-v0|{name}) at ")
        return path

    def assert_greedy(self, actions, episode, name):
        self.assertEqual(len(actions), len(episode["action"]))
        for t, action in enumerate(actions):
            self.assertTrue(is_greedy(action, episode, t), f"{name}, step {t}")

    def first(self, name):
        """The inputs of a first step besides the observation."""
        agent = meme_rl.load(self.directory / name)
        state = agent.initial_state(1)
        return state.action.numpy(), state.embedding.numpy(), state.recurrent.numpy()

    def test_onnxruntime_plays_an_episode_with_the_same_actions(self):
        for name in ("catch", "pong", "compass"):
            session = onnxruntime.InferenceSession(self.export(name, "onnx"), providers=["CPUExecutionProvider"])
            about = session.get_modelmeta().custom_metadata_map
            self.assertIn(name, json.loads(about["environment"]))
            zeros = self.first(name)

            def step(observation, action, rewards, embedding, state):
                action, embedding, state = (x if x is not None else y for x, y in zip((action, embedding, state), zeros))
                values = (*observation, action, rewards, embedding, state)
                parts = [f"observation.{part['name']}" for part in json.loads(about["observation"])["parts"]]
                names = [*(parts or ["observation"]), "last_action", "last_rewards", "last_embedding", "state"]
                return session.run(None, dict(zip(names, values, strict=True)))

            episode = load_file(self.directory / f"{name}.safetensors")
            self.assert_greedy(play(step, episode, about), episode, name)

    def test_onnx_takes_any_number_of_environments(self):
        session = onnxruntime.InferenceSession(self.export("catch", "onnx"), providers=["CPUExecutionProvider"])
        agent = meme_rl.load(self.directory / "catch")
        for count in (1, 5):
            state = agent.initial_state(count)
            observation = np.zeros((count, 10, 10), np.uint8)
            given = {"observation": observation, "last_action": state.action.numpy(),
                     "last_rewards": state.rewards.numpy(), "last_embedding": state.embedding.numpy(),
                     "state": state.recurrent.numpy()}  # fmt: skip
            outputs = session.run(["q_values", "next_state"], given)
            self.assertEqual([len(output) for output in outputs], [count, count])

    def test_torchscript_plays_an_episode_with_the_same_actions(self):
        for name in ("catch", "compass"):
            extra = {"metadata.json": ""}
            module = torch.jit.load(str(self.export(name, "torchscript")), _extra_files=extra)
            zeros = self.first(name)

            def step(observation, action, rewards, embedding, state):
                remembered = zip((action, embedding, state), zeros)
                action, embedding, state = (x if x is not None else y for x, y in remembered)
                parts = tuple(map(torch.as_tensor, observation))
                given = [torch.as_tensor(x) for x in (action, rewards, embedding, state)]
                with torch.no_grad():
                    return [x.numpy() for x in module(parts if len(parts) > 1 else parts[0], *given)]

            episode = load_file(self.directory / f"{name}.safetensors")
            about = json.loads(extra["metadata.json"])
            self.assert_greedy(play(step, episode, about), episode, name)

    def test_safetensors_hold_parameters_and_metadata(self):
        with safe_open(self.export("pong", "safetensors"), "pt") as file:
            about = {name: json.loads(value) for name, value in file.metadata().items()}
            self.assertEqual(set(file.keys()), {name for name, _ in meme_rl.load(self.directory / "pong").named_parameters()})
        self.assertEqual(len(about["action_names"]), 18)
        self.assertEqual(about["preprocessing"]["action_repeat"], 4)
        # 210x160 averaged down to env.max_side = 84.
        self.assertEqual(about["observation"]["shape"], [70, 54])

    def test_says_what_is_wrong(self):
        failed = ended("export", "catch", "--checkpoint", "7", "--runs", str(self.directory))
        self.assertEqual(failed.returncode, 1)
        self.assertRegex(failed.stderr, r"^error: .*catch has no checkpoint at 7 frames; it has \d+\n$")


if __name__ == "__main__":
    unittest.main()
