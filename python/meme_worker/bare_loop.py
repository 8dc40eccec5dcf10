"""A plain ale-py loop with the worker's preprocessing, to measure what a worker adds to the cost of a game.

    python bare_loop.py GAME [--environments 8] [--seed 0]

Each line of standard input is a list of steps, each a list with one action per environment. The loop plays them and
answers with a line of JSON: agent steps, CPU seconds, and the sum of the pixels of each environment. It can therefore
take turns with workers that play the same actions, and be checked against them. It begins episodes like the worker,
from the same seeds, and shares no other code with it.
"""

import argparse
import json
import random
import sys
import time

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from seeding import episode_seed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("game")
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    ALEInterface.setLoggerMode(LoggerMode.Error)
    games = []
    for _ in range(arguments.environments):
        ale = ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("random_seed", 0)
        ale.loadROM(roms.get_rom_path(arguments.game))
        games.append(ale)
    power_on = [ale.cloneState(include_rng=True) for ale in games]
    episodes = [0] * len(games)
    shape = games[0].getScreenDims()
    observations = np.zeros((len(games), *shape), np.uint8)
    before_last = np.zeros(shape, np.uint8)

    def begin(index):
        ale, observation = games[index], observations[index]
        rng = random.Random(episode_seed(arguments.seed, index, episodes[index]))
        episodes[index] += 1
        over = True
        while over:
            ale.restoreState(power_on[index])
            ale.reset_game()
            for _ in range(rng.randint(1, 30)):
                ale.getScreenGrayscale(before_last)
                ale.act(0)
                over = ale.game_over()
                if over:
                    break
        ale.getScreenGrayscale(observation)
        np.maximum(observation, before_last, out=observation)

    def play(steps):
        cpu = time.process_time()
        for actions in steps:
            for index, (ale, observation, action) in enumerate(zip(games, observations, actions)):
                for frame in range(4):
                    ale.act(action)
                    if ale.game_over():
                        begin(index)
                        break
                    if frame == 2:
                        ale.getScreenGrayscale(before_last)
                else:
                    ale.getScreenGrayscale(observation)
                    np.maximum(observation, before_last, out=observation)
        return time.process_time() - cpu

    for index in range(len(games)):
        begin(index)
    for line in sys.stdin:
        steps = json.loads(line)
        cpu = play(steps)
        pixels = [int(observation.sum()) for observation in observations]
        print(json.dumps({"steps": len(steps) * len(games), "cpu_s": cpu, "pixels": pixels}), flush=True)


if __name__ == "__main__":
    main()
