"""What stepping a game costs without a worker: a plain ale-py loop with the same preprocessing.

    python bare_loop.py GAME [--environments 8] [--steps 2000] [--sticky 0] [--minimal-actions] [--seed 0]

plays random actions and prints a line of JSON: agent steps, frames, CPU and wall-clock seconds. With `--steps 0` it
reads numbers of steps from standard input, a line each, plays on by so many and prints a line for each, so that it can
take turns with what it is measured against. It shares no code with the worker.
"""

import argparse
import json
import random
import sys
import time

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("game")
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2000, help="agent steps of each environment")
    parser.add_argument("--sticky", type=float, default=0.0)
    parser.add_argument("--minimal-actions", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    ALEInterface.setLoggerMode(LoggerMode.Error)
    games = []
    for _ in range(arguments.environments):
        ale = ALEInterface()
        ale.setFloat("repeat_action_probability", arguments.sticky)
        ale.setInt("random_seed", arguments.seed)
        ale.loadROM(roms.get_rom_path(arguments.game))
        games.append(ale)
    actions = [action.value for action in games[0].getMinimalActionSet()] if arguments.minimal_actions else range(18)
    rng = random.Random(arguments.seed)
    shape = games[0].getScreenDims()
    observations = np.zeros((len(games), *shape), np.uint8)
    before_last = np.zeros(shape, np.uint8)

    def begin(ale, observation):
        ale.reset_game()
        noops = rng.randint(1, 30)
        for _ in range(noops):
            ale.act(0)
        ale.getScreenGrayscale(observation)
        return noops

    def play(steps):
        chosen = [rng.choices(actions, k=len(games)) for _ in range(steps)]
        frames = 0
        cpu, wall = time.process_time(), time.perf_counter()
        for row in chosen:
            for ale, observation, action in zip(games, observations, row):
                for frame in range(4):
                    ale.act(action)
                    frames += 1
                    if ale.game_over():
                        frames += begin(ale, observation)
                        break
                    if frame == 2:
                        ale.getScreenGrayscale(before_last)
                else:
                    ale.getScreenGrayscale(observation)
                    np.maximum(observation, before_last, out=observation)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        line = {"game": arguments.game, "steps": steps * len(games), "frames": frames, "cpu_s": cpu, "wall_s": wall}
        print(json.dumps(line), flush=True)

    for ale, observation in zip(games, observations):
        begin(ale, observation)
    if arguments.steps:
        play(arguments.steps)
    else:
        for line in sys.stdin:
            play(int(line))


if __name__ == "__main__":
    main()
